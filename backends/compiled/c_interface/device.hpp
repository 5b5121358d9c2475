// SPDX-License-Identifier: Apache-2.0
/// @file device.hpp  Calls on a device, of a library that was built with CUDA.
#pragma once

#include "arguments/calls.hpp"
#include "arguments/place.hpp"

namespace aft::c_interface {

/// The device of the tensors is the current one while this lives; then the one before is again. Throws device_error
/// where there is no such device, and shape_error for a stream of another. Made after every other check, so that a call
/// that is wrong in itself says so on every machine. Whoever builds a library with CUDA defines it.
class device_scope {
 public:
  device_scope(const char* op, const place& where);
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;
  ~device_scope();

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Does f(aft::cuda) where the place is a device; false where it is the host. A template, as a build without CUDA has
/// nothing that f could call.
template <class C, class F>
bool done_on_device(const char* op, const place& where, const F& f) {
  if constexpr (built_with_cuda<C>) {
    if (where.on_device) {
      const device_scope scope(op, where);
      f(cuda{where.stream});
      return true;
    }
  }
  return false;
}

/// f(C, executor) in the arithmetic of the call's type, where its tensors lie.
template <class F>
void run_in_place(const operator_call& c, const F& f) {
  const auto in_arithmetic = [&]<class C>(C number) {
    if (done_on_device<C>(c.record.op, c.given.where, [&](const auto& exec) { f(number, exec); })) return;
    f(number, c.given.exec);
  };
  if (c.record.type == dtype::f64) {
    in_arithmetic(double{});
  } else {
    in_arithmetic(float{});
  }
}

}  // namespace aft::c_interface
