// SPDX-License-Identifier: Apache-2.0
// Which rows and keys of a sparse convolution are flagged, to be summed by definition at O(T) each: so few that a call
// stays as cheap as AFT-simple and its taps.
#include <doctest/doctest.h>

#include <aft/cuda/launch/sparse_backward.cuh>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

using aft::index_t;
using namespace aft::cuda_impl;

namespace {

constexpr index_t B = 2, T = 200, d = 8, heads = 4;

/// A call whose key s has the logits of a normal distribution, and 12 more in the middle of the sequence.
struct inputs {
  index_t m;
  std::vector<float> q, k, v, y, g, average;
  std::vector<std::int32_t> taps;
  std::vector<float> values;
  aft::backward_problem p{};

  inputs(index_t m_, double value, bool peak, bool causal) : m(m_) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto n = static_cast<std::size_t>(B * T * d);
    for (std::vector<float>* x : {&q, &k, &v, &y, &g, &average}) {
      x->resize(n);
      for (float& e : *x) e = normal(random);
    }
    for (index_t b = 0; b < B && peak; ++b)
      for (index_t c = 0; c < d; ++c) k[static_cast<std::size_t>((b * T + T / 2) * d + c)] += 12;
    for (index_t i = 0; i < heads * m; ++i) {
      taps.push_back(static_cast<std::int32_t>(-(i % m) * 7));
      values.push_back(static_cast<float>(value));
    }
    p.B = B;
    p.Tq = p.Tk = T;
    p.d = p.hk = d;
    p.grid = {1, 1, T};
    const auto field = [](std::vector<float>& x) {
      return aft::field{reinterpret_cast<std::byte*>(x.data()), aft::dtype::f32, true, T * d, {T * d, T * d, d}, 1};
    };
    p.q = field(q);
    p.k = field(k);
    p.v = field(v);
    p.y = field(y);
    p.causal = causal;
    p.bias.kind = aft::bias_kind::sparse;
    p.bias.heads = heads;
    p.bias.r = reinterpret_cast<std::byte*>(values.data());
    p.bias.r_type = aft::dtype::f32;
    p.bias.r_set = true;
    p.bias.r_sh = m;
    p.bias.r_sj[2] = 1;
    p.bias.taps.data = reinterpret_cast<const std::byte*>(taps.data());
    p.bias.taps.count = p.bias.taps.st = m;
    p.bias.taps.sh = m;
    p.bias.taps.st = 1;
  }
};

/// Flagged elements of a column, at most.
index_t most_of_a_column(const fold_plan& plan, index_t rows) {
  index_t most = 0;
  for (index_t column = 0; column < B * d; ++column) {
    index_t own = 0;
    for (index_t row = 0; row < rows; ++row)
      own += plan.flags[flag_word(plan, row, column / tuning::lanes)] >> column % tuning::lanes & 1u;
    most = std::max(most, own);
  }
  return most;
}

/// Scratch of one kind, alive as long as the test.
template <class X>
std::vector<X> room(index_t n) {
  return std::vector<X>(static_cast<std::size_t>(n));
}

}  // namespace

TEST_CASE("sparse work: without causal order fewer than 4 m rows of a column are summed by definition") {
  const call_stream stream("test", nullptr);
  for (index_t m : {index_t{1}, index_t{3}})
    for (double value : {-3.0, -1e4, 2.0})
      for (bool peak : {false, true}) {
        CAPTURE(m);
        CAPTURE(value);
        CAPTURE(peak);
        const inputs x(m, value, peak, false);
        const device_call<float> call = to_call<float>(x.p);
        device_scratch memory(stream);
        const sparse_taps<float> taps(x.p, memory);
        REQUIRE(memory.allocate());
        taps.prepare(stream);
        auto keys = plan_scan<key_sum<float>>(B, d, T);
        auto partials = room<key_sum<float>>(keys.chunks * keys.cols.count()), totals = room<key_sum<float>>(B * d);
        keys.partials = partials.data();
        stream.launch(scan_chunks_kernel<float>, keys.blocks(), scan_threads, call, keys);
        const run_plan runs = plan_runs(keys.cols.count(), keys.chunks, tuning::wide_run_warps);
        stream.launch(sparse_total_kernel<float>, runs.blocks(), runs.threads(), runs, keys, totals.data());
        fold_plan rows = plan_fold(keys.cols, 0, T);
        auto flags = room<std::uint32_t>(rows.flag_words());
        rows.flags = flags.data();
        stream.launch(sparse_rows_kernel<float>, keys.blocks(), scan_threads, call, keys, sparse_start::total,
                      totals.data(), taps.table(), rows);
        const index_t flagged = most_of_a_column(rows, T);
        CHECK(flagged < 4 * m);
        // Where a tap takes nearly all of a row away, that row is one of them.
        CHECK((flagged > 0) == (peak && value < 0));
      }
}

