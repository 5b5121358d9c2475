// SPDX-License-Identifier: Apache-2.0
// The tensors inside aft::options: what is accepted, and how a wrong type, shape or space is reported.
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::canary;
using aft::test::check_parts;
using aft::test::error_of;

constexpr index_t B = 2, Tq = 5, Tk = 7, d = 12, hk = 6;

// Valid tensors of each element type; memory is shared, since inputs may overlap.
template <class T>
struct call {
  std::vector<T> memory = std::vector<T>(1000, T(0.5f));
  canary<T> written{1000};
  aft::tensor_view<const T, 3> q{memory.data(), {B, Tq, d}}, k{memory.data(), {B, Tk, hk}},
      v{memory.data(), {B, Tk, d}};
  aft::tensor_view<T, 3> y{written.data(), {B, Tq, d}};

  std::string simple(const aft::options& opt) {
    written.reset();
    std::string message = error_of([&] { aft::simple(q, k, v, y, opt); });
    if (message != "no shape_error") CHECK(written.untouched());
    return message;
  }
};

template <class T, std::size_t Rank>
struct tensor {
  std::vector<T> memory;
  aft::tensor_view<T, Rank> view;
  explicit tensor(std::array<index_t, Rank> extents) : memory(1000, T(1)), view(memory.data(), extents) {}
};

}  // namespace

TEST_CASE("mask: accepted shapes and types") {
  call<float> c;
  for (index_t b : {index_t{1}, B}) {
    for (index_t t : {index_t{1}, Tq}) {
      const tensor<std::uint8_t, 3> mask({b, t, Tk});
      CHECK(c.simple({.mask = mask.view}) == "no shape_error");
      const aft::tensor_view<const std::uint8_t, 3> read_only = mask.view;
      CHECK(c.simple({.mask = read_only}) == "no shape_error");
    }
  }
  bool flags[Tk] = {};
  CHECK(c.simple({.mask = aft::tensor_view<bool, 3>{flags, {1, 1, Tk}}}) == "no shape_error");
  CHECK(c.simple({.mask = aft::tensor_view<bool, 1>{flags, {Tk}}}) == "no shape_error");
  CHECK(c.simple({.mask = tensor<std::int8_t, 3>({B, Tq, Tk}).view}) == "no shape_error");
  CHECK(c.simple({.mask = tensor<std::int8_t, 2>({Tq, Tk}).view}) == "no shape_error");
  CHECK(c.simple({.mask = tensor<std::uint8_t, 2>({1, Tk}).view}) == "no shape_error");
  CHECK(c.simple({.mask = tensor<std::uint8_t, 1>({Tk}).view}) == "no shape_error");
}

TEST_CASE("mask: refused") {
  call<float> c;
  check_parts(c.simple({.mask = tensor<float, 3>({B, Tq, Tk}).view}), {"aft::simple", "'mask'", "uint8", "got float"});
  check_parts(c.simple({.mask = tensor<std::int32_t, 3>({B, Tq, Tk}).view}),
              {"'mask'", "uint8, int8 or bool", "int32"});
  check_parts(c.simple({.mask = tensor<std::uint8_t, 3>({3, Tq, Tk}).view}),
              {"'mask'", "extent 0 (B) to be 1 or 2", "got 3"});
  check_parts(c.simple({.mask = tensor<std::uint8_t, 3>({B, 4, Tk}).view}),
              {"'mask'", "extent 1 (Tq) to be 1 or 5", "got 4"});
  check_parts(c.simple({.mask = tensor<std::uint8_t, 3>({B, Tq, 1}).view}),
              {"'mask'", "extent 2 (Tk) to be 7", "got 1"});
  check_parts(c.simple({.mask = tensor<std::uint8_t, 2>({B, Tk}).view}),
              {"'mask'", "extent 0 (Tq) to be 1 or 5", "got 2"});
  check_parts(c.simple({.mask = tensor<std::uint8_t, 1>({Tq}).view}), {"'mask'", "extent 0 (Tk) to be 7", "got 5"});
  check_parts(c.simple({.mask = tensor<std::uint8_t, 4>({B, 1, Tq, Tk}).view}),
              {"'mask'", "rank 1 (Tk), 2 (Tq, Tk) or 3 (B, Tq, Tk)", "got 4"});
  check_parts(c.simple({.mask = aft::tensor_view<std::uint8_t, 3>{nullptr, {B, Tq, Tk}}}), {"'mask'", "70", "null"});
  check_parts(c.simple({.mask = aft::tensor_view<std::uint8_t, 3, aft::device_space>{nullptr, {B, Tq, Tk}}}),
              {"'mask'", "host view", "device view"});
}

