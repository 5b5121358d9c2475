// SPDX-License-Identifier: Apache-2.0
#include "products.hpp"

#include <aft/cuda/split_mma/forward.cuh>

#include "gemm.cuh"

namespace aft::test {

namespace {

/// The float product by TF32 numbers or halves, as product_test.cpp runs it, on memory of the device.
template <class Operand>
bool product_right(inputs x) {
  const auto on_device = [](const std::vector<float>& from) { return device_vector<float>(from.begin(), from.end()); };
  device_vector<float> k = on_device(x.k), v = on_device(x.v), w = on_device(x.w);
  device_vector<float> out(static_cast<std::size_t>(x.B * x.Tq * x.d), std::nanf(""));
  device_call<float> call = dense_call(x);
  call.k.data = reinterpret_cast<std::byte*>(k.data());
  call.v.data = reinterpret_cast<std::byte*>(v.data());
  call.bias.w.data = reinterpret_cast<std::byte*>(w.data());
  call.average = scratch_tensor(out.data(), call.positions, x.d);
  const columns cols{1, x.B, x.d, false};
  fold_plan rows = plan_fold(cols, 0, x.Tq);
  device_vector<std::uint32_t> flags(static_cast<std::size_t>(rows.flag_words()), 0xffffffffu);
  rows.flags = flags.data();
  pack_plan keys = plan_pack(cols, x.Tk);
  device_vector<packed_tile> tiles(static_cast<std::size_t>(keys.count()));
  keys.tiles = tiles.data();
  const call_stream stream("product", nullptr);
  stream.launch(pack_keys_kernel<Operand>, (keys.count() + pack_warps - 1) / pack_warps, pack_threads, call, keys,
                keys.count());
  const product_plan plan = plan_product(rows, keys);
  stream.launch(product_kernel<Operand>, plan.blocks(), product_threads, call, plan, uniform_sums<key_sum<float>>{});

  const std::vector<std::uint32_t> flag_words = read_back(flags);
  const std::vector<float> averages = read_back(out);
  std::vector<gemm_element> elements;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        const index_t column = b * x.d + c;
        const std::uint32_t word = flag_words[static_cast<std::size_t>(flag_word(rows, t, column / tuning::lanes))];
        elements.push_back(
            {averages[static_cast<std::size_t>((b * x.Tq + t) * x.d + c)], (word >> column % tuning::lanes & 1u) != 0});
      }
  return all_proven(judge_gemm(x, elements), bound(x) * 0x1p-24L);
}

}  // namespace

bool gemm_right_on_warps() {
  return gemm_right<on_warps>();
}

bool split_product_right() {
  const inputs x = inputs::random(1, 1, 1);
  return product_right<tf32_operand>(x) && product_right<half_operand>(x);
}

}  // namespace aft::test
