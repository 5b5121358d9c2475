// SPDX-License-Identifier: Apache-2.0
// Says what the first GPU is: architecture|name|newest CUDA of the driver|runtime|multiprocessors|devices. As it is
// C++20 for both compilers, it also says whether they work together. Exits with 77 where there is no GPU.
#include <cuda_runtime_api.h>

#include <concepts>
#include <cstdio>

template <std::integral T>
__global__ void store(T* to, T value) {
  *to = value;
}

int main() {
  (void)store<int>;  // compiled, not called: a card is looked at by the stages
  int devices = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: %s\n", cudaGetErrorString(status));
    return 77;
  }
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return 1;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::printf("%d%d|%s|%d.%d|%d.%d|%d|%d\n", device.major, device.minor, device.name, driver / 1000, driver % 1000 / 10,
              runtime / 1000, runtime % 1000 / 10, device.multiProcessorCount, devices);
}
