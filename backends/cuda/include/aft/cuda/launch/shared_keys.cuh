// SPDX-License-Identifier: Apache-2.0
/// @file launch/shared_keys.cuh  dk where a key channel serves several value channels.
#pragma once

#include "../fold/keys.cuh"
#include "../plan/to_call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Where value channels share key channels, dk is first one value for each of them, in scratch.
template <class C>
class shared_keys {
 public:
  shared_keys(const backward_problem& p, device_scratch& memory) : positions_(to_grid(p.grid)) {
    // The grid is that of the queries; keys in one row may be of another number.
    if (positions_.n0 == 1 && positions_.n1 == 1) positions_.n2 = p.Tk;
    if (p.dk.set && p.hk != p.d) memory.reserve(per_channel_, p.B * p.Tk * p.d);
  }
  shared_keys(const shared_keys&) = delete;
  shared_keys& operator=(const shared_keys&) = delete;

  device_call<C> per_channel(const device_call<C>& call) const {
    device_call<C> own = call;
    if (per_channel_ != nullptr) own.dk = scratch_tensor(per_channel_, positions_, call.d);
    return own;
  }
  void sum(const device_call<C>& call, const call_stream& stream) const {
    if (per_channel_ == nullptr) return;
    stream.launch_each(sum_shared_keys_kernel<C>, call.B * call.Tk * call.hk, shared_key_threads, call, per_channel_);
  }

 private:
  grid positions_;
  C* per_channel_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
