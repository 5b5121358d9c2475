// SPDX-License-Identifier: Apache-2.0
/// @file calls.cpp  The calls that two commits are compared by, as a library that one program can load twice.
#include <aft/aft.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace {

using aft::index_t;

struct named_call {
  std::string name;
  std::function<void()> call;
};

std::vector<named_call>& calls() {
  static std::vector<named_call> all;
  return all;
}

/// The program's memory for a tensor, by its number: see `block` in turns.cpp.
using memory_of = void* (*)(int block, std::size_t bytes);
memory_of block_of = nullptr;
int tensors = 0;

/// A tensor of numbers in [-1, 1], where the other library has the same.
template <class T, std::size_t R>
aft::tensor_view<T, R> tensor(const std::array<index_t, R>& sizes) {
  static std::uint32_t state = 1;
  std::size_t count = 1;
  for (const index_t size : sizes) count *= static_cast<std::size_t>(size);
  T* const x = static_cast<T*>(block_of(tensors++, count * sizeof(T)));
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = static_cast<T>(static_cast<float>(state >> 21) / 1024 - 1);
  }
  return {x, sizes};
}

template <class T>
void add(const std::string& shape, index_t B, index_t T_, index_t d, aft::cpu cpu) {
  using W = aft::compute_t<T>;
  const auto sequence = [&] { return tensor<T, 3>({B, T_, d}); };
  const auto q = sequence(), k = sequence(), v = sequence(), y = sequence(), dq = sequence(), dk = sequence(),
             dv = sequence();
  const aft::dense_bias w{tensor<W, 2>({T_, T_})}, dw{tensor<W, 2>({T_, T_})};
  const index_t heads = d % 16 == 0 ? 16 : 1;
  const auto r = tensor<W, 2>({heads, 11}), dr = tensor<W, 2>({heads, 11});
  const aft::window window = aft::window::strict(32);
  for (const bool causal : {false, true}) {
    const aft::options options{.causal = causal};
    const auto named = [&](const char* call) { return shape + " " + call + (causal ? " causal" : ""); };
    calls().push_back({named("full"), [=] { aft::full(cpu, q, k, v, w, y, options); }});
    calls().push_back({named("local"), [=] { aft::local(cpu, q, k, v, w, window, y, options); }});
    calls().push_back({named("simple"), [=] { aft::simple(cpu, q, k, v, y, options); }});
    calls().push_back({named("conv"), [=] { aft::conv(cpu, q, k, v, r, y, options); }});
    calls().push_back(
        {named("full_backward"), [=] { aft::full_backward(cpu, q, k, v, w, y, dq, dk, dv, dw, options); }});
    calls().push_back(
        {named("local_backward"), [=] { aft::local_backward(cpu, q, k, v, w, window, y, dq, dk, dv, dw, options); }});
    calls().push_back({named("simple_backward"), [=] { aft::simple_backward(cpu, q, k, v, y, dq, dk, dv, options); }});
    calls().push_back(
        {named("conv_backward"), [=] { aft::conv_backward(cpu, q, k, v, r, y, dq, dk, dv, dr, options); }});
  }
}

}  // namespace

/// The number of calls.
extern "C" int turns_setup(int threads, memory_of memory) {
  block_of = memory;
  const aft::cpu cpu{threads};
  add<float>("1x1x8", 1, 1, 8, cpu);
  add<float>("1x16x64", 1, 16, 64, cpu);
  add<float>("2x64x64", 2, 64, 64, cpu);
  add<float>("2x1024x256", 2, 1024, 256, cpu);
  add<float>("8x197x384", 8, 197, 384, cpu);
  add<float>("1x4096x128", 1, 4096, 128, cpu);
  add<aft::bfloat16>("4x512x256 bfloat16", 4, 512, 256, cpu);
  add<double>("2x512x128 double", 2, 512, 128, cpu);
  return static_cast<int>(calls().size());
}
extern "C" const char* turns_name(int i) {
  return calls()[static_cast<std::size_t>(i)].name.c_str();
}
extern "C" void turns_call(int i, int times) {
  while (times-- > 0) calls()[static_cast<std::size_t>(i)].call();
}
