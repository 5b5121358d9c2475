// SPDX-License-Identifier: Apache-2.0
/// @file attention_map.hpp  The attention that an operator applies without ever forming it, as a tensor: AFT Eq. 3.
#pragma once

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/float_environment.hpp>
#include <aft/core/checks/prepare.hpp>

#include "conv.hpp"
#include "erase.hpp"
#if !defined(AFT_COMPILED)
#include "fill_map.hpp"
#endif
#include "full.hpp"
#include "local.hpp"

#if defined(AFT_COMPILED)
namespace aft::AFT_COMPILED_ENTRIES {
/// The library's: what the loop allocates by takes long to include. Called by this name alone: a fill_map of this file
/// would be a second function of the name that the library has, and a linker keeps one of two.
[[gnu::visibility("default")]] void compiled_fill_map(const problem& p, const any_view& out, const cpu& exec);
}  // namespace aft::AFT_COMPILED_ENTRIES
#endif

namespace aft {
inline namespace AFT_ISA {

namespace checks {

/// out is (B, Tq, Tk, channels), or (Tq, Tk, channels) for a batch of one.
inline problem prepare_map(const call& c) {
  refuse_offsets(c);
  refuse_stream(c);
  require_outside(c);
  require_first_query(c, channel_axis(c.k.view) - first_position(c.k.view));
  require_sane_all(c);
  problem p;
  const any_view& out = c.y.view;
  const std::size_t query_axis = out.rank() - 3;
  votes batch(c.op, "B");
  add_batch(batch, c.k);
  if (out.rank() == 4) {
    batch.add(c.y, 0);
  } else {
    batch.add_absent(c.y);
  }
  p.B = batch.settle();
  p.hk = c.k.view.extent(channel_axis(c.k.view));
  p.d = out.extent(out.rank() - 1);
  if (p.hk == 0 ? p.d != 0 : p.d % p.hk != 0) {
    fail(c.op, c.y, axis_text(out.rank() - 1, "channels") << " to be a multiple of hk = " << p.hk, p.d);
  }
  const std::size_t first = first_position(c.k.view);
  const std::size_t axes = channel_axis(c.k.view) - first;
  votes keys(c.op, "Tk");
  if (axes == 1) {
    keys.add(c.k, first);
    add_bias_keys(keys, c.bias);
    keys.add(c.y, query_axis + 1);
    p.Tk = keys.settle();
    p.grid = {1, 1, p.Tk};
  } else {
    for (std::size_t i = 0; i < axes; ++i) p.grid[3 - axes + i] = c.k.view.extent(first + i);
    p.Tk = p.grid[0] * p.grid[1] * p.grid[2];
    require_extent(c.op, c.y, query_axis + 1, "Tk", p.Tk);
  }
  if (c.cross_lengths) {
    votes queries(c.op, "Tq");
    add_bias_queries(queries, c.bias);
    queries.add(c.y, query_axis);
    p.Tq = queries.settle();
    p.grid = {1, 1, p.Tq};
  } else {
    p.Tq = p.Tk;
    require_extent(c.op, c.y, query_axis, "Tq", p.Tq);
  }
  set_window(c, p);
  set_visibility(c, p);
  p.bias = to_bias_ref(c, c.bias, p);
  set_filter_geometry(c, p);
  require_mask(c, p);
  require_lengths(c, c.key_lengths, p);
  require_lengths(c, c.query_lengths, p);
  require_memory(c);
  p.k = to_field(c.k.view);
  set_mask(c, p);
  return p;
}

template <class E, class K, class Bias, class Out>
constexpr detail::finding find_map_tensors() {
  return detail::first_of({detail::find_input<detail::arg::k, E, detail::value_of_t<K>, 2, 5, K>(),
                           detail::find_output<detail::arg::out, E, detail::value_of_t<Out>, 3, 4, Out>(),
                           find_bias<E, detail::value_of_t<K>, Bias>()});
}

template <class E, class K, class Bias>
constexpr bool check_map_bias() {
  using T = detail::value_of_t<K>;
  if constexpr (is_tensor_view<Bias>) {
    if constexpr (check_filter<detail::arg::filter, E, T, Bias>()) {
      constexpr bool rank_fits = K::rank() == Bias::rank() + 1 || (K::rank() == 2 && Bias::rank() == 2);
      static_assert(
          rank_fits,
          "aft::attention_map: wrong rank: k is (B, positions..., hk) with as many position axes as filter has");
      return rank_fits;
    } else {
      return false;
    }
  } else {
    static_assert(K::rank() <= 3, "aft::attention_map: wrong rank: k is (B, Tk, hk) or (Tk, hk)");
    return K::rank() <= 3 && check_full_bias<E, T, Bias>();
  }
}

template <class E, class K, class Out>
call make_map_call(const K& k, const Out& out, const options& opt) {
  call c;
  c.op = "aft::attention_map";
  c.type = dtype_of<detail::value_of_t<K>>;
  c.on_device = std::is_same_v<E, cuda>;
  c.no_batch = K::rank() == 2 && Out::rank() == 3;
  c.k.view = k;
  c.y = {"out", out};
  c.opt = &opt;
  c.mask.view = opt.mask;
  c.key_lengths.view = opt.key_lengths;
  c.query_lengths.view = opt.query_lengths;
  set_sequence_options(c, opt);
  return c;
}

/// On the host.
inline void run_map(const call& c, const cpu& exec) {
  require_executor(c.op, exec);
  const problem p = prepare_map(c);
  const float_environment own;
#if defined(AFT_COMPILED)
  AFT_COMPILED_ENTRIES::compiled_fill_map(p, c.y.view, exec);
#else
  fill_map(p, c.y.view, exec);
#endif
}

/// On the device of a stream; C is the arithmetic type of the data.
template <class C>
void run_map_on_device(const call& c, const cuda& exec) {
  problem p = prepare_map(c);
  const any_view& out = c.y.view;
  const std::size_t query_axis = out.rank() - 3;
  p.y.data = static_cast<std::byte*>(out.data());
  p.y.type = out.type();
  p.y.set = true;
  p.y.sb = query_axis == 1 ? out.stride(0) : 0;
  p.y.sx = {0, out.stride(query_axis), out.stride(query_axis + 1)};
  p.y.sc = out.stride(query_axis + 2);
  run_attention_map<C>(p, exec);
}

template <class K, class E>
void run_map_on(const E& exec, const call& c) {
  if constexpr (std::is_same_v<E, cpu>) {
    run_map(c, exec);
  } else {
    run_map_on_device<compute_t<typename K::value_type>>(c, exec);
  }
}

}  // namespace checks

/// The weights a[t,s,c] = exp(k[s,c] + w[t,s]) / sum_s' exp(k[s',c] + w[t,s']) that aft::full, or with a filter in
/// place of a bias aft::conv, averages v with: for plots and tests.
///
/// Shapes: k (B, Tk, hk) or (Tk, hk); on a grid (B, H, W, hk) and so on, with T the number of points in row-major
/// order. out is (B, Tq, Tk, hk), or (Tq, Tk, hk) for a batch of one. out may have more channels than k, any multiple
/// that the heads of the bias divide: channel c then shows key channel c / (channels/hk) under head c / (channels/H),
/// which is what value channel c of a call sees. `bias`: as for aft::full, or a filter as for aft::conv. Options:
/// causal, mask, key_lengths, query_lengths, first_query, outside; the rest has no meaning here. A hidden pair is 0,
/// and so is a row that sees no key. Types: k any of float, double, half, bfloat16, the bias the same or float (double
/// for double), out any; the arithmetic is in double. Strides: any; out overlaps nothing. Errors: shape_error before
/// anything is written, device_error with aft::cuda. Cost: O(B Tq Tk channels) exponentials, on one thread with scratch
/// O(Tk); with aft::cuda twice as many on a thread for every (b, t, channel), without scratch.
template <executor E, class K, class Bias, class Out>
void attention_map(const E& exec, const K& k, const Bias& bias, const Out& out, const options& opt = default_options) {
  constexpr bool tensors_fit = detail::fits<checks::find_map_tensors<E, K, Bias, Out>()>();
  if constexpr (tensors_fit) {
    if constexpr (checks::check_map_bias<E, K, Bias>()) {
      checks::call c = checks::make_map_call<E>(k, out, opt);
      c.cross_lengths = K::rank() <= 3;
      checks::set_bias<compute_t<detail::value_of_t<K>>>(c.bias, bias);
      checks::run_map_on<K>(exec, c);
    }
  }
}

/// The map of aft::local: the bias inside the window, 0 outside it.
template <executor E, class K, class Bias, class Out>
void attention_map(const E& exec, const K& k, const Bias& bias, const window& win, const Out& out,
                   const options& opt = default_options) {
  constexpr bool tensors_fit = detail::fits<checks::find_map_tensors<E, K, Bias, Out>()>();
  if constexpr (tensors_fit) {
    static_assert(K::rank() <= 3, "aft::attention_map: wrong rank: k is (B, T, hk) or (T, hk)");
    if constexpr (checks::check_local_bias<E, detail::value_of_t<K>, Bias>() && K::rank() <= 3) {
      checks::call c = checks::make_map_call<E>(k, out, opt);
      c.cross_lengths = true;
      c.windowed = true;
      c.win = {true, win.before, win.after};
      checks::set_bias<compute_t<detail::value_of_t<K>>>(c.bias, bias);
      checks::run_map_on<K>(exec, c);
    }
  }
}

/// aft::attention_map on the executor that works on the views' memory.
template <detail::not_executor K, class Bias, class Out>
void attention_map(const K& k, const Bias& bias, const Out& out, const options& opt = default_options) {
  attention_map(typename detail::executor_for<K>::type{}, k, bias, out, opt);
}
/// The map of aft::local on the executor that works on the views' memory.
template <detail::not_executor K, class Bias, class Out>
void attention_map(const K& k, const Bias& bias, const window& win, const Out& out,
                   const options& opt = default_options) {
  attention_map(typename detail::executor_for<K>::type{}, k, bias, win, out, opt);
}

}  // namespace AFT_ISA
}  // namespace aft
