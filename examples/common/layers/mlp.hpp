// SPDX-License-Identifier: Apache-2.0
//
// The feed-forward half of a block: out = x + gelu(norm(x) up + b) down + b'.
#pragma once

#include "common/layers/gelu.hpp"
#include "common/layers/layer_norm.hpp"
#include "common/layers/linear.hpp"

namespace examples {

/// Arrays that one sub-layer leaves to the next: no two sub-layers ever need them at once.
template <class Real>
struct workspace {
  workspace(index_t max_rows, index_t channels, index_t widest, int threads)
      : wide(max_rows * widest),
        wide_gradient(max_rows * widest),
        narrow(max_rows * channels),
        piece(rows_per_piece * widest * threads),
        piece_stride(rows_per_piece * widest) {}

  Real* of_thread(int thread) { return piece.data() + piece_stride * thread; }

  buffer<Real> wide;
  buffer<Real> wide_gradient;
  buffer<Real> narrow;
  buffer<Real> piece;
  index_t piece_stride;
};

template <class Real>
class mlp {
 public:
  static constexpr index_t expansion = 4;

  mlp(const std::string& name, index_t channels, index_t max_rows)
      : norm(name + ".norm", channels, max_rows),
        up(name + ".up", {channels, expansion * channels}, role::matrix),
        up_bias(name + ".up_bias", {expansion * channels}, role::vector),
        down(name + ".down", {expansion * channels, channels}, role::matrix),
        down_bias(name + ".down_bias", {channels}, role::vector),
        channels_(channels),
        normed_(max_rows * channels),
        pre_(max_rows * expansion * channels),
        up_partial_(row_pieces(max_rows) * expansion * channels),
        down_partial_(row_pieces(max_rows) * channels) {}

  // Everything between two reads of the residual stream is done for one piece of rows while it is
  // in the cache; only what the backward needs is written out.
  void forward(index_t rows, const Real* x, Real* out, workspace<Real>& work, int threads) {
    const index_t d = channels_;
    const index_t hidden = expansion * d;
    if (rows == 1) return forward_row(x, out, work, threads);
    parallel_rows(rows, threads, [&](row_range r) {
      Real* normed = normed_.data() + r.first * d;
      Real* pre = pre_.data() + r.first * hidden;
      Real* active = work.of_thread(r.thread);
      norm.forward(r, x, normed);
      through<Real>(r.count, d, hidden, normed, up.value.data(), Real(0), pre);
      gelu_forward<Real>(r.count, hidden, pre, up_bias.value.data(), active);
      Real* y = out + r.first * d;
      for (index_t t = 0; t < r.count; ++t)
        for (index_t c = 0; c < d; ++c) y[t * d + c] = x[(r.first + t) * d + c] + down_bias.value[c];
      through<Real>(r.count, hidden, d, active, down.value.data(), Real(1), y);
    });
  }

  /// `d_out` is the gradient of the output; it becomes that of x.
  void backward(index_t rows, const Real* x, Real* d_out, workspace<Real>& work, int threads) {
    const index_t d = channels_;
    const index_t hidden = expansion * d;
    Real* active = work.wide.data();
    Real* d_active = work.wide_gradient.data();
    parallel_rows(rows, threads, [&](row_range r) {
      Real* dpre = d_active + r.first * hidden;
      Real* dbias = up_partial_.data() + r.piece * hidden;
      std::fill(dbias, dbias + hidden, Real(0));
      back_through<Real>(r.count, hidden, d, d_out + r.first * d, down.value.data(), Real(0), dpre);
      gelu_backward<Real>(r.count, hidden, pre_.data() + r.first * hidden, up_bias.value.data(),
                          active + r.first * hidden, dpre, dbias);
      column_sums(r.count, d_out + r.first * d, down_partial_.data() + r.piece * d);
    });
    // Before the next loop adds to d_out.
    weight_gradient<Real>(rows, hidden, d, active, d_out, down.grad.data(), threads);
    weight_gradient<Real>(rows, d, hidden, normed_.data(), d_active, up.grad.data(), threads);
    sum_pieces<Real>(row_pieces(rows), hidden, up_partial_.data(), up_bias.grad.data());
    sum_pieces<Real>(row_pieces(rows), d, down_partial_.data(), down_bias.grad.data());
    parallel_rows(rows, threads, [&](row_range r) {
      Real* dnormed = work.of_thread(r.thread);
      back_through<Real>(r.count, d, hidden, d_active + r.first * hidden, up.value.data(), Real(0), dnormed);
      norm.backward(r, x, dnormed, d_out);
    });
    norm.finish_backward(rows);
  }

  void collect(parameter_list<Real>& all) {
    norm.collect(all);
    for (parameter<Real>* p : {&up, &up_bias, &down, &down_bias}) all.push_back(p);
  }

  layer_norm<Real> norm;
  parameter<Real> up;
  parameter<Real> up_bias;
  parameter<Real> down;
  parameter<Real> down_bias;

 private:
  // The same arrays are left for the backward.
  void forward_row(const Real* x, Real* out, workspace<Real>& work, int threads) {
    const index_t d = channels_;
    const index_t hidden = expansion * d;
    Real* active = work.of_thread(0);
    norm.forward({0, 1, 0, 0}, x, normed_.data());
    row_through<Real>(d, hidden, normed_.data(), up.value.data(), Real(0), pre_.data(), threads);
    gelu_forward<Real>(1, hidden, pre_.data(), up_bias.value.data(), active);
    for (index_t c = 0; c < d; ++c) out[c] = x[c] + down_bias.value[c];
    row_through<Real>(hidden, d, active, down.value.data(), Real(1), out, threads);
  }
  void column_sums(index_t rows, const Real* x, Real* out) const {
    std::fill(out, out + channels_, Real(0));
    for (index_t t = 0; t < rows; ++t)
      for (index_t c = 0; c < channels_; c += lanes<Real>) store(out + c, load(out + c) + load(x + t * channels_ + c));
  }

  index_t channels_;
  buffer<Real> normed_;
  buffer<Real> pre_;
  buffer<Real> up_partial_;
  buffer<Real> down_partial_;
};

}  // namespace examples
