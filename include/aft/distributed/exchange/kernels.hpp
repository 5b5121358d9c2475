// SPDX-License-Identifier: Apache-2.0
/// @file exchange/kernels.hpp  The functions of a backend that a cut call needs, on the host or on a device.
#pragma once

#include <aft/core/problem/dispatch.hpp>

#include "../memory/device_memory.hpp"

#include <cstring>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Those of one operator and of aft::simple, whose `sum_` functions take rows that see all of some keys. `on` is what
/// they run on: an aft::cpu, or a twin_memory.
struct kernels {
  const void* on;
  void (*run_forward)(const problem& p, const void* on);
  void (*run_backward)(const backward_problem& p, const void* on);
  void (*run_sum_forward)(const problem& p, const void* on);
  void (*run_sum_backward)(const backward_problem& p, const void* on);
  void (*run_clear)(const element_block& to, const std::byte* zero, const void* on);

  void forward(const problem& p) const { run_forward(p, on); }
  void backward(const backward_problem& p) const { run_backward(p, on); }
  void sum_forward(const problem& p) const { run_sum_forward(p, on); }
  void sum_backward(const backward_problem& p) const { run_sum_backward(p, on); }
  /// Elements of a caller's tensor that no kernel writes. `zero` is one in the memory of kernels.
  void clear(const element_block& to, const std::byte* zero) const { run_clear(to, zero, on); }
};

/// A problem with what it reads on its way to the device, and afterwards what it wrote on its way back.
class device_problem {
 public:
  explicit device_problem(const void* twins) : twins_(static_cast<const twin_memory*>(twins)) {}

  const cuda& exec() const { return twins_->stream().exec(); }

  template <class Byte>
  void reads(Byte*& data) {
    const twin_memory::twin* const t = twins_->find(data);
    if (t == nullptr) return;
    twins_->write(*t);
    data = t->device + (data - t->host);
  }
  void reads_operands(problem& p) {
    for (field* f : {&p.q, &p.k, &p.v}) reads(f->data);
    reads(p.mask);
    reads(p.lengths.data);
    reads(p.query_lengths.data);
  }
  void writes(std::byte*& data) {
    const twin_memory::twin* const t = twins_->find(data);
    if (t == nullptr) return;
    written_[count_++] = t;
    data = t->device + (data - t->host);
  }
  void take_back() const {
    for (int i = 0; i < count_; ++i) twins_->read(*written_[i]);
  }

 private:
  const twin_memory* twins_;
  const twin_memory::twin* written_[8] = {};  // y, lse and average, or six gradients
  int count_ = 0;
};

template <class C, family F>
void host_forward(const problem& p, const void* on) {
  cpu_forward<C, F>(p, *static_cast<const cpu*>(on));
}
template <class C, family F>
void host_backward(const backward_problem& p, const void* on) {
  cpu_backward<C, F>(p, *static_cast<const cpu*>(on));
}
inline void host_clear(const element_block& to, const std::byte* zero, const void*) {
  const index_t* const n = to.extents;
  const index_t* const step = to.strides;
  for (index_t a = 0; a < n[0]; ++a)
    for (index_t b = 0; b < n[1]; ++b)
      for (index_t c = 0; c < n[2]; ++c)
        for (index_t d = 0; d < n[3]; ++d)
          for (index_t e = 0; e < n[4]; ++e) {
            const index_t at = a * step[0] + b * step[1] + c * step[2] + d * step[3] + e * step[4];
            std::memcpy(to.data + at * to.size, zero, static_cast<std::size_t>(to.size));
          }
}

template <class C>
void device_forward(const problem& given, const void* on) {
  device_problem moved(on);
  problem p = given;
  moved.reads_operands(p);
  for (field* f : {&p.y, &p.lse, &p.average}) moved.writes(f->data);
  cuda_forward<C>(p, moved.exec());
  moved.take_back();
}
template <class C>
void device_backward(const backward_problem& given, const void* on) {
  device_problem moved(on);
  backward_problem p = given;
  moved.reads_operands(p);
  for (field* f : {&p.dy, &p.lse, &p.average}) moved.reads(f->data);
  for (field* f : {&p.dq, &p.dk, &p.dv}) moved.writes(f->data);
  for (matrix* m : {&p.dbias.u, &p.dbias.v}) moved.writes(m->data);
  moved.writes(p.dbias.r);
  cuda_backward<C>(p, moved.exec());
  moved.take_back();
}
inline void device_clear(const element_block& to, const std::byte* zero, const void* on) {
  device_problem moved(on);
  element_block from;
  moved.reads(zero);
  from.data = const_cast<std::byte*>(zero);
  from.size = to.size;
  static_cast<const twin_memory*>(on)->stream().copy(to, from);
}

template <class C, family F>
kernels kernels_on(const cpu& exec) {
  constexpr family joint = is_simple(F) ? F : family::simple;
  return {
      &exec, &host_forward<C, F>, &host_backward<C, F>, &host_forward<C, joint>, &host_backward<C, joint>, &host_clear,
  };
}
/// Of any operator: a device's backend finds out which from the problem.
template <class C>
kernels kernels_on(const twin_memory& twins) {
  return {&twins, &device_forward<C>, &device_backward<C>, &device_forward<C>, &device_backward<C>, &device_clear};
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