TEST_CASE("key_lengths") {
  call<float> c;
  CHECK(c.simple({.key_lengths = tensor<std::int32_t, 1>({B}).view}) == "no shape_error");
  CHECK(c.simple({.key_lengths = tensor<std::int64_t, 1>({B}).view}) == "no shape_error");
  CHECK(c.simple({.key_lengths = tensor<long long, 1>({B}).view}) == "no shape_error");
  check_parts(c.simple({.key_lengths = tensor<std::int64_t, 1>({3}).view}),
              {"'key_lengths'", "extent 0 (B) to be 2", "got 3"});
  check_parts(c.simple({.key_lengths = tensor<float, 1>({B}).view}), {"'key_lengths'", "int64 or int32", "got float"});
  check_parts(c.simple({.key_lengths = tensor<std::int64_t, 2>({B, 1}).view}), {"'key_lengths'", "rank 1", "got 2"});
  check_parts(c.simple({.key_lengths = aft::tensor_view<std::int64_t, 1>{nullptr, {B}}}), {"'key_lengths'", "null"});
}

TEST_CASE("query_lengths") {
  call<float> c;
  CHECK(c.simple({.query_lengths = tensor<std::int64_t, 1>({B}).view}) == "no shape_error");
  CHECK(c.simple({.query_lengths = tensor<std::int32_t, 1>({B}).view}) == "no shape_error");
  check_parts(c.simple({.query_lengths = tensor<std::uint8_t, 1>({B}).view}),
              {"'query_lengths'", "int64 or int32", "got uint8"});
  check_parts(c.simple({.query_lengths = tensor<std::int64_t, 1>({Tq}).view}),
              {"'query_lengths'", "extent 0 (B) to be 2", "got 5"});
  check_parts(c.simple({.query_lengths = aft::tensor_view<std::int32_t, 1>{nullptr, {B}}}),
              {"'query_lengths'", "null"});
  check_parts(c.simple({.query_lengths = aft::tensor_view<std::int32_t, 1, aft::device_space>{nullptr, {B}}}),
              {"'query_lengths'", "host view", "device view"});
}

TEST_CASE("first_query") {
  call<float> c;
  CHECK(c.simple({.causal = true, .first_query = 3}) == "no shape_error");
  CHECK(c.simple({.first_query = index_t{1} << 61}) == "no shape_error");
  check_parts(c.simple({.first_query = -1}), {"aft::simple", "'first_query'", "0 to 2^61", "got -1"});
  check_parts(c.simple({.first_query = INT64_MAX}), {"'first_query'", "got 9223372036854775807"});
  std::vector<float> memory(2000, 0.5f), written(2000);
  const aft::tensor_view<const float, 4> x{memory.data(), {B, 3, 4, d}};
  const aft::tensor_view<const float, 3> filter{memory.data(), {3, 3, 3}};
  const aft::tensor_view<float, 4> y{written.data(), {B, 3, 4, d}};
  check_parts(error_of([&] { aft::conv(x, x, x, filter, y, {.first_query = 1}); }),
              {"aft::conv", "'first_query'", "0 on a grid", "got 1 with 2 axes"});
}

TEST_CASE("outside has a meaning where there is one") {
  call<float> c;
  check_parts(c.simple({.outside = aft::outside::excluded}),
              {"aft::simple", "'outside'", "only aft::local and aft::conv", "got excluded"});
  const tensor<float, 2> w({Tq, Tk});
  check_parts(
      error_of([&] { aft::full(c.q, c.k, c.v, aft::dense_bias{w.view}, c.y, {.outside = aft::outside::excluded}); }),
      {"aft::full", "'outside'"});
  check_parts(error_of([&] {
                aft::attention_map(c.k, aft::dense_bias{w.view}, tensor<float, 4>({B, Tq, Tk, hk}).view,
                                   {.outside = aft::outside::excluded});
              }),
              {"aft::attention_map", "'outside'"});
}

TEST_CASE("types that no call takes are named") {
  call<float> c;
  check_parts(c.simple({.mask = tensor<std::uint16_t, 3>({B, Tq, Tk}).view}), {"'mask'", "got uint16"});
  check_parts(c.simple({.key_lengths = tensor<std::uint64_t, 1>({B}).view}), {"'key_lengths'", "got uint64"});
  check_parts(c.simple({.query_lengths = tensor<short, 1>({B}).view}), {"'query_lengths'", "got int16"});
  check_parts(c.simple({.lse = tensor<std::uint32_t, 3>({B, Tq, hk}).view}), {"'lse'", "got uint32"});
  check_parts(c.simple({.average = tensor<long double, 3>({B, Tq, d}).view}), {"'average'", "got long double"});
}

