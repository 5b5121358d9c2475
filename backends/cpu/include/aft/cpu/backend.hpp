// SPDX-License-Identifier: Apache-2.0
/// @file backend.hpp  The CPU backend's entry: which algorithm serves which problem.
#pragma once

// GCC 12 reports the undefined pass-through operands inside its own AVX-512 intrinsics as uninitialised reads, a
// hundred times a file. What counts is where they are called from: the intrinsics may have been read before, as by
// Eigen.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <aft/core/problem/dispatch.hpp>
#include <aft/core/float_environment.hpp>

#include "packed/backward.hpp"
#include "packed/dealt_sums.hpp"
#include "packed/forward.hpp"
#include "pairs/backward.hpp"
#include "pairs/forward.hpp"
#include "runtime/parallel.hpp"
#include "scan/backward/call.hpp"
#include "scan/backward/far_keys.hpp"
#include "scan/forward.hpp"
#include "scan/key_sums.hpp"
#include "simd/build_info.hpp"
#include "simd/exact_arithmetic.hpp"
#include "simd/isa.hpp"
#include "softmax/padding.hpp"
#include "sparse/backward.hpp"
#include "sparse/forward.hpp"
#include "stencil/calls/backward.hpp"
#include "stencil/calls/forward.hpp"
#include "stencil/calls/moved_filter.hpp"
#include "stream/forward.hpp"

