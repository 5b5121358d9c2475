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
#include "exchange/mirrors.hpp"

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
/// rank_out_of_memory, device_error. What fails later calls the communicator's abort(), where it has one, and is thrown
/// on. One rank is the plain call, bit by bit. More are as exact as it, and have the same bits for the same cut.
///
/// With aft::cuda views are those of device memory. A call waits for its stream, so that one that is being captured is
/// a device_error; what ranks send and add up goes through memory of the host.
template <class Exec, communicator Comm>
struct split {
  Exec exec;          ///< aft::cpu or aft::cuda
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

/// What a call on several ranks has of the host: memory, and nothing to be moved.
class host_side {
 public:
  host_side(const checks::call&, const cpu& exec, void*)
      : exec_(&exec), memory_(exec.memory != nullptr ? exec.memory : std::pmr::new_delete_resource()) {}

  std::pmr::memory_resource* memory() const { return memory_; }
  std::pmr::memory_resource* kernel_memory() const { return memory_; }
  twin_memory* device() const { return nullptr; }
  template <class C, family F>
  kernels run() const {
    return kernels_on<C, F>(*exec_);
  }
  void mirror(part&) const {}
  void fill() const {}
  void take_back() const {}
  void settle() const noexcept {}

 private:
  const cpu* exec_;
  std::pmr::memory_resource* memory_;
};

/// The same of a device, with what the host has to see of it.
class device_side {
 public:
  device_side(const checks::call& c, const cuda& exec, device_stream::serve_function serve)
      : twins_(device_stream(c.op, exec, serve)) {}

  std::pmr::memory_resource* memory() const { return std::pmr::new_delete_resource(); }
  std::pmr::memory_resource* kernel_memory() { return &twins_; }
  twin_memory* device() { return &twins_; }
  template <class C, family>
  kernels run() const {
    return kernels_on<C>(twins_);
  }
  void mirror(part& x) { mirrors_.emplace(x, twins_); }
  void fill() const { mirrors_->fill(); }
  void take_back() const { mirrors_->take_back(); }
  void settle() const noexcept { twins_.stream().settle(); }

 private:
  twin_memory twins_;
  std::optional<mirrors> mirrors_;
};

template <class C, class Exec>
auto serve_function_of() {
  if constexpr (std::is_same_v<Exec, cuda>) {
    return &cuda_serve<C>;
  } else {
    return nullptr;
  }
}

/// False, with a message, where the file has no backend for the executor.
template <class C, class Exec>
constexpr bool require_backend() {
  if constexpr (std::is_same_v<Exec, cuda>) {
    return require_cuda_backend<C>();
  } else {
    return require_cpu_backend<C>();
  }
}

/// One call on every rank: agreed upon, then run, with the other ranks let go where this one cannot go on.
template <class C, family F, class Memory, class Exec, class Run>
void run_agreed(const checks::call& c, const Exec& exec, const communicator_ref& ranks, const Run& run) {
  using side = std::conditional_t<std::is_same_v<Exec, cuda>, device_side, host_side>;
  side own(c, exec, serve_function_of<C, Exec>());
  hidden_on_host hidden;
  std::optional<Memory> memory;
  part x;
  x.memory = own.memory();
  x.kernel_memory = own.kernel_memory();
  agree(c, ranks, own.device(), hidden, x, [&] {
    checks::require_executor(c.op, exec);
    memory.emplace(x);
    own.mirror(x);
  });
  try {
    const float_environment environment;
    own.fill();
    run(std::as_const(x), *memory, own.template run<C, F>());
    own.take_back();
  } catch (...) {
    ranks.abort();
    own.settle();
    throw;
  }
}

/// The plain call of one rank, which on a device waits as one of several does.
template <class C, class Exec, class Run>
void run_alone(checks::call& c, const Exec& exec, const Run& run) {
  require_whole_sequences(c);
  if constexpr (std::is_same_v<Exec, cuda>) {
    const device_stream stream(c.op, exec, serve_function_of<C, Exec>());
    stream.require_waiting();
    run(checks::prepare(c, exec));
    stream.wait();
  } else {
    run(checks::prepare(c, exec));
  }
}

}  // namespace distributed

template <class Exec, class Comm>
struct runner<split<Exec, Comm>> {
  static_assert(executor<Exec>, "aft::split: ranks compute on aft::cpu or aft::cuda");

  template <class C, family F>
  static void forward(const checks::call& given, const split<Exec, Comm>& all) {
    if constexpr (distributed::require_backend<C, Exec>()) {
      checks::call c = given;
      const distributed::communicator_ref ranks(all.comm);
      if (ranks.size() == 1)
        return distributed::run_alone<C>(c, all.exec, [&](const auto& p) { run_forward<C, F>(p, all.exec); });
      distributed::run_agreed<C, F, distributed::forward_memory<C>>(
          c, all.exec, ranks, [&](const auto& x, auto& memory, const distributed::kernels& run) {
            distributed::run_cut_forward<C>(x, memory, run, ranks);
          });
    }
  }

  template <class C, family F>
  static void backward(const checks::call& given, const split<Exec, Comm>& all) {
    if constexpr (distributed::require_backend<C, Exec>()) {
      checks::call c = given;
      const distributed::communicator_ref ranks(all.comm);
      if (ranks.size() == 1)
        return distributed::run_alone<C>(c, all.exec, [&](const auto& p) { run_backward<C, F>(p, all.exec); });
      distributed::run_agreed<C, F, distributed::backward_memory<C>>(
          c, all.exec, ranks, [&](const auto& x, auto& memory, const distributed::kernels& run) {
            distributed::run_cut_backward<C>(x, memory, run, ranks);
          });
    }
  }
};

}  // namespace AFT_ISA
}  // namespace aft

#if defined(__clang__)
#pragma float_control(pop)
#endif
