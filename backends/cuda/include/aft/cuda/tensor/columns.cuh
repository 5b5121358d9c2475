// SPDX-License-Identifier: Apache-2.0
/// @file tensor/columns.cuh  Which (batch element, channel) a lane works on.
#pragma once

#include "call.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

struct column {
  index_t b, c;
  bool exists;
};

/// Where bias and per-query mask have no batch axis the weights of a head serve the whole batch: one batch item a head,
/// its columns all (b, c) of that head, so that narrow heads fill a warp too. Otherwise one batch item for each head
/// and batch element.
struct columns {
  index_t heads = 1, B = 0, width = 0;  ///< width: channels of a head
  bool batched = false;

  AFT_HOST_DEVICE index_t batch_items() const { return heads * (batched ? B : 1); }
  AFT_HOST_DEVICE index_t count() const { return width * (batched ? 1 : B); }

  AFT_DEVICE index_t head(index_t batch_item) const {
    return batched ? batch_item - quotient(batch_item, heads) * heads : batch_item;
  }
  /// The batch element that weights are looked up with; without `batched` any will do.
  AFT_DEVICE index_t batch(index_t batch_item) const { return batched ? quotient(batch_item, heads) : 0; }
  AFT_DEVICE column at(index_t batch_item, index_t j) const {
    const index_t own = quotient(j, width);
    return {batched ? quotient(batch_item, heads) : own, head(batch_item) * width + (j - own * width), j < count()};
  }
};

inline columns columns_of(const problem& p) {
  const bool batched = p.B > 1 && (p.bias.batch > 1 || (has_pair_mask(p) && p.mask_sb != 0));
  return {p.bias.heads, p.B, p.d / p.bias.heads, batched};
}

}  // namespace aft::inline AFT_ISA::cuda_impl
