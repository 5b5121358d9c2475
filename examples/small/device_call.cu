// SPDX-License-Identifier: Apache-2.0
//
// A call on a GPU: views of device memory, a stream, an asynchronous call.

#include <aft/aft.hpp>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::exit(1);
}

float* copy_to_device(const std::vector<float>& host) {
  float* device = nullptr;
  check(cudaMalloc(&device, host.size() * sizeof(float)));
  check(cudaMemcpy(device, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
  return device;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU\n");
    return 77;  // what ctest takes for a skipped test
  }
  // Equal keys and no bias: a causal average is the mean of what came before, and q = 0 halves it.
  const aft::index_t B = 2, T = 300, d = 64;
  std::vector<float> zeros(static_cast<std::size_t>(B * T * d)), values(zeros.size()), y(zeros.size());
  const std::vector<float> w(static_cast<std::size_t>(T * T));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i / d % T);

  // The space is part of a view's type: a host view in this call would not compile.
  float* const device_zeros = copy_to_device(zeros);
  float* const device_values = copy_to_device(values);
  float* const device_w = copy_to_device(w);
  float* const device_y = copy_to_device(y);
  using aft::device_space;
  const aft::tensor_view<const float, 3, device_space> qk{device_zeros, {B, T, d}}, v{device_values, {B, T, d}};
  const aft::tensor_view<float, 3, device_space> device_out{device_y, {B, T, d}};
  const aft::dense_bias bias{aft::tensor_view<const float, 2, device_space>{device_w, {T, T}}};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  aft::full(aft::cuda{stream}, qk, qk, v, bias, device_out, aft::options{.causal = true});
  check(cudaMemcpyAsync(y.data(), device_y, y.size() * sizeof(float), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));

  // The mean of 0 to t is t/2. What a call promises is 8 units in the last place of the largest value, 2^-15 each here,
  // and three times the error of a plain loop, which is smaller.
  float worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    worst = std::fmax(worst, std::fabs(y[i] - static_cast<float>(i / d % T) / 4));
  }
  const bool right = worst < 16 * 0x1p-15F;
  std::printf("the device's averages are %s\n", right ? "right" : "wrong");
  for (float* p : {device_zeros, device_values, device_w, device_y}) check(cudaFree(p));
  check(cudaStreamDestroy(stream));
  return right ? 0 : 1;
}
