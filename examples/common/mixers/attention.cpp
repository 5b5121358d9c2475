// SPDX-License-Identifier: Apache-2.0

#include "common/mixers/attention.hpp"

#include "common/mixers/attention_cache.hpp"
#include "common/mixers/tile_gemm.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace examples {

template <class Real>
attention<Real>::attention(const mixer_shape& shape)
    : shape_(shape),
      channels_(shape.channels),
      heads_(shape.heads),
      width_(shape.channels / shape.heads),
      padded_(round_up(width_, lanes<Real>)),
      longest_(round_up(shape.context, block)),
      scale_(Real(1) / std::sqrt(static_cast<Real>(width_))),
      lse_(shape.max_batch * shape.heads * shape.context),
      scratch_stride_(round_up(10 * longest_ * padded_ + 2 * block * block + 3 * block + 2 * longest_, row_multiple)) {}

template <class Real>
auto attention<Real>::arrays_of(int thread) -> head_arrays {
  Real* p = scratch_.data() + scratch_stride_ * thread;
  const auto take = [&p](index_t n) { return std::exchange(p, p + n); };
  head_arrays h{};
  for (Real** array : {&h.q, &h.k, &h.v, &h.q_transposed, &h.out, &h.dout, &h.dout_transposed, &h.dq, &h.dk, &h.dv})
    *array = take(longest_ * padded_);
  h.weights = take(block * block);
  h.dweights = take(block * block);
  h.top = take(block);
  h.sum = take(block);
  h.shrink = take(block);
  h.lse = take(longest_);
  h.mean = take(longest_);
  return h;
}

template <class Real>
void attention<Real>::reserve(int threads) {
  if (scratch_.size() < scratch_stride_ * threads) scratch_ = buffer<Real>(scratch_stride_ * threads);
}

template <class Real>
void attention<Real>::copy_head(index_t time, const Real* from, index_t stride, Real factor, Real* to) const {
  for (index_t t = 0; t < time; ++t) {
    Real* row = to + t * padded_;
    const Real* source = from + t * stride;
    for (index_t c = 0; c < width_; ++c) row[c] = factor * source[c];
    std::fill(row + width_, row + padded_, Real(0));
  }
  std::fill(to + time * padded_, to + round_up(time, block) * padded_, Real(0));
}

template <class Real>
void attention<Real>::copy_back(index_t time, const Real* from, Real factor, Real* to, index_t stride) const {
  for (index_t t = 0; t < time; ++t)
    for (index_t c = 0; c < width_; ++c) to[t * stride + c] = factor * from[t * padded_ + c];
}

/// (time, channel) to (block, channel, time in block): a tile's rows are then 64 apart, whatever T is.
template <class Real>
void attention<Real>::transpose(const Real* from, Real* to, index_t time) const {
  for (index_t first = 0; first < time; first += block)
    for (index_t c = 0; c < padded_; ++c)
      for (index_t t = 0; t < block; ++t) to[first * padded_ + c * block + t] = from[(first + t) * padded_ + c];
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
    transpose(h.q, h.q_transposed, s.time);
    forward_head(s.time, h, lse_.data() + piece * s.time);
    copy_back(s.time, h.out, Real(1), y + b * s.time * channels_ + first_channel, channels_);
  });
}

template <class Real>
auto attention<Real>::extent_of(index_t time, index_t query, index_t key) const -> extent {
  const index_t seen = std::min(block, time - key);
  return {round_up(seen, group), round_up(std::min(block, time - query), group), seen, shape_.causal && key == query};
}

/// tile[s][t] = sum_c keys[s][c] queries[t][c], for the pairs that are seen.
template <class Real>
void attention<Real>::pair_products(const Real* keys, const Real* queries_transposed, const extent& e,
                                    Real* tile) const {
  for_groups(e.diagonal, e.keys, [&](index_t first, index_t count) {
    // Of a diagonal tile, keys from `first` on are seen by queries from `first` on.
    const index_t skip = e.diagonal ? first : 0;
    tile_gemm<Real>(count, e.queries - skip, width_, {keys + first * padded_, padded_}, queries_transposed + skip,
                    block, false, tile + first * block + skip, block);
  });
}

/// out[t] += sum_s tile[s][t] rows[s]
template <class Real>
void attention<Real>::add_to_queries(const Real* tile, const Real* rows, const extent& e, Real* out) const {
  for_groups(e.diagonal, e.queries, [&](index_t first, index_t count) {
    const index_t keys = e.diagonal ? first + count : e.keys;
    tile_gemm<Real>(count, padded_, keys, {tile + first, 1, block}, rows, padded_, true, out + first * padded_,
                    padded_);
  });
}

/// out[s] += sum_t tile[s][t] rows[t]
template <class Real>
void attention<Real>::add_to_keys(const Real* tile, const Real* rows, const extent& e, Real* out) const {
  for_groups(e.diagonal, e.keys, [&](index_t first, index_t count) {
    const index_t skip = e.diagonal ? first : 0;
    tile_gemm<Real>(count, padded_, e.queries - skip, {tile + first * block + skip, block}, rows + skip * padded_,
                    padded_, true, out + first * padded_, padded_);
  });
}

