// SPDX-License-Identifier: Apache-2.0

#include "char_lm/report/report.hpp"

#include "common/report/results_file.hpp"

#include <nlohmann/json.hpp>

namespace examples::char_lm {

void print_table(std::FILE* out, const std::vector<result>& results) {
  std::fprintf(out, "%-10s %12s %10s %14s %14s %12s %10s %12s\n", "mixer", "parameters", "bits/char", "mixer ms/step",
               "whole ms/step", "peak memory", "chars/s", "state");
  for (const result& r : results) {
    std::fprintf(out, "%-10s %12lld %10.3f %14.1f %14.1f %9.0f MB",
                 std::string(name_of(r.settings.shape.mixer)).c_str(), static_cast<long long>(r.parameters),
                 r.held_out_bits, r.mixer_milliseconds, r.step_milliseconds, static_cast<double>(r.peak_bytes) / 1e6);
    if (r.written.empty())
      std::fprintf(out, " %10s %12s\n", "-", "-");
    else
      std::fprintf(out, " %10.0f %9.0f kB\n", r.characters_per_second, static_cast<double>(r.state_bytes) / 1e3);
  }
}

void write_json(const std::filesystem::path& file, const std::vector<result>& results, const std::string& text_name,
                int threads, double order1_bits) {
  nlohmann::json json;
  json["text"] = printable(text_name);
  json["threads"] = threads;
  json["order1_bits"] = order1_bits;
  for (const result& r : results) {
    nlohmann::json one = {
        {"mixer", name_of(r.settings.shape.mixer)},
        {"context", r.settings.shape.context},
        {"dim", r.settings.shape.channels},
        {"layers", r.settings.shape.layers},
        {"heads", r.settings.shape.heads},
        {"window", r.settings.shape.window},
        {"bias_rank", r.settings.shape.bias_rank},
        {"parameters", r.parameters},
        {"held_out_bits", r.held_out_bits},
        {"mixer_ms", r.mixer_milliseconds},
        {"step_ms", r.step_milliseconds},
        {"peak_bytes", r.peak_bytes},
        {"text", printable(r.written)},
    };
    add_training(one, r.settings, r.past);
    // Without writing nothing was measured.
    if (!r.written.empty()) {
      one["characters_per_second"] = r.characters_per_second;
      one["stream_us"] = 1e6 * r.decoding.stream;
      one["recompute_us"] = 1e6 * r.decoding.recompute;
      one["state_bytes"] = r.state_bytes;
      one["characters"] = r.written.size();
    }
    for (const training::traffic& t : r.received) {
      one["received_in_calls"].push_back(t.calls);
      one["received_in_sums"].push_back(t.sums);
    }
    for (const result::bias& b : r.biases) one["biases"].push_back({{"shape", b.shape}, {"values", b.values}});
    json["results"].push_back(std::move(one));
  }
  write_results(file, std::move(json));
}

}  // namespace examples::char_lm
