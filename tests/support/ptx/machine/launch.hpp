// SPDX-License-Identifier: Apache-2.0
/// @file launch.hpp  Translated kernels by their names, and how one is launched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace aft::ptx {

struct parameter_place {
  std::size_t at, bytes;
};

/// Translated files have one for each entry.
struct kernel_entry {
  kernel_entry(const char* name, const char* architecture, void (*body)(), std::vector<parameter_place> parameters,
               std::size_t shared_bytes, bool takes_shared, int threads);

  const char* name;
  const char* architecture;
  void (*body)();  ///< of one thread
  std::vector<parameter_place> parameters;
  std::size_t shared_bytes;  ///< of its own
  bool takes_shared;         ///< more, as the launch says
  int threads;               ///< of a block, at most
};

/// The architecture whose kernels run from here on: sm_80 or sm_90a.
void use_architecture(const std::string& name);
const std::string& used_architecture();
/// Null where nothing has been translated for the architecture.
const kernel_entry* find_kernel(const std::string& name);

/// And for each fault that the translator was given.
struct fault_entry {
  fault_entry(int number, const char* architecture, const char* name);

  int number;
  std::string name;
};
/// Of the architecture that is used.
const std::vector<fault_entry>& known_faults();

/// Which of the faults that the translator was given runs from here on; 0: none.
void plant(int number);
extern int planted_fault;
/// How often a planted fault has been run: one that nothing reaches is not to be taken for one that does nothing.
extern long faults_run;
inline bool planted(int number) {
  if (planted_fault != number) return false;
  ++faults_run;
  return true;
}

/// Throws aft::emulator::kernel_error, as everything here does that no device would forgive.
void launch(const kernel_entry& kernel, std::int64_t blocks, int threads, void** arguments, std::size_t shared_bytes);
std::uint32_t threads_of_block();
[[noreturn]] void fail_at(int line, const std::string& what);
/// Of the kernel that runs, with its line, as the emulator has places.
const char* running_kernel();

}  // namespace aft::ptx
