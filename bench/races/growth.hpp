// SPDX-License-Identifier: Apache-2.0
/// @file growth.hpp  One sequence of 512 channels, longer and longer: what time and memory grow like.
#pragma once

#include <stdexcept>
#include <string>

#include "../harness/operands.hpp"

namespace aft_bench {

/// A dense bias of 65,536 positions would take 17 GB.
inline constexpr index_t longest_dense = 16384;
/// Written with tensor operations, the bias exists three times over.
inline constexpr index_t longest_eager = 16384;

inline shape growth_shape(index_t T) {
  return {1, T, 512};
}

/// An operator with a bias of as little memory as it allows: dense, of rank 64, or a band of 63.
class growth_call {
 public:
  growth_call(std::string what, index_t T) : what_(std::move(what)), x_(growth_shape(T)) {
    if (what_ == "full") x_.make_bias();
    if (what_ == "factorized") x_.make_factors(64);
    if (what_ == "local32") band_ = normal_values<float>(T * width, 8);
  }

  void run(const aft::cpu& exec) {
    const auto q = x_.in(x_.q), k = x_.in(x_.k), v = x_.in(x_.v);
    const auto y = x_.out(x_.y);
    if (what_ == "full") return aft::full(exec, q, k, v, x_.bias(), y);
    if (what_ == "factorized") return aft::full(exec, q, k, v, x_.factors(), y);
    if (what_ == "simple") return aft::simple(exec, q, k, v, y);
    if (what_ != "local32") throw std::invalid_argument("no call named " + what_);
    const aft::banded_bias band{aft::tensor_view<const float, 2>{band_.data(), {x_.s.T, width}}};
    aft::local(exec, q, k, v, band, aft::window::strict(32), y);
  }

 private:
  static constexpr index_t width = 63;
  std::string what_;
  sequences<float> x_;
  buffer<float> band_;
};

}  // namespace aft_bench