template <class Real>
void attention<Real>::forward_head(index_t time, const head_arrays& h, Real* lse) const {
  for (index_t query = 0; query < time; query += block) {
    Real* out = h.out + query * padded_;
    std::fill(out, out + block * padded_, Real(0));
    std::fill(h.top, h.top + block, lowest);
    std::fill(h.sum, h.sum + block, Real(0));
    for (index_t key = 0; key < (shape_.causal ? query + 1 : time); key += block) {
      const extent e = extent_of(time, query, key);
      pair_products(h.k + key * padded_, h.q_transposed + query * padded_, e, h.weights);
      fold_tile(e, h, out);
      add_to_queries(h.weights, h.v + key * padded_, e, out);
    }
    for (index_t i = 0; i < std::min(block, time - query); ++i) {
      const pack<Real> factor(Real(1) / h.sum[i]);
      for (index_t c = 0; c < padded_; c += lanes<Real>)
        store(out + i * padded_ + c, load(out + i * padded_ + c) * factor);
      lse[query + i] = h.top[i] + std::log(h.sum[i]);
    }
  }
}

/// Turns a tile of logits into weights below the running maximum of each query, and brings the sums and the
/// values gathered so far down to the same maximum.
template <class Real>
void attention<Real>::fold_tile(const extent& e, const head_arrays& h, Real* out) const {
  hide(e, h.weights);
  for (index_t t = 0; t < e.queries; t += lanes<Real>) {
    const index_t keys = e.diagonal ? round_up(t + 1, group) : e.keys;
    const pack<Real> before = load(h.top + t);
    pack<Real> top = before;
    for (index_t s = 0; s < keys; ++s) top = xsimd::max(top, load(h.weights + s * block + t));
    pack<Real> sum(Real(0));
    for (index_t s = 0; s < keys; ++s) {
      const pack<Real> weight = xsimd::exp(load(h.weights + s * block + t) - top);
      store(h.weights + s * block + t, weight);
      sum += weight;
    }
    const pack<Real> shrink = xsimd::exp(before - top);
    store(h.shrink + t, shrink);
    store(h.top + t, top);
    store(h.sum + t, xsimd::fma(load(h.sum + t), shrink, sum));
  }
  for (index_t t = 0; t < e.queries; ++t) {
    // Most queries have met their maximum by then.
    if (h.shrink[t] == Real(1)) continue;
    for (index_t c = 0; c < padded_; c += lanes<Real>)
      store(out + t * padded_ + c, load(out + t * padded_ + c) * pack<Real>(h.shrink[t]));
  }
}

/// On the diagonal only within its groups: what lies below them is never read.
template <class Real>
void attention<Real>::hide(const extent& e, Real* tile) const {
  if (e.diagonal)
    for (index_t s = 0; s < e.keys; ++s) std::fill(tile + s * block + s / group * group, tile + s * block + s, lowest);
  else
    for (index_t s = e.seen; s < e.keys; ++s) std::fill(tile + s * block, tile + s * block + e.queries, lowest);
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
    transpose(h.q, h.q_transposed, s.time);
    transpose(h.dout, h.dout_transposed, s.time);
    // A query behind the end has a zero gradient; its weights only have to be finite.
    std::fill(h.lse, h.lse + longest_, Real(0));
    std::copy_n(lse_.data() + piece * s.time, s.time, h.lse);
    const index_t rows = round_up(s.time, block);
    for (index_t t = 0; t < rows; ++t) h.mean[t] = dot(h.out + t * padded_, h.dout + t * padded_, padded_);
    for (Real* d : {h.dq, h.dk, h.dv}) std::fill(d, d + rows * padded_, Real(0));
    backward_head(s.time, h);
    copy_back(s.time, h.dq, scale_, dqkv + at, stride);
    copy_back(s.time, h.dk, Real(1), dqkv + at + channels_, stride);
    copy_back(s.time, h.dv, Real(1), dqkv + at + 2 * channels_, stride);
  });
}

template <class Real>
void attention<Real>::backward_head(index_t time, const head_arrays& h) const {
  for (index_t key = 0; key < time; key += block) {
    const index_t at_key = key * padded_;
    for (index_t query = shape_.causal ? key : 0; query < time; query += block) {
      const index_t at_query = query * padded_;
      const extent e = extent_of(time, query, key);
      pair_products(h.k + at_key, h.q_transposed + at_query, e, h.weights);
      pair_products(h.v + at_key, h.dout_transposed + at_query, e, h.dweights);
      unfold_tile(query, e, h);
      add_to_keys(h.weights, h.dout + at_query, e, h.dv + at_key);
      add_to_keys(h.dweights, h.q + at_query, e, h.dk + at_key);
      add_to_queries(h.dweights, h.k + at_key, e, h.dq + at_query);
    }
  }
}

/// Logits to weights a, and the weights' gradient da to that of the logits, a (da - sum a da).
template <class Real>
void attention<Real>::unfold_tile(index_t query, const extent& e, const head_arrays& h) const {
  hide(e, h.weights);
  for (index_t t = 0; t < e.queries; t += lanes<Real>) {
    const index_t keys = e.diagonal ? round_up(t + 1, group) : e.keys;
    const pack<Real> lse = load(h.lse + query + t);
    const pack<Real> mean = load(h.mean + query + t);
    for (index_t s = 0; s < keys; ++s) {
      Real* weight = h.weights + s * block + t;
      Real* dweight = h.dweights + s * block + t;
      const pack<Real> a = xsimd::exp(load(weight) - lse);
      store(weight, a);
      store(dweight, a * (load(dweight) - mean));
    }
  }
}

template <class Real>
std::unique_ptr<mixer_stream<Real>> attention<Real>::make_stream(index_t count) {
  if (!shape_.causal) throw std::logic_error("attention: a stream of rows that see later ones");
  return std::make_unique<attention_cache<Real>>(shape_, count);
}

template class attention<float>;
template class attention<double>;

}  // namespace examples
