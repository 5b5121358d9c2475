// SPDX-License-Identifier: Apache-2.0
//
// A named array that training changes.
#pragma once

#include "common/support/buffer.hpp"
#include "common/support/rng.hpp"

#include <string>
#include <vector>

namespace examples {

/// What the optimizer has to know. Weight decay is for matrices only; a position bias moves on a
/// learning rate of its own, because its gradient is a mean over the whole batch and all channels of
/// a head, and Adam's steps of one size leave it flat next to weights that start 10 times larger.
enum class role { matrix, vector, position_bias };

template <class Real>
struct parameter {
  parameter(std::string name_, std::vector<index_t> shape_, role kind_)
      : name(std::move(name_)), shape(std::move(shape_)), kind(kind_), value(count()), grad(count()) {}

  index_t count() const {
    index_t n = 1;
    for (const index_t extent : shape) n *= extent;
    return n;
  }
  void fill_normal(random_stream random, double deviation) {
    for (Real& x : value) x = static_cast<Real>(deviation * random.normal());
  }
  void fill(Real x) { std::fill(value.begin(), value.end(), x); }

  std::string name;
  std::vector<index_t> shape;
  role kind;
  buffer<Real> value;
  buffer<Real> grad;
};

template <class Real>
using parameter_list = std::vector<parameter<Real>*>;

}  // namespace examples
