// SPDX-License-Identifier: Apache-2.0
// Operators' calls as nvcc compiled their kernels for sm_90a, held to the reference by the bounds of tolerance.hpp: a
// selection of small ones that takes every tensor kernel, the scans, and the folds of pairs. The wrong results of
// planted faults have to be beyond the same bounds.
#include <doctest/doctest.h>

#include <aft/cuda/backend.hpp>
#include <aft/ops/full.hpp>
#include <aft/ops/local.hpp>
#include <aft/ops/simple.hpp>
#include <aft/reference/reference.hpp>

#include <device_emulator.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <launch.hpp>
#include <spaces.hpp>

#include "faults.hpp"
#include "operators.hpp"
#include "products.hpp"
#include "support/harness/tolerance.hpp"

template <>
void aft::add_with_aft_add_cuda_instantiations<float>::forward(const problem& p, void*) {
  aft::test::translated_forward(p);
}
template <>
void aft::add_with_aft_add_cuda_instantiations<float>::backward(const backward_problem& p, void*) {
  aft::test::translated_backward(p);
}

using namespace aft::test;
using aft::index_t;
namespace ptx = aft::ptx;

namespace {

/// Numbers that kernels may reach, and views of them for either side.
template <class T, std::size_t rank>
struct tensor {
  std::array<index_t, rank> extents;
  std::vector<T> data;

  explicit tensor(std::array<index_t, rank> e) : extents(e) {
    index_t size = 1;
    for (index_t x : extents) size *= x;
    data.assign(static_cast<std::size_t>(size), T(std::nanf("")));
    ptx::global_memory::add(data.data(), data.size() * sizeof(T));
  }
  tensor(std::array<index_t, rank> e, unsigned seed) : tensor(e) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    for (T& x : data) x = T(normal(engine));
  }
  tensor(const tensor&) = delete;
  tensor& operator=(const tensor&) = delete;
  ~tensor() { (void)ptx::global_memory::remove(data.data()); }

  aft::tensor_view<const T, rank, aft::device_space> in() const { return {data.data(), extents}; }
  aft::tensor_view<T, rank, aft::device_space> out() { return {data.data(), extents}; }
  aft::tensor_view<const T, rank> host() const { return {data.data(), extents}; }
  std::vector<long double> read() const {
    std::vector<long double> x;
    for (const T& e : data) x.push_back(static_cast<long double>(static_cast<float>(e)));
    return x;
  }
};

template <class Real>
std::vector<long double> widened(const std::vector<Real>& x) {
  return {x.begin(), x.end()};
}

/// What a result is compared with; `size` is the scale of all of its elements, or 0 for one each.
template <class T, std::size_t rank>
std::string mismatch(const tensor<T, rank>& got, const std::vector<long double>& oracle,
                     const std::vector<float>& naive, const std::vector<long double>& scales, long double size,
                     long double given_error = 0) {
  const std::vector<long double> seen = got.read(), plain = widened(naive), none;
  comparison c{&seen, &oracle, &plain, &none, scales, aft::dtype::f32, aft::dtype_of<T>, given_error};
  if (size > 0) c.scale.assign(seen.size(), size);
  return first_mismatch(c);
}

