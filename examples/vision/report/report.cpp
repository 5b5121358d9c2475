// SPDX-License-Identifier: Apache-2.0

#include "vision/report/report.hpp"

#include "common/report/results_file.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace examples::vision {

void print_table(std::FILE* out, const std::vector<result>& results) {
  std::fprintf(out, "%-10s %12s %10s %12s %14s %14s %12s\n", "mixer", "parameters", "accuracy", "bits/image",
               "mixer ms/step", "whole ms/step", "peak memory");
  for (const result& r : results)
    std::fprintf(out, "%-10s %12lld %8.2f %% %12.3f %14.1f %14.1f %9.0f MB\n",
                 std::string(name_of(r.settings.shape.mixer)).c_str(), static_cast<long long>(r.parameters),
                 100 * r.accuracy(), r.tested.bits, r.mixer_milliseconds, r.step_milliseconds,
                 static_cast<double>(r.peak_bytes) / 1e6);
  for (const result& r : results)
    for (const rescaled& other : r.others)
      std::fprintf(out, "%s on a grid of %lld x %lld: %.2f %%\n", std::string(name_of(r.settings.shape.mixer)).c_str(),
                   static_cast<long long>(other.side), static_cast<long long>(other.side),
                   100 * r.accuracy_of(other.tested));
}

void write_json(const std::filesystem::path& file, const std::vector<result>& results, const std::string& data_name,
                const image_set& data, int threads) {
  nlohmann::json json;
  json["task"] = "classify";
  json["data"] = printable(data_name);
  json["training_images"] = data.training().count;
  json["test_images"] = data.test().count;
  json["threads"] = threads;
  for (const result& r : results) {
    const classifier_shape& m = r.settings.shape;
    nlohmann::json one = {
        {"mixer", name_of(m.mixer)},
        {"grid", {m.grid().rows, m.grid().columns}},
        {"patch", m.patch},
        {"dim", m.channels},
        {"layers", m.layers},
        {"heads", m.heads},
        {"window", m.window},
        {"bias_rank", m.bias_rank},
        {"classes", m.classes},
        {"naive_filter", m.filter.naive},
        {"gated", m.filter.gated},
        {"connected", m.filter.connected},
        {"one_tap", m.filter.one_tap},
        {"matrix_learning_rate", r.settings.matrix_rate},
        {"filter_entropy", m.filter.entropy},
        {"filter_gain", m.filter.gain},
        {"begun_with", printable(r.begun_with)},
        {"parameters", r.parameters},
        {"accuracy", r.accuracy()},
        {"test_bits", r.tested.bits},
        {"confusion", r.tested.confusion},
        {"mixer_ms", r.mixer_milliseconds},
        {"step_ms", r.step_milliseconds},
        {"peak_bytes", r.peak_bytes},
    };
    add_training(one, r.settings, r.past);
    for (const rescaled& other : r.others)
      one["other_grids"].push_back({{"grid", {other.side, other.side}},
                                    {"accuracy", r.accuracy_of(other.tested)},
                                    {"test_bits", other.tested.bits}});
    for (const result::bias& b : r.biases) one["biases"].push_back({{"shape", b.shape}, {"values", b.values}});
    for (const looked_at& look : r.looks) {
      nlohmann::json layers = nlohmann::json::array();
      for (const std::vector<float>& weights : look.layers) {
        // Percent: what a picture shows.
        std::vector<int> percent;
        for (const float w : weights) percent.push_back(static_cast<int>(std::lround(100 * w)));
        layers.push_back(std::move(percent));
      }
      one["keys"].push_back({{"label", look.label}, {"pixels", look.pixels}, {"layers", std::move(layers)}});
    }
    json["results"].push_back(std::move(one));
  }
  write_results(file, std::move(json));
}

}  // namespace examples::vision
