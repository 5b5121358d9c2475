// SPDX-License-Identifier: Apache-2.0
//
// The mixer half of a block: out = x + mix(norm(x) project) output.
#pragma once

#include "common/layers/mlp.hpp"
#include "common/mixers/mixer.hpp"

namespace examples {

template <class Real>
class mixing {
 public:
  mixing(const std::string& name, mixer_kind kind, const mixer_shape& shape);

  /// With a stream the rows are the next of its sequences.
  void forward(sequences s, const Real* x, Real* out, const aft::cpu& exec, mixer_stream<Real>* stream);
  /// `d_out` is the gradient of the output; it becomes that of x.
  void backward(sequences s, const Real* x, Real* d_out, workspace<Real>& work, const aft::cpu& exec);
  void collect(parameter_list<Real>& all);
  /// What the mixer got in the last forward call, rows of input_width() columns.
  const Real* projected() const { return projected_.data(); }

  /// Seconds inside the operator itself, without the projections that all mixers share.
  double seconds = 0;

  std::unique_ptr<mixer<Real>> mix;
  layer_norm<Real> norm;
  parameter<Real> project;
  parameter<Real> output;

 private:
  index_t channels_;
  buffer<Real> normed_;
  buffer<Real> projected_;
  buffer<Real> mixed_;
};

extern template class mixing<float>;
extern template class mixing<double>;

}  // namespace examples
