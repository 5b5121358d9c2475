// SPDX-License-Identifier: Apache-2.0
/// @file fold/runs.cuh  Folds of a column merged in their order by a block: a column a lane, a run of folds a warp.
///
/// One thread that merged all folds of a column would take as many steps as there are tiles, each waiting for memory.
/// A warp folds its run, the runs' folds meet in shared memory, where each warp merges those before its own, and from
/// there it goes through its run once more: 2 n / W + W steps for n folds and W warps, at twice the merges.
#pragma once

#include "../device/device.cuh"
#include "../device/tuning.hpp"

namespace aft::inline AFT_ISA::cuda_impl {

template <class Fold>
inline constexpr int run_warps = sizeof(Fold) <= 4 * sizeof(float) ? tuning::run_warps : tuning::wide_run_warps;
template <class Fold>
inline constexpr int merge_threads = warp_size* run_warps<Fold>;

/// Folds are (count, columns).
struct run_plan {
  index_t columns = 0, count = 0;
  int warps = 1;
  bool forwards = true;  ///< otherwise from the last fold to the first

  AFT_HOST_DEVICE index_t blocks() const { return (columns + tuning::lanes - 1) / tuning::lanes; }
  int threads() const { return warps * warp_size; }
};

/// The power of two next to the square root of the folds, where the steps are about the fewest. It is part of a
/// result's bits, so of nothing but the length of the sequence.
inline run_plan plan_runs(index_t columns, index_t count, int most) {
  run_plan plan{columns, count};
  while (plan.warps < most && static_cast<index_t>(plan.warps) * plan.warps < count) plan.warps *= 2;
  return plan;
}

/// What a thread merges: the folds at() of steps [begin, end), with those of the warps before it come before.
struct run_place {
  index_t column, begin, end;
  int warp;
  bool exists;  ///< the column does
  bool last;    ///< the run ends where the folds end

  AFT_DEVICE static run_place of(const run_plan& plan, index_t block) {
    run_place place{};
    place.warp = thread_index() / warp_size;
    place.column = block * tuning::lanes + thread_index() % warp_size;
    place.exists = place.column < plan.columns;
    const index_t length = ceil_div(plan.count, plan.warps);
    const index_t begin = place.warp * length;
    place.begin = begin < plan.count ? begin : plan.count;
    const index_t end = place.begin + length;
    place.end = end < plan.count ? end : plan.count;
    place.last = place.end == plan.count && (place.begin < place.end || place.warp == 0);
    return place;
  }
};

/// Index of a step's fold.
AFT_DEVICE index_t sum_index(const run_plan& plan, const run_place& at, index_t step) {
  return (plan.forwards ? step : plan.count - 1 - step) * plan.columns + at.column;
}

template <class Fold, int warps>
struct run_buffers {
  Fold runs[warps][tuning::lanes];
};

/// The fold of the runs of warps [0, until). All threads of the block come here: it holds a barrier, before which every
/// fold has been read.
template <int most, class Fold>
AFT_DEVICE Fold merged_runs(const run_plan& plan, const run_place& at, const Fold* folds, int until) {
  auto& shared_runs = shared<run_buffers<Fold, most>>();
  const int lane = thread_index() % warp_size;
  Fold own;
  if (at.exists) {
    AFT_DEVICE_UNROLL_BY(4)
    for (index_t step = at.begin; step < at.end; ++step) own = carried(own, folds[sum_index(plan, at, step)]);
  }
  shared_runs.runs[at.warp][lane] = own;
  sync();
  Fold before;
  for (int w = 0; w < until; ++w) before = carried(before, shared_runs.runs[w][lane]);
  return before;
}

/// Goes through the warp's own run: visit(step, fold of all before the step, the step's own). Returns the fold of all
/// up to its end. What visit stores may replace the step's own fold.
template <class Fold, class Visit>
AFT_DEVICE Fold through_run(const run_plan& plan, const run_place& at, const Fold* folds, Fold before,
                            const Visit& visit) {
  if (at.begin >= at.end) return before;
  Fold next = folds[sum_index(plan, at, at.begin)];
  for (index_t step = at.begin; step < at.end; ++step) {
    const Fold own = next;
    // Asked for ahead of the stores, which the compiler must not move it over.
    if (step + 1 < at.end) next = folds[sum_index(plan, at, step + 1)];
    visit(step, before, own);
    before = carried(before, own);
  }
  return before;
}

}  // namespace aft::inline AFT_ISA::cuda_impl