/// A call and its gradients on sequences of T; `Call` says which.
template <class T, class Call>
std::string judge(const Call& call, index_t B, index_t length, index_t d, const aft::options& given,
                  bool saves = false) {
  tensor<float, 3> lse({B, length, d}), average({B, length, d});
  aft::options opt = given;
  if (saves) {
    opt.lse = lse.out();
    opt.average = average.out();
  }
  tensor<T, 3> q({B, length, d}, 1), k({B, length, d}, 2), v({B, length, d}, 3), dy({B, length, d}, 4),
      y({B, length, d});
  tensor<T, 3> dq({B, length, d}), dk({B, length, d}), dv({B, length, d});
  tensor<T, 2> w({length, call.columns(length)}, 5), dw({length, call.columns(length)});
  call.forward(q.in(), k.in(), v.in(), w.in(), y.out(), opt);
  const auto exact = call.template reference<long double>(q.host(), k.host(), v.host(), w.host(), given);
  tensor<float, 3> own_average({B, length, d});
  own_average.data = average.data;
  const std::vector<float> own_lse = lse.data;
  if (saves) {
    // What a caller has saved may be better than what bfloat16 gives, and then gradients are.
    lse.data.assign(exact.lse.begin(), exact.lse.end());
    average.data.assign(exact.average.begin(), exact.average.end());
  }
  call.backward(q.in(), k.in(), v.in(), w.in(), dy.in(), dq.out(), dk.out(), dv.out(), dw.out(), opt);

  opt = given;
  const auto naive = call.template reference<float>(q.host(), k.host(), v.host(), w.host(), opt);
  const auto exact_g = call.template gradients<long double>(q.host(), k.host(), v.host(), w.host(), dy.host(), opt);
  const auto naive_g = call.template gradients<float>(q.host(), k.host(), v.host(), w.host(), dy.host(), opt);
  // As in the harness: what a product of bfloat16 pairs may be off by, and its cuts (docs/cuda.md).
  const bool narrow = sizeof(T) == 2 && Call::multiplies;
  const long double forward_error =
      narrow ? pair_rounding + 2 * 22 * 0x1p-24L * static_cast<long double>(length / 16 + 1) : 0;
  const long double backward_error = narrow ? 8 * 0x1p-8L : 0;
  const auto size_of = [](const std::vector<long double>& terms, long double row) {
    return std::max(row, terms.empty() ? 0 : *std::max_element(terms.begin(), terms.end()));
  };
  std::string all;
  const auto note = [&](const char* name, const std::string& words) {
    if (!words.empty()) all += std::string(name) + ' ' + words + '\n';
  };
  // The gate is the sigmoid, which is at most 1.
  note("y", mismatch(y, exact.y, naive.y, exact.largest, 0, forward_error));
  if (saves) {
    note("average", mismatch(own_average, exact.average, naive.average, exact.largest, 0, forward_error));
    for (std::size_t i = 0; i < own_lse.size(); ++i)
      if (!(std::abs(own_lse[i] - exact.lse[i]) <= 0x1p-6L)) all += "lse\n";
  }
  // A lse below 8 in float is off by 2^-22, an average by 2^-24 of the largest value.
  const long double given_error = saves ? std::expm1(0x1p-22L) + 0x1p-24L : 0;
  note("dq", mismatch(dq, exact_g.dq, naive_g.dq, {}, size_of(exact_g.terms.dq, 0), given_error));
  note("dk", mismatch(dk, exact_g.dk, naive_g.dk, {}, size_of(exact_g.terms.dk, exact_g.row_dx), backward_error));
  note("dv", mismatch(dv, exact_g.dv, naive_g.dv, {}, size_of(exact_g.terms.dv, exact_g.row_dv), backward_error));
  if (call.columns(length) > 1)
    note("dw", mismatch(dw, exact_g.dw, naive_g.dw, {}, size_of(exact_g.terms.dw, exact_g.row_dx), given_error));
  return all;
}

struct full_call {
  static constexpr bool multiplies = true;
  static index_t columns(index_t T) { return T; }
  template <class Q, class W, class Y>
  void forward(const Q& q, const Q& k, const Q& v, const W& w, const Y& y, const aft::options& opt) const {
    aft::full(aft::cuda{}, q, k, v, aft::dense_bias{w}, y, opt);
  }
  template <class Q, class W, class Y, class DW>
  void backward(const Q& q, const Q& k, const Q& v, const W& w, const Q& dy, const Y& dq, const Y& dk, const Y& dv,
                const DW& dw, const aft::options& opt) const {
    aft::full_backward(aft::cuda{}, q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::dense_bias{dw}, opt);
  }
  template <class Real, class Q, class W>
  auto reference(const Q& q, const Q& k, const Q& v, const W& w, const aft::options& opt) const {
    return aft::reference::full<Real>(q, k, v, aft::dense_bias{w}, opt);
  }
  template <class Real, class Q, class W>
  auto gradients(const Q& q, const Q& k, const Q& v, const W& w, const Q& dy, const aft::options& opt) const {
    return aft::reference::full_backward<Real>(q, k, v, aft::dense_bias{w}, dy, opt);
  }
};

