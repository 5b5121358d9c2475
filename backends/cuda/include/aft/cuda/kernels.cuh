// SPDX-License-Identifier: Apache-2.0
/// @file kernels.cuh  All of the CUDA backend, for nvcc.
#pragma once

#include "launch/backward.cuh"
#include "launch/forward.cuh"
#include "launch/packed.cuh"
#include "launch/requests.cuh"
#include "launch/stream.cuh"
#include "maps/attention_map.cuh"
#include "maps/gumbel_filter.cuh"
#include "maps/filter_entropy.cuh"
#include "maps/reparameterize.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Of a filter, dense or sparse.
inline index_t taps_of(const problem& p) {
  return p.bias.kind == bias_kind::sparse ? p.bias.taps.count : p.taps[0] * p.taps[1] * p.taps[2];
}

/// Builds for debugging, and those for the emulated device, look at every pointer: a host pointer in a device view is
/// found here by its name, and not by a fault on the device.
inline void require_device_memory([[maybe_unused]] const call_stream& stream,
                                  [[maybe_unused]] const backward_problem& p) {
#if !defined(NDEBUG) || defined(AFT_DEVICE_EMULATOR)
  // A tensor without elements may point anywhere.
  const bool queries = p.B * p.Tq * p.d != 0, keys = p.B * p.Tk * p.d != 0;
  const struct {
    bool read;
    const void* data;
    const char* name;
  } tensors[] = {{queries, p.q.data, "the memory of 'q'"},
                 {keys, p.k.data, "the memory of 'k'"},
                 {keys, p.v.data, "the memory of 'v'"},
                 {queries, p.y.data, "the memory of 'y'"},
                 {queries, p.lse.data, "the memory of 'lse'"},
                 {queries, p.average.data, "the memory of 'average'"},
                 {queries, p.dy.data, "the memory of 'dy'"},
                 {queries, p.dq.data, "the memory of 'dq'"},
                 {keys, p.dk.data, "the memory of 'dk'"},
                 {keys, p.dv.data, "the memory of 'dv'"},
                 {p.Tq * p.Tk != 0, p.bias.w.data, "the memory of 'w' of bias"},
                 {p.Tq * p.bias.rank != 0, p.bias.u.data, "the memory of 'u' of bias"},
                 {p.Tk * p.bias.rank != 0, p.bias.v.data, "the memory of 'v' of bias"},
                 {taps_of(p) != 0, p.bias.r,
                  p.bias.kind == bias_kind::sparse ? "the memory of 'values' of filter" : "the memory of 'filter'"},
                 {taps_of(p) != 0, p.bias.taps.data, "the memory of 'taps' of filter"},
                 {p.Tq * p.Tk != 0, p.dbias.w.data, "the memory of 'dbias.w'"},
                 {p.Tq * p.bias.rank != 0, p.dbias.u.data, "the memory of 'dbias.u'"},
                 {p.Tk * p.bias.rank != 0, p.dbias.v.data, "the memory of 'dbias.v'"},
                 {taps_of(p) != 0, p.dbias.r, "the memory of 'dfilter'"},
                 {p.B * p.Tk * (p.pair_mask() ? p.Tq : 1) != 0, p.mask, "the memory of 'mask'"},
                 {p.B != 0, p.lengths.data, "the memory of 'key_lengths'"},
                 {p.B != 0, p.query_lengths.data, "the memory of 'query_lengths'"}};
  for (const auto& t : tensors) {
    if (t.read && t.data != nullptr) stream.throw_on(pointer_error(t.data), t.name);
  }
  if (p.stream == nullptr) return;
  if (p.stream->data != nullptr) stream.throw_on(pointer_error(p.stream->data), "the memory of 'stream'");
  if (p.stream->ids != nullptr) stream.throw_on(pointer_error(p.stream->ids), "the memory of 'slot_ids'");
#endif
}

template <class C>
void run_forward(const problem& p, void* stream) {
  const char* const op = name_of_call(p, false);
  const device_guard guard(stream, op);
  const call_stream own(op, stream);
  backward_problem all;
  static_cast<problem&>(all) = p;
  require_device_memory(own, all);
  if (p.stream != nullptr) return stream_forward<C>(p, own);
  if (p.packed != nullptr) return packed_forward<C>(p, own);
  forward<C>(p, own);
}

template <class C>
void run_backward(const backward_problem& p, void* stream) {
  const char* const op = name_of_call(p, true);
  const device_guard guard(stream, op);
  const call_stream own(op, stream);
  require_device_memory(own, p);
  if (p.packed != nullptr) return packed_backward<C>(p, own);
  backward<C>(p, own);
}

template <class C>
void run_attention_map(const problem& p, void* stream) {
  const char* const op = "aft::attention_map";
  const device_guard guard(stream, op);
  const call_stream own(op, stream);
  backward_problem all;
  static_cast<problem&>(all) = p;
  require_device_memory(own, all);
  own.launch_each(attention_map_kernel<C>, p.B * p.Tq * p.d, map_threads, to_call<C>(p));
}

using filter_kernel = void (*)(filter_call);

/// A call of each form, forward and backward: its name and its kernel.
struct filter_calls {
  const char* name;
  filter_kernel kernel;
  const char* gradient_name;
  filter_kernel gradient_kernel;
};
/// Computed in double whatever C is.
template <class C>
filter_calls calls_of(filter_form form) {
  switch (form) {
    case filter_form::entropy:
      return {"aft::filter_entropy", filter_entropy_kernel<double>, "aft::filter_entropy_backward",
              filter_entropy_gradient_kernel<double>};
    case filter_form::gumbel:
      return {"aft::gumbel_filter", gumbel_filter_kernel<double>, "aft::gumbel_filter_backward",
              gumbel_filter_gradient_kernel<double>};
    case filter_form::largest: return {"aft::gumbel_filter_hard", largest_tap_kernel<double>, nullptr, nullptr};
    default:
      return {"aft::reparameterize", reparameterize_kernel<double>, "aft::reparameterize_backward",
              reparameterize_gradient_kernel<double>};
  }
}

