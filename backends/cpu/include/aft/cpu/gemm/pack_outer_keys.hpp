// SPDX-License-Identifier: Apache-2.0
/// @file gemm/pack_outer_keys.hpp  The columns [exp(k) v | exp(k)] of an outer block of keys, formed anew for
/// every chunk of queries.
///
/// Where pack_keys finds the scales of a lane tile while it forms all its columns, outer blocks of keys need them
/// before the first.
#pragma once

#include "../runtime/inplace_vector.hpp"
#include "../tensor/visible_keys.hpp"
#include "pack_keys.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Adds keys and values that lie in rows to a lane tile's range; an infinite value counts as the largest. Rows `ahead`
/// of each are asked for.
template <class C, class T>
[[gnu::noinline, gnu::flatten]] inline void measure_rows(const T* v, index_t v_step, const T* k, index_t k_step,
                                                         index_t count, index_t ahead, key_range<C>& range) {
  for (index_t s = 0; s < count; ++s) AFT_PREFETCH(k + (s + ahead) * k_step, 0, 2);
  for (index_t s = 0; s < count; ++s) AFT_PREFETCH(v + (s + ahead) * v_step, 0, 2);
  key_range<C> all = range;
  for (index_t s = 0; s < count; ++s, v += v_step, k += k_step) {
    const vec<C> key = load_as<C>(k);
    all.top = max_ignoring_nan<C>(all.top, key);
    add_sizes<C>(differs<C>(key, vec<C>(-std::numeric_limits<C>::infinity())), load_as<C>(v), all.values.high,
                 all.values.low);
  }
  range = all;
}

/// The keys of a few lane tiles that lie side by side in memory.
template <class C>
class outer_key_blocks {
 public:
  static constexpr index_t L = lanes<C>;
  static constexpr index_t N = tuning<C>::NR;
  static constexpr index_t together = 8;

  /// At most tuning::wide_group tiles.
  template <class Tiles>
  outer_key_blocks(const problem& p, index_t count, const Tiles& tile_at)
      : p_(&p), count_(count), rows_(p, count, fill(count, tile_at)), in_place_(rows_.in_place() && !hides_keys(p)) {}

  /// The scales of the tiles, those that pack_keys finds. Reads all keys once, those of extraordinary size twice.
  void measure(bool paired, column_scale<C>* cs) {
    inplace_vector<key_range<C>, tuning<C>::wide_group> ranges(count_);
    C value_scales[L];
    inplace_vector<first_key<C>, tuning<C>::wide_group> first(count_);
    for (index_t i = 0; i < count_ && !paired; ++i)
      first[i] = in_place_ ? first_of<C>(*p_, rows_, i, tiles_[i]) : first_key<C>(*p_, tiles_[i]);
    if (in_place_) {
      for_chunks(0, p_->Tk, [&](index_t i, index_t s, index_t n, index_t ahead) {
        rows_.visit(i, s, [&]<class T>(const T* v, index_t v_step, const T* k, index_t k_step) {
          measure_rows<C, T>(v, v_step, k, k_step, n, ahead, ranges[i]);
        });
      });
    }
    for (index_t i = 0; i < count_; ++i) {
      if (!in_place_) {
        for_staged(i,
                   [&](const C* staged, index_t n) { measure_rows<C, C>(staged, N, staged + L, N, n, 0, ranges[i]); });
      }
      cs[i] = key_scale<C>(ranges[i], first[i], value_scales);
      if (ordinary_scales(cs[i])) continue;
      ranges[i] = key_range<C>();
      for_staged(i, [&](const C* staged, index_t n) { scan_keys<C>(staged, n, ranges[i]); });
      cs[i] = key_scale<C>(ranges[i], first[i], value_scales);
    }
  }

  /// Columns of keys [s0, s1), those of a tile `size` elements after those of the tile before.
  void form(const column_scale<C>* cs, index_t s0, index_t s1, bool paired, index_t size, C* P) {
    key_range<C> none;
    C staged[column_chunk * N];
    for_chunks(s0, s1, [&](index_t i, index_t s, index_t n, index_t ahead) {
      const vec<C> by = vec<C>(C(1)) / load(cs[i].inverse_scale);  // both powers of two
      const auto packer = key_packer<C>::with(cs[i], by);
      if (in_place_) {
        rows_.visit(i, s, [&]<class T>(const T* v, index_t v_step, const T* k, index_t k_step) {
          form_keys<C, T, false, false>(v, v_step, k, k_step, s - s0, n, ahead, paired, P + i * size, packer, none);
        });
        return;
      }
      if (rows_.in_place()) rows_.prefetch_into(i, s + 2 * together, s + 3 * together);
      stage_keys<C>(*p_, tiles_[i], s, s + n, staged);
      form_keys<C, C, false, false>(staged, N, staged + L, N, s - s0, n, 0, paired, P + i * size, packer, none);
    });
  }

 private:
  template <class Tiles>
  const lane_tile<C>* fill(index_t count, const Tiles& tile_at) {
    for (index_t i = 0; i < count; ++i) tiles_[i] = tile_at(i);
    return tiles_;
  }

  /// f(tile, first key, keys, rows from those to the next chunk's, 0 if there are none) for a chunk of all tiles after
  /// the other.
  template <class F>
  void for_chunks(index_t s0, index_t s1, const F& f) {
    for (index_t s = s0; s < s1; s += together) {
      const index_t n = s + together < s1 ? together : s1 - s;
      const index_t ahead = s + 3 * together <= p_->Tk ? 2 * together : 0;
      for (index_t i = 0; i < count_; ++i) f(i, s, n, ahead);
    }
  }

  /// f(staged, keys) for all keys of a tile.
  template <class F>
  void for_staged(index_t i, const F& f) const {
    C staged[column_chunk * N];
    for (index_t s = 0; s < p_->Tk; s += column_chunk) {
      const index_t end = s + column_chunk < p_->Tk ? s + column_chunk : p_->Tk;
      stage_keys<C>(*p_, tiles_[i], s, end, staged);
      f(staged, end - s);
    }
  }

  lane_tile<C> tiles_[tuning<C>::wide_group];
  const problem* p_;
  index_t count_;
  key_rows<C> rows_;
  bool in_place_;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
