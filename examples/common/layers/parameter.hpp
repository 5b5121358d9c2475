// SPDX-License-Identifier: Apache-2.0
//
// A named array that training changes.
#pragma once

#include "common/support/buffer.hpp"
#include "common/support/rng.hpp"

#include <string>
#include <vector>

namespace examples {

/// What the optimizer has to know. A matrix multiplies vectors; a table has a row or column for each byte, position or
/// class. Weight decay is for both, steps that are orthogonal for matrices only. A position bias moves on a learning
/// rate of its own, because its gradient is a mean over the whole batch and all channels of a head, and Adam's steps of
/// one size leave it flat next to weights that start 10 times larger.
enum class role { matrix, table, vector, position_bias };

/// What a backward call leaves in `grad` where each rank has a part of every sequence, and what is left to do.
enum class share {
  terms,  ///< what the rank's own rows add: sums over the ranks are due
  rows,   ///< the first axis counts positions, and the rank has the rows of its own: the others' rows are due
  whole   ///< all of it, the same on every rank: the operator has added it up
};

template <class Real>
struct parameter {
  parameter(std::string name_, std::vector<index_t> shape_, role kind_, share rank_has_ = share::terms)
      : name(std::move(name_)),
        shape(std::move(shape_)),
        kind(kind_),
        rank_has(rank_has_),
        value(count()),
        grad(count()) {}

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
  share rank_has;
  buffer<Real> value;
  buffer<Real> grad;
};

template <class Real>
using parameter_list = std::vector<parameter<Real>*>;

}  // namespace examples
