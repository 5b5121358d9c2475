// SPDX-License-Identifier: Apache-2.0
// Device memory of the emulator: plain heap, so that AddressSanitizer watches its ends.
#include "device_emulator.hpp"

#include <algorithm>

namespace aft::emulator {

namespace {
thread_local memory_statistics statistics;
thread_local long failing_allocation = -1;
thread_local long failing_launch = -1;
thread_local bool captures = false;
}  // namespace

memory_statistics& memory() {
  return statistics;
}

void fail_allocation(long nth) {
  failing_allocation = nth < 0 ? -1 : statistics.allocations + nth;
}
void fail_launch(long nth) {
  failing_launch = nth < 0 ? -1 : statistics.launches + nth;
}
bool launch_fails(void* stream) {
  statistics.stream = stream;
  return statistics.launches++ == failing_launch;
}

void capture(bool on) {
  captures = on;
}
bool capturing() {
  return captures;
}
void wait() {
  ++statistics.waits;
}

void* allocate(std::size_t bytes) {
  if (statistics.allocations++ == failing_allocation) return nullptr;
  void* const p = ::operator new (bytes, std::align_val_t{256});
  fill_poison(p, bytes);
  statistics.in_use += bytes;
  statistics.peak = std::max(statistics.peak, statistics.in_use);
  return p;
}

void release(void* p, std::size_t bytes) {
  statistics.in_use -= bytes;
  ::operator delete (p, std::align_val_t{256});
}

}  // namespace aft::emulator
