// SPDX-License-Identifier: Apache-2.0
// The package's part of CUDA on the emulated device, which tests look at by the names at the end.
#include "../../../bindings/python/src/core/device/gpu.hpp"

#include <atomic>
#include <cstdint>
#include <new>

#include "../../c_interface/device/emulated_device.hpp"

namespace {

constexpr std::align_val_t alignment{256};
std::atomic<int> blocks = 0;
std::size_t largest = SIZE_MAX;
// Called by a wait, without Python's lock: what a test does then a GPU would do meanwhile.
const char* (*told)(int device, std::uintptr_t stream) = nullptr;

}  // namespace

namespace aft::python::gpu {

bool is_built() {
  return true;
}

std::byte* allocate(int device, std::size_t bytes) {
  if (device < 0 || device >= aft::test::emulated_devices::count) throw failure("cudaErrorInvalidDevice");
  if (bytes > largest) throw std::bad_alloc{};
  ++blocks;
  return static_cast<std::byte*>(::operator new(bytes, alignment));
}

void release(std::byte* memory) noexcept {
  ::operator delete(memory, alignment);
  --blocks;
}

std::string wait(int device, void* stream) {
  const char* const text = told == nullptr ? nullptr : told(device, reinterpret_cast<std::uintptr_t>(stream));
  return text == nullptr ? "" : text;
}

}  // namespace aft::python::gpu

#define EMULATED extern "C" __attribute__((visibility("default")))
EMULATED std::uintptr_t emulated_stream();
EMULATED int emulated_blocks();
EMULATED void emulated_largest_block(std::size_t bytes);
EMULATED void emulated_on_wait(const char* (*function)(int, std::uintptr_t));

/// That of the last call that ran on the device.
std::uintptr_t emulated_stream() {
  return reinterpret_cast<std::uintptr_t>(aft::test::state_of_devices().stream);
}
int emulated_blocks() {
  return blocks;
}
/// Beyond it there is no memory left.
void emulated_largest_block(std::size_t bytes) {
  largest = bytes;
}
void emulated_on_wait(const char* (*function)(int, std::uintptr_t)) {
  told = function;
}
