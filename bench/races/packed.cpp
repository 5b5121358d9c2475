// SPDX-License-Identifier: Apache-2.0
// Sequences of different lengths packed one behind the other, against a batch of equal lengths with as many rows.
#include <cmath>
#include <random>
#include <vector>

#include "races.hpp"

namespace aft_bench {
namespace {

constexpr shape equal = shapes[1];

/// Log-normal lengths with mean 200 and a deviation of 0.6 in the logarithm, as sentences have, which add up to as many
/// rows as the batch has.
std::vector<std::int64_t> uneven_offsets() {
  constexpr double mean = 200, deviation = 0.6;
  std::mt19937 random(1);
  std::lognormal_distribution<double> lengths(std::log(mean) - deviation * deviation / 2, deviation);
  const index_t rows = equal.B * equal.T;
  std::vector<std::int64_t> offsets{0};
  while (offsets.back() < rows) {
    const auto length = std::max(index_t{1}, static_cast<index_t>(lengths(random)));
    offsets.push_back(std::min(rows, offsets.back() + length));
  }
  return offsets;
}

/// One call on either, forward or backward.
template <class Sequences>
void call(const std::string& what, const aft::cpu& exec, Sequences& x, buffer<float>& band, buffer<float>& dband,
          const aft::options& opt) {
  const auto q = x.in(x.q), k = x.in(x.k), v = x.in(x.v), dy = x.in(x.dy);
  const auto y = x.out(x.y), dq = x.out(x.dq), dk = x.out(x.dk), dv = x.out(x.dv);
  const aft::window win = aft::window::strict(32);
  const index_t rows = band.size() / win.width();
  const aft::banded_bias bias{aft::tensor_view<const float, 2>{band.data(), {rows, win.width()}}};
  const aft::banded_bias dbias{aft::tensor_view<float, 2>{dband.data(), {rows, win.width()}}};
  const aft::tensor_view<const float, 2> filter{band.data(), {32, 7}};
  const aft::tensor_view<float, 2> dfilter{dband.data(), {32, 7}};
  const index_t rows_of_w = static_cast<index_t>(std::lround(std::sqrt(static_cast<double>(x.w.size()))));
  const aft::dense_bias w{aft::tensor_view<const float, 2>{x.w.data(), {rows_of_w, rows_of_w}}};
  const aft::dense_bias dw{aft::tensor_view<float, 2>{x.dw.data(), {rows_of_w, rows_of_w}}};
  if (what == "full") return aft::full(exec, q, k, v, w, y, opt);
  if (what == "local32") return aft::local(exec, q, k, v, bias, win, y, opt);
  if (what == "simple") return aft::simple(exec, q, k, v, y, opt);
  if (what == "conv7") return aft::conv(exec, q, k, v, filter, y, opt);
  if (what == "full_backward") return aft::full_backward(exec, q, k, v, w, dy, dq, dk, dv, dw, opt);
  if (what == "local32_backward") return aft::local_backward(exec, q, k, v, bias, win, dy, dq, dk, dv, dbias, opt);
  if (what == "simple_backward") return aft::simple_backward(exec, q, k, v, dy, dq, dk, dv, opt);
  return aft::conv_backward(exec, q, k, v, filter, dy, dq, dk, dv, dfilter, opt);
}

race packed(const std::string& what) {
  const aft::cpu exec{.threads = run_settings().threads};
  race r;
  const auto offsets = std::make_shared<const std::vector<std::int64_t>>(uneven_offsets());
  index_t longest = 0;
  double pairs = 0;
  for (std::size_t n = 0; n + 1 < offsets->size(); ++n) {
    const index_t length = (*offsets)[n + 1] - (*offsets)[n];
    longest = std::max(longest, length);
    pairs += static_cast<double>(length) * static_cast<double>(length);
  }
  const auto enter = [&](const char* name, const shape& s, index_t T, const aft::options& opt) {
    const auto x = std::make_shared<sequences<float>>(s);
    x->w = normal_values<float>(T * T, 4);
    x->make_gradients();
    const auto band = std::make_shared<buffer<float>>(normal_values<float>(T * 63, 6));
    const auto dband = std::make_shared<buffer<float>>(T * 63);
    r.hold(x);
    r.enter(name, [=] { call(what, exec, *x, *band, *dband, opt); });
  };
  enter("equal", equal, equal.T, {});
  enter("packed", {1, equal.B * equal.T, equal.d}, longest,
        {.query_offsets =
             aft::tensor_view<const std::int64_t, 1>{offsets->data(), {static_cast<index_t>(offsets->size())}}});
  r.hold(std::const_pointer_cast<std::vector<std::int64_t>>(offsets));
  // `full` works on pairs, of which uneven lengths have more; the others work on rows.
  const bool by_pairs = what.starts_with("full");
  const double rows = static_cast<double>(equal.B * equal.T);
  r.note("flops.equal", by_pairs ? pair_flops(rows * static_cast<double>(equal.T), equal.d) : rows);
  r.note("flops.packed", by_pairs ? pair_flops(pairs, equal.d) : rows);
  return r;
}

}  // namespace

void add_packed() {
  for (const char* what : {"full", "local32", "simple", "conv7", "full_backward", "local32_backward", "simple_backward",
                           "conv7_backward"}) {
    std::string name = "packed_";
    add_race(name.append(what).append("/").append(equal.text()).append("/float"), 11, [=] { return packed(what); });
  }
}

}  // namespace aft_bench
