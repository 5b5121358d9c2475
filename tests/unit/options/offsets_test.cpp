// SPDX-License-Identifier: Apache-2.0
// Offsets of packed sequences: what is accepted, and how a wrong entry, shape or companion is reported.
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::canary;
using aft::test::check_parts;
using aft::test::error_of;

constexpr index_t total = 12, d = 4, N = 3;
using offsets = std::vector<std::int64_t>;

struct call {
  std::vector<float> memory = std::vector<float>(1000, 0.5f);
  canary<float> written{1000};
  aft::tensor_view<const float, 2> x{memory.data(), {total, d}};
  aft::tensor_view<float, 2> y{written.data(), {total, d}};

  template <class F>
  std::string message(F run) {
    written.reset();
    const std::string text = error_of(run);
    if (text != "no shape_error") CHECK(written.untouched());
    return text;
  }
  std::string simple(const aft::options& opt) {
    return message([&] { aft::simple(x, x, x, y, opt); });
  }
  std::string queries(const offsets& o) { return simple({.query_offsets = view(o)}); }
  std::string keys(const offsets& q, const offsets& k) {
    return simple({.query_offsets = view(q), .key_offsets = view(k)});
  }
  aft::tensor_view<const float, 3> square(index_t rows, index_t columns, index_t H = 2) {
    return {memory.data(), {H, rows, columns}};
  }
  static aft::tensor_view<const std::int64_t, 1> view(const offsets& o) {
    return {o.data(), {static_cast<index_t>(o.size())}};
  }
};

const offsets even{0, 4, 8, total};

}  // namespace

TEST_CASE("offsets: of int32 and int64, with any stride, of empty sequences and of none") {
  call c;
  CHECK(c.queries(even) == "no shape_error");
  CHECK(c.queries({0, total}) == "no shape_error");
  CHECK(c.queries({0, 0, 0, total, total}) == "no shape_error");
  CHECK(c.keys(even, {0, total, total, total}) == "no shape_error");
  const std::int32_t narrow[] = {total, -1, 8, -1, 4, -1, 0};
  CHECK(c.simple({.query_offsets = aft::tensor_view<const std::int32_t, 1>{narrow + 6, {N + 1}, {-2}}}) ==
        "no shape_error");
  const aft::tensor_view<const float, 2> nothing{nullptr, {0, d}};
  const aft::tensor_view<float, 2> to{nullptr, {0, d}};
  const offsets zero{0};
  CHECK(error_of([&] { aft::simple(nothing, nothing, nothing, to, {.query_offsets = c.view(zero)}); }) ==
        "no shape_error");
}

TEST_CASE("offsets: an entry that does not fit is named") {
  call c;
  check_parts(c.queries({1, 4, 8, total}), {"aft::simple", "'query_offsets'", "entry 0 to be 0", "got 1"});
  check_parts(c.queries({-1, 4, 8, total}), {"'query_offsets'", "entry 0 to be 0", "got -1"});
  check_parts(c.queries({0, 8, 4, total}), {"'query_offsets'", "entry 2 to be at least entry 1, which is 8", "got 4"});
  check_parts(c.queries({0, 4, 8, 11}), {"'query_offsets'", "entry 3, the last, to be 12, the rows of 'y'", "got 11"});
  check_parts(c.queries({0, 4, 8, INT64_MAX}), {"'query_offsets'", "entry 3, the last", "got 9223372036854775807"});
  check_parts(c.keys(even, {0, 4, 8, 13}), {"'key_offsets'", "entry 3, the last, to be 12, the rows of 'k'", "got 13"});
  check_parts(c.keys(even, {0, 4, 3, total}), {"'key_offsets'", "entry 2 to be at least entry 1, which is 4", "got 3"});
  check_parts(c.keys(even, {0, 4, total}),
              {"'key_offsets'", "extent 0 (N + 1) to be 4 as in 'query_offsets'", "got 3"});
}

TEST_CASE("offsets: types, ranks, spaces and memory") {
  call c;
  const std::vector<float> floats(4);
  const std::vector<std::int64_t> some(4);
  check_parts(c.simple({.query_offsets = aft::tensor_view<const float, 1>{floats.data(), {4}}}),
              {"'query_offsets'", "int64 or int32", "got float"});
  check_parts(c.simple({.query_offsets = aft::tensor_view<const std::int64_t, 2>{some.data(), {2, 2}}}),
              {"'query_offsets'", "rank 1", "got 2"});
  check_parts(c.simple({.query_offsets = aft::tensor_view<const std::int64_t, 1>{some.data(), {0}}}),
              {"'query_offsets'", "extent 0 (N + 1) to be at least 1", "got 0"});
  check_parts(c.simple({.query_offsets = aft::tensor_view<const std::int64_t, 1>{nullptr, {4}}}),
              {"'query_offsets'", "null"});
  check_parts(c.simple({.query_offsets = aft::tensor_view<const std::int64_t, 1, aft::device_space>{some.data(), {4}}}),
              {"'query_offsets'", "a host view", "got a device view"});
  check_parts(c.simple({.key_offsets = c.view(even)}), {"'query_offsets'", "as 'key_offsets' is one"});
}