TEST_CASE("sparse work: a causal row is summed by definition where its own taps hold much of what it sees") {
  const call_stream stream("test", nullptr);
  const inputs x(1, -3.0, false, true);
  const device_call<float> call = to_call<float>(x.p);
  device_scratch memory(stream);
  const sparse_taps<float> taps(x.p, memory);
  REQUIRE(memory.allocate());
  taps.prepare(stream);
  auto keys = plan_scan<key_sum<float>>(B, d, T);
  auto partials = room<key_sum<float>>(keys.chunks * keys.cols.count());
  keys.partials = partials.data();
  stream.launch(scan_chunks_kernel<float>, keys.blocks(), scan_threads, call, keys);
  const run_plan runs = plan_runs(keys.cols.count(), keys.chunks, run_warps<key_sum<float>>);
  stream.launch(scan_prefix_kernel<float>, runs.blocks(), runs.threads(), runs, keys.partials);
  fold_plan rows = plan_fold(keys.cols, 0, T);
  auto flags = room<std::uint32_t>(rows.flag_words());
  rows.flags = flags.data();
  stream.launch(sparse_rows_kernel<float>, keys.blocks(), scan_threads, call, keys, sparse_start::prefix,
                static_cast<const key_sum<float>*>(nullptr), taps.table(), rows);
  // The first row sees its own key alone; keys of a normal distribution soon are small beside all before them.
  CHECK((rows.flags[flag_word(rows, 0, 0)] & 0xffffu) == 0xffffu);
  CHECK(most_of_a_column(rows, T) < T / 8);
}

TEST_CASE("sparse work: fewer than 2 m m + 3 keys of a column get their gradients by definition") {
  const call_stream stream("test", nullptr);
  for (index_t m : {index_t{1}, index_t{3}})
    for (double value : {-3.0, -1e4, 2.0})
      for (bool peak : {false, true}) {
        CAPTURE(m);
        CAPTURE(value);
        CAPTURE(peak);
        inputs x(m, value, peak, false);
        device_call<float> call = to_call<float>(x.p);
        device_scratch memory(stream);
        sparse_forward<float> forward(x.p, memory);
        const sparse_taps<float> taps(x.p, memory);
        REQUIRE(memory.allocate());
        auto inverse = room<float>(B * T * d), exponent = inverse, base_hi = inverse, base_lo = inverse;
        call.average = scratch_tensor(x.average.data(), call.positions, d);
        call.state = {inverse.data(), exponent.data(), base_hi.data(), base_lo.data()};
        call.g = x.g.data();
        forward.call = call;
        forward.run(stream);
        taps.prepare(stream);
        auto queries = plan_scan<query_sum<float>>(B, d, T), keys = queries;
        auto partials = room<query_sum<float>>(queries.chunks * queries.cols.count());
        queries.partials = partials.data();
        stream.launch(scan_queries_kernel<float>, queries.blocks(), scan_threads, call, queries);
        run_plan runs = plan_runs(queries.cols.count(), queries.chunks, run_warps<query_sum<float>>);
        runs.forwards = false;
        stream.launch(scan_reverse_kernel<float>, runs.blocks(), runs.threads(), runs, queries.partials, false);
        fold_plan rows = plan_fold(keys.cols, 0, T);
        auto flags = room<std::uint32_t>(rows.flag_words());
        rows.flags = flags.data();
        stream.launch(sparse_keys_kernel<float>, keys.blocks(), scan_threads, call, queries, keys, sparse_start::total,
                      taps.table(), rows);
        const index_t flagged = most_of_a_column(rows, T);
        CHECK(flagged < 2 * m * m + 3);
        CHECK((flagged > 0) == (peak && value < 0));
      }
}
