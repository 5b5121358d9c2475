// SPDX-License-Identifier: Apache-2.0
/// @file split.hpp  A sequence over several processes: each passes its part to an operator and gets its part back.
#pragma once

#include <aft/aft.hpp>

#if defined(__clang__)
// As aft.hpp does for what it holds: no part of -ffast-math counts here.
#pragma float_control(precise, on, push)
#endif

#include "call/backward.hpp"
#include "call/forward.hpp"

namespace aft {

/// An executor: `aft::simple(aft::split{aft::cpu{}, aft::mpi_ref{comm}}, q, k, v, y)` on every rank of `comm`, each
/// with its own consecutive part of the sequence in rank order, gives each its part of what one call on the whole
/// sequence gives. Parts have any lengths, also none, of queries and of keys apart; grids are cut on their outermost
/// axis. docs/scale.md has examples and the bytes that move.
///
/// Shapes, with positions of this rank: q, y, dy, dq, lse, average; k, v, dk, dv. Dense and banded biases have this
/// rank's rows, w (Tq, Tk of all ranks); factors and filters are whole on every rank and so are their gradients, summed
/// in rank order with the same bits on all ranks. Masks have this rank's rows and all keys; lengths are those of the
/// whole and the same on all ranks. A generated bias is asked with positions of the whole; the callbacks of its
/// gradient get this rank's rows. Gradients of keys and of what is whole are wanted on all ranks or on none.
///
/// Errors: shape_error also for streams, packed sequences and first_query, and where ranks ask for different things.
/// What fails before data moves is thrown on all ranks, and the text begins with the rank: shape_error,
/// rank_out_of_memory. What fails later calls the communicator's abort(), where it has one, and is thrown on. One rank
/// is the plain call, bit by bit. More are as exact as it, and have the same bits for the same cut.
template <class Exec, communicator Comm>
struct split {
  Exec exec;          ///< aft::cpu
  mutable Comm comm;  ///< a handle, which the calls use
};
/// @cond
template <class Exec, class Comm>
split(Exec, Comm) -> split<Exec, Comm>;
/// @endcond

template <class Exec, class Comm>
struct runs_on<split<Exec, Comm>> {
  using type = Exec;
};

inline namespace AFT_ISA {
namespace distributed {

/// The kernels of one operator, and of aft::simple for sums over far keys.
template <class C, family F>
kernels kernels_of() {
  if constexpr (require_cpu_backend<C>())
    return {&cpu_forward<C, F>, &cpu_backward<C, F>, &cpu_forward<C, family::simple>, &cpu_backward<C, family::simple>};
}

/// One call on every rank: agreed upon, then run, with the other ranks let go where this one cannot go on.
template <class Memory, class Run>
void run_agreed(const checks::call& c, const cpu& exec, const communicator_ref& ranks, const Run& run) {
  std::optional<Memory> memory;
  std::pmr::memory_resource* const from = exec.memory != nullptr ? exec.memory : std::pmr::new_delete_resource();
  part x;
  agree(c, ranks, from, x, [&] {
    checks::require_executor(c.op, exec);
    memory.emplace(x);
  });
  try {
    const float_environment own;
    run(std::as_const(x), *memory);
  } catch (...) {
    ranks.abort();
    throw;
  }
}

}  // namespace distributed

template <class Exec, class Comm>
struct runner<split<Exec, Comm>> {
  static_assert(std::is_same_v<Exec, cpu>, "aft::split: ranks compute on aft::cpu; aft::cuda is not offered yet");

  template <class C, family F>
  static void forward(const checks::call& given, const split<Exec, Comm>& all) {
    checks::call c = given;
    const distributed::communicator_ref ranks(all.comm);
    if (ranks.size() == 1) {
      distributed::require_whole_sequences(c);
      return run_forward<C, F>(checks::prepare(c, all.exec), all.exec);
    }
    distributed::run_agreed<distributed::forward_memory<C>>(c, all.exec, ranks, [&](const auto& x, auto& memory) {
      distributed::run_cut_forward<C>(x, memory, distributed::kernels_of<C, F>(), all.exec, ranks);
    });
  }

  template <class C, family F>
  static void backward(const checks::call& given, const split<Exec, Comm>& all) {
    checks::call c = given;
    const distributed::communicator_ref ranks(all.comm);
    if (ranks.size() == 1) {
      distributed::require_whole_sequences(c);
      return run_backward<C, F>(checks::prepare(c, all.exec), all.exec);
    }
    distributed::run_agreed<distributed::backward_memory<C>>(c, all.exec, ranks, [&](const auto& x, auto& memory) {
      distributed::run_cut_backward<C>(x, memory, distributed::kernels_of<C, F>(), all.exec, ranks);
    });
  }
};

}  // namespace AFT_ISA
}  // namespace aft

#if defined(__clang__)
#pragma float_control(pop)
#endif
