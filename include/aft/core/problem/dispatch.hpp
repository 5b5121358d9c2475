// SPDX-License-Identifier: Apache-2.0
/// @file problem/dispatch.hpp  The seam between operators and backends: operators call these, a backend defines them.
#pragma once

#include <cstddef>

#include "../executors.hpp"
#include "device_request.hpp"
#include "filter_problem.hpp"
#include "problem.hpp"

namespace aft {

/// Which operator asks. The problem says all that there is to compute; this only spares a file that calls one operator
/// the engines of the others (a call of aft::full compiles in half the time). `sparse` is aft::conv with a sparse
/// filter, whose engine would add a third to the code of every file that calls aft::conv, and to its compile time.
/// `simple_wide` is aft::simple on float or double: its loops for rows of 16-bit numbers would be a fifth of it.
enum class family { full, local, simple, conv, sparse, simple_wide };
inline constexpr std::size_t families = static_cast<std::size_t>(family::simple_wide) + 1;  // of the last one

constexpr bool is_simple(family f) {
  return f == family::simple || f == family::simple_wide;
}
/// Of a call on data of type T.
template <class T>
inline constexpr family simple_family = sizeof(T) == 2 ? family::simple : family::simple_wide;

inline namespace AFT_ISA {

/// C is the arithmetic type, float or double. The problem is valid: every check has been made. A problem with
/// bias_kind::filter is a convolution, `none` with an unbounded window is AFT-simple, a bounded window is AFT-local.
template <class C, family F>
void cpu_forward(const problem& p, const cpu& exec);

/// Overwrites every gradient that is set. `p.lse` and `p.average` are used when both are set.
template <class C, family F>
void cpu_backward(const backward_problem& p, const cpu& exec);

/// The same pair for aft::cuda. A CUDA backend defines both and specialises cuda_backend to true for the types it has.
template <class C>
void cuda_forward(const problem& p, const cuda& exec);
template <class C>
void cuda_backward(const backward_problem& p, const cuda& exec);
/// aft::attention_map, with p.y for the map: strides of b, -, t, s, c.
template <class C>
void cuda_attention_map(const problem& p, const cuda& exec);
/// A call that looks at a filter alone, such as aft::reparameterize. The arithmetic is in double; C only says which
/// instantiations serve.
template <class C>
void cuda_filter(const filter_problem& p, const cuda& exec);
/// Writes the headers of slots [first, last).
template <class C>
void cuda_reset(const stream_ref& all_slots, index_t first, index_t last, const cuda& exec);
/// Slot from[i] to slot to[i], n of them; numbers that no slot has are passed over.
template <class C>
void cuda_copy(const stream_ref& all_slots, const length_list& from, const length_list& to, index_t n,
               const cuda& exec);
/// The first `bytes` bytes of a slot, once all before on the CUDA stream is done.
template <class C>
void cuda_read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes, const cuda& exec);
/// What a call over several ranks moves.
template <class C>
void cuda_serve(device_request& r, const cuda& exec);
template <class C>
struct cuda_backend {
  static constexpr bool included = false;
};

/// False, with a message, in a file that has no CUDA backend.
template <class C>
constexpr bool require_cuda_backend() {
  static_assert(cuda_backend<C>::included,
                "aft::cuda: no CUDA backend in this file: link the target aft::cuda of find_package(aft COMPONENTS "
                "cuda), and compile the file as CUDA or call aft_add_cuda_instantiations(<target> <types>); or use "
                "host views with aft::cpu");
  return cuda_backend<C>::included;
}

/// The CPU backend specialises it to true for the types it has.
template <class C>
struct cpu_backend {
  static constexpr bool included = false;
};

/// False, with a message, in a file that includes an operator's header alone.
template <class C>
constexpr bool require_cpu_backend() {
  static_assert(cpu_backend<C>::included,
                "aft: no backend in this file: include <aft/aft.hpp> instead of the header of an operator");
  return cpu_backend<C>::included;
}

/// What an executor that is made of another does with a call, which checks::prepare has left as it came: a
/// specialisation has forward<C, F>(call, exec) and backward<C, F>(call, exec).
template <class E>
struct runner;

/// A problem, or for a runner the call itself.
template <class C, family F, class Problem, class E>
void run_forward(const Problem& p, const E& exec) {
  if constexpr (std::is_same_v<E, cpu>) {
    if constexpr (require_cpu_backend<C>()) cpu_forward<C, F>(p, exec);
  } else if constexpr (!executor<E>) {
    runner<E>::template forward<C, F>(p, exec);
  } else if constexpr (require_cuda_backend<C>()) {
    cuda_forward<C>(p, exec);
  }
}

template <class C, family F, class Problem, class E>
void run_backward(const Problem& p, const E& exec) {
  if constexpr (std::is_same_v<E, cpu>) {
    if constexpr (require_cpu_backend<C>()) cpu_backward<C, F>(p, exec);
  } else if constexpr (!executor<E>) {
    runner<E>::template backward<C, F>(p, exec);
  } else if constexpr (require_cuda_backend<C>()) {
    cuda_backward<C>(p, exec);
  }
}

template <class C>
void run_attention_map(const problem& p, const cuda& exec) {
  if constexpr (require_cuda_backend<C>()) cuda_attention_map<C>(p, exec);
}
template <class C>
void run_filter(const filter_problem& p, const cuda& exec) {
  if constexpr (require_cuda_backend<C>()) cuda_filter<C>(p, exec);
}

}  // namespace AFT_ISA
}  // namespace aft
