// SPDX-License-Identifier: Apache-2.0
// Streams from C: the bits and the positions of C++, for each operator.
#include <doctest/doctest.h>

#include "dlpack_tensor.hpp"

#include <cstdlib>
#include <memory>

namespace {

using aft::index_t;
using aft::test::c_tensor;

constexpr index_t B = 2, T = 24, d = 8, taps = 5;
constexpr aft::window win{4, 0};

std::vector<float> numbers(index_t n, int seed) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>((static_cast<int>(i) * 37 + seed * 101) % 199 - 99) / 50.0F;
  return x;
}

struct state {
  std::unique_ptr<void, decltype(&std::free)> memory;
  state(index_t bytes) : memory(std::aligned_alloc(64, static_cast<std::size_t>(bytes)), std::free) {}
};

aft_stream_spec spec_of(int op) {
  aft_stream_spec s{};
  s.op = op;
  s.dtype = {2, 32, 1};
  s.d = s.hk = d;
  s.before = win.before;
  s.after = win.after;
  s.taps = taps;
  s.capacity = T;
  return s;
}

aft::stream_spec cpp_spec_of(int op) {
  switch (op) {
    case AFT_FULL: return aft::stream_spec::full<float>(d, d, T);
    case AFT_LOCAL: return aft::stream_spec::local<float>(d, d, win);
    case AFT_SIMPLE: return aft::stream_spec::simple<float>(d, d);
    default: return aft::stream_spec::conv<float>(d, d, taps);
  }
}

}  // namespace

TEST_CASE("streams: every operator goes on from slots as in C++") {
  std::vector<float> q = numbers(B * T * d, 1), k = numbers(B * T * d, 2), v = numbers(B * T * d, 3),
                     w = numbers(T * T, 4), r = numbers(taps, 5);
  for (int op : {AFT_FULL, AFT_LOCAL, AFT_SIMPLE, AFT_CONV}) {
    CAPTURE(op);
    const aft_stream_spec spec = spec_of(op);
    const aft::stream_spec cpp_spec = cpp_spec_of(op);
    std::int64_t bytes = 0;
    REQUIRE(aft_stream_bytes(&spec, &bytes) == AFT_OK);
    REQUIRE(bytes == cpp_spec.bytes());
    const state of_c(3 * bytes), of_cpp(3 * bytes);
    c_tensor slots(aft::tensor_view<std::uint8_t, 2>{static_cast<std::uint8_t*>(of_c.memory.get()), {3, bytes}});
    const aft_stream stream{&spec, slots.get()};
    const aft::stream_view cpp_stream{cpp_spec, of_cpp.memory.get(), 3};
    REQUIRE(aft_stream_reset(&stream, -1, nullptr) == AFT_OK);
    aft::reset(aft::cpu{}, cpp_stream);
    std::vector<std::int32_t> ids{2, 0};
    const aft::tensor_view<std::int32_t, 1> id_view{ids.data(), {B}};
    c_tensor c_ids(id_view);
    std::vector<float> y(q.size()), z(q.size());
    for (index_t begin = 0; begin < T; begin += 8) {
      const auto part = [&](std::vector<float>& x) {
        return aft::tensor_view<float, 3>{x.data() + begin * d, {B, 8, d}, {T * d, d, 1}};
      };
      aft_options o = aft::test::sized_options();
      o.causal = 1;
      o.stream = &stream;
      o.slot_ids = c_ids.get();
      const aft::options cpp_o{.causal = true, .stream = cpp_stream, .slot_ids = id_view};
      c_tensor cq(part(q)), ck(part(k)), cv(part(v)), cy(part(y));
      c_tensor cw(aft::tensor_view<float, 2>{w.data(), {T, T}}), cr(aft::tensor_view<float, 2>{r.data(), {1, taps}});
      const aft_bias bias{AFT_DENSE, cw.get(), nullptr, nullptr};
      const aft::dense_bias cpp_bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}};
      int code = AFT_INTERNAL_ERROR;
      switch (op) {
        case AFT_FULL:
          code = aft_full(cq.get(), ck.get(), cv.get(), &bias, cy.get(), &o);
          aft::full(part(q), part(k), part(v), cpp_bias, part(z), cpp_o);
          break;
        case AFT_LOCAL:
          code = aft_local(cq.get(), ck.get(), cv.get(), &bias, win.before, win.after, cy.get(), &o);
          aft::local(part(q), part(k), part(v), cpp_bias, win, part(z), cpp_o);
          break;
        case AFT_SIMPLE:
          code = aft_simple(cq.get(), ck.get(), cv.get(), cy.get(), &o);
          aft::simple(part(q), part(k), part(v), part(z), cpp_o);
          break;
        default:
          code = aft_conv(cq.get(), ck.get(), cv.get(), cr.get(), cy.get(), &o);
          aft::conv(part(q), part(k), part(v), aft::tensor_view<const float, 2>{r.data(), {1, taps}}, part(z), cpp_o);
      }
      CAPTURE(aft_last_error());
      REQUIRE(code == AFT_OK);
    }
    CHECK(y == z);
    std::int64_t position = 0;
    CHECK(aft_stream_position(&stream, 2, &position, nullptr) == AFT_OK);
    CHECK(position == T);
    CHECK(aft_stream_position(&stream, 1, &position, nullptr) == AFT_OK);
    CHECK(position == 0);
    std::vector<std::int64_t> from{2}, to{1};
    c_tensor c_from(aft::tensor_view<std::int64_t, 1>{from.data(), {1}}),
        c_to(aft::tensor_view<std::int64_t, 1>{to.data(), {1}});
    CHECK(aft_stream_copy(&stream, c_from.get(), c_to.get(), nullptr) == AFT_OK);
    CHECK(aft_stream_position(&stream, 1, &position, nullptr) == AFT_OK);
    CHECK(position == T);
    CHECK(aft_stream_copy(&stream, c_from.get(), c_from.get(), nullptr) == AFT_SHAPE_ERROR);
  }
}
