// SPDX-License-Identifier: Apache-2.0
/// @file call/one_average.hpp  Rows that all see the same keys, with no bias: AFT-simple without causal order.
#pragma once

#include "../exchange/near_keys.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// All keys of all ranks as one, whose key is their log-sum-exp and whose value is their average: then the plain call
/// of aft::simple on the caller's own rows gives what all keys give, and its weight is 1 whatever the key's digits are.
template <class C>
class one_average {
 public:
  explicit one_average(const part& x) : x_(&x) {
    if (!x.has_one_average()) return;
    const problem& p = x.local;
    key_ = {x.kernel_memory, p.B * p.hk};
    value_ = {x.kernel_memory, p.B * p.d};
    dv_ = {x.kernel_memory, p.B * p.d};
  }

  void set(const far_sum& all) const {
    const index_t group = all.keys > 0 ? all.channels / all.keys : 0;
    for (index_t i = 0; i < all.keys; ++i) {
      const bool none = all.den[i] == 0;
      key_[i] = none ? -std::numeric_limits<C>::infinity() : static_cast<C>(all.max[i] + std::log(all.den[i]));
      for (index_t c = i * group; c < (i + 1) * group; ++c) value_[c] = none ? C(0) : static_cast<C>(all.average[c]);
    }
  }

  void run_forward(const kernels& run) const {
    problem p = x_->local;
    place(p);
    run.sum_forward(p);
  }

  /// Writes dq, and what this rank's rows give to all keys.
  void run_backward(const kernels& run, const far_sum& all, const far_gradient* to) const {
    const problem& local = x_->local;
    backward_problem p = x_->local;
    place(p);
    p.dk = p.dv = p.average = p.lse = field{};
    p.dbias = bias_ref{};
    if (to != nullptr) p.dv = contiguous(dv_.data(), dtype_of<C>, {1, 1, 1}, 1, local.d);
    run.sum_backward(p);
    if (to == nullptr) return;
    const index_t group = all.keys > 0 ? all.channels / all.keys : 0;
    std::memcpy(to->max, all.max, static_cast<std::size_t>(all.keys) * sizeof(double));
    for (index_t c = 0; c < all.channels; ++c) {
      const double den = all.den[c / group];
      to->slope[c] = den == 0 ? 0 : static_cast<double>(dv_[c]) / den;
      to->offset[c] = den == 0 ? 0 : to->slope[c] * all.average[c];
    }
  }

 private:
  /// The caller's rows, and one key that nothing hides.
  void place(problem& p) const {
    p.Tq = x_->queries().count() * x_->inner;
    p.Tk = 1;
    place_diagonal(p, false, index_t{0});
    p.k = contiguous(key_.data(), dtype_of<C>, {1, 1, 1}, 1, p.hk);
    p.v = contiguous(value_.data(), dtype_of<C>, {1, 1, 1}, 1, p.d);
    p.lengths = length_list{};
    p.mask = nullptr;
    p.narrow_products = false;
  }

  const part* x_;
  buffer<C> key_, value_, dv_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