template <class C>
void run_filter(const filter_problem& p, void* stream) {
  const filter_calls calls = calls_of<C>(p.form);
  const char* const op = p.backward ? calls.gradient_name : calls.name;
  const device_guard guard(stream, op);
  const call_stream own(op, stream);
#if !defined(NDEBUG)
  const bool some = p.heads * p.taps[0] * p.taps[1] * p.taps[2] != 0;
  const struct {
    const filter_tensor* tensor;
    const char* name;
  } tensors[] = {
      {&p.r, "the memory of 'r'"},         {&p.noise, "the memory of 'noise'"}, {&p.gain, "the memory of 'gain'"},
      {&p.shift, "the memory of 'shift'"}, {&p.dout, "the memory of 'dout'"},   {&p.out, "the memory of 'out'"},
      {&p.dr, "the memory of 'dr'"},       {&p.dgain, "the memory of 'dgain'"}, {&p.dshift, "the memory of 'dshift'"}};
  for (const auto& t : tensors) {
    if (some && t.tensor->data != nullptr) own.throw_on(pointer_error(t.tensor->data), t.name);
  }
#endif
  own.launch(p.backward ? calls.gradient_kernel : calls.kernel, p.heads, warp_size, to_filter_call(p));
}

inline void run_reset(const stream_ref& all_slots, index_t first, index_t last, void* stream) {
  const device_guard guard(stream, "aft::reset");
  reset_slots_of(all_slots, first, last, call_stream("aft::reset", stream));
}

inline void run_copy(const stream_ref& all_slots, const length_list& from, const length_list& to, index_t n,
                     void* stream) {
  const device_guard guard(stream, "aft::copy");
  copy_slots(all_slots, from, to, n, call_stream("aft::copy", stream));
}

inline void run_read(const stream_ref& all_slots, index_t slot, void* to, index_t bytes, void* stream) {
  const device_guard guard(stream, "aft::position");
  const call_stream own("aft::position", stream);
  const std::byte* const from = all_slots.data + slot * all_slots.spec.bytes();
  own.throw_on(device_read(to, from, static_cast<std::size_t>(bytes), stream), "reading a slot");
}

inline void run_serve(device_request& r, void* stream) {
  const device_guard guard(stream, r.op);
  const call_stream own(r.op, stream);
#if !defined(NDEBUG) || defined(AFT_DEVICE_EMULATOR)
  for (const void* const p : {r.what == device_action::copy ? r.to.data : nullptr, r.from.data}) {
    if (p != nullptr) own.throw_on(pointer_error(p), "the memory of a tensor");
  }
#endif
  serve(r, own);
}

}  // namespace aft::inline AFT_ISA::cuda_impl

#if !defined(AFT_COMPILED_LEVEL)  // the compiled library has entries of its own
// Weak: each file with instantiations brings them, whatever its types are, and they are the same.
[[gnu::weak]] void aft::add_with_aft_add_cuda_instantiations<void>::reset(const aft::stream_ref& all_slots,
                                                                          aft::index_t first, aft::index_t last,
                                                                          void* stream) {
  aft::cuda_impl::run_reset(all_slots, first, last, stream);
}
[[gnu::weak]] void aft::add_with_aft_add_cuda_instantiations<void>::copy(const aft::stream_ref& all_slots,
                                                                         const aft::length_list& from,
                                                                         const aft::length_list& to, aft::index_t n,
                                                                         void* stream) {
  aft::cuda_impl::run_copy(all_slots, from, to, n, stream);
}
[[gnu::weak]] void aft::add_with_aft_add_cuda_instantiations<void>::read(const aft::stream_ref& all_slots,
                                                                         aft::index_t slot, void* to,
                                                                         aft::index_t bytes, void* stream) {
  aft::cuda_impl::run_read(all_slots, slot, to, bytes, stream);
}
[[gnu::weak]] void aft::add_with_aft_add_cuda_instantiations<void>::serve(aft::device_request& r, void* stream) {
  aft::cuda_impl::run_serve(r, stream);
}
#endif

/// In one .cu file of a program: what its other files link against.
#define AFT_CUDA_INSTANTIATE(C)                                                                               \
  template <>                                                                                                 \
  void aft::add_with_aft_add_cuda_instantiations<C>::forward(const aft::problem& p, void* stream) {           \
    aft::cuda_impl::run_forward<C>(p, stream);                                                                \
  }                                                                                                           \
  template <>                                                                                                 \
  void aft::add_with_aft_add_cuda_instantiations<C>::backward(const aft::backward_problem& p, void* stream) { \
    aft::cuda_impl::run_backward<C>(p, stream);                                                               \
  }                                                                                                           \
  template <>                                                                                                 \
  void aft::add_with_aft_add_cuda_instantiations<C>::attention_map(const aft::problem& p, void* stream) {     \
    aft::cuda_impl::run_attention_map<C>(p, stream);                                                          \
  }                                                                                                           \
  template <>                                                                                                 \
  void aft::add_with_aft_add_cuda_instantiations<C>::filter(const aft::filter_problem& p, void* stream) {     \
    aft::cuda_impl::run_filter<C>(p, stream);                                                                 \
  }                                                                                                           \
  static_assert(true)
