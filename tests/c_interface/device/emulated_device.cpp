// SPDX-License-Identifier: Apache-2.0
// A machine with two GPUs, as far as the C interface can tell: kernels run on the emulator, in plain memory.
#include "emulated_device.hpp"

#include <device_emulator.hpp>

#include <c_interface/device.hpp>

#include <cstring>

#include "../call_memory.h"

namespace aft::test {

namespace {
emulated_devices devices;
}  // namespace

emulated_devices& state_of_devices() {
  return devices;
}

}  // namespace aft::test

namespace aft::c_interface {

device_scope::device_scope(const char* op, const place& where) {
  using aft::test::devices;
  if (where.device >= aft::test::emulated_devices::count)
    throw device_error(std::string(op) + ": cudaErrorInvalidDevice (invalid device ordinal)");
  devices.asked = where.device;
  devices.stream = where.stream;
  before_ = devices.current;
  if (where.device != place::any_device) devices.current = where.device;
}

device_scope::~device_scope() {
  aft::test::devices.current = before_;
}

}  // namespace aft::c_interface

void* take_memory(std::size_t bytes) {
  return aft::emulator::allocate(bytes);
}
void write_memory(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void read_memory(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void* stream_of_calls() {
  return &aft::test::devices;
}
