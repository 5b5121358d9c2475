// SPDX-License-Identifier: Apache-2.0
/// @file plan/uniform_scan.cuh  The launches that fold keys outside of windows, when they are worth it: see
/// fold/uniform_keys.cuh.
#pragma once

#include "../device/runtime.cuh"
#include "../scan/forward.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

/// The most that a key inside the window or filter lies before and after its query, positions counted row-major and
/// keys and queries from 0 both, so that either may be negative; as far as any pair where there is neither.
struct reach {
  index_t before, after;
};

inline reach reach_of(const problem& p) {
  const index_t most = max_of(p.Tq, p.Tk);
  reach r{most, most};
  if (p.win.bounded) {
    r = {p.win.before, p.win.after};
  } else if (p.bias.kind == bias_kind::filter) {
    r = {0, 0};
    // A sequence may have more keys than queries.
    const bool flat = p.grid[0] == 1 && p.grid[1] == 1;
    for (std::size_t i = 0; i < 3; ++i) {
      // Along an axis no key is further away than the axis is long.
      const index_t length = flat && i == 2 ? most : p.grid[i];
      const index_t back = p.left[i];
      const index_t forth = p.taps[i] - 1 - p.left[i];
      r.before = r.before * length + min_of(back, length);
      r.after = r.after * length + min_of(forth, length);
    }
  }
  const auto cut = [&](index_t x) { return max_of(-most, min_of(x, most)); };
  return {cut(r.before), cut(r.after)};
}

/// What a row has to look at one by one where the outside is folded: its window, and causal all from the window on.
inline index_t keys_near(const problem& p) {
  const reach r = reach_of(p);
  if (!p.causal) return r.before + r.after;
  return max_of(r.before, -p.first_query) + p.first_query;
}

/// Whether pairs outside the window all weigh the same, and the windows of `rows` rows leave a whole tile of the
/// `length` keys outside; the same for rows that are keys, of queries. The scan costs about as much as what one block
/// of rows stages for those tiles.
inline bool sums_uniform(const problem& p, index_t rows, index_t length) {
  if (p.excluded || has_pair_mask(p)) return false;
  return keys_near(p) + rows + tuning::depth < length;
}

/// Folds of keys (Fold = key_sum<C>) or queries (query_sum<C>), where they are used. O(B T d) work, and of
/// scratch three folds a column for every tuning::depth positions.
template <class Fold>
class uniform_scan {
 public:
  /// `before`, `after`: whether anybody looks that way.
  uniform_scan(const problem& p, index_t length, bool used, bool before, bool after, device_scratch& memory)
      : scan_(plan_scan<Fold>(p.B, p.d, length, tuning::depth)) {
    if (!used) return;
    folds_.used = true;
    folds_.columns = scan_.cols.count();
    folds_.channels = p.d;
    folds_.tiles = scan_.chunks;
    memory.reserve(folds_.partials, folds_.tiles * folds_.columns);
    if (before) memory.reserve(folds_.before, (folds_.tiles + 1) * folds_.columns);
    if (after) memory.reserve(folds_.after, (folds_.tiles + 1) * folds_.columns);
  }
  uniform_scan(const uniform_scan&) = delete;
  uniform_scan& operator=(const uniform_scan&) = delete;

  const uniform_sums<Fold>& folds() const { return folds_; }

  /// `kernel` folds the tiles.
  template <class C>
  void run(void (*kernel)(device_call<C>, scan_plan<Fold>), const device_call<C>& call,
           const call_stream& stream) const {
    if (!folds_.used) return;
    scan_plan<Fold> plan = scan_;
    plan.partials = folds_.partials;
    stream.launch(kernel, plan.blocks(), scan_threads, call, plan);
    const run_plan runs = plan_runs(folds_.columns, folds_.tiles, run_warps<Fold>);
    stream.launch(uniform_sums_kernel<Fold>, 2 * runs.blocks(), runs.threads(), folds_, runs);
  }

 private:
  scan_plan<Fold> scan_;
  uniform_sums<Fold> folds_{};
};

}  // namespace aft::inline AFT_ISA::cuda_impl
