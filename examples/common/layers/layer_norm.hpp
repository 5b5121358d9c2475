// SPDX-License-Identifier: Apache-2.0
//
// Layer norm over the channels of a row, y = gain * (x - mean) / std + bias, and its backward.
#pragma once

#include "common/layers/parameter.hpp"
#include "common/support/parallel.hpp"
#include "common/support/simd.hpp"

namespace examples {

template <class Real>
class layer_norm {
 public:
  layer_norm(const std::string& name, index_t channels, index_t max_rows)
      : gain(name + ".gain", {channels}, role::vector),
        bias(name + ".bias", {channels}, role::vector),
        channels_(channels),
        mean_(max_rows),
        scale_(max_rows),
        partial_(2 * channels * row_pieces(max_rows)) {
    gain.fill(Real(1));
  }

  void forward(row_range rows, const Real* x, Real* y) {
    for (index_t t = rows.first; t < rows.first + rows.count; ++t)
      forward_row(t, x + t * channels_, y + (t - rows.first) * channels_);
  }

  /// Adds to dx, which holds the gradient that went round the sub-layer. x is the input of the
  /// forward call: normalising it again costs less than reading a stored copy.
  /// dy has the rows of this piece only.
  void backward(row_range rows, const Real* x, const Real* dy, Real* dx) {
    Real* dgain = partial_.data() + 2 * channels_ * rows.piece;
    std::fill(dgain, dgain + 2 * channels_, Real(0));
    for (index_t t = rows.first; t < rows.first + rows.count; ++t)
      backward_row(t, x + t * channels_, dy + (t - rows.first) * channels_, dx + t * channels_, dgain);
  }

  /// Sums the pieces in their order, once all are done.
  void finish_backward(index_t rows) {
    gain.grad.zero();
    bias.grad.zero();
    for (index_t piece = 0; piece < row_pieces(rows); ++piece) {
      const Real* dgain = partial_.data() + 2 * channels_ * piece;
      for (index_t c = 0; c < channels_; ++c) {
        gain.grad[c] += dgain[c];
        bias.grad[c] += dgain[channels_ + c];
      }
    }
  }

  void collect(parameter_list<Real>& all) {
    all.push_back(&gain);
    all.push_back(&bias);
  }

  parameter<Real> gain;
  parameter<Real> bias;

 private:
  void forward_row(index_t t, const Real* x, Real* y) {
    pack<Real> sum(Real(0));
    for (index_t c = 0; c < channels_; c += lanes<Real>) sum += load(x + c);
    const Real mean = sum_lanes<Real>(sum) / static_cast<Real>(channels_);
    // A second pass over a row that is in L1: E[x^2] - mean^2 would cancel when the residual
    // stream has grown a large mean.
    pack<Real> squares(Real(0));
    for (index_t c = 0; c < channels_; c += lanes<Real>) {
      const pack<Real> centred = load(x + c) - pack<Real>(mean);
      squares = xsimd::fma(centred, centred, squares);
    }
    const Real variance = sum_lanes<Real>(squares) / static_cast<Real>(channels_);
    const Real scale = Real(1) / std::sqrt(variance + Real(1e-5));
    mean_[t] = mean;
    scale_[t] = scale;
    for (index_t c = 0; c < channels_; c += lanes<Real>) {
      const pack<Real> normal = (load(x + c) - pack<Real>(mean)) * pack<Real>(scale);
      store(y + c, xsimd::fma(normal, load(gain.value.data() + c), load(bias.value.data() + c)));
    }
  }

  void backward_row(index_t t, const Real* x, const Real* dy, Real* dx, Real* dgain) {
    const pack<Real> mean(mean_[t]);
    const pack<Real> scale(scale_[t]);
    pack<Real> sum(Real(0));
    pack<Real> sum_normal(Real(0));
    for (index_t c = 0; c < channels_; c += lanes<Real>) {
      const pack<Real> normal = (load(x + c) - mean) * scale;
      const pack<Real> d = load(dy + c);
      store(dgain + c, xsimd::fma(d, normal, load(dgain + c)));
      store(dgain + channels_ + c, load(dgain + channels_ + c) + d);
      const pack<Real> dnormal = d * load(gain.value.data() + c);
      sum += dnormal;
      sum_normal = xsimd::fma(dnormal, normal, sum_normal);
    }
    const pack<Real> a(sum_lanes<Real>(sum) / static_cast<Real>(channels_));
    const pack<Real> b(sum_lanes<Real>(sum_normal) / static_cast<Real>(channels_));
    for (index_t c = 0; c < channels_; c += lanes<Real>) {
      const pack<Real> normal = (load(x + c) - mean) * scale;
      const pack<Real> dnormal = load(dy + c) * load(gain.value.data() + c);
      store(dx + c, load(dx + c) + scale * (dnormal - a - normal * b));
    }
  }

  index_t channels_;
  buffer<Real> mean_;
  buffer<Real> scale_;
  buffer<Real> partial_;
};

}  // namespace examples
