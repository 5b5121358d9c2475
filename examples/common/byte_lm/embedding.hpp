// SPDX-License-Identifier: Apache-2.0
//
// Bytes to rows, x = E[byte] + P[position], and the tied head at the other end, logits = norm(x) E^T, with
// the cross entropy of the next byte.
#pragma once

#include "common/layers/layer_norm.hpp"
#include "common/layers/linear.hpp"
#include "common/layers/mlp.hpp"
#include "common/mixers/mixer.hpp"

#include <cstdint>
#include <limits>

namespace examples::byte_lm {

inline constexpr index_t vocabulary = 256;

template <class Real>
class embedding {
 public:
  embedding(index_t channels, index_t context, index_t max_rows)
      : bytes("embedding.bytes", {vocabulary, channels}, role::table),
        positions("embedding.positions", {context, channels}, role::table, share::rows),
        norm("head.norm", channels, max_rows),
        channels_(channels),
        normed_(max_rows * channels),
        dlogits_(max_rows * vocabulary),
        loss_(row_pieces(max_rows)) {}

  /// Behind the table's end every byte is at its last position: the model has learned no other for a byte with so much
  /// text before it.
  void forward(sequences s, const std::uint8_t* text, Real* x, int threads) const {
    const index_t d = channels_;
    const index_t last = positions.shape[0] - 1;
    parallel_rows(s.rows(), threads, [&](row_range r) {
      for (index_t row = r.first; row < r.first + r.count; ++row) {
        const Real* e = bytes.value.data() + text[row] * d;
        const Real* p = positions.value.data() + std::min(s.first + row % s.time, last) * d;
        for (index_t c = 0; c < d; ++c) x[row * d + c] = e[c] + p[c];
      }
    });
  }

  /// The sum over the rows that are here of -log p(next byte), in nats.
  double loss(sequences s, const Real* x, const std::uint8_t* next, workspace<Real>& work, int threads) {
    parallel_rows(s.rows(), threads, [&](row_range r) {
      Real* logits = work.of_thread(r.thread);
      logits_of(r, x, logits);
      double sum = 0;
      for (index_t t = 0; t < r.count; ++t) {
        const Real* row = logits + t * vocabulary;
        sum += static_cast<double>(log_sum(row) - row[next[r.first + t]]);
      }
      loss_[r.piece] = sum;
    });
    return total_loss(s.rows());
  }

  /// As above, and the gradients of the mean loss, which is that of all rows, also those of other ranks: dx is written,
  /// the tables' gradients of the head too.
  double loss_and_gradient(sequences s, const Real* x, const std::uint8_t* next, Real* dx, workspace<Real>& work,
                           int threads) {
    const index_t d = channels_;
    const Real weight = Real(1) / static_cast<Real>(s.rows_of_all());
    parallel_rows(s.rows(), threads, [&](row_range r) {
      Real* logits = dlogits_.data() + r.first * vocabulary;
      logits_of(r, x, logits);
      double sum = 0;
      for (index_t t = 0; t < r.count; ++t)
        sum += static_cast<double>(softmax_gradient(logits + t * vocabulary, next[r.first + t], weight));
      loss_[r.piece] = sum;
      Real* dnormed = work.of_thread(r.thread);
      through<Real>(r.count, vocabulary, d, logits, bytes.value.data(), Real(0), dnormed);
      std::fill(dx + r.first * d, dx + (r.first + r.count) * d, Real(0));
      norm.backward(r, x, dnormed, dx);
    });
    norm.finish_backward(s.rows());
    weight_gradient<Real>(s.rows(), vocabulary, d, dlogits_.data(), normed_.data(), bytes.grad.data(), threads);
    return total_loss(s.rows());
  }

  /// Adds the input side to the byte table's gradient. Threads share the channels, not the rows: every sum
  /// then runs over the rows in order.
  void backward(sequences s, const std::uint8_t* text, const Real* dx, int threads) {
    const index_t d = channels_;
    positions.grad.zero();
    parallel_for(d / row_multiple, threads, [&](index_t piece, int) {
      const index_t first = piece * row_multiple;
      for (index_t row = 0; row < s.rows(); ++row) {
        Real* e = bytes.grad.data() + text[row] * d + first;
        Real* p = positions.grad.data() + (s.first + row % s.time) * d + first;
        const Real* g = dx + row * d + first;
        for (index_t c = 0; c < row_multiple; ++c) {
          e[c] += g[c];
          p[c] += g[c];
        }
      }
    });
  }

  /// The logits of a single row of x.
  void logits(index_t row, const Real* x, Real* out) { logits_of(row_range{row, 1, 0, 0}, x, out); }

  void collect(parameter_list<Real>& all) {
    all.push_back(&bytes);
    all.push_back(&positions);
    norm.collect(all);
  }

  parameter<Real> bytes;
  parameter<Real> positions;
  layer_norm<Real> norm;

 private:
  void logits_of(row_range r, const Real* x, Real* out) {
    Real* normed = normed_.data() + r.first * channels_;
    norm.forward(r, x, normed);
    back_through<Real>(r.count, vocabulary, channels_, normed, bytes.value.data(), Real(0), out);
  }

  static Real top_of(const Real* row) {
    pack<Real> top = load(row);
    for (index_t i = lanes<Real>; i < vocabulary; i += lanes<Real>) top = xsimd::max(top, load(row + i));
    return max_lanes<Real>(top);
  }
  static Real log_sum(const Real* row) {
    const Real top = top_of(row);
    pack<Real> sum(Real(0));
    for (index_t i = 0; i < vocabulary; i += lanes<Real>) sum += xsimd::exp(load(row + i) - pack<Real>(top));
    return top + std::log(sum_lanes<Real>(sum));
  }
  /// Turns the logits into the gradient of weight * loss; returns the loss.
  static Real softmax_gradient(Real* row, std::uint8_t next, Real weight) {
    const Real log_total = log_sum(row);
    const Real loss = log_total - row[next];
    for (index_t i = 0; i < vocabulary; i += lanes<Real>)
      store(row + i, xsimd::exp(load(row + i) - pack<Real>(log_total)) * pack<Real>(weight));
    row[next] -= weight;
    return loss;
  }
  double total_loss(index_t rows) const {
    double sum = 0;
    for (index_t piece = 0; piece < row_pieces(rows); ++piece) sum += loss_[piece];
    return sum;
  }

  index_t channels_;
  buffer<Real> normed_;
  buffer<Real> dlogits_;
  buffer<double> loss_;
};

}  // namespace examples::byte_lm
