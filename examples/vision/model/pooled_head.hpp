// SPDX-License-Identifier: Apache-2.0
//
// Rows to classes: logits = mean over the rows of norm(x), times W, plus b; and the cross entropy of the labels.
#pragma once

#include "common/layers/layer_norm.hpp"
#include "common/layers/linear.hpp"
#include "common/layers/mlp.hpp"

#include <cstdint>

namespace examples::vision {

template <class Real>
class pooled_head {
 public:
  pooled_head(index_t channels, index_t classes, index_t time, index_t max_batch)
      : norm("head.norm", channels, max_batch * time),
        weight("head.weight", {channels, classes}, role::table),
        bias("head.bias", {classes}, role::vector),
        channels_(channels),
        classes_(classes),
        time_(time),
        normed_(max_batch * time * channels),
        pooled_(max_batch * channels),
        dpooled_(max_batch * channels),
        logits_(max_batch * classes),
        dlogits_(max_batch * classes) {}

  /// The sum over all images of -log p(label), in nats.
  double loss(index_t batch, const Real* x, const std::uint8_t* labels, int threads) {
    logits_of(batch, x, threads);
    return cross_entropy(batch, labels);
  }

  /// As above, and the gradients of the mean loss; dx is written.
  double loss_and_gradient(index_t batch, const Real* x, const std::uint8_t* labels, Real* dx, workspace<Real>& work,
                           int threads) {
    const index_t d = channels_;
    logits_of(batch, x, threads);
    const double total = cross_entropy(batch, labels);
    weight_gradient<Real>(batch, d, classes_, pooled_.data(), dlogits_.data(), weight.grad.data(), threads);
    sum_pieces<Real>(batch, classes_, dlogits_.data(), bias.grad.data());
    back_through<Real>(batch, d, classes_, dlogits_.data(), weight.value.data(), Real(0), dpooled_.data());
    const Real share = Real(1) / static_cast<Real>(time_);
    parallel_rows(batch * time_, threads, [&](row_range r) {
      Real* dnormed = work.of_thread(r.thread);
      for (index_t t = 0; t < r.count; ++t)
        for (index_t c = 0; c < d; ++c) dnormed[t * d + c] = share * dpooled_[(r.first + t) / time_ * d + c];
      std::fill(dx + r.first * d, dx + (r.first + r.count) * d, Real(0));
      norm.backward(r, x, dnormed, dx);
    });
    norm.finish_backward(batch * time_);
    return total;
  }

  /// Of the last call, (batch, classes).
  const Real* logits() const { return logits_.data(); }

  void collect(parameter_list<Real>& all) {
    norm.collect(all);
    all.push_back(&weight);
    all.push_back(&bias);
  }

  layer_norm<Real> norm;
  parameter<Real> weight;
  parameter<Real> bias;

 private:
  void logits_of(index_t batch, const Real* x, int threads) {
    const index_t d = channels_;
    parallel_rows(batch * time_, threads, [&](row_range r) { norm.forward(r, x, normed_.data() + r.first * d); });
    parallel_for(batch, threads, [&](index_t b, int) {
      Real* mean = pooled_.data() + b * d;
      sum_pieces<Real>(time_, d, normed_.data() + b * time_ * d, mean);
      for (index_t c = 0; c < d; ++c) mean[c] /= static_cast<Real>(time_);
    });
    for (index_t b = 0; b < batch; ++b) std::copy(bias.value.begin(), bias.value.end(), logits_.data() + b * classes_);
    through<Real>(batch, d, classes_, pooled_.data(), weight.value.data(), Real(1), logits_.data());
  }

  /// Also its gradient by the logits, of the mean.
  double cross_entropy(index_t batch, const std::uint8_t* labels) {
    double total = 0;
    for (index_t b = 0; b < batch; ++b) {
      const Real* row = logits_.data() + b * classes_;
      Real* d = dlogits_.data() + b * classes_;
      const Real top = *std::max_element(row, row + classes_);
      Real sum = 0;
      for (index_t i = 0; i < classes_; ++i) sum += d[i] = std::exp(row[i] - top);
      const Real log_sum = top + std::log(sum);
      total += static_cast<double>(log_sum - row[labels[b]]);
      for (index_t i = 0; i < classes_; ++i) d[i] /= sum * static_cast<Real>(batch);
      d[labels[b]] -= Real(1) / static_cast<Real>(batch);
    }
    return total;
  }

  index_t channels_;
  index_t classes_;
  index_t time_;
  buffer<Real> normed_;
  buffer<Real> pooled_;
  buffer<Real> dpooled_;
  buffer<Real> logits_;
  buffer<Real> dlogits_;
};

}  // namespace examples::vision
