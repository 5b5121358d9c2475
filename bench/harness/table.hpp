// SPDX-License-Identifier: Apache-2.0
/// @file table.hpp  What a run shows while it goes: a line per race, medians in milliseconds.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace aft_bench {

class table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    // Facts carry a point in their names, contestants do not.
    std::map<std::string, std::vector<double>> samples;
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration) continue;
      if (run.error_occurred) std::printf("%s: %s\n", run.benchmark_name().c_str(), run.error_message.c_str());
      for (const auto& [name, counter] : run.counters) {
        if (name.find('.') == std::string::npos) samples[name].push_back(counter.value);
      }
    }
    if (samples.empty()) return;
    std::printf("%-44s", runs.front().run_name.function_name.c_str());
    for (auto& [name, x] : samples) {
      std::sort(x.begin(), x.end());
      std::printf("  %s %.4g", name.c_str(), 1e3 * x[x.size() / 2]);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
};

}  // namespace aft_bench
