// SPDX-License-Identifier: Apache-2.0
#include "launch.hpp"

#include <device_emulator.hpp>

#include <cstring>
#include <map>
#include <utility>

#include "spaces.hpp"
#include "together.hpp"

namespace aft::ptx {

namespace {

using key = std::pair<std::string, std::string>;

std::map<key, const kernel_entry*>& table() {
  static std::map<key, const kernel_entry*> all;
  return all;
}

std::map<std::string, std::vector<fault_entry>>& fault_table() {
  static std::map<std::string, std::vector<fault_entry>> all;
  return all;
}

std::string architecture = "sm_80";
const kernel_entry* running = nullptr;
int block_threads = 0;

}  // namespace

int planted_fault = 0;
long faults_run = 0;

void plant(int number) {
  planted_fault = number;
  faults_run = 0;
}

kernel_entry::kernel_entry(const char* name_, const char* architecture_, void (*body_)(),
                           std::vector<parameter_place> parameters_, std::size_t shared_bytes_, bool takes_shared_,
                           int threads_)
    : name(name_),
      architecture(architecture_),
      body(body_),
      parameters(std::move(parameters_)),
      shared_bytes(shared_bytes_),
      takes_shared(takes_shared_),
      threads(threads_) {
  table()[{architecture, name}] = this;
}

fault_entry::fault_entry(int number_, const char* architecture_, const char* name_) : number(number_), name(name_) {
  fault_table()[architecture_].push_back(*this);
}
const std::vector<fault_entry>& known_faults() {
  return fault_table()[architecture];
}

void use_architecture(const std::string& name) {
  architecture = name;
}
const std::string& used_architecture() {
  return architecture;
}

const kernel_entry* find_kernel(const std::string& name) {
  const auto found = table().find({architecture, name});
  return found == table().end() ? nullptr : found->second;
}

void launch(const kernel_entry& kernel, std::int64_t blocks, int threads, void** arguments, std::size_t shared_bytes) {
  if (!kernel.takes_shared && shared_bytes != 0) throw emulator::kernel_error("shared memory that no kernel asks for");
  std::size_t bytes = 0;
  for (const parameter_place& p : kernel.parameters) bytes = p.at + p.bytes;
  std::vector<unsigned char> values(bytes);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(values.data() + kernel.parameters[i].at, arguments[i], kernel.parameters[i].bytes);
  running = &kernel;
  block_threads = threads;
  forget_block();
  parameters::use(values.data(), bytes);
  const std::size_t shared = kernel.shared_bytes + shared_bytes;
  try {
    emulator::run(
        blocks, threads,
        [&] {
          begin_thread(shared);
          kernel.body();
        },
        shared);
  } catch (const emulator::kernel_error& error) {
    throw emulator::kernel_error(std::string(kernel.name) + " (" + kernel.architecture + "): " + error.what());
  }
}

std::uint32_t threads_of_block() {
  return static_cast<std::uint32_t>(block_threads);
}

const char* running_kernel() {
  return running == nullptr ? "no kernel" : running->name;
}

void fail_at(int line, const std::string& what) {
  throw emulator::kernel_error("line " + std::to_string(line) + " of the PTX: " + what);
}

}  // namespace aft::ptx
