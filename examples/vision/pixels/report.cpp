// SPDX-License-Identifier: Apache-2.0

#include "vision/pixels/report.hpp"

#include "common/report/results_file.hpp"

#include <nlohmann/json.hpp>

namespace examples::vision {

void print_table(std::FILE* out, const std::vector<pixels_result>& results) {
  std::fprintf(out, "%-10s %12s %11s %14s %14s %12s %10s %12s\n", "mixer", "parameters", "bits/pixel", "mixer ms/step",
               "whole ms/step", "peak memory", "pixels/s", "state");
  for (const pixels_result& r : results)
    std::fprintf(out, "%-10s %12lld %11.3f %14.1f %14.1f %9.0f MB %10.0f %9.0f kB\n",
                 std::string(name_of(r.settings.shape.mixer)).c_str(), static_cast<long long>(r.parameters),
                 r.held_out_bits, r.mixer_milliseconds, r.step_milliseconds, static_cast<double>(r.peak_bytes) / 1e6,
                 r.pixels_per_second, static_cast<double>(r.state_bytes) / 1e3);
}

void write_json(const std::filesystem::path& file, const std::vector<pixels_result>& results,
                const pixels_setting& setting, const image_set& data) {
  nlohmann::json json;
  json["task"] = "pixels";
  json["data"] = printable(setting.data_name);
  json["training_images"] = data.training().count;
  json["test_images"] = data.test().count;
  json["size"] = {data.test().rows, data.test().columns};
  json["threads"] = setting.threads;
  json["given_rows"] = setting.given;
  json["originals"] = setting.originals;
  for (const pixels_result& r : results) {
    const byte_lm::model_shape& m = r.settings.shape;
    nlohmann::json one = {
        {"mixer", name_of(m.mixer)},
        {"dim", m.channels},
        {"layers", m.layers},
        {"heads", m.heads},
        {"window", m.window},
        {"bias_rank", m.bias_rank},
        {"parameters", r.parameters},
        {"test_bits", r.held_out_bits},
        {"mixer_ms", r.mixer_milliseconds},
        {"step_ms", r.step_milliseconds},
        {"peak_bytes", r.peak_bytes},
        {"pixels_per_second", r.pixels_per_second},
        {"stream_us", 1e6 * r.decoding.stream},
        {"recompute_us", 1e6 * r.decoding.recompute},
        {"state_bytes", r.state_bytes},
        {"continued", r.continued},
    };
    add_training(one, r.settings, r.past);
    json["results"].push_back(std::move(one));
  }
  write_results(file, std::move(json));
}

}  // namespace examples::vision
