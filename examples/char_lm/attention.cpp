// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include "tile_gemm.hpp"

#include <cmath>
#include <limits>

namespace char_lm {

namespace {

index_t round_up(index_t n, index_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

template <class Real>
attention<Real>::attention(const mixer_shape& shape)
    : channels_(shape.channels),
      heads_(shape.heads),
      width_(shape.channels / shape.heads),
      padded_(round_up(width_, lanes<Real>)),
      longest_(round_up(shape.context, block)),
      scale_(Real(1) / std::sqrt(static_cast<Real>(width_))),
      lse_(shape.max_batch * shape.heads * shape.context),
      scratch_stride_(round_up(10 * longest_ * padded_ + 2 * block * block + 2 * block + longest_, row_multiple)) {}

template <class Real>
auto attention<Real>::arrays_of(int thread) -> head_arrays {
  Real* p = scratch_.data() + scratch_stride_ * thread;
  const auto take = [&p](index_t n) { return std::exchange(p, p + n); };
  const index_t rows = longest_ * padded_;
  head_arrays h{};
  for (Real** array : {&h.q, &h.k, &h.v, &h.k_transposed, &h.v_transposed, &h.out, &h.dout, &h.dq, &h.dk, &h.dv})
    *array = take(rows);
  h.weights = take(block * block);
  h.dweights = take(block * block);
  h.row_max = take(block);
  h.row_sum = take(block);
  h.row_dot = take(longest_);
  return h;
}

template <class Real>
void attention<Real>::reserve(int threads) {
  if (scratch_.size() < scratch_stride_ * threads) scratch_ = buffer<Real>(scratch_stride_ * threads);
}

template <class Real>
void attention<Real>::copy_head(index_t time, const Real* from, index_t stride, Real factor, Real* to) const {
  const index_t rows = round_up(time, block);
  for (index_t t = 0; t < rows; ++t)
    for (index_t c = 0; c < padded_; ++c)
      to[t * padded_ + c] = t < time && c < width_ ? factor * from[t * stride + c] : Real(0);
}

template <class Real>
void attention<Real>::copy_back(index_t time, const Real* from, Real factor, Real* to, index_t stride) const {
  for (index_t t = 0; t < time; ++t)
    for (index_t c = 0; c < width_; ++c) to[t * stride + c] = factor * from[t * padded_ + c];
}

/// (time, channel) to (block of keys, channel, key in block): a tile's rows are then 64 apart, whatever T is.
template <class Real>
void attention<Real>::transpose(const Real* from, Real* to, index_t time) const {
  for (index_t first = 0; first < time; first += block)
    for (index_t c = 0; c < padded_; ++c)
      for (index_t s = 0; s < block; ++s) to[first * padded_ + c * block + s] = from[(first + s) * padded_ + c];
}

template <class Real>
void attention<Real>::forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) {
  reserve(exec.threads);
  const index_t stride = input_width();
  parallel_for(s.batch * heads_, exec.threads, [&](index_t piece, int thread) {
    const index_t b = piece / heads_;
    const index_t first_channel = piece % heads_ * width_;
    const Real* q = qkv + b * s.time * stride + first_channel;
    const head_arrays h = arrays_of(thread);
    copy_head(s.time, q, stride, scale_, h.q);
    copy_head(s.time, q + channels_, stride, Real(1), h.k);
    copy_head(s.time, q + 2 * channels_, stride, Real(1), h.v);
    transpose(h.k, h.k_transposed, s.time);
    forward_head(s.time, h, lse_.data() + piece * s.time);
    copy_back(s.time, h.out, Real(1), y + b * s.time * channels_ + first_channel, channels_);
  });
}

template <class Real>
void attention<Real>::forward_head(index_t time, const head_arrays& h, Real* lse) const {
  for (index_t query = 0; query < time; query += block) {
    Real* out = h.out + query * padded_;
    for (index_t key = 0; key <= query; key += block) {
      tile_gemm<Real>(block, block, width_, {h.q + query * padded_, padded_}, h.k_transposed + key * padded_, block,
                      false, h.weights, block);
      fold_tile(key, key == query, key == 0, h, out);
    }
    for (index_t i = 0; i < std::min(block, time - query); ++i) {
      const pack<Real> factor(Real(1) / h.row_sum[i]);
      for (index_t c = 0; c < padded_; c += lanes<Real>)
        store(out + i * padded_ + c, load(out + i * padded_ + c) * factor);
      lse[query + i] = h.row_max[i] + std::log(h.row_sum[i]);
    }
  }
}

/// Adds one tile of logits to the running maximum, sum and weighted values of its 64 queries.
template <class Real>
void attention<Real>::fold_tile(index_t first_key, bool diagonal, bool first, const head_arrays& h, Real* out) const {
  constexpr Real lowest = -std::numeric_limits<Real>::infinity();
  for (index_t i = 0; i < block; ++i) {
    Real* row = h.weights + i * block;
    if (diagonal) std::fill(row + i + 1, row + block, lowest);
    pack<Real> top = load(row);
    for (index_t j = lanes<Real>; j < block; j += lanes<Real>) top = xsimd::max(top, load(row + j));
    const Real before = first ? lowest : h.row_max[i];
    const Real now = std::max(before, max_lanes<Real>(top));
    pack<Real> sum(Real(0));
    for (index_t j = 0; j < block; j += lanes<Real>) {
      const pack<Real> e = xsimd::exp(load(row + j) - pack<Real>(now));
      store(row + j, e);
      sum += e;
    }
    h.row_max[i] = now;
    if (first) {
      h.row_sum[i] = sum_lanes<Real>(sum);
      continue;
    }
    const Real shrink = std::exp(before - now);
    h.row_sum[i] = h.row_sum[i] * shrink + sum_lanes<Real>(sum);
    // Most rows have met their maximum by then.
    if (before == now) continue;
    for (index_t c = 0; c < padded_; c += lanes<Real>)
      store(out + i * padded_ + c, load(out + i * padded_ + c) * pack<Real>(shrink));
  }
  tile_gemm<Real>(block, padded_, block, {h.weights, block}, h.v + first_key * padded_, padded_, !first, out, padded_);
}

template <class Real>
void attention<Real>::backward(sequences s, const Real* qkv, const Real* y, const Real* dy, Real* dqkv,
                               const aft::cpu& exec) {
  const index_t stride = input_width();
  parallel_for(s.batch * heads_, exec.threads, [&](index_t piece, int thread) {
    const index_t b = piece / heads_;
    const index_t first_channel = piece % heads_ * width_;
    const index_t at = b * s.time * stride + first_channel;
    const index_t out_at = b * s.time * channels_ + first_channel;
    const head_arrays h = arrays_of(thread);
    copy_head(s.time, qkv + at, stride, scale_, h.q);
    copy_head(s.time, qkv + at + channels_, stride, Real(1), h.k);
    copy_head(s.time, qkv + at + 2 * channels_, stride, Real(1), h.v);
    copy_head(s.time, y + out_at, channels_, Real(1), h.out);
    copy_head(s.time, dy + out_at, channels_, Real(1), h.dout);
    transpose(h.k, h.k_transposed, s.time);
    transpose(h.v, h.v_transposed, s.time);
    for (index_t t = 0; t < s.time; ++t) h.row_dot[t] = dot(h.out + t * padded_, h.dout + t * padded_, padded_);
    const index_t rows = round_up(s.time, block) * padded_;
    for (Real* d : {h.dq, h.dk, h.dv}) std::fill(d, d + rows, Real(0));
    backward_head(s.time, h, lse_.data() + piece * s.time);
    copy_back(s.time, h.dq, scale_, dqkv + at, stride);
    copy_back(s.time, h.dk, Real(1), dqkv + at + channels_, stride);
    copy_back(s.time, h.dv, Real(1), dqkv + at + 2 * channels_, stride);
  });
}

template <class Real>
void attention<Real>::backward_head(index_t time, const head_arrays& h, const Real* lse) const {
  for (index_t key = 0; key < time; key += block) {
    const index_t at_key = key * padded_;
    for (index_t query = key; query < time; query += block) {
      const index_t at_query = query * padded_;
      tile_gemm<Real>(block, block, width_, {h.q + at_query, padded_}, h.k_transposed + at_key, block, false, h.weights,
                      block);
      tile_gemm<Real>(block, block, width_, {h.dout + at_query, padded_}, h.v_transposed + at_key, block, false,
                      h.dweights, block);
      weight_tile(query, key, time, h, lse);
      tile_gemm<Real>(block, padded_, block, {h.weights, 1, block}, h.dout + at_query, padded_, true, h.dv + at_key,
                      padded_);
      tile_gemm<Real>(block, padded_, block, {h.dweights, 1, block}, h.q + at_query, padded_, true, h.dk + at_key,
                      padded_);
      tile_gemm<Real>(block, padded_, block, {h.dweights, block}, h.k + at_key, padded_, true, h.dq + at_query,
                      padded_);
    }
  }
}

/// Logits to weights a, and their gradient to that of the logits, a (da - sum a da).
template <class Real>
void attention<Real>::weight_tile(index_t query, index_t key, index_t time, const head_arrays& h,
                                  const Real* lse) const {
  for (index_t i = 0; i < block; ++i) {
    Real* row = h.weights + i * block;
    Real* drow = h.dweights + i * block;
    // A query behind the end has no log-sum-exp: its weights are 0.
    if (query + i >= time) {
      std::fill(row, row + block, Real(0));
      std::fill(drow, drow + block, Real(0));
      continue;
    }
    const pack<Real> log_sum(lse[query + i]);
    const pack<Real> mean(h.row_dot[query + i]);
    if (query == key) std::fill(row + i + 1, row + block, -std::numeric_limits<Real>::infinity());
    for (index_t j = 0; j < block; j += lanes<Real>) {
      const pack<Real> a = xsimd::exp(load(row + j) - log_sum);
      store(row + j, a);
      store(drow + j, a * (load(drow + j) - mean));
    }
  }
}

template class attention<float>;
template class attention<double>;

}  // namespace char_lm
