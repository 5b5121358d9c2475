// SPDX-License-Identifier: Apache-2.0

#include "common/mixers/attention_cache.hpp"

#include "common/support/parallel.hpp"

#include <cmath>
#include <stdexcept>

namespace examples {

template <class Real>
attention_cache<Real>::attention_cache(const mixer_shape& shape, index_t count)
    : channels_(shape.channels),
      heads_(shape.heads),
      width_(shape.channels / shape.heads),
      padded_(round_up(width_, lanes<Real>)),
      context_(shape.context),
      stride_(round_up(shape.context, sums * lanes<Real>)),
      keys_(count * heads_ * width_ * stride_),
      values_(count * heads_ * stride_ * padded_) {}

template <class Real>
index_t attention_cache<Real>::bytes() const {
  return heads_ * stride_ * (width_ + padded_) * static_cast<index_t>(sizeof(Real));
}

template <class Real>
void attention_cache<Real>::forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) {
  if (s.time > context_ - seen_) {
    throw std::length_error("attention: a key-value cache of " + std::to_string(context_) + " rows has no place for " +
                            std::to_string(s.time) + " behind row " + std::to_string(seen_));
  }
  // A single row takes less time than a team needs to begin.
  const int threads = s.rows() == 1 ? 1 : exec.threads;
  if (weights_.size() < stride_ * threads) weights_ = buffer<Real>(stride_ * threads);
  const index_t row = 3 * channels_;
  parallel_for(s.batch * heads_, threads, [&](index_t piece, int thread) {
    const index_t b = piece / heads_;
    const index_t first_channel = piece % heads_ * width_;
    const head_cache h{keys_.data() + piece * width_ * stride_, values_.data() + piece * stride_ * padded_,
                       weights_.data() + thread * stride_};
    for (index_t t = 0; t < s.time; ++t) {
      const Real* q = qkv + (b * s.time + t) * row + first_channel;
      append(seen_ + t, q + channels_, q + 2 * channels_, h);
      weigh(seen_ + t + 1, q, h);
      average(seen_ + t + 1, h, y + (b * s.time + t) * channels_ + first_channel);
    }
  });
  seen_ += s.time;
}

template <class Real>
void attention_cache<Real>::append(index_t t, const Real* k, const Real* v, const head_cache& h) const {
  for (index_t c = 0; c < width_; ++c) h.keys[c * stride_ + t] = k[c];
  std::copy(v, v + width_, h.values + t * padded_);
}

/// Weights of the first `keys` keys, whose sum is 1; 0 up to the end of the last step.
template <class Real>
void attention_cache<Real>::weigh(index_t keys, const Real* q, const head_cache& h) const {
  const Real scale = Real(1) / std::sqrt(static_cast<Real>(width_));
  const index_t end = round_up(keys, sums * lanes<Real>);
  pack<Real> top(lowest);
  for (index_t s = 0; s < end; s += sums * lanes<Real>) {
    pack<Real> logits[sums];
    for (pack<Real>& x : logits) x = pack<Real>(Real(0));
    for (index_t c = 0; c < width_; ++c) {
      const pack<Real> factor(scale * q[c]);
      for (index_t i = 0; i < sums; ++i)
        logits[i] = xsimd::fma(factor, load(h.keys + c * stride_ + s + i * lanes<Real>), logits[i]);
    }
    for (index_t i = 0; i < sums; ++i) store(h.weights + s + i * lanes<Real>, logits[i]);
  }
  // Places that are still free, or hold what was there before a reset.
  std::fill(h.weights + keys, h.weights + end, lowest);
  for (index_t s = 0; s < end; s += lanes<Real>) top = xsimd::max(top, load(h.weights + s));
  const pack<Real> most(max_lanes<Real>(top));
  pack<Real> total(Real(0));
  for (index_t s = 0; s < end; s += lanes<Real>) {
    const pack<Real> e = xsimd::exp(load(h.weights + s) - most);
    store(h.weights + s, e);
    total += e;
  }
  const pack<Real> share(Real(1) / sum_lanes<Real>(total));
  for (index_t s = 0; s < end; s += lanes<Real>) store(h.weights + s, load(h.weights + s) * share);
}

template <class Real>
void attention_cache<Real>::average(index_t keys, const head_cache& h, Real* y) const {
  for (index_t c = 0; c < padded_; c += lanes<Real>) {
    // Even and odd keys apart, so that one multiply-add need not wait for the one before.
    pack<Real> even(Real(0)), odd(Real(0));
    const Real* v = h.values + c;
    index_t s = 0;
    for (; s + 2 <= keys; s += 2) {
      even = xsimd::fma(pack<Real>(h.weights[s]), load(v + s * padded_), even);
      odd = xsimd::fma(pack<Real>(h.weights[s + 1]), load(v + (s + 1) * padded_), odd);
    }
    if (s < keys) even = xsimd::fma(pack<Real>(h.weights[s]), load(v + s * padded_), even);
    alignas(64) Real sum[static_cast<std::size_t>(lanes<Real>)];
    store(sum, even + odd);
    for (index_t i = 0; i < std::min(lanes<Real>, width_ - c); ++i) y[c + i] = sum[i];
  }
}

template class attention_cache<float>;
template class attention_cache<double>;

}  // namespace examples
