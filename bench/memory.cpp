// SPDX-License-Identifier: Apache-2.0
// memory <call> <T> <threads>: the bytes that one call of growth.hpp takes at its peak, beyond its inputs and outputs,
// as the kernel counts the process's pages. A process per figure: what an allocator keeps from before would hide it.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "races/growth.hpp"

namespace {

/// A line of /proc/self/status, in bytes.
long status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key + ":")) return 1024 * std::stol(line.substr(key.size() + 1));
  }
  throw std::runtime_error("no " + key + " in /proc/self/status");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "memory <full|factorized|local32|simple> <T> <threads>\n");
    return 2;
  }
  try {
    const aft::cpu exec{.threads = std::stoi(argv[3])};
    // Code pages and threads are there before.
    aft_bench::growth_call(argv[1], 64).run(exec);
    aft_bench::growth_call call(argv[1], std::stol(argv[2]));
    // 5: the peak starts again from here.
    std::ofstream("/proc/self/clear_refs") << "5";
    const long before = status("VmRSS");
    call.run(exec);
    std::printf("%ld\n", status("VmHWM") - before);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
