// SPDX-License-Identifier: Apache-2.0
/// @file moved_calls.hpp  Calls whose queries stand elsewhere than their keys, are of another number, or are padded.
#pragma once

#include <cstdint>

#include "setup.hpp"

namespace aft::test {

/// Every operator and bias form, causal and not, with the first query at the beginning, among the keys, at their end
/// and behind them. The rest changes from call to call: numbers of queries from 1 to more than keys, windows on and
/// beside their query, what lies outside, masks, lengths of both kinds, shared keys, and whether lse and average are
/// asked for. `keys`: below 40 every key is looked at by itself, from 100 on most are folded.
inline std::vector<setup> moved_calls(index_t keys) {
  std::vector<setup> all;
  // Not all combinations, which were thousands: each choice by a digit of its own of a mixed number.
  std::uint32_t n = 0;
  const auto pick = [&](std::uint32_t choice, std::uint32_t count) {
    const std::uint32_t mixed = (n * 31 + choice + 1) * 2654435761u;
    return (mixed >> 16) % count;
  };
  const struct {
    op call;
    bias_form form;
    bool generated = false;
  } kinds[] = {{op::full, bias_form::dense_htt},       {op::full, bias_form::dense_bhtt},
               {op::full, bias_form::factorized_htn},  {op::local, bias_form::dense_htt},
               {op::local, bias_form::factorized_htn}, {op::local, bias_form::banded_htj},
               {op::simple, bias_form::dense_htt},     {op::conv, bias_form::dense_htt},
               {op::full, bias_form::dense_htt, true}, {op::local, bias_form::dense_htt, true}};
  const window windows[] = {{5, 4}, {7, -3}, {-2, 6}, {0, keys}, {keys + 9, -keys + 5}, {3, 0}};
  const index_t queries[] = {1, 4, keys, keys + 6};
  const mask_form masks[] = {mask_form::none,       mask_form::none,        mask_form::flat_keys,
                             mask_form::batch_keys, mask_form::batch_pairs, mask_form::flat_pairs};
  for (const auto& kind : kinds)
    for (bool causal : {true, false})
      for (index_t first : {index_t{0}, index_t{1}, index_t{5}, keys - 1, keys + 3}) {
        ++n;
        setup s{.call = kind.call, .B = 3, .Tq = queries[pick(0, 4)], .Tk = keys, .d = 4, .hk = 2, .H = 2};
        s.bias = kind.form;
        s.generated = kind.generated;
        s.win = windows[pick(1, 6)];
        s.grid = {keys};
        s.taps = {static_cast<index_t>(pick(1, 2) == 0 ? 4 : 7)};
        s.queries = s.Tq;
        s.causal = causal;
        s.first_query = first;
        s.query_lengths = pick(2, 3) != 0;
        s.lengths = pick(3, 3) == 0;
        s.mask = masks[pick(4, 6)];
        s.narrow_integers = pick(5, 2) == 0;
        s.outside = pick(6, 3) == 0 ? outside::excluded : outside::zero_bias;
        if (pick(7, 2) == 0) s.hk = 4;
        s.save = pick(8, 2) == 0;
        s.narrow_average = pick(9, 2) == 0;
        s.in_place = pick(10, 4) == 0;
        s.seed = n;
        all.push_back(s);
      }
  return all;
}

}  // namespace aft::test