TEST_CASE("slots without a stream are refused, not passed over") {
  call<float> c;
  const tensor<std::int64_t, 1> some({B});
  check_parts(c.simple({.slot_ids = some.view}), {"aft::simple", "'slot_ids'", "without a stream"});
  CHECK(c.simple({.arithmetic = aft::arithmetic::full, .stream = {}}) == "no shape_error");
  check_parts(error_of([&] {
                aft::simple_backward(c.q, c.k, c.v, c.q, aft::no_grad, aft::no_grad, c.y, {.slot_ids = some.view});
              }),
              {"aft::simple_backward", "'slot_ids'"});
}

TEST_CASE("lse: shape, type, writability") {
  call<float> c;
  CHECK(c.simple({.lse = tensor<float, 3>({B, Tq, hk}).view}) == "no shape_error");
  check_parts(c.simple({.lse = tensor<float, 3>({B, Tq, d}).view}), {"'lse'", "extent 2 (hk) to be 6", "got 12"});
  check_parts(c.simple({.lse = tensor<float, 3>({B, Tk, hk}).view}), {"'lse'", "extent 1 (Tq) to be 5", "got 7"});
  check_parts(c.simple({.lse = tensor<float, 3>({1, Tq, hk}).view}), {"'lse'", "extent 0 (B) to be 2", "got 1"});
  check_parts(c.simple({.lse = tensor<double, 3>({B, Tq, hk}).view}), {"'lse'", "expected float", "got double"});
  check_parts(c.simple({.lse = tensor<float, 2>({Tq, hk}).view}), {"'lse'", "rank 3", "got 2"});
  const tensor<float, 3> lse({B, Tq, hk});
  check_parts(c.simple({.lse = aft::tensor_view<const float, 3>(lse.view)}), {"'lse'", "mutable", "const"});
  check_parts(c.simple({.lse = aft::tensor_view<float, 3>{nullptr, {B, Tq, hk}}}), {"'lse'", "null"});
  check_parts(c.simple({.lse = aft::tensor_view<float, 3>{c.memory.data(), {B, Tq, hk}, {0, hk, 1}}}),
              {"'lse'", "axis 0", "got 0"});
}

TEST_CASE_TEMPLATE("lse and average: types by data type", T, float, double, aft::half, aft::bfloat16) {
  constexpr bool in_double = std::is_same_v<T, double>;
  call<T> c;
  CHECK((c.simple({.lse = tensor<float, 3>({B, Tq, hk}).view}) == "no shape_error") != in_double);
  CHECK((c.simple({.lse = tensor<double, 3>({B, Tq, hk}).view}) == "no shape_error") == in_double);
  CHECK(c.simple({.average = tensor<T, 3>({B, Tq, d}).view}) == "no shape_error");
  CHECK((c.simple({.average = tensor<float, 3>({B, Tq, d}).view}) == "no shape_error") != in_double);
  check_parts(c.simple({.average = tensor<std::int64_t, 3>({B, Tq, d}).view}), {"'average'", "got int64"});
}

TEST_CASE("average: shape") {
  call<float> c;
  check_parts(c.simple({.average = tensor<float, 3>({B, Tq, hk}).view}),
              {"'average'", "extent 2 (d) to be 12", "got 6"});
  check_parts(c.simple({.average = tensor<double, 3>({B, Tq, d}).view}), {"'average'", "float", "got double"});
}

TEST_CASE("lse has one value a key channel, so the heads of a bias must not be finer") {
  call<float> c;
  const tensor<float, 3> w({4, Tq, Tk});
  const auto message = error_of([&] {
    aft::full(c.q, c.k, c.v, aft::dense_bias{w.view}, c.y, {.lse = tensor<float, 3>({B, Tq, hk}).view});
  });
  check_parts(message, {"aft::full", "'lse'", "H = 4", "hk = 6"});
  const tensor<float, 3> coarse({3, Tq, Tk});
  CHECK(error_of([&] {
          aft::full(c.q, c.k, c.v, aft::dense_bias{coarse.view}, c.y, {.lse = tensor<float, 3>({B, Tq, hk}).view});
        }) == "no shape_error");
}

