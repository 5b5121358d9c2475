// SPDX-License-Identifier: Apache-2.0
/// @file outer_scan.cuh  The launches that fold what lies outside of windows (see outside.cuh), and when they are worth
/// it.
#pragma once

#include "runtime.cuh"
#include "scan.cuh"

namespace aft {
inline namespace AFT_ISA {
namespace cuda_impl {

/// The most that a key inside the window or filter lies before and after its query, positions counted row-major; all
/// of Tk where there is neither.
struct reach {
  index_t before, after;
};

inline reach reach_of(const problem& p) {
  reach r{p.Tk, p.Tk};
  if (p.win.bounded) {
    r = {p.win.before, p.win.after};
  } else if (p.bias.kind == bias_kind::filter) {
    r = {0, 0};
    for (std::size_t i = 0; i < 3; ++i) {
      // Along an axis no key is further away than the axis is long.
      const index_t back = p.left[i];
      const index_t ahead = p.taps[i] - 1 - p.left[i];
      r.before = r.before * p.grid[i] + (back < p.grid[i] ? back : p.grid[i]);
      r.after = r.after * p.grid[i] + (ahead < p.grid[i] ? ahead : p.grid[i]);
    }
  }
  const auto cut = [&](index_t x) { return x < -p.Tk ? -p.Tk : (x > p.Tk ? p.Tk : x); };
  return {cut(r.before), cut(r.after)};
}

/// Whether pairs outside the window all weigh the same, and the windows of `rows` rows leave a whole tile of keys
/// outside. The scan costs about as much as what one block of rows stages for those tiles.
inline bool folds_outside(const problem& p, index_t rows) {
  if (p.excluded || has_pair_mask(p)) return false;
  const reach r = reach_of(p);
  const index_t span = p.causal ? (r.before < 0 ? 0 : r.before) : r.before + r.after;
  return span + rows + tuning::depth < p.Tk;
}

/// Folds of keys (Fold = running_fold<C>) or queries (query_fold<C>), where they are used. O(B T d) work, and of
/// scratch three folds a column for every tuning::depth positions.
template <class Fold>
class outer_scan {
 public:
  /// `before`, `after`: whether anybody looks that way.
  outer_scan(const problem& p, index_t length, bool used, bool before, bool after, device_scratch& memory)
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
  outer_scan(const outer_scan&) = delete;
  outer_scan& operator=(const outer_scan&) = delete;

  const outer_folds<Fold>& folds() const { return folds_; }

  /// `kernel` folds the tiles.
  template <class C>
  void run(void (*kernel)(device_call<C>, scan_plan<Fold>), const device_call<C>& call,
           const call_stream& stream) const {
    if (!folds_.used) return;
    scan_plan<Fold> plan = scan_;
    plan.partials = folds_.partials;
    stream.launch(kernel, plan.blocks(), scan_threads, call, plan);
    const run_plan runs = plan_runs(folds_.columns, folds_.tiles, run_warps<Fold>);
    stream.launch(outer_folds_kernel<Fold>, 2 * runs.blocks(), runs.threads(), folds_, runs);
  }

 private:
  scan_plan<Fold> scan_;
  outer_folds<Fold> folds_{};
};

}  // namespace cuda_impl
}  // namespace AFT_ISA
}  // namespace aft
