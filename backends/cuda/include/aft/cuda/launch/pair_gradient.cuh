// SPDX-License-Identifier: Apache-2.0
/// @file launch/pair_gradient.cuh  The launches that give dw of some rows, pair by pair or as a matrix product.
#pragma once

#include "../split_mma/pairs.cuh"
#include "forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// Both passes over one side.
template <bool queries>
void pack_pairs(const call_stream& stream, const device_call<float>& call, const pair_side& side) {
  stream.clear(side.exponents, side.row_count());
  stream.launch(pack_pairs_kernel<queries, true>, side.pack_blocks(), pack_pair_threads, call, side);
  stream.launch(pack_pairs_kernel<queries, false>, side.pack_blocks(), pack_pair_threads, call, side);
}

template <class C>
class pair_backward {
 public:
  /// `rows`: the most that are wanted at once; rows() may be fewer.
  pair_backward(const backward_problem& p, index_t rows, device_scratch& memory)
      : p_(&p), cols_{p.bias.heads, p.B, p.d / p.bias.heads, p.bias.batch > 1 && p.B > 1}, rows_(max_of(rows, 1)) {
    if (!choose_product()) return;
    queries_ = plan_side(cols_, p.Tq);
    keys_ = plan_side(cols_, p.Tk);
    memory.reserve(centres_, p.B * p.d);
    memory.reserve(flags_, cols_.batch_items() * tiles(0, rows_).row_tiles * tiles(0, rows_).key_tiles);
    const pair_plan<C> whole = tiles(0, p.Tq);
    constexpr index_t tiles_of_step = pair_rows / tuning::pairs;
    const index_t tiles_of_head = ceil_div(p.Tq, pair_rows) * (whole.key_tiles / tiles_of_step);
    slices_ = slices_of(tiles_of_head * cols_.heads, queries_.column_tiles);
    if (slices_ > 1) {
      const pair_plan<C> part = tiles(0, rows_);
      memory.reserve(partials_, slices_ * cols_.batch_items() * ceil_div(rows_, pair_rows) *
                                    (part.key_tiles / tiles_of_step) * (pair_rows * pair_rows));
    }
    for (pair_side* side : {&queries_, &keys_}) {
      memory.reserve(side->tiles, side->tile_count());
      memory.reserve(side->exponents, side->row_count());
    }
  }
  pair_backward(const pair_backward&) = delete;
  pair_backward& operator=(const pair_backward&) = delete;

  index_t rows() const { return rows_; }
  int slices() const { return slices_; }

  /// Once, before the parts. `call` has g, and average and state or lse.
  void prepare(const device_call<C>& call, const call_stream& stream) const {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (!product_) return;
      stream.launch(pair_centres_kernel<float>, ceil_div(call.B * call.d, warp_size), centre_threads, call, centres_);
      pack<true>(queries_, call, stream);
      pack<false>(keys_, call, stream);
    }
  }

  /// The tiles of rows [r0, r1), at most rows() and from a multiple of it on. To whom the results go is the caller's.
  pair_plan<C> tiles(index_t r0, index_t r1) const {
    constexpr index_t side = tuning::pairs;
    pair_plan<C> a;
    a.cols = cols_;
    a.count = cols_.batch_items();
    a.r0 = r0;
    a.r1 = r1;
    a.row_tiles = ceil_div(r1 - r0, side);
    a.limited = p_->win.bounded || p_->bias.kind == bias_kind::filter;
    if (product_) a.step = pair_rows;
    index_t steps = (p_->Tk + a.step - 1) / a.step;
    if (a.limited) {
      // The rows of a step reach over step + before + after keys, and their first tile begins up to step - 1 early.
      const reach r = reach_of(*p_);
      const index_t reached = (r.before + r.after + 3 * a.step - 2) / a.step;
      if (reached < steps) steps = max_of(reached, 0);
    }
    a.key_tiles = steps * (a.step / side);
    return a;
  }

  void run(const device_call<C>& call, pair_plan<C> plan, const call_stream& stream) const {
    if constexpr (sizeof(C) == sizeof(float)) {
      if (product_) {
        plan.flags = flags_;
        constexpr index_t tiles_of_step = pair_rows / tuning::pairs;
        const pair_product product{
            plan,    queries_, keys_, ceil_div(plan.r1 - plan.r0, pair_rows), plan.key_tiles / tiles_of_step,
            slices_, partials_};
        stream.launch(pair_product_kernel<tf32_operand>, product.blocks() * slices_, product_threads, call, product);
        if (slices_ > 1)
          stream.launch(pair_slices_kernel<tf32_operand>, product.blocks(), product_threads, call, product);
      }
    }
    stream.launch(pair_gradient_kernel<C>, plan.blocks(), pair_threads, call, plan);
  }

 private:
  /// Like is_product, of which only the mask matters here: hidden pairs have gradient 0, and reach no other.
  bool choose_product() {
    const backward_problem& p = *p_;
    if (sizeof(C) != sizeof(float) || has_pair_mask(p) || p.B == 0 || p.Tq == 0 || p.Tk == 0 || p.d == 0) return false;
    if (!product_forced() &&
        (p.d / p.bias.heads < tuning::product_channels || p.Tk < tuning::product_keys || p.Tq < tuning::product_keys))
      return false;
    product_ = true;
    // A word of flags for every 16 x 16 pairs; parts of rows keep them within a quarter of the scratch for other parts.
    const index_t row_tile_words = cols_.batch_items() * tiles(0, pair_rows).key_tiles;
    const index_t flagged = rows_at_once<std::uint32_t>(4, row_tile_words, p.Tq, 1) * tuning::pairs;
    index_t rows = min_of(rows_, flagged);
    if (rows < p.Tq) rows = rows / pair_rows * pair_rows;
    product_ = rows > 0;
    if (product_) rows_ = rows;
    return product_;
  }
  template <bool queries>
  void pack(pair_side side, const device_call<float>& call, const call_stream& stream) const {
    side.centres = centres_;
    pack_pairs<queries>(stream, call, side);
  }

  const backward_problem* p_;
  columns cols_;
  index_t rows_;
  bool product_ = false;
  pair_side queries_{}, keys_{};
  float* centres_ = nullptr;
  int slices_ = 1;
  float* partials_ = nullptr;
  std::uint32_t* flags_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
