// SPDX-License-Identifier: Apache-2.0
// What aft::conv refuses of an aft::sparse_filter.
#include "expect_error.hpp"

using aft::index_t;
using aft::tensor_view;
using aft::test::check_parts;
using aft::test::error_of;

TEST_CASE("refused calls with a sparse filter name what is wrong and write nothing") {
  std::vector<float> memory(400, 0.5f), written(200, 42.0f);
  const tensor_view<const float, 3> x{memory.data(), {2, 5, 6}};
  const tensor_view<const float, 4> plane{memory.data(), {1, 5, 2, 6}};
  const tensor_view<float, 3> y{written.data(), {2, 5, 6}};
  const tensor_view<float, 4> on_plane{written.data(), {1, 5, 2, 6}};
  const std::vector<std::int32_t> taps{0, 1, -1, 2, 3, 3, 0, 0, 0, 0, 0, 0};
  const auto offsets = [&](index_t heads, index_t m, index_t from = 0) {
    return tensor_view<const std::int32_t, 2>{taps.data() + from, {heads, m}};
  };
  const auto values = [&](index_t heads, index_t m) { return tensor_view<const float, 2>{memory.data(), {heads, m}}; };
  const auto refused = [&](const auto& t, const auto& w, const aft::options& o = {}) {
    return error_of([&] { aft::conv(x, x, x, aft::sparse_filter{t, w}, y, o); });
  };
  check_parts(refused(offsets(3, 2), values(3, 2)),
              {"aft::conv", "'taps' of filter", "every offset once in a head", "3 twice in head 2"});
  check_parts(refused(offsets(2, 2), values(2, 2), {.causal = true}),
              {"'taps' of filter", "at most 0 in a causal call", "got 1"});
  check_parts(refused(offsets(2, 2), values(3, 2)), {"'taps' of filter", "extent 0 (H) to be 3", "got 2"});
  check_parts(refused(offsets(2, 2), values(2, 1)), {"'taps' of filter", "extent 1 (m) to be 1", "got 2"});
  check_parts(refused(offsets(4, 1), values(4, 1)), {"'values' of filter", "to divide d = 6", "got 4"});
  check_parts(refused(offsets(0, 1), values(0, 1)), {"'values' of filter", "got 0"});
  check_parts(refused(tensor_view<const std::int32_t, 2>{nullptr, {2, 2}}, values(2, 2)), {"'taps' of filter", "null"});
  check_parts(refused(offsets(2, 2), tensor_view<const float, 2>{nullptr, {2, 2}}), {"'values' of filter", "null"});
  check_parts(refused(offsets(2, 2), tensor_view<const float, 2>{written.data(), {2, 2}}),
              {"'y'", "'values'", "overlap"});
  const std::vector<std::int64_t> far{INT64_MAX, 0};
  check_parts(refused(tensor_view<const std::int64_t, 2>{far.data(), {2, 1}}, values(2, 1)), {"within 2^61"});
  const auto on_grid = [&](index_t axes, const aft::options& o = {}) {
    const tensor_view<const std::int32_t, 3> t{taps.data() + 6, {2, 1, axes}};
    return error_of([&] { aft::conv(plane, plane, plane, aft::sparse_filter{t, values(2, 1)}, on_plane, o); });
  };
  check_parts(on_grid(3), {"'taps' of filter", "extent 2 (axes) to be 2", "got 3"});
  check_parts(on_grid(2, {.causal = true}), {"'causal'", "false on a grid"});
  check_parts(on_grid(2, {.first_query = 1}), {"'first_query'"});
  std::vector<std::byte> slots(4096);
  check_parts(refused(offsets(2, 2), values(2, 2), {.stream = aft::stream_view<>{{}, slots.data(), 1}}),
              {"'stream'", "none with a sparse filter"});
  // Gradients are sums over what is broadcast, and over nothing else.
  const auto gradient = [&](index_t head_stride, index_t tap_stride, index_t heads, index_t m) {
    const tensor_view<const float, 2> w{memory.data(), {2, 3}, {head_stride, tap_stride}};
    return error_of([&] {
      aft::conv_backward(x, x, x, aft::sparse_filter{offsets(2, 3), w}, x, aft::no_grad, aft::no_grad, aft::no_grad,
                         tensor_view<float, 2>{written.data() + 100, {heads, m}});
    });
  };
  check_parts(gradient(3, 1, 1, 3), {"'dfilter'", "extent 0 to be 2 as in 'values'", "got 1"});
  check_parts(gradient(3, 1, 2, 1), {"'dfilter'", "extent 1 to be 3 as in 'values'", "got 1"});
  check_parts(gradient(0, 1, 1, 1), {"'dfilter'", "extent 1 to be 3 as in 'values'", "got 1"});
  check_parts(gradient(3, 0, 1, 1), {"'dfilter'", "extent 0 to be 2 as in 'values'", "got 1"});
  check_parts(gradient(0, 0, 2, 2), {"'dfilter'", "extent 1 to be 3 as in 'values'", "got 2"});
  for (float e : written) CHECK(e == 42.0f);
}