namespace aft {
inline namespace AFT_ISA {

namespace cpu_impl {

/// A filter slides over its grid: taps are lanes' own weights, no pair is looked up.
inline bool is_stencil(const problem& p) {
  return p.bias.kind == bias_kind::filter && !p.pair_mask();
}

/// No pair has a weight of its own. AFT-local with an empty window is none of these, though it is AFT-simple: programs
/// that call `local` would compile the scan for it, a third of their code.
inline bool is_scan(const problem& p) {
  return p.bias.kind == bias_kind::none && !p.win.bounded && !p.pair_mask();
}

/// Multiply-adds of a forward call, about: what it costs to weigh pairs, and to read, gate and store besides.
inline double forward_work(const problem& p) {
  const auto reach = [&](index_t side) { return static_cast<double>(side < 0 ? 0 : min_of(side, p.Tk)); };
  double keys = static_cast<double>(p.Tk);
  if (is_stencil(p)) {
    keys = static_cast<double>(p.taps[0] * p.taps[1] * p.taps[2]);
  } else if (p.bias.kind == bias_kind::sparse && !p.pair_mask()) {
    keys = static_cast<double>(p.bias.taps.count);
  } else if (p.win.bounded && !p.pair_mask()) {
    keys = reach(p.win.before) + reach(p.win.after) + 1;
  }
  const double elements = static_cast<double>(p.B) * static_cast<double>(p.d);
  return elements * (static_cast<double>(p.Tq) * (2 * keys + 16) + 16 * static_cast<double>(p.Tk));
}

/// All rows, those of padding too where that is simpler.
template <class C, family F>
[[gnu::noinline]] inline void forward_rows(const problem& p, const cpu& given) {
  const cpu exec = limit_threads(given, forward_work(p));
  if constexpr (F == family::conv) {
    if (is_stencil(p)) {
      if (!moves_queries(p)) return stencil_forward<C>(p, exec);
      return moved_forward<C>(p, exec, [&](const problem& joint) { stencil_forward<C>(joint, exec); });
    }
  }
  if constexpr (is_simple(F)) {
    const scan::narrow_entries* narrow = nullptr;
    if constexpr (F == family::simple) narrow = scan::forward_pass<C>::narrow();
    if (p.afar.kind == far_kind::sum) return sum_keys<C>(p, given, narrow);
    if (is_scan(p)) {
      const auto run = [narrow](const problem& part, const cpu& own) { scan_forward<C>(part, own, narrow); };
      return p.pads_queries() ? run_each_length(p, given, run) : run(p, given);
    }
  }
  if constexpr (F == family::sparse) {
    sparse_forward<C>(p, exec);
  } else {
    scratch memory(exec);
    pair_forward<C, F == family::local>(p, row_state{}, exec, memory);
  }
}

template <class C, family F>
[[gnu::noinline]] inline void gradients(const backward_problem& p, const cpu& given) {
  const bool weights_wanted = p.dk.set || p.dv.set || p.dbias.kind != bias_kind::none;
  if (!weights_wanted && !p.dq.set) return;
  if constexpr (is_simple(F)) {
    const scan::narrow_entries* narrow = nullptr;
    if constexpr (F == family::simple) narrow = scan::backward_pass<C>::narrow();
    if (p.afar.kind == far_kind::spread) return spread_gradients<C>(p, given, narrow);
    if (is_scan(p)) {
      const auto run = [narrow](const backward_problem& part, const cpu& own) { scan_backward<C>(part, own, narrow); };
      if (!p.pads_queries()) return run(p, given);
      run_each_length(p, given, run);
      if (!is_trial(given)) write_padding_gradient<C>(p, given);
      return;
    }
  }
  const cpu exec = limit_threads(given, 2 * forward_work(p));
  if constexpr (F == family::conv) {
    if (is_stencil(p) && moves_queries(p)) {
      return moved_backward<C>(p, exec, [&](const backward_problem& joint) { stencil_backward<C>(joint, exec); });
    }
  }
  scratch memory(exec);
  if (p.pads_queries() && !is_stencil(p) && states_rows(p)) {
    backward_problem without = p;
    without.lse = without_padding<C>(p, exec, memory);
    without.query_lengths = {};
    without.asked_first = 0;
    without.asked_count = -1;
    return gradients<C, F>(without, given);
  }
  if (!weights_wanted && states_rows(p) && !p.pads_queries()) return query_gradient<C>(p, exec);
  if constexpr (F == family::conv) {
    if (is_stencil(p)) return stencil_backward<C>(p, exec);
  }
  bias_gradient_pass<C> pass = nullptr;
  if constexpr (!is_simple(F)) pass = &bias_gradient_job<C>::run_tiles;
  pair_backward<C, F == family::local>(p, exec, pass, memory);
}

}  // namespace cpu_impl

template <>
struct cpu_backend<float> {
  static constexpr bool included = true;
};
template <>
struct cpu_backend<double> {
  static constexpr bool included = true;
};

template <class C>
stream_engine find_stream_engine() {
  return &cpu_impl::stream::stream_forward<C>;
}

template <class C, family F>
void cpu_forward(const problem& p, const cpu& given) {
  cpu_impl::refuse_fast_math<C>();
  const float_environment own;
#if defined(AFT_COMPILED_LEVEL)
  if (p.stream != nullptr) return cpu_impl::stream::stream_forward<C>(p, given);
#else
  if (p.stream != nullptr) return p.stream->spec.engine()(p, given);
#endif
  if (p.packed != nullptr) {
    const auto one_by_one = [](const problem& one, const cpu& exec) { cpu_impl::forward_rows<C, F>(one, exec); };
    return cpu_impl::packed_forward<C>(p, given, &cpu_impl::forward_work, cpu_impl::sequence_results(one_by_one));
  }
  cpu_impl::forward_rows<C, F>(p, given);
  if (p.pads_queries()) cpu_impl::write_padding<C>(p, given);
}

template <class C, family F>
void cpu_backward(const backward_problem& p, const cpu& given) {
  cpu_impl::refuse_fast_math<C>();
  const float_environment own;
  if constexpr (F == family::sparse) {
    const auto one_by_one = [](const backward_problem& one, const cpu& exec) {
      cpu_impl::sparse_backward<C>(one, exec, &cpu_backward<C, family::conv>);
    };
    if (p.packed == nullptr) return one_by_one(p, given);
    cpu_impl::packed_backward<C>(p, given, &cpu_impl::sparse_backward_work, cpu_impl::sequence_gradients(one_by_one));
  } else if (p.packed == nullptr) {
    cpu_impl::gradients<C, F>(p, given);
  } else {
    const auto one_by_one = [](const backward_problem& one, const cpu& exec) { cpu_impl::gradients<C, F>(one, exec); };
    const cpu_impl::sequence_gradients run(one_by_one);
    if constexpr (F == family::full || F == family::local) {
      if (p.dbias.kind == bias_kind::generated)
        return cpu_impl::packed_dealt_backward<C>(p, given, &cpu_impl::forward_work, run);
    }
    cpu_impl::packed_backward<C>(p, given, &cpu_impl::forward_work, run);
  }
}

}  // namespace AFT_ISA
}  // namespace aft

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