TEST_CASE("a call without a batch axis takes options with and without one") {
  std::vector<float> memory(1000, 0.5f), written(1000);
  const aft::tensor_view<const float, 2> q{memory.data(), {Tq, d}}, k{memory.data(), {Tk, hk}},
      v{memory.data(), {Tk, d}};
  const aft::tensor_view<float, 2> y{written.data(), {Tq, d}};
  const auto run = [&](const aft::options& opt) { return error_of([&] { aft::simple(q, k, v, y, opt); }); };
  CHECK(run({.mask = tensor<std::uint8_t, 2>({Tq, Tk}).view}) == "no shape_error");
  CHECK(run({.mask = tensor<std::uint8_t, 2>({1, Tk}).view}) == "no shape_error");
  CHECK(run({.mask = tensor<std::uint8_t, 3>({1, Tq, Tk}).view}) == "no shape_error");
  CHECK(run({.key_lengths = tensor<std::int64_t, 1>({1}).view}) == "no shape_error");
  CHECK(run({.lse = tensor<float, 2>({Tq, hk}).view, .average = tensor<float, 2>({Tq, d}).view}) == "no shape_error");
  CHECK(run({.lse = tensor<float, 3>({1, Tq, hk}).view, .average = tensor<float, 3>({1, Tq, d}).view}) ==
        "no shape_error");
  check_parts(run({.mask = tensor<std::uint8_t, 2>({4, Tk}).view}), {"'mask'", "(Tq)", "got 4"});
  check_parts(run({.lse = tensor<float, 2>({Tk, hk}).view}), {"'lse'", "(Tq) to be 5", "got 7"});
  check_parts(run({.average = tensor<float, 3>({2, Tq, d}).view}), {"'average'", "(B) to be 1", "got 2"});
}

TEST_CASE("grids: lse and average have the grid's shape, a mask counts its points") {
  std::vector<float> memory(2000, 0.5f), written(2000);
  const aft::tensor_view<const float, 4> x{memory.data(), {B, 3, 4, d}}, k{memory.data(), {B, 3, 4, hk}};
  const aft::tensor_view<const float, 3> filter{memory.data(), {3, 3, 3}};
  const aft::tensor_view<float, 4> y{written.data(), {B, 3, 4, d}};
  const auto run = [&](const aft::options& opt) { return error_of([&] { aft::conv(x, k, x, filter, y, opt); }); };
  CHECK(run({.lse = tensor<float, 4>({B, 3, 4, hk}).view, .average = tensor<float, 4>({B, 3, 4, d}).view}) ==
        "no shape_error");
  CHECK(run({.mask = tensor<std::uint8_t, 3>({1, 12, 12}).view}) == "no shape_error");
  check_parts(run({.lse = tensor<float, 3>({B, 12, hk}).view}), {"aft::conv", "'lse'", "rank 4", "got 3"});
  check_parts(run({.lse = tensor<float, 4>({B, 4, 3, hk}).view}), {"'lse'", "extent 1 (H) to be 3", "got 4"});
  check_parts(run({.average = tensor<float, 4>({B, 3, 5, d}).view}), {"'average'", "extent 2 (W) to be 4", "got 5"});
  check_parts(run({.mask = tensor<std::uint8_t, 3>({1, 3, 4}).view}), {"'mask'", "12", "got 3"});
}

TEST_CASE("a backward call reads lse and average, so they may be views of const") {
  std::vector<float> memory(1000, 0.5f), gradient(1000);
  const aft::tensor_view<const float, 3> q{memory.data(), {B, Tq, d}}, k{memory.data(), {B, Tk, hk}},
      v{memory.data(), {B, Tk, d}};
  const aft::tensor_view<float, 3> dv{gradient.data(), {B, Tk, d}};
  const tensor<float, 3> lse({B, Tq, hk}), average({B, Tq, d});
  const aft::tensor_view<const float, 3> saved_lse = lse.view, saved_average = average.view;
  const auto run = [&](const aft::options& opt) {
    return error_of([&] { aft::simple_backward(q, k, v, q, aft::no_grad, aft::no_grad, dv, opt); });
  };
  CHECK(run({.lse = saved_lse, .average = saved_average}) == "no shape_error");
  check_parts(run({.lse = saved_average}), {"aft::simple_backward", "'lse'", "(hk) to be 6", "got 12"});
  check_parts(run({.lse = saved_lse, .average = dv}), {"'average'"});
  check_parts(run({.lse = saved_lse}), {"'average'", "both lse and average", "neither", "got lse alone"});
  check_parts(run({.average = saved_average}), {"'lse'", "both lse and average", "got average alone"});
}

TEST_CASE("options is an aggregate with a default for every member") {
  constexpr aft::options opt;
  CHECK_FALSE(opt.causal);
  CHECK(opt.gate_fn == aft::gate::sigmoid);
  CHECK(opt.outside == aft::outside::zero_bias);
  CHECK(opt.mask.empty());
  CHECK_FALSE(static_cast<bool>(opt.key_lengths));
  CHECK(opt.query_lengths.empty());
  CHECK(opt.first_query == 0);
  CHECK(opt.arithmetic == aft::arithmetic::automatic);
  CHECK(opt.stream.empty());
  CHECK((opt.slot_ids.empty() && opt.query_offsets.empty() && opt.key_offsets.empty()));
  static_assert(std::is_aggregate_v<aft::options>);
}
