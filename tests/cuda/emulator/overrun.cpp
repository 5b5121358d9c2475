// SPDX-License-Identifier: Apache-2.0
// One mistake that the sanitizers must end the program for, named by the argument.
#include <aft/cuda/device/device.cuh>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

using aft::cuda_impl::shared;
using aft::cuda_impl::thread_index;

struct buffers {
  float first[32];
  float last[32];
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const bool behind = std::strcmp(arguments[1], "behind") == 0;  // the end of the block's shared memory
  const bool member = std::strcmp(arguments[1], "member") == 0;  // the end of an array inside of it
  const bool device = std::strcmp(arguments[1], "device") == 0;  // the end of device memory
  const bool copied = std::strcmp(arguments[1], "copied") == 0;  // the same, by an asynchronous copy
  auto* const memory = static_cast<float*>(aft::emulator::allocate(32 * sizeof(float)));
  aft::emulator::run(1, 32, [&] {
    const int i = thread_index();
    buffers& tile = shared<buffers>();
    float* const last = tile.last;
    if (behind) last[i + 1] = 1.0f;
    if (member) tile.first[i + 1] = 1.0f;
    if (device) memory[i + 1] = 1.0f;
    if (copied && i == 0) aft::emulator::copy_async(tile.first, memory + 32);
  });
  aft::emulator::release(memory, 32 * sizeof(float));
  std::puts("nobody saw it");
  return 0;
}
