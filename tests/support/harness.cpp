// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <sstream>

#include "typed_functions.hpp"

namespace aft::test {

namespace {

const typed_functions& functions_of(dtype type) {
  switch (type) {
    case dtype::f64: return functions_f64;
    case dtype::f16: return functions_f16;
    case dtype::bf16: return functions_bf16;
    default: return functions_f32;
  }
}

/// The type in which a part of a result is stored.
dtype storage_of(const part& p, dtype type, const setup& s) {
  if (p.values == &results::lse) return arithmetic_of(type);
  if (p.values == &results::average && !s.narrow_average) return arithmetic_of(type);
  return type;
}

/// Compares all parts that the call wrote and reports each that is wrong.
void compare(dtype type, const setup& s, const results& got, const oracle_result& oracle, long double given_error,
             const any_executor& exec) {
  std::ostringstream wrong;
  if (!got.damage.empty()) wrong << "written though it should not have been: " << got.damage << '\n';
  for (const part& p : parts) {
    // lse and average are there when they were asked for.
    const bool optional = p.values == &results::lse || p.values == &results::average;
    if (optional && (!s.save || (p.values == &results::lse && !s.has_lse()))) continue;
    const comparison c{&(got.*p.values), &(oracle.value.*p.values), &(oracle.naive.*p.values), oracle.scale.*p.values,
                       arithmetic_of(type), storage_of(p, type, s), given_error};
    const std::string mismatch = first_mismatch(c);
    if (!mismatch.empty()) wrong << p.name << ' ' << mismatch << '\n';
  }
  const int threads = std::visit([](const auto& e) { return e.threads; }, exec);
  CHECK_MESSAGE(wrong.str().empty(), wrong.str(), describe(completed(s), type), ", threads ", threads);
}

}  // namespace

results run_forward(dtype type, const setup& s, const numbers& x, const any_executor& exec) {
  return functions_of(type).run_forward(s, x, exec);
}

results run_backward(dtype type, const setup& s, const numbers& x, const any_executor& exec, const results* saved) {
  return functions_of(type).run_backward(s, x, exec, saved);
}

oracle_result evaluate_forward(dtype type, const setup& s, const numbers& x) {
  return functions_of(type).evaluate_forward(s, x);
}

oracle_result evaluate_backward(dtype type, const setup& s, const numbers& x) {
  return functions_of(type).evaluate_backward(s, x);
}

void check_forward(dtype type, const setup& s, const numbers& x) {
  const auto oracle = evaluate_forward(type, s, x);
  for (const auto& exec : executors()) compare(type, s, run_forward(type, s, x, exec), oracle, 0, exec);
}

void check_backward(dtype type, const setup& s, const numbers& x) {
  const auto oracle = evaluate_backward(type, s, x);
  // a = exp(k + w - lse): half a unit of a stored lse is a relative error of that size in every term, and an average
  // that was stored in 16 bits brings half a unit of its own into v - o.
  long double given = 0;
  if (s.save) {
    if (s.has_lse()) given += ulp(arithmetic_of(type), oracle.largest_lse) / 2;
    const dtype average = s.narrow_average ? type : arithmetic_of(type);
    given += ulp(average, 1) / 2;
  }
  for (const auto& exec : executors()) compare(type, s, run_backward(type, s, x, exec), oracle, given, exec);
}

void check(const setup& s) {
  const numbers x = random_numbers(s);
  for (dtype type : all_types) {
    check_forward(type, s, x);
    check_backward(type, s, x);
  }
}

std::string first_difference(const results& a, const results& b) {
  for (const part& p : parts) {
    const auto& left = a.*p.values;
    const auto& right = b.*p.values;
    if (left.size() != right.size()) return std::string(p.name) + " differs in size";
    for (std::size_t i = 0; i < left.size(); ++i) {
      const bool same = std::isnan(left[i]) ? std::isnan(right[i])
                                            : left[i] == right[i] && std::signbit(left[i]) == std::signbit(right[i]);
      if (same) continue;
      std::ostringstream out;
      out.precision(20);
      out << p.name << '[' << i << "]: " << left[i] << " and " << right[i];
      return out.str();
    }
  }
  return {};
}

}  // namespace aft::test
