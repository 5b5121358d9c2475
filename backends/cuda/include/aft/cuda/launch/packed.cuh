// SPDX-License-Identifier: Apache-2.0
/// @file launch/packed.cuh  The launches of a call on packed sequences: those of a call on each of them.
#pragma once

#include <aft/core/problem/bias_tensors.hpp>
#include <aft/core/problem/sequences.hpp>

#include "../bias_gradient/sums.cuh"
#include "backward.cuh"
#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// y, lse and average of all sequences, one after the other.
template <class C>
void packed_forward(const problem& p, const call_stream& stream) {
  device_room room(stream);
  const auto all = [&] {
    for (index_t n = 0; n < p.packed->count; ++n) forward<C>(sequence_of(p, n), stream, &room);
  };
  all();
  room.allocate();
  all();
}

/// The gradient of a bias that all sequences share: each writes its own into scratch, which is then added to the sum.
template <class C>
class packed_bias_sums {
 public:
  packed_bias_sums(const backward_problem& p, bool summed, device_scratch& memory)
      : tensors_(p), keys_(p.packed->longest_keys), rows_(max_of(p.packed->longest_queries, 1)) {
    if (!summed) return;
    const bool by_rows = p.dbias.kind == bias_kind::dense || p.dbias.kind == bias_kind::banded;
    if (by_rows) rows_ = max_of(rows_at_once<C>(1, tensors_.elements(1, keys_), rows_, tuning::pairs), 1);
    memory.reserve(sums_, tensors_.elements(rows_, keys_));
    memory.reserve(own_, tensors_.elements(rows_, keys_));
  }
  packed_bias_sums(const packed_bias_sums&) = delete;
  packed_bias_sums& operator=(const packed_bias_sums&) = delete;

  /// Rows that are summed at a time.
  index_t rows() const { return rows_; }

  /// 0 everywhere: what lies beyond a sequence, or beyond all of them, is written by none.
  void clear(const backward_problem& p, const call_stream& stream) const {
    for (index_t i = 0; i < tensors_.count; ++i) {
      const bias_tensor& t = tensors_[i];
      const index_t batch = p.dbias.kind == bias_kind::dense ? p.dbias.batch : 1;
      stream.launch_each(clear_kernel<C>, batch * t.heads * t.rows * t.columns, clear_threads, t.to, batch, t.heads,
                         t.rows, t.columns);
    }
  }
  void begin(const call_stream& stream) const { stream.clear(sums_, tensors_.elements(rows_, keys_)); }
  void redirect(backward_problem& one) const { store_row_major(one.dbias, tensors_, one.Tq, one.Tk, own_); }
  void add(const backward_problem& one, const call_stream& stream) const {
    const C* from = own_;
    C* to = sums_;
    for (index_t i = 0; i < tensors_.count; ++i) {
      const bias_tensor& t = tensors_[i];
      const index_t n = t.elements(one.Tq, one.Tk);
      stream.launch_each(add_sums_kernel<C>, n, factor_threads, to, t.rows_of(rows_, keys_), t.columns_of(keys_), from,
                         t.heads, t.rows_of(one.Tq, one.Tk), t.columns_of(one.Tk));
      from += n;
      to += t.elements(rows_, keys_);
    }
  }
  /// Sums of rows from r0 on, of which there are `count` where the bias has a row for each query.
  void store(index_t r0, index_t count, const call_stream& stream) const {
    const C* from = sums_;
    for (index_t i = 0; i < tensors_.count; ++i) {
      const bias_tensor& t = tensors_[i];
      matrix to = t.to;
      // Sums of the last block have room for more rows than there are, and heads lie a whole block apart.
      for (index_t h = 0; h < t.heads; ++h) {
        to.data = t.at(h, t.by_queries ? r0 : 0, 0);
        const index_t rows = t.by_queries ? count : t.rows_of(rows_, keys_);
        stream.launch_each(store_sums_kernel<C>, rows * t.columns_of(keys_), factor_threads, to,
                           from + h * t.rows_of(rows_, keys_) * t.columns_of(keys_), 1, rows, t.columns_of(keys_));
      }
      from += t.elements(rows_, keys_);
    }
  }

 private:
  bias_tensors tensors_;
  index_t keys_, rows_;
  C* sums_ = nullptr;
  C* own_ = nullptr;
};

/// Every gradient that is set, sequence by sequence; that of a shared bias where it is large a block of rows at a time,
/// by launches of their own.
template <class C>
void packed_backward(const backward_problem& p, const call_stream& stream) {
  const packed_sequences& all = *p.packed;
  const bool wanted = p.dbias.kind != bias_kind::none;
  const bool summed = wanted && p.bias.batch == 1 && all.count > 1;
  device_room room(stream);
  device_scratch memory(stream);
  const packed_bias_sums<C> sums(p, summed, memory);
  const bool blocked = summed && sums.rows() < all.longest_queries;
  const auto each = [&](const auto& run) {
    for (index_t n = 0; n < all.count; ++n) {
      const index_t queries = all.queries.at(n + 1) - all.queries.at(n);
      if (queries > 0 || all.keys.at(n + 1) > all.keys.at(n)) run(n, queries);
    }
  };
  const auto run_sequences = [&] {
    if (summed && !blocked && !room.counts()) sums.begin(stream);
    each([&](index_t n, index_t) {
      backward_problem one = sequence_of(p, n);
      if (blocked) one.dbias = {};
      if (summed && !blocked) sums.redirect(one);
      backward<C>(one, stream, &room);
      if (summed && !blocked && !room.counts()) sums.add(one, stream);
    });
    if (summed && !blocked && !room.counts()) sums.store(0, all.longest_queries, stream);
  };
  const auto run_block = [&](index_t r0) {
    if (!room.counts()) sums.begin(stream);
    each([&](index_t n, index_t queries) {
      if (queries <= r0) return;
      backward_problem one = sequence_of(p, n, r0, min_of(r0 + sums.rows(), queries));
      one.dq = one.dk = one.dv = {};
      sums.redirect(one);
      backward<C>(one, stream, &room);
      if (!room.counts()) sums.add(one, stream);
    });
    if (!room.counts()) sums.store(r0, min_of(sums.rows(), all.longest_queries - r0), stream);
  };
  run_sequences();
  for (index_t r0 = 0; blocked && r0 < all.longest_queries; r0 += sums.rows()) run_block(r0);
  room.allocate();
  memory.allocate();
  if (wanted) sums.clear(p, stream);
  run_sequences();
  for (index_t r0 = 0; blocked && r0 < all.longest_queries; r0 += sums.rows()) run_block(r0);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
