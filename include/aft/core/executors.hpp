// SPDX-License-Identifier: Apache-2.0
/// @file executors.hpp  Where a call runs.
#pragma once

#include <type_traits>

#include "config.hpp"

#if defined(AFT_COMPILED) && defined(_GLIBCXX_BEGIN_NAMESPACE_VERSION)
// A file without kernels hands the resource on and asks it for nothing. The header brings locks and clocks along, which
// were a quarter of the time that such a file takes to be parsed.
namespace std _GLIBCXX_VISIBILITY(default) {
  _GLIBCXX_BEGIN_NAMESPACE_VERSION
  namespace pmr {
  class memory_resource;
  }
  _GLIBCXX_END_NAMESPACE_VERSION
}  // namespace )
#else
#include <memory_resource>
#endif

namespace aft {

/// Runs on the host. `threads` is the most that may be used, 0 leaves the number to OpenMP, less is a shape_error.
/// Scratch comes from `memory` (null: new and delete); it is asked for by the calling thread only, so the resource need
/// not be thread-safe unless two calls share it.
struct cpu {
  /// The most threads that a call may use. Results do not depend on it.
  int threads = 0;
  /// Where scratch comes from, and goes back to before the call returns or throws; not owned.
  std::pmr::memory_resource* memory = nullptr;
};

/// Runs on the device of a CUDA stream, asynchronously. Null is the default stream.
struct cuda {
  /// A cudaStream_t.
  void* stream = nullptr;
};

/// Stands for a gradient that is not wanted; the work for it is then left out.
struct no_grad_t {};
/// The value to pass: aft::full_backward(q, k, v, bias, dy, dq, dk, dv, aft::no_grad).
inline constexpr no_grad_t no_grad{};

/// aft::cpu or aft::cuda.
template <class E>
concept executor = std::is_same_v<std::remove_cvref_t<E>, cpu> || std::is_same_v<std::remove_cvref_t<E>, cuda>;

/// What the checks of a call take an executor for: itself, or the one inside an executor that is made of one
/// (aft/distributed/split.hpp).
template <class E>
struct runs_on {
  /// aft::cpu or aft::cuda, where E is an executor.
  using type = E;
};
/// runs_on of an executor as an argument has it, const or a reference.
template <class E>
using runs_on_t = typename runs_on<std::remove_cvref_t<E>>::type;

/// What the four operators run on: an executor, or what is made of one. One variable, so that compilers have one line
/// to say of what is neither.
template <class E>
inline constexpr bool runs_operators = executor<runs_on_t<E>>;
/// What the four operators take as their first argument.
template <class E>
concept operator_executor = runs_operators<E>;

/// The executor that works on views of a space; calls without an executor argument use it.
template <class Space>
using default_executor_t = std::conditional_t<std::is_same_v<Space, device_space>, cuda, cpu>;

}  // namespace aft
