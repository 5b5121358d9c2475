// SPDX-License-Identifier: Apache-2.0
/// @file typed_harness.hpp  The part of the harness that calls the library, compiled once for each storage type.
#pragma once

#include "call/typed_call.hpp"
#include "typed_functions.hpp"

namespace aft::test {

namespace detail {

/// Notes a name in `damage` when the condition for it holds.
inline void note(std::string& damage, bool wrong, const char* what) {
  if (wrong) damage += damage.empty() ? what : std::string(", ") + what;
}

/// Storage of everything a call must not write, to be compared before and after.
template <class T>
std::vector<unsigned char> input_bytes(const T& x, bool with_q) {
  std::vector<unsigned char> all;
  const auto add = [&](const auto& t) {
    const auto bytes = t.bytes();
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  if (with_q) add(x.q);
  for (const auto* t : {&x.k, &x.v, &x.dy, &x.w, &x.u, &x.f, &x.r}) add(*t);
  add(x.mask);
  add(x.signed_mask);
  add(x.lengths);
  add(x.query_lengths);
  add(x.short_lengths);
  add(x.short_query_lengths);
  add(x.query_offsets);
  add(x.key_offsets);
  add(x.short_query_offsets);
  add(x.short_key_offsets);
  return all;
}

/// A call that throws must leave its outputs alone; one that returns may write them.
template <class F>
bool runs_out_of_memory(F call) {
  try {
    call();
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const device_error&) {
    return true;
  }
  return false;
}

/// The memory that an executor's views name.
template <class Exec>
using space_of = std::conditional_t<std::is_same_v<Exec, cuda>, device_space, host_space>;

/// Calls f with the executor. An engine that a program loads has no device: emulated kernels do not depend on the
/// host's instructions, and are in the program itself.
template <class F>
results on_memory_of(const any_executor& exec, F f) {
#if defined(AFT_TEST_LOADED_ENGINE)
  return f(std::get<cpu>(exec));
#else
  return std::visit(f, exec);
#endif
}

template <class T, class Exec>
results run_forward_on(const setup& s, const numbers& n, const Exec& exec) {
  typed_call<T, space_of<Exec>> x(s, n);
  const auto before = input_bytes(x, !s.in_place);
  const auto before_q = x.q.bytes();
  results out;
  out.failed = runs_out_of_memory([&] {
    x.forward(exec);
    finish_device_work();
  });
  if (x.watched && !out.failed) out.damage = x.watched->damage(false);
  note(out.damage, !x.stream_damage.empty(), x.stream_damage.c_str());
  auto& y = s.in_place ? x.q : x.y;
  out.y = y.read();
  if (s.save) out.average = s.narrow_average ? x.narrow_average.read() : x.wide_average.read();
  if (s.save && s.has_lse()) out.lse = x.lse.read();
  note(out.damage, before != input_bytes(x, !s.in_place), "an input");
  note(out.damage, !y.surroundings_intact(), "around y");
  note(out.damage, !x.narrow_average.surroundings_intact() || !x.wide_average.surroundings_intact(), "around average");
  note(out.damage, !x.lse.surroundings_intact(), "around lse");
  const bool y_written = s.in_place ? before_q != x.q.bytes() : !x.y.untouched();
  note(out.damage, out.failed && y_written, "y, before the call failed");
  note(out.damage, out.failed && !x.lse.untouched(), "lse, before the call failed");
  note(out.damage, (out.failed || !s.save) && !(x.narrow_average.untouched() && x.wide_average.untouched()),
       "average of a call that failed or was not asked for it");
  return out;
}

template <class T>
results run_forward(const setup& s, const numbers& n, const any_executor& exec) {
  return on_memory_of(exec, [&](const auto& e) { return run_forward_on<T>(s, n, e); });
}

template <class T, class Exec>
results run_backward_on(const setup& s, const numbers& n, const Exec& exec, const results* saved) {
  typed_call<T, space_of<Exec>> x(s, n);
  if (s.save) {
    results own;
    if (saved == nullptr) {
      setup forward = s;
      forward.in_place = false;
      // So that what is left of the bound is the backward call's own.
      forward.arithmetic = arithmetic::full;
      own = run_forward<T>(forward, n, default_executor());
      saved = &own;
    }
    if (s.narrow_average) {
      x.narrow_average.assign(saved->average);
    } else {
      x.wide_average.assign(saved->average);
    }
    if (s.has_lse()) x.lse.assign(saved->lse);
  }
  const auto before = input_bytes(x, true);
  const auto kept = x.wide_average.bytes();
  results out;
  out.failed = runs_out_of_memory([&] {
    x.backward(exec);
    finish_device_work();
  });
  if (x.watched && !out.failed) out.damage = x.watched->damage(true);
  out.dq = x.dq.read();
  out.dk = x.dk.read();
  out.dv = x.dv.read();
  if (!x.dw.extents().empty()) out.dw = x.dw.read();
  if (!x.du.extents().empty()) out.du = x.du.read();
  if (!x.df.extents().empty()) out.df = x.df.read();
  if (!x.dr.extents().empty()) out.dr = x.dr.read();
  note(out.damage, before != input_bytes(x, true), "an input");
  note(out.damage, kept != x.wide_average.bytes(), "average");
  const auto intact = [&](strided<T>& t, const char* name) {
    note(out.damage, out.failed ? !t.untouched() : !t.surroundings_intact(), name);
  };
  intact(x.dq, "around dq");
  intact(x.dk, "around dk");
  intact(x.dv, "around dv");
  intact(x.dw, "around dbias.w");
  intact(x.du, "around dbias.u");
  intact(x.df, "around dbias.v");
  intact(x.dr, "around dfilter");
  return out;
}

template <class T>
results run_backward(const setup& s, const numbers& n, const any_executor& exec, const results* saved) {
  return on_memory_of(exec, [&](const auto& e) { return run_backward_on<T>(s, n, e, saved); });
}

template <class T>
constexpr typed_functions functions_of() {
  return {run_forward<T>, run_backward<T>};
}

}  // namespace detail
}  // namespace aft::test
