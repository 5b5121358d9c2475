// SPDX-License-Identifier: Apache-2.0
/// @file scan/narrow_rows.hpp  Loops over rows of 16-bit numbers as they lie: compiled where a file has such data.
#pragma once

#include <array>
#include <cstddef>

#include "../simd/conversions.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// What is done with rows of 16-bit numbers where they lie: staged, each is stored once more than it is read.
enum class narrow_loop { sums, gated_rows, any_rows, kept_rows, gates, row_gradients, causal_gradients, key_gradients };
inline constexpr std::size_t narrow_loops =
    static_cast<std::size_t>(narrow_loop::key_gradients) + 1;  // of the last one

/// Does what `job` asks if its rows lie as a 16-bit type, else nothing and says false.
using narrow_entry = bool (*)(const void* job);

/// Those of one direction, behind a pointer that is null in files whose data are float or double: these loops would be
/// a fifth of what aft::simple compiles there.
struct narrow_entries {
  std::array<narrow_entry, narrow_loops> of{};
};

/// Job::run<T>() says whether its rows lie as T; a type counts if whole vectors have instructions for it.
template <class C, class Job>
inline bool run_narrow(const void* job) {
  const auto run_as = [job]<class T>(const T*) {
    if constexpr (converts<T, C>) return static_cast<const Job*>(job)->template run<T>();
    return false;
  };
  return run_as(static_cast<const bfloat16*>(nullptr)) || run_as(static_cast<const half*>(nullptr));
}

template <class C, class... Jobs>
constexpr narrow_entries narrow_entries_of() {
  narrow_entries all;
  ((all.of[static_cast<std::size_t>(Jobs::loop)] = &run_narrow<C, Jobs>), ...);
  return all;
}

template <class Job>
inline bool try_narrow_rows(const narrow_entries* all, const Job& job) {
  return all != nullptr && all->of[static_cast<std::size_t>(Job::loop)](&job);
}

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
