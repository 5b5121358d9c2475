// SPDX-License-Identifier: Apache-2.0
/// @file call/forward.hpp  A forward call over several ranks.
#pragma once

#include "near_problem.hpp"

#include <optional>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// What a forward call needs memory for; taken before data moves.
template <class C>
struct forward_memory {
  placement at;
  near_keys keys;
  own_keys<C> own;
  std::optional<staged_operands<C>> staged{};
  buffer<C> y{}, average{}, lse{}, row{};

  explicit forward_memory(const part& x) : at(x), keys(x), own(x, false) {
    const problem& p = x.local;
    if (!x.grid && !at.stand_in) return;
    staged.emplace(x, at);
    const index_t numbers = p.B * at.queries * p.d * staged->pairs;
    y = {x.memory, numbers};
    if (p.gate_fn != gate::none) average = {x.memory, numbers};
    if (p.lse.set) lse = {x.memory, p.B * at.queries * p.hk};
    row = {x.memory, p.d};
  }
};

/// The kernels' results of the rows with a stand-in, or on a grid, as the caller's.
template <class C>
void write_results(const part& x, const forward_memory<C>& m) {
  const problem& p = x.local;
  const bool gated = p.gate_fn != gate::none;
  const index_t group = p.hk > 0 ? p.d / p.hk : 0, pairs = m.staged->pairs;
  const C* const averages = gated ? m.average.data() : m.y.data();
  const auto each = [&](const field& to, index_t b, index_t t, bool padding, const auto& f) {
    if (!to.set) return;
    const index_t n = &to == &p.lse ? p.hk : p.d;
    const C nothing = &to == &p.lse ? -std::numeric_limits<C>::infinity() : C(0);
    for (index_t c = 0; c < n; ++c) m.row[c] = padding ? nothing : static_cast<C>(f(c));
    store_row(m.row.data(), row_at(to, p.grid, b, t), to.type, to.sc, n);
  };
  m.staged->for_each_row([&](index_t b, index_t t, index_t row) {
    const C* const y = m.y.data() + row * p.d * pairs;
    const C* const average = averages + row * p.d * pairs;
    const bool padding = x.pads(b, t);
    const auto number = [](C of) { return static_cast<double>(of); };
    const auto share = [&](index_t c) {
      return row_share(number(average[2 * c + 1]), m.staged->more[b * p.hk + c / group]);
    };
    const auto joint = [&](const C* from, index_t c) {
      if (pairs == 1) return number(from[c]);
      return share(c).average(number(from[2 * c]), m.staged->average[b * p.d + c], number(from[2 * c + 1]));
    };
    each(p.y, b, t, padding, [&](index_t c) { return joint(y, c); });
    each(p.average, b, t, padding, [&](index_t c) { return joint(average, c); });
    each(p.lse, b, t, padding, [&](index_t c) {
      const double lse = number(m.lse[row * p.hk + c]);
      return pairs == 1 ? lse : lse + std::log(share(c * group).Z);
    });
  });
}

/// Every rank's rows. What each receives: see near_keys::gather.
template <class C>
[[gnu::noinline]] void run_cut_forward(const part& x, const forward_memory<C>& m, const kernels& run, const cpu& exec,
                                       const communicator_ref& ranks) {
  m.keys.gather(m.own, run, exec, ranks);
  if (x.queries().count() == 0) return;
  moved_rows moved;
  problem p = x.local;
  place_rows(x, m.at, p, moved);
  if (!m.staged) {
    set_near_keys(x, m.at, m.keys.k, m.keys.v, p);
    return run.forward(p, exec);
  }
  const staged_operands<C>& staged = *m.staged;
  const far_sum far = m.keys.total();
  staged.fill(m.keys.k, m.keys.v, m.at.stand_in ? &far : nullptr);
  staged.fill_queries();
  staged.set_probe([](index_t) { return C(1); });
  staged.set_operands(p);
  p.y = contiguous(m.y.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
  if (m.average.size() > 0) p.average = contiguous(m.average.data(), dtype_of<C>, m.at.grid, m.at.queries, p.d);
  if (m.lse.size() > 0) p.lse = contiguous(m.lse.data(), dtype_of<C>, m.at.grid, m.at.queries, p.hk);
  run.forward(p, exec);
  write_results(x, m);
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