TEST_CASE("offsets: not with a batch, a mask, lengths or a grid") {
  call c;
  const std::vector<std::int64_t> lengths(3, 4);
  const std::vector<std::uint8_t> mask(total, 1);
  const aft::tensor_view<const std::int64_t, 1> view{lengths.data(), {3}};
  check_parts(
      c.simple({.mask = aft::tensor_view<const std::uint8_t, 1>{mask.data(), {total}}, .query_offsets = c.view(even)}),
      {"'mask'", "an empty view beside 'query_offsets'", "got shape (12)"});
  check_parts(c.simple({.key_lengths = view, .query_offsets = c.view(even)}),
              {"'key_lengths'", "beside 'query_offsets'", "got shape (3)"});
  check_parts(c.simple({.query_lengths = view, .query_offsets = c.view(even)}),
              {"'query_lengths'", "beside 'query_offsets'"});
  const aft::tensor_view<const float, 3> two{c.memory.data(), {2, total, d}};
  const aft::tensor_view<float, 3> out{c.written.data(), {2, total, d}};
  check_parts(c.message([&] { aft::simple(two, two, two, out, {.query_offsets = c.view(even)}); }),
              {"'v'", "extent 0 (B) to be 1, as sequences are packed", "got 2"});
  const aft::tensor_view<const float, 4> grid{c.memory.data(), {1, 3, 4, d}};
  const aft::tensor_view<float, 4> there{c.written.data(), {1, 3, 4, d}};
  check_parts(c.message([&] { aft::conv(grid, grid, grid, c.square(3, 3), there, {.query_offsets = c.view(even)}); }),
              {"aft::conv", "'query_offsets'", "on a grid"});
  check_parts(c.message([&] {
    aft::attention_map(c.x, aft::dense_bias{c.square(total, total)},
                       aft::tensor_view<float, 3>{c.written.data(), {total, total, d}},
                       {.query_offsets = c.view(even)});
  }),
              {"aft::attention_map", "'query_offsets'", "got shape (4)"});
}

TEST_CASE("offsets: other numbers of queries and keys have offsets of both") {
  call c;
  const aft::tensor_view<const float, 2> few{c.memory.data(), {5, d}};
  check_parts(c.message([&] { aft::simple(c.x, few, few, c.y, {.query_offsets = c.view(even)}); }),
              {"'key_offsets'", "there are 5 and 12 queries", "got an empty view"});
}

TEST_CASE("offsets: a bias has the rows and columns of the longest sequence, and one for each if any") {
  call c;
  const offsets uneven{0, 2, 8, total};
  const aft::options opt{.query_offsets = c.view(uneven)};
  const auto full = [&](auto bias) { return c.message([&] { aft::full(c.x, c.x, c.x, bias, c.y, opt); }); };
  CHECK(full(aft::dense_bias{c.square(6, 6)}) == "no shape_error");
  CHECK(full(aft::dense_bias{c.square(9, 7)}) == "no shape_error");
  check_parts(full(aft::dense_bias{c.square(5, 6)}),
              {"'w' of bias", "extent 1 (Tq) to be at least 6, the length of the longest sequence", "got 5"});
  check_parts(full(aft::dense_bias{c.square(6, 5)}), {"'w' of bias", "extent 2 (Tk) to be at least 6", "got 5"});
  check_parts(full(aft::factorized_bias{c.square(5, 2), c.square(6, 2)}), {"'u' of bias", "(Tq) to be at least 6"});
  check_parts(full(aft::factorized_bias{c.square(6, 2), c.square(5, 2)}), {"'v' of bias", "(Tk) to be at least 6"});
  const auto batched = [&](index_t B) {
    return aft::dense_bias{aft::tensor_view<const float, 4>{c.memory.data(), {B, 1, 6, 6}}};
  };
  CHECK(full(batched(N)) == "no shape_error");
  CHECK(full(batched(1)) == "no shape_error");
  check_parts(full(batched(2)), {"'w' of bias", "extent 0 (B) to be 1 or 3, the sequences", "got 2"});
  const aft::banded_bias banded{aft::tensor_view<const float, 2>{c.memory.data(), {5, 3}}};
  check_parts(c.message([&] {
    aft::local(c.x, c.x, c.x, banded, aft::window{1, 1}, c.y, opt);
  }),
              {"aft::local", "'w' of bias", "extent 0 (Tq) to be at least 6", "got 5"});
}

TEST_CASE("offsets: lse and average with and without a batch axis of 1, and gradients") {
  call c;
  std::vector<float> lse(total * d), average(total * d);
  const auto with = [&](auto a, auto b) { return c.simple({.lse = a, .average = b, .query_offsets = c.view(even)}); };
  CHECK(with(aft::tensor_view<float, 2>{lse.data(), {total, d}},
             aft::tensor_view<float, 2>{average.data(), {total, d}}) == "no shape_error");
  const aft::tensor_view<const float, 3> in{c.memory.data(), {1, total, d}};
  const aft::tensor_view<float, 3> out{c.written.data(), {1, total, d}};
  const aft::options flat{.lse = aft::tensor_view<float, 2>{lse.data(), {total, d}},
                          .average = aft::tensor_view<float, 3>{average.data(), {1, total, d}},
                          .query_offsets = c.view(even)};
  CHECK(c.message([&] { aft::simple(in, in, in, out, flat); }) == "no shape_error");
  check_parts(with(aft::tensor_view<float, 2>{lse.data(), {total - 1, d}}, aft::any_view{}),
              {"'lse'", "extent 0 (Tq) to be 12", "got 11"});
  check_parts(c.message([&] {
    aft::simple_backward(c.x, c.x, c.x, c.x, aft::no_grad, aft::no_grad, c.y, {.query_offsets = c.view({0, 4, 8, 9})});
  }),
              {"aft::simple_backward", "'query_offsets'", "entry 3, the last, to be 12, the rows of 'dy'", "got 9"});
}
