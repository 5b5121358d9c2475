// SPDX-License-Identifier: Apache-2.0
// Which tensors of a call are compared and how, without any test framework: programs for other targets have none.
#include <sstream>

#include "harness.hpp"

namespace aft::test {

namespace {

/// The type in which a part of a result is stored.
dtype storage_of(const part& p, dtype type, const setup& s) {
  if (p.values == &results::lse) return arithmetic_of(type);
  if (p.values == &results::average && !s.narrow_average) return arithmetic_of(type);
  return type;
}

}  // namespace

judgement judge(dtype type, const setup& s, const results& got, const oracle_result& oracle) {
  std::ostringstream words;
  judgement all;
  if (!got.damage.empty()) {
    words << "written though it should not have been: " << got.damage << '\n';
    ++all.wrong;
  }
  for (const part& p : parts) {
    // lse and average are there when they were asked for.
    const bool optional = p.values == &results::lse || p.values == &results::average;
    if (optional && (!s.save || (p.values == &results::lse && !s.has_lse()))) continue;
    const auto& count = oracle.count.*p.values;
    const auto& given = oracle.given_absolute.*p.values;
    comparison c{&(got.*p.values),
                 &(oracle.value.*p.values),
                 &(oracle.naive.*p.values),
                 &(oracle.terms.*p.values),
                 oracle.scale.*p.values,
                 arithmetic_of(type),
                 storage_of(p, type, s),
                 oracle.given_error,
                 count.empty() ? 0 : count.front(),
                 given.empty() ? 0 : given.front()};
    // Products of pairs move a lse by as much as they move den, however large it is itself. dq is none.
    const bool of_bias =
        p.values == &results::dw || p.values == &results::du || p.values == &results::df || p.values == &results::dr;
    if (p.values == &results::lse) {
      c.given_absolute += oracle.pair_error;
    } else if (p.values != &results::dq) {
      c.given_error += of_bias ? oracle.bias_error : oracle.pair_error;
    }
    if (!c.oracle->empty()) ++all.compared;
    const std::string mismatch = first_mismatch(c);
    if (mismatch.empty()) continue;
    ++all.wrong;
    words << p.name << ' ' << mismatch << '\n';
  }
  all.words = words.str();
  return all;
}

bool may_multiply_pairs(const setup& s) {
  const bool by_pairs = s.call == op::full || s.call == op::local || s.pair_mask();
  return s.arithmetic == arithmetic::automatic && by_pairs && s.cuts.empty();
}

bool may_multiply_gradient_pairs(const setup& s) {
  const bool in_window = s.call == op::local && (s.outside == outside::excluded || !s.pair_mask());
  return may_multiply_pairs(s) && !in_window;
}

}  // namespace aft::test
