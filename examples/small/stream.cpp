// SPDX-License-Identifier: Apache-2.0
//
// A prompt in chunks, then one position a call: what a language model does. Each call goes on from what a slot
// remembers. A fork of the slot tries another continuation, and the cutting does not change a bit.

#include <aft/aft.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

namespace {

constexpr aft::index_t width = 9;
constexpr aft::window win{.before = width - 1, .after = 0};

struct sequence {
  static constexpr aft::index_t T = 200, d = 16;
  std::vector<float> q, k, v, y;
  explicit sequence(float phase) : q(T * d), k(q), v(q), y(q) {
    for (std::size_t i = 0; i < q.size(); ++i) {
      const float x = phase + static_cast<float>(i);
      q[i] = std::sin(0.1F * x);
      k[i] = std::cos(0.2F * x);
      v[i] = std::sin(0.3F * x);
    }
  }
  /// Positions [begin, end) of one of them.
  static aft::tensor_view<float, 3> part(std::vector<float>& x, aft::index_t begin, aft::index_t end) {
    return {x.data() + begin * d, {1, end - begin, d}};
  }
};

}  // namespace

int main() try {
  // One row of a banded bias serves every position.
  std::vector<float> w(width);
  for (std::size_t j = 0; j < w.size(); ++j) w[j] = -0.2F * static_cast<float>(w.size() - 1 - j);
  const aft::banded_bias bias{aft::as_view(w.data(), {1, width})};

  // Two slots: plain bytes, which could be saved to a file and restored on another machine.
  const auto spec = aft::stream_spec::local<float>(sequence::d, sequence::d, win);
  const aft::index_t slots = 2;
  const auto bytes = static_cast<std::size_t>(spec.bytes() * slots);
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, bytes), std::free);
  const aft::stream_view stream{spec, memory.get(), slots};
  const aft::cpu exec;
  aft::reset(exec, stream);

  // Which slot the one sequence of a call continues.
  aft::index_t slot = 0;
  const auto id = aft::as_view(&slot, {1});
  const auto run = [&](sequence& s, aft::index_t begin, aft::index_t end) {
    const auto part = [&](std::vector<float>& x) { return sequence::part(x, begin, end); };
    aft::local(exec, part(s.q), part(s.k), part(s.v), bias, win, part(s.y),
               aft::options{.causal = true, .stream = stream, .slot_ids = id});
  };
  sequence cut(0), whole(0), other(1);
  run(cut, 0, 64);
  run(cut, 64, 128);
  const aft::index_t from = 0, to = 1;
  aft::copy(exec, stream, aft::as_view(&from, {1}), aft::as_view(&to, {1}));
  for (aft::index_t t = 128; t < sequence::T; ++t) run(cut, t, t + 1);
  slot = 1;
  for (aft::index_t t = 128; t < sequence::T; ++t) run(other, t, t + 1);
  aft::reset(exec, stream, 1);
  run(whole, 0, sequence::T);

  std::printf("%d bytes a slot, at position %d: %s\n", static_cast<int>(spec.bytes()),
              static_cast<int>(aft::position(exec, stream, 0)), cut.y == whole.y ? "the same bits" : "other bits");
  return cut.y == whole.y ? 0 : 1;
} catch (const aft::shape_error& e) {
  std::printf("%s\n", e.what());
  return 1;
}
