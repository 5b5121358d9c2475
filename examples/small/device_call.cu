// SPDX-License-Identifier: Apache-2.0
//
// The same call on the host and on a GPU: views of device memory, a stream, an asynchronous call.

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
  const aft::index_t B = 2, T = 300, d = 64;
  std::vector<float> x(static_cast<std::size_t>(B * T * d)), y(x.size()), expected(x.size());
  std::vector<float> w(static_cast<std::size_t>(T * T));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.1F * static_cast<float>(i));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(0.3F * static_cast<float>(i));

  const aft::tensor_view<const float, 3> host{x.data(), {B, T, d}};
  const aft::tensor_view<float, 3> out{expected.data(), {B, T, d}};
  aft::full(host, host, host, aft::dense_bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}}, out,
            aft::options{.causal = true});

  // The space is part of a view's type: a host view in this call would not compile.
  float* const device_x = copy_to_device(x);
  float* const device_w = copy_to_device(w);
  float* const device_y = copy_to_device(y);
  using aft::device_space;
  const aft::tensor_view<const float, 3, device_space> in{device_x, {B, T, d}};
  const aft::tensor_view<float, 3, device_space> device_out{device_y, {B, T, d}};
  const aft::dense_bias bias{aft::tensor_view<const float, 2, device_space>{device_w, {T, T}}};
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  aft::full(aft::cuda{stream}, in, in, in, bias, device_out, aft::options{.causal = true});
  check(cudaMemcpyAsync(y.data(), device_y, y.size() * sizeof(float), cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));

  float worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) worst = std::fmax(worst, std::fabs(y[i] - expected[i]));
  // Values are below 1: 16 units in the last place of 1 leave room for both sides' rounding.
  std::printf("device and host %s\n", worst < 16 * 6e-8F ? "agree" : "differ");
  for (float* p : {device_x, device_w, device_y}) check(cudaFree(p));
  check(cudaStreamDestroy(stream));
  return worst < 16 * 6e-8F ? 0 : 1;
}
