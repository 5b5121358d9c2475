// SPDX-License-Identifier: Apache-2.0
/// @file typed_split.hpp  Cut calls in one storage type, compiled once for each.
#pragma once

#include "engines/engine.hpp"

#include <aft/distributed/in_process.hpp>

#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "apart_tensors.hpp"
#include "call/typed_call.hpp"
#include "split_call.hpp"

namespace aft::test {

/// Counts what a rank receives, beside a communicator of threads.
struct counting_communicator {
  in_process ranks;
  traffic* moved;

  int rank() const { return ranks.rank(); }
  int size() const { return ranks.size(); }
  void all_gather(std::span<const std::byte> part, std::span<std::byte> gathered) const {
    moved->gathered += static_cast<index_t>(gathered.size());
    ranks.all_gather(part, gathered);
  }
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    moved->received += static_cast<index_t>(in.size());
    ++moved->messages;
    ranks.send_recv(out, to, in, from);
  }
  /// Begun, or made by wait() where messages wait.
  struct started {
    std::optional<in_process::started> begun;
    std::function<void()> made;
    void wait() {
      if (begun) return begun->wait();
      made();
    }
  };
  started start_send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    moved->received += static_cast<index_t>(in.size());
    ++moved->messages;
    if (!messages_wait()) return {ranks.start_send_recv(out, to, in, from), {}};
    return {std::nullopt, [of = ranks, out, to, in, from] { of.send_recv(out, to, in, from); }};
  }
  void abort() const { ranks.abort(); }
};

/// One axis of a view from `first` on.
template <class T, std::size_t Rank, class Space>
tensor_view<T, Rank, Space> cut_axis(tensor_view<T, Rank, Space> v, std::size_t axis, index_t first, index_t count) {
  std::array<index_t, Rank> extents = v.extents();
  extents[axis] = count;
  return {v.data() + first * v.stride(axis), extents, v.strides()};
}

/// Ranks that are threads, each with a counting communicator.
class thread_ranks {
 public:
  explicit thread_ranks(std::size_t count) : group_(in_process::group(static_cast<int>(count))) {}

  counting_communicator communicator(std::size_t r, traffic& moved) const { return {group_[r], &moved}; }

  template <class F>
  void run(const F& f) const {
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < group_.size(); ++r) threads.emplace_back([&f, r] { f(r); });
    for (std::thread& t : threads) t.join();
  }

 private:
  std::vector<in_process> group_;
};

/// A call whose tensors all ranks of this process have parts of. Those of an emulated device are memory of the host.
template <class T, class Ranks = thread_ranks, class Space = host_space>
class typed_split {
 public:
  typed_split(const setup& raw, const numbers& n, const split_lengths& cut)
      : x_(raw, n), cut_(cut), ranks_(cut.queries.size()) {
    const std::size_t ranks = cut.queries.size();
    for (std::size_t r = 0; r < ranks; ++r) du_.push_back(x_.du), df_.push_back(x_.df), dr_.push_back(x_.dr);
    const auto add = [&](auto&... all) { (apart_.add(all), ...); };
    add(x_.q, x_.k, x_.v, x_.y, x_.dy, x_.dq, x_.dk, x_.dv, x_.w, x_.u, x_.f, x_.r, x_.dw, x_.narrow_average,
        x_.wide_average, x_.lse, x_.mask, x_.signed_mask, x_.lengths, x_.query_lengths, x_.short_lengths,
        x_.short_query_lengths);
    for (std::size_t r = 0; r < ranks; ++r) add(du_[r], df_[r], dr_[r]);
    out_.thrown.resize(ranks);
    out_.moved.resize(ranks);
  }

  typed_call<T, Space>& call() { return x_; }

  /// Calls f(rank) for the ranks of this process and notes what is thrown.
  template <class F>
  void on_all_ranks(const F& f) {
    apart_.with_all_apart([&] {
      ranks_.run([&](std::size_t r) {
        try {
          f(r);
        } catch (const std::exception& e) {
          out_.thrown[r] = e.what();
        }
      });
    });
  }

  split_results forward() {
    on_all_ranks([&](std::size_t r) { forward_on(r); });
    return std::move(out_);
  }

  split_results backward() {
    split_results run = backward_alone();
    results& all = run.joint;
    for (std::size_t r = 1; r < du_.size(); ++r) {
      const bool same =
          du_[r].bytes() == du_[0].bytes() && df_[r].bytes() == df_[0].bytes() && dr_[r].bytes() == dr_[0].bytes();
      if (!same) all.damage = "gradients of what is whole differ between ranks";
    }
    return run;
  }
  /// Without a look at what other ranks wrote.
  split_results backward_alone() {
    on_all_ranks([&](std::size_t r) { backward_on(r); });
    return std::move(out_);
  }
  strided<T>& du(std::size_t r = 0) { return du_[r]; }
  strided<T>& df(std::size_t r = 0) { return df_[r]; }
  strided<T>& dr(std::size_t r = 0) { return dr_[r]; }

