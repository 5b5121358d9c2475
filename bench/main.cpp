// SPDX-License-Identifier: Apache-2.0
// Races the operators against the machine's ceilings and against their peers. Options of its own:
//   --threads=N   of every contestant (default: OpenMP's)
//   --rounds=N    of every race at most (default: what each race asks for)
//   --peers=CMD   shell command of the process that runs the peers (default: none take part)
// and those of the harness: --benchmark_filter=<regex>, --benchmark_out=<file>, --benchmark_list_tests, ...
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "harness/peers.hpp"
#include "races/races.hpp"
#include "harness/table.hpp"

namespace {

bool number(std::string_view argument, std::string_view option, int& value) {
  if (!argument.starts_with(option)) return false;
  value = std::stoi(std::string(argument.substr(option.size())));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  aft_bench::settings& settings = aft_bench::run_settings();
  const std::string_view peers_option = "--peers=";
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (number(argv[i], "--threads=", settings.threads) || number(argv[i], "--rounds=", settings.rounds)) continue;
    if (std::string_view(argv[i]).starts_with(peers_option)) {
      settings.peers = argv[i] + peers_option.size();
      continue;
    }
    argv[kept++] = argv[i];
  }
  argc = kept;
  if (settings.threads <= 0) settings.threads = omp_get_max_threads();

  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("threads", std::to_string(settings.threads));
  benchmark::AddCustomContext("compiler", AFT_BENCH_COMPILER);
  benchmark::AddCustomContext("flags", AFT_BENCH_FLAGS);
  benchmark::AddCustomContext("onednn", aft_bench::library_version());
  benchmark::AddCustomContext("peers", aft_bench::peers::present() ? aft_bench::peers::version() : "none");

  aft_bench::add_full();
  aft_bench::add_full_backward();
  aft_bench::add_local();
  aft_bench::add_training();
  aft_bench::add_simple();
  aft_bench::add_conv();
  aft_bench::add_small_calls();
  aft_bench::add_threads();
  aft_bench::add_packed();
  aft_bench::add_streams();
  aft_bench::add_growth();

  aft_bench::table display;
  benchmark::RunSpecifiedBenchmarks(&display);
  benchmark::Shutdown();
}
