// SPDX-License-Identifier: Apache-2.0
/// @file runtime/function_ref.hpp  A callable of any type behind one pointer, for the duration of a call.
#pragma once

#include <aft/core/config.hpp>

namespace aft::inline AFT_ISA::cpu_impl {

template <class Signature>
class function_ref;

/// Refers to `f` without owning it. What takes one is compiled once, whatever it is called with: most of the library's
/// code lies in such bodies, and a template on each cost a third of the time that a program needs to compile a call.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
 public:
  template <class F>
  explicit function_ref(const F& f) : object_(&f), call_(&call<F>) {}
  Result operator()(Arguments... arguments) const { return call_(object_, arguments...); }

 private:
  template <class F>
  static Result call(const void* object, Arguments... arguments) {
    return (*static_cast<const F*>(object))(arguments...);
  }

  const void* object_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace aft::inline AFT_ISA::cpu_impl