 private:
  auto executor_of(std::size_t r) {
    if constexpr (std::is_same_v<Space, device_space>) {
      return split{cuda{}, ranks_.communicator(r, out_.moved[r])};
    } else {
      return split{cpu{.threads = 1}, ranks_.communicator(r, out_.moved[r])};
    }
  }

  static index_t sum_before(const std::vector<index_t>& lengths, std::size_t r) {
    index_t sum = 0;
    for (std::size_t i = 0; i < r; ++i) sum += lengths[i];
    return sum;
  }
  template <class U, std::size_t R>
  tensor_view<U, R, Space> queries(tensor_view<U, R, Space> v, std::size_t r, std::size_t axis = 1) const {
    return cut_axis(v, axis, sum_before(cut_.queries, r), cut_.queries[r]);
  }
  template <class U, std::size_t R>
  tensor_view<U, R, Space> keys(tensor_view<U, R, Space> v, std::size_t r) const {
    return cut_axis(v, 1, sum_before(cut_.keys, r), cut_.keys[r]);
  }
  template <std::size_t R>
  auto in(strided<T>& t) const {
    return apart_.moved(t.template in<R, Space>());
  }
  template <std::size_t R>
  auto out(strided<T>& t) const {
    return apart_.moved(t.template view<R, T, Space>());
  }

  options options_of(std::size_t r, bool backward) {
    options o = x_.call_options(backward);
    for (any_view* v : {&o.mask, &o.key_lengths, &o.query_lengths, &o.lse, &o.average}) *v = apart_.moved(*v);
    const index_t first = sum_before(cut_.queries, r), n = cut_.queries[r];
    const auto rows = [&](any_view& v, std::size_t axis) {
      if (!v.empty()) v = v.part_of(axis, first, n);
    };
    rows(o.lse, 1);
    rows(o.average, 1);
    index_t inner = 1;
    for (std::size_t i = 1; i < x_.s.grid.size() && x_.s.call == op::conv; ++i) inner *= x_.s.grid[i];
    if (x_.s.pair_mask()) o.mask = o.mask.part_of(o.mask.rank() - 2, first * inner, n * inner);
    return o;
  }

  /// Calls f(bias, gradient) with rank r's rows.
  template <class F>
  void with_bias(std::size_t r, const F& f) {
    const auto dense = [&]<std::size_t R>() {
      return f(dense_bias{queries(in<R>(x_.w), r, R - 2)}, dense_bias{queries(out<R>(x_.dw), r, R - 2)});
    };
    const auto banded = [&]<std::size_t R>() {
      return f(banded_bias{queries(in<R>(x_.w), r, R - 2)}, banded_bias{queries(out<R>(x_.dw), r, R - 2)});
    };
    const auto factors = [&]<std::size_t R, std::size_t S>() {
      return f(factorized_bias{in<R>(x_.u), in<S>(x_.f)}, factorized_bias{out<R>(du_[r]), out<S>(df_[r])});
    };
    switch (x_.s.bias) {
      case bias_form::dense_tt: return dense.template operator()<2>();
      case bias_form::dense_htt: return dense.template operator()<3>();
      case bias_form::dense_bhtt:
      case bias_form::dense_1htt: return dense.template operator()<4>();
      case bias_form::factorized_tn: return factors.template operator()<2, 2>();
      case bias_form::factorized_htn: return factors.template operator()<3, 3>();
      case bias_form::factorized_mixed: return factors.template operator()<2, 3>();
      case bias_form::banded_tj: return banded.template operator()<2>();
      case bias_form::banded_htj: return banded.template operator()<3>();
    }
  }

  void forward_on(std::size_t r) {
    const setup& s = x_.s;
    const auto exec = executor_of(r);
    const options o = options_of(r, false);
    strided<T>& y = s.in_place ? x_.q : x_.y;
    const auto rows = [&](auto v) { return queries(v, r); };
    const auto cols = [&](auto v) { return keys(v, r); };
    switch (s.call) {
      case op::simple: return simple(exec, rows(in<3>(x_.q)), cols(in<3>(x_.k)), cols(in<3>(x_.v)), rows(out<3>(y)), o);
      case op::full:
        return with_bias(r, [&](auto bias, auto) {
          if constexpr (!is_banded_bias<decltype(bias)>)
            full(exec, rows(in<3>(x_.q)), cols(in<3>(x_.k)), cols(in<3>(x_.v)), bias, rows(out<3>(y)), o);
        });
      case op::local:
        return with_bias(r, [&](auto bias, auto) {
          local(exec, rows(in<3>(x_.q)), cols(in<3>(x_.k)), cols(in<3>(x_.v)), bias, s.win, rows(out<3>(y)), o);
        });
      case op::conv:
        return x_.with_grid([&]<std::size_t R>() {
          conv(exec, rows(in<R>(x_.q)), cols(in<R>(x_.k)), cols(in<R>(x_.v)), in<R - 1>(x_.r), rows(out<R>(y)), o);
        });
    }
  }