struct local_call {
  static constexpr bool multiplies = false;
  aft::window reach{3, 2};
  index_t columns(index_t) const { return 6; }
  template <class Q, class W, class Y>
  void forward(const Q& q, const Q& k, const Q& v, const W& w, const Y& y, const aft::options& opt) const {
    aft::local(aft::cuda{}, q, k, v, aft::banded_bias{w}, reach, y, opt);
  }
  template <class Q, class W, class Y, class DW>
  void backward(const Q& q, const Q& k, const Q& v, const W& w, const Q& dy, const Y& dq, const Y& dk, const Y& dv,
                const DW& dw, const aft::options& opt) const {
    aft::local_backward(aft::cuda{}, q, k, v, aft::banded_bias{w}, reach, dy, dq, dk, dv, aft::banded_bias{dw}, opt);
  }
  template <class Real, class Q, class W>
  auto reference(const Q& q, const Q& k, const Q& v, const W& w, const aft::options& opt) const {
    return aft::reference::local<Real>(q, k, v, aft::banded_bias{w}, reach, opt);
  }
  template <class Real, class Q, class W>
  auto gradients(const Q& q, const Q& k, const Q& v, const W& w, const Q& dy, const aft::options& opt) const {
    return aft::reference::local_backward<Real>(q, k, v, aft::banded_bias{w}, reach, dy, opt);
  }
};

struct simple_call {
  static constexpr bool multiplies = false;
  static index_t columns(index_t) { return 1; }
  template <class Q, class W, class Y>
  void forward(const Q& q, const Q& k, const Q& v, const W&, const Y& y, const aft::options& opt) const {
    aft::simple(aft::cuda{}, q, k, v, y, opt);
  }
  template <class Q, class W, class Y, class DW>
  void backward(const Q& q, const Q& k, const Q& v, const W&, const Q& dy, const Y& dq, const Y& dk, const Y& dv,
                const DW&, const aft::options& opt) const {
    aft::simple_backward(aft::cuda{}, q, k, v, dy, dq, dk, dv, opt);
  }
  template <class Real, class Q, class W>
  auto reference(const Q& q, const Q& k, const Q& v, const W&, const aft::options& opt) const {
    return aft::reference::simple<Real>(q, k, v, opt);
  }
  template <class Real, class Q, class W>
  auto gradients(const Q& q, const Q& k, const Q& v, const W&, const Q& dy, const aft::options& opt) const {
    return aft::reference::simple_backward<Real>(q, k, v, dy, opt);
  }
};

/// What is wrong with the selection of calls; empty where nothing is. It ends with the first that is.
std::string wrong_calls() {
  for (bool causal : {false, true}) {
    const aft::options opt{.causal = causal};
    // Enough keys and channels for tensor cores, of them in lines of whole accesses, and too few.
    const auto calls = {+[](const aft::options& o) { return judge<float>(full_call{}, 2, 70, 20, o); },
                        +[](const aft::options& o) { return judge<aft::bfloat16>(full_call{}, 1, 70, 20, o); },
                        +[](const aft::options& o) { return judge<aft::bfloat16>(full_call{}, 1, 70, 24, o, true); },
                        +[](const aft::options& o) { return judge<float>(full_call{}, 2, 37, 5, o); },
                        +[](const aft::options& o) { return judge<float>(simple_call{}, 1, 140, 33, o); },
                        +[](const aft::options& o) { return judge<float>(local_call{}, 2, 40, 9, o); }};
    for (const auto call : calls) {
      const std::string words = call(opt);
      if (!words.empty()) return words;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("ptx: operators are within the contract's bounds, forward and backward") {
  ptx::use_architecture("sm_90a");
  aft::emulator::seed(1);
  CHECK(wrong_calls() == "");
}

TEST_CASE("ptx: products of warpgroups prove every element and are within their bounds") {
  ptx::use_architecture("sm_90a");
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    aft::emulator::seed(seed);
    CHECK(gemm_right_on_warpgroups());
  }
}

TEST_CASE("ptx: every fault in the kernels of sm_90a is caught") {
  ptx::use_architecture("sm_90a");
  check_faults(30, 4, [] { return gemm_right_on_warpgroups() && wrong_calls().empty(); });
}
