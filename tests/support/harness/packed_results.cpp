// SPDX-License-Identifier: Apache-2.0
// What a packed call has to give: the results of its sequences one behind the other, and sums for a shared bias.
#include <algorithm>

#include "call/sequences.hpp"
#include "harness.hpp"

namespace aft::test {

namespace {

void append(std::vector<long double>& to, const std::vector<long double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// The tensors of a sequence's results to their places in those of the call.
void add_results(results& to, const results& from, const setup& packed, index_t n, bool backward) {
  for (auto own : {&results::y, &results::average, &results::lse, &results::dq, &results::dk, &results::dv})
    append(to.*own, from.*own);
  const setup s = sequence_setup(packed, n);
  const auto add = [&](std::vector<long double> results::*own, const std::vector<index_t>& whole,
                       const std::vector<index_t>& extents) {
    for_each_shared(packed, n, whole, extents, [&](std::size_t place, std::size_t i) {
      long double& sum = (to.*own)[place];
      // So that a sum of one term is that term, -0 too.
      sum = sum == 0 ? (from.*own)[i] : sum + (from.*own)[i];
    });
  };
  if (!backward) return;
  add(&results::dw, w_extents(packed), w_extents(s));
  add(&results::du, u_extents(packed), u_extents(s));
  add(&results::df, f_extents(packed), f_extents(s));
  add(&results::dr, filter_extents(packed), filter_extents(s));
}

void size_bias(results& to, const setup& s) {
  const auto size = [](std::vector<long double>& x, const std::vector<index_t>& extents) {
    index_t n = extents.empty() ? 0 : 1;
    for (index_t e : extents) n *= e;
    x.assign(static_cast<std::size_t>(n), 0);
  };
  size(to.dw, w_extents(s));
  size(to.du, u_extents(s));
  size(to.df, f_extents(s));
  size(to.dr, filter_extents(s));
}

}  // namespace

results join_sequences(const setup& packed, const std::vector<results>& all, bool backward) {
  const setup s = completed(packed);
  results joined;
  if (backward) size_bias(joined, s);
  for (std::size_t n = 0; n < all.size(); ++n) {
    joined.damage += all[n].damage;
    add_results(joined, all[n], s, static_cast<index_t>(n), backward);
  }
  return joined;
}

oracle_result join_oracles(const setup& packed, const std::vector<oracle_result>& all, bool backward) {
  oracle_result joined;
  const auto join = [&](results oracle_result::*own) {
    std::vector<results> each;
    for (const oracle_result& o : all) each.push_back(o.*own);
    joined.*own = join_sequences(packed, each, backward);
  };
  for (auto own : {&oracle_result::value, &oracle_result::naive, &oracle_result::scale}) join(own);
  if (backward) join(&oracle_result::terms);
  // One number a tensor: of a sum over sequences the sum, else the most.
  const auto reduce = [&](results oracle_result::*own) {
    for (const part& p : parts) {
      const bool summed =
          p.values == &results::dw || p.values == &results::du || p.values == &results::df || p.values == &results::dr;
      auto& to = (joined.*own).*p.values;
      for (const oracle_result& o : all) {
        const auto& from = (o.*own).*p.values;
        if (from.empty()) continue;
        if (to.empty()) to.assign(1, 0);
        to[0] = summed ? to[0] + from[0] : std::max(to[0], from[0]);
      }
    }
  };
  reduce(&oracle_result::count);
  reduce(&oracle_result::given_absolute);
  for (const oracle_result& o : all) joined.given_error = std::max(joined.given_error, o.given_error);
  return joined;
}

}  // namespace aft::test