  void backward_on(std::size_t r) {
    const setup& s = x_.s;
    const auto exec = executor_of(r);
    const options o = options_of(r, true);
    const auto rows = [&](auto v) { return queries(v, r); };
    const auto cols = [&](auto v) { return keys(v, r); };
    const auto call = [&]<std::size_t R>(const auto& operator_backward) {
      operator_backward(rows(in<R>(x_.q)), cols(in<R>(x_.k)), cols(in<R>(x_.v)), rows(in<R>(x_.dy)),
                        rows(out<R>(x_.dq)), cols(out<R>(x_.dk)), cols(out<R>(x_.dv)));
    };
    switch (s.call) {
      case op::simple:
        return call.template operator()<3>([&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv) {
          simple_backward(exec, q, k, v, dy, dq, dk, dv, o);
        });
      case op::full:
        return with_bias(r, [&](auto bias, auto dbias) {
          if constexpr (!is_banded_bias<decltype(bias)>)
            call.template operator()<3>([&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv) {
              full_backward(exec, q, k, v, bias, dy, dq, dk, dv, dbias, o);
            });
        });
      case op::local:
        return with_bias(r, [&](auto bias, auto dbias) {
          call.template operator()<3>([&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv) {
            local_backward(exec, q, k, v, bias, s.win, dy, dq, dk, dv, dbias, o);
          });
        });
      case op::conv:
        return x_.with_grid([&]<std::size_t R>() {
          call.template operator()<R>([&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv) {
            conv_backward(exec, q, k, v, in<R - 1>(x_.r), dy, dq, dk, dv, out<R - 1>(dr_[r]), o);
          });
        });
    }
  }

  typed_call<T, Space> x_;
  split_lengths cut_;
  Ranks ranks_;
  std::vector<strided<T>> du_, df_, dr_;
  apart_tensors<Space> apart_;
  split_results out_;
};

template <class T, class Space>
split_results run_split_forward(const setup& s, const numbers& n, const split_lengths& cut) {
  typed_split<T, thread_ranks, Space> run(s, n, cut);
  split_results out = run.forward();
  typed_call<T, Space>& x = run.call();
  results& all = out.joint;
  auto& y = s.in_place ? x.q : x.y;
  all.y = y.read();
  if (s.save) all.average = s.narrow_average ? x.narrow_average.read() : x.wide_average.read();
  if (s.save && x.s.has_lse()) all.lse = x.lse.read();
  if (!y.surroundings_intact()) all.damage = "around y";
  if (!x.lse.surroundings_intact() || !x.wide_average.surroundings_intact()) all.damage = "around lse or average";
  return out;
}

template <class T, class Space>
split_results run_split_backward(const setup& s, const numbers& n, const split_lengths& cut, const results* saved) {
  typed_split<T, thread_ranks, Space> run(s, n, cut);
  typed_call<T, Space>& x = run.call();
  if (s.save) {
    if (s.narrow_average) {
      x.narrow_average.assign(saved->average);
    } else {
      x.wide_average.assign(saved->average);
    }
    if (x.s.has_lse()) x.lse.assign(saved->lse);
  }
  split_results out = run.backward();
  results& all = out.joint;
  all.dq = x.dq.read();
  all.dk = x.dk.read();
  all.dv = x.dv.read();
  if (!x.dw.extents().empty()) all.dw = x.dw.read();
  if (!x.du.extents().empty()) all.du = run.du().read();
  if (!x.df.extents().empty()) all.df = run.df().read();
  if (!x.dr.extents().empty()) all.dr = run.dr().read();
  for (strided<T>* t : {&x.dq, &x.dk, &x.dv, &x.dw, &run.du(), &run.df(), &run.dr()})
    if (!t->surroundings_intact()) all.damage = "around a gradient";
  return out;
}

template <class T>
constexpr split_functions split_functions_of() {
#if defined(AFT_TEST_DEVICE)
  return {run_split_forward<T, host_space>, run_split_backward<T, host_space>, run_split_forward<T, device_space>,
          run_split_backward<T, device_space>};
#else
  return {run_split_forward<T, host_space>, run_split_backward<T, host_space>, nullptr, nullptr};
#endif
}

}  // namespace aft::test
