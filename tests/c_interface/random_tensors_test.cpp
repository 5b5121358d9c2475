// SPDX-License-Identifier: Apache-2.0
// Descriptions spoiled at random: whatever comes, an answer, and no effect besides it.
#include <doctest/doctest.h>

#include "dlpack_tensor.hpp"

#include <random>
#include <string>

namespace {

using aft::test::c_tensor;

constexpr std::int64_t B = 2, T = 6, d = 4, hk = 2, H = 2;
constexpr float untouched = 42.0F;

/// The tensors of aft_local and of its gradients, each at 64 elements of its own and more, within the block.
struct tensors {
  std::vector<float> memory = std::vector<float>(4000, 0.25F), written = std::vector<float>(4000, untouched);
  c_tensor all[11] = {at(0, {B, T, d}),       at(1, {B, T, hk}),      at(2, {B, T, d}),       at(3, {H, T, T}),
                      at(4, {B, T, d}),       at(0, {B, T, d}, true), at(1, {B, T, d}, true), at(2, {B, T, hk}, true),
                      at(3, {B, T, d}, true), at(4, {H, T, T}, true), at(5, {B, T, hk}, true)};

  c_tensor at(int place, const std::vector<std::int64_t>& shape, bool output = false) {
    std::vector<float>& block = output ? written : memory;
    c_tensor t(aft::tensor_view<float, 1>{block.data() + 200 * place, {0}});
    t.shape = t.strides = shape;
    std::int64_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) t.strides[i] = step;
    t.value.ndim = static_cast<std::int32_t>(shape.size());
    // A number of axes that is too large has extents behind it: that they exist is the caller's word.
    t.shape.resize(aft::any_view::max_rank, 1);
    t.strides.resize(aft::any_view::max_rank, 1);
    return t;
  }
  const aft_tensor* get(int i) { return all[i].get(); }
};

/// Numbers that descriptions go wrong by. No extent among them fits into a call whose other tensors are as they were.
constexpr std::int64_t odd[] = {-1, 0, 1, 3, 5, 7, 1 << 20, INT64_MAX, INT64_MIN, std::int64_t{1} << 62};

/// Spoils one thing of one tensor.
void spoil(tensors& t, std::mt19937& random) {
  const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  c_tensor& one = t.all[draw(std::size(t.all))];
  const std::int64_t number = odd[draw(std::size(odd))];
  switch (draw(8)) {
    case 0: one.shape[draw(3)] = number; break;
    // Of inputs: a stride may lead anywhere, which nobody can check, and 0 and 1 stay inside.
    case 1: one.strides[draw(3)] = static_cast<std::int64_t>(draw(2)); break;
    case 2: one.value.ndim = static_cast<std::int32_t>(number); break;
    case 3: one.value.dtype.code = static_cast<std::uint8_t>(draw(9)); break;
    case 4: one.value.dtype.bits = static_cast<std::uint8_t>(number); break;
    case 5: one.value.dtype.lanes = static_cast<std::uint16_t>(number); break;
    case 6: one.value.device.type = static_cast<std::int32_t>(number); break;
    default: one.value.byte_offset = draw(4); break;
  }
}

}  // namespace

TEST_CASE("spoiled tensors are refused before anything is written, or change nothing that matters") {
  int refused = 0, served = 0;
  for (std::uint32_t seed = 0; seed < 4000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    tensors t;
    spoil(t, random);
    aft_options o = aft::test::sized_options();
    if (seed % 3 == 0) o.lse = t.get(10);
    const aft_bias bias{AFT_DENSE, t.get(3), nullptr, nullptr}, dbias{AFT_DENSE, t.get(9), nullptr, nullptr};
    const bool backward = seed % 2 != 0 && o.lse == nullptr;
    const int code = backward ? aft_local_backward(t.get(0), t.get(1), t.get(2), &bias, 1, 1, t.get(4), t.get(6),
                                                   t.get(7), t.get(8), &dbias, &o)
                              : aft_local(t.get(0), t.get(1), t.get(2), &bias, 1, 1, t.get(5), &o);
    if (code == AFT_OK) {
      ++served;
      continue;
    }
    ++refused;
    CHECK((code == AFT_SHAPE_ERROR || code == AFT_DEVICE_ERROR));
    const std::string text = aft_last_error();
    CHECK(text.find(backward ? "aft::local_backward: argument '" : "aft::local: argument '") == 0);
    bool changed = false;
    for (const float x : t.written) changed = changed || x != untouched;
    CHECK(!changed);
  }
  // Both happen: what a call does not use, an input broadcast, an extent that was meant.
  CHECK(refused > 1000);
  CHECK(served > 100);
}
