// SPDX-License-Identifier: Apache-2.0
/// @file fill_map.hpp  The loop of aft::attention_map on the host.
#pragma once

#include <aft/core/problem/pair_weights.hpp>
#include <aft/core/executors.hpp>
#include <aft/core/views/any_view.hpp>

#include <cmath>
#include <memory_resource>
#include <vector>

namespace aft {
inline namespace AFT_ISA {

/// a = exp(x - max) / sum exp(x - max) over the keys that (b, t, c) sees, with x = k + w. Everything is halved before
/// it is added, so that the sum of two finite numbers is finite; the difference of two such sums is doubled again.
[[gnu::noinline]] inline void fill_map(const problem& p, const any_view& out, const cpu& exec) {
  std::pmr::memory_resource* const memory = exec.memory != nullptr ? exec.memory : std::pmr::new_delete_resource();
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  const pair_weights weights(p);
  std::pmr::vector<double> w(static_cast<std::size_t>(p.Tk), memory);
  std::pmr::vector<double> x(static_cast<std::size_t>(p.Tk), memory);
  const auto at = [](index_t i) { return static_cast<std::size_t>(i); };
  const std::size_t query_axis = out.rank() - 3;
  for (index_t b = 0; b < p.B; ++b) {
    for (index_t t = 0; t < p.Tq; ++t) {
      for (index_t c = 0; c < p.d; ++c) {
        const index_t group = p.d / p.bias.heads;
        if (c % group == 0) {
          for (index_t s = 0; s < p.Tk; ++s)
            w[at(s)] = weights.visible(b, t, s) ? 0.5 * weights(b, c / group, t, s) : hidden;
        }
        double most = hidden;
        for (index_t s = 0; s < p.Tk; ++s) {
          x[at(s)] = hidden;
          if (w[at(s)] == hidden) continue;
          const index_t offset = b * p.k.sb + position_offset(p.k, p.grid, s) + c / (p.d / p.hk) * p.k.sc;
          const double k = load_element(p.k.data, p.k.type, offset);
          if (k == hidden) continue;
          x[at(s)] = 0.5 * k + w[at(s)];
          if (x[at(s)] > most) most = x[at(s)];
        }
        double sum = 0;
        for (index_t s = 0; s < p.Tk; ++s) {
          if (x[at(s)] == hidden) continue;
          x[at(s)] = std::exp(2 * (x[at(s)] - most));
          sum += x[at(s)];
        }
        const index_t row =
            (query_axis == 1 ? b * out.stride(0) : 0) + t * out.stride(query_axis) + c * out.stride(query_axis + 2);
        // A hidden pair is 0 also in a row that sees no key, whose sum is 0. One that is seen is divided even if its
        // exponential is 0: beside NaN or +inf, which its row sees too, no weight of the row is a number.
        for (index_t s = 0; s < p.Tk; ++s) {
          store_element(out.data(), out.type(), row + s * out.stride(query_axis + 1),
                        x[at(s)] == hidden ? 0 : x[at(s)] / sum);
        }
      }
    }
  }
}

}  // namespace AFT_ISA
}  // namespace aft
