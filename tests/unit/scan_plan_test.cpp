// SPDX-License-Identifier: Apache-2.0
// How AFT-simple is divided among threads: which of them has which positions and channels.
#include <doctest/doctest.h>

#include <map>
#include <utility>
#include <vector>

#include <aft/aft.hpp>

namespace {

using aft::index_t;
using aft::cpu_impl::scan_tuning;
using plan_type = aft::cpu_impl::scan::scan_plan<float>;

plan_type plan_of(index_t B, index_t T, index_t d, int threads, bool causal) {
  aft::problem p;
  p.B = B;
  p.Tq = p.Tk = T;
  p.d = p.hk = d;
  p.causal = causal;
  return {p, threads};
}

}  // namespace

TEST_CASE("scan_plan: every chunk of every stretch once, and every column in one stretch") {
  for (const bool causal : {false, true})
    for (const int threads : {1, 2, 3, 8})
      for (const index_t B : {1, 2, 3, 5})
        for (const index_t d : {3, 40, 512, 1100, 2100})
          for (const index_t T : {1, 128, 197, 512, 1025}) {
            const plan_type plan = plan_of(B, T, d, threads, causal);
            const index_t chunks = plan_type::chunks(T);
            std::map<std::pair<index_t, index_t>, int> times;
            for (index_t n = 0; n < plan.count() * chunks; ++n) {
              const auto [i, c] = plan.part_of(n, chunks);
              ++times[{i, c}];
            }
            CHECK(static_cast<index_t>(times.size()) == plan.count() * chunks);
            std::vector<int> columns(static_cast<std::size_t>(B * d));
            for (index_t i = 0; i < plan.count(); ++i) {
              const auto x = plan.at(i);
              for (index_t n = x.first; n < x.first + x.count; ++n) ++columns[static_cast<std::size_t>(n)];
            }
            CHECK(columns == std::vector<int>(columns.size(), 1));
          }
}

TEST_CASE("scan_plan: threads divide a batch element by positions, unless it is causal or too short") {
  const index_t chunk = scan_tuning<float>::chunk, d = 2 * scan_tuning<float>::stretch;
  for (const index_t B : {1, 3}) {
    const plan_type by_chunk = plan_of(B, 4 * chunk, scan_tuning<float>::stretch, 2, false);
    CHECK(by_chunk.count() == B);
    CHECK_FALSE(by_chunk.whole(2, false));
    CHECK_FALSE(by_chunk.torn());
  }
  // Two pieces to a row: the items of a thread are whole rows all the same.
  const plan_type wide = plan_of(1, 4 * chunk, d, 2, false);
  CHECK(wide.count() == 2);
  CHECK_FALSE(wide.whole(2, false));
  CHECK_FALSE(wide.torn());
  for (index_t n = 0; n < 8; ++n) CHECK(wide.part_of(n, 4).chunk == n / 2);

  for (const auto& [T, causal] : {std::pair{4 * chunk, true}, {chunk, false}, {chunk + 1, false}}) {
    const plan_type cut = plan_of(1, T, scan_tuning<float>::stretch, 2, causal);
    CHECK(cut.count() == 2);
    CHECK(cut.whole(2, causal));
    CHECK(cut.torn());
  }
  // A batch element to a thread, or all of them to one.
  CHECK_FALSE(plan_of(2, 4 * chunk, d, 2, true).torn());
  CHECK(plan_of(2, 4 * chunk, d, 2, false).whole(2, false));
  CHECK_FALSE(plan_of(1, 4 * chunk, d, 1, true).torn());
}
