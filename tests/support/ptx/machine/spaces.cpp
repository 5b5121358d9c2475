// SPDX-License-Identifier: Apache-2.0
#include "spaces.hpp"

#include <map>

#include "together.hpp"

namespace aft::ptx {

namespace {

/// End of each allocation by its begin.
std::map<std::uint64_t, std::uint64_t>& allocations() {
  static std::map<std::uint64_t, std::uint64_t> all;
  return all;
}

std::uint64_t number(const void* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

}  // namespace

std::uint64_t global_memory::first = 1;
std::uint64_t global_memory::last = 0;
const unsigned char* parameters::values = nullptr;
std::size_t parameters::size = 0;

void global_memory::add(const void* p, std::size_t bytes) {
  allocations()[number(p)] = number(p) + bytes;
}

bool global_memory::remove(const void* p) {
  first = 1;
  last = 0;
  return allocations().erase(number(p)) == 1;
}

bool global_memory::holds(const void* p) {
  const auto after = allocations().upper_bound(number(p));
  return after != allocations().begin() && number(p) < std::prev(after)->second;
}

void global_memory::find(std::uint64_t address, std::size_t bytes, int line) {
  const auto after = allocations().upper_bound(address);
  if (after == allocations().begin() || address + bytes > std::prev(after)->second)
    fail_at(line, "an access outside of all device memory");
  first = std::prev(after)->first;
  last = std::prev(after)->second;
}

unsigned char* shared_memory::range(std::uint64_t address, std::size_t bytes, int line) {
  const std::size_t size = shared_bytes();
  const std::uint64_t offset = address - first;
  if (offset > size || size - offset < bytes) fail_at(line, "an access outside of the block's shared memory");
  return shared_storage() + offset;
}

unsigned char* shared_memory::at(std::uint64_t address, std::size_t bytes, int line) {
  unsigned char* const p = range(address, bytes, line);
  note_write(static_cast<std::size_t>(address - first), bytes);
  return p;
}

void parameters::use(const unsigned char* p, std::size_t bytes) {
  values = p;
  size = bytes;
}

}  // namespace aft::ptx
