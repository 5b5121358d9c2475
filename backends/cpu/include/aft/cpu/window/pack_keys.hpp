// SPDX-License-Identifier: Apache-2.0
/// @file window/pack_keys.hpp  The columns [exp(k) v | exp(k)] of a few lane tiles, formed where a window is about to
/// use them.
#pragma once

#include <new>

#include "../gemm/pack_keys.hpp"
#include "../tensor/visible_keys.hpp"
#include "loop_nest.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Where keys and values lie; nothing if not side by side.
template <class C>
[[gnu::noinline]] inline window_lines<C> key_lines(const problem& p, const window_tiles<C>& tiles) {
  window_lines<C> lines(p.Tk);
  if (!lines.add(p.k, p.grid, tiles, p.d / p.hk) || !lines.add(p.v, p.grid, tiles, 1)) lines.clear();
  return lines;
}

/// Keys begin with scale 1, which is right for those of ordinary size.
template <class C>
class window_key_packer final : public window_packer<C> {
 public:
  static constexpr index_t L = lanes<C>;
  static constexpr index_t N = tuning<C>::NR;
  using window_packer<C>::most;

  window_key_packer(const problem& p, const window_tiles<C>& tiles, source_room<C>* room)
      : window_packer<C>(key_lines<C>(p, tiles)), p_(&p), tiles_(&tiles), room_(room) {
    in_place_ = this->lines().count() > 0 && !hides_keys(p);
    for (index_t i = 0; i < tiles.count; ++i) {
      tile_state& tile = *::new (room + i) tile_state;
      for (index_t l = 0; l < L; ++l) {
        tile.base[l] = tile.exponent[l] = C(0);
        tile.by[l] = C(1);
      }
      tile.first = in_place_ && p.Tk > 0 ? first_key<C>::at(this->lines().at(0, i, 0), p, tiles.at[i])
                                         : first_key<C>(p, tiles.at[i]);
      tile.per_unit = vec<C>(C(1)) / tile.first.unit();
      far_lanes<C>(p, tiles.at[i]).measure(tile.range);
    }
  }

  void form(index_t i, index_t s0, index_t s1, C* P, bool measured) override {
    tile_state& tile = state(i);
    const key_packer<C> packer{tile.range, load(tile.base), load(tile.exponent), load(tile.by), tile.per_unit};
    C staged[most * N];
    const C *v = staged, *k = staged + L;
    index_t v_step = N, k_step = N, ahead = 0;
    if (in_place_) {
      if (measured && s0 >= most) ahead = -most;
      k_step = this->lines().step(0);
      v_step = this->lines().step(1);
      k = this->lines().at(0, i, s0);
      v = this->lines().at(1, i, s0);
    } else {
      stage(i, s0, s1, staged);
    }
    if (measured) {
      form_keys<C, C, true, true>(v, v_step, k, k_step, 0, s1 - s0, ahead, false, P, packer, tile.range);
    } else {
      form_keys<C, C, false, false>(v, v_step, k, k_step, 0, s1 - s0, ahead, false, P, packer, tile.range);
    }
  }

  void measure(index_t i, index_t s0, index_t s1) override {
    C staged[most * N];
    stage(i, s0, s1, staged);
    scan_keys<C>(staged, s1 - s0, state(i).range);
  }

  bool settled(index_t i, column_scale<C>& cs) override {
    tile_state& tile = state(i);
    const far_lanes<C> afar(*p_, tiles_->at[i]);
    cs = key_scale<C>(tile.range, tile.first, tile.by);
    form_more(afar, tile.by, cs);
    const vec<C> zero(C(0));
    if (xsimd::all((load(cs.base) == zero) && (load(cs.exponent) == zero) && (load(tile.by) == vec<C>(C(1)))))
      return true;
    // An infinite value counts as the largest while keys are formed, and not otherwise.
    tile.range = key_range<C>();
    afar.measure(tile.range);
    for (index_t s = 0; s < p_->Tk; s += most) measure(i, s, s + most < p_->Tk ? s + most : p_->Tk);
    cs = key_scale<C>(tile.range, tile.first, tile.by);
    form_more(afar, tile.by, cs);
    for (index_t l = 0; l < L; ++l) {
      tile.base[l] = cs.base[l];
      tile.exponent[l] = cs.exponent[l];
    }
    tile.per_unit = vec<C>(C(1)) / load(cs.unit);
    return false;
  }

 private:
  struct tile_state {
    key_range<C> range;
    first_key<C> first;
    vec<C> per_unit;
    C base[L], exponent[L], by[L];
  };
  static_assert(sizeof(tile_state) <= sizeof(source_room<C>) && alignof(tile_state) <= alignof(source_room<C>));
  tile_state& state(index_t i) { return *std::launder(reinterpret_cast<tile_state*>(room_ + i)); }

  void stage(index_t i, index_t s0, index_t s1, C* staged) const {
    this->lines().prefetch_into(i, s0 - most, s0);
    stage_keys<C>(*p_, tiles_->at[i], s0, s1, staged);
  }

  const problem* p_;
  const window_tiles<C>* tiles_;
  source_room<C>* room_;
  bool in_place_ = false;
};

}  // namespace aft::inline AFT_ISA::cpu_impl
