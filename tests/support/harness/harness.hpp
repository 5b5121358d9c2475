// SPDX-License-Identifier: Apache-2.0
/// @file harness.hpp  Runs a call through the library and through the reference, and compares.
#pragma once

#include <aft/core/executors.hpp>

#include <string_view>
#include <variant>

#include "call/setup.hpp"
#include "call_record.hpp"
#include "engines/device_runs.hpp"
#include "engines/turns.hpp"
#include "tolerance.hpp"

namespace aft::test {

/// What a test runs on. A build without AFT_TEST_DEVICE has no emulated device.
#if defined(AFT_TEST_DEVICE)
using any_executor = std::variant<cpu, cuda>;
#else
using any_executor = std::variant<cpu>;
#endif

/// What calls run on where a test does not say.
any_executor default_executor();
/// The executors that every check visits.
std::vector<any_executor> executors();
/// More of the same kind, that must give the same bits: numbers of threads, or orders of a block's threads (one more
/// where sanitizers watch).
std::vector<any_executor> equivalent_executors();

/// The tensors that a call wrote, widened exactly, in row-major order. `dq` and so on are empty in a forward result.
struct results {
  std::vector<long double> y, average, lse;
  std::vector<long double> dq, dk, dv, dw, du, df, dr;
  std::string damage;   ///< empty, or what was written that should not have been
  bool failed = false;  ///< the call threw std::bad_alloc; the tensors then hold what it left behind
  ran_on backend = ran_on::cpu;
};

/// A member of results with the name to report it by.
struct part {
  const char* name;
  std::vector<long double> results::*values;
};
inline constexpr part parts[] = {{"y", &results::y},   {"average", &results::average}, {"lse", &results::lse},
                                 {"dq", &results::dq}, {"dk", &results::dk},           {"dv", &results::dv},
                                 {"dw", &results::dw}, {"du", &results::du},           {"dv_factor", &results::df},
                                 {"dr", &results::dr}};

/// The library's result. Also watches inputs and the surroundings of outputs.
/// The relative error, in units of max|v|, that the products of bfloat16 numbers may add to y and to an average, and
/// the absolute one that they may add to a lse; 0 where the call works in the arithmetic type.
long double pair_error(dtype type, const setup& s);

/// The same for dk and dv, relative to the largest sum of absolute terms: on a device the contract's eight units of the
/// data's type, on the CPU what the roundings of a term may add. There the gradients of a bias are products too.
long double pair_gradient_error(dtype type, const setup& s);

results run_forward(dtype type, const setup& s, const numbers& x, const any_executor& exec = default_executor());

/// With `save`, lse and average are passed in: those of `saved`, by default what the forward call writes.
results run_backward(dtype type, const setup& s, const numbers& x, const any_executor& exec = default_executor(),
                     const results* saved = nullptr);

/// The formula's value in long double for inputs rounded to the type.
struct oracle_result {
  results value;
  results naive;                ///< the same loop in the arithmetic type
  results scale;                ///< see tolerance.hpp
  results terms;                ///< where 0, nothing was added and the result is exactly 0
  long double given_error = 0;  ///< relative error that a rounded lse, average or w brings along
  long double pair_error = 0;   ///< see pair_error(), or of gradients of k and v pair_gradient_error()
  long double bias_error = 0;   ///< the same of the gradients of a bias
  results count;                ///< one number each: the most terms that an element of a gradient adds up
  results given_absolute;       ///< one number each: what weights and averages below the normal range change
};
oracle_result evaluate_forward(dtype type, const setup& s, const numbers& x);
oracle_result evaluate_backward(dtype type, const setup& s, const numbers& x);

/// Results, or oracles, of the sequences of a packed call as those of the call.
results join_sequences(const setup& packed, const std::vector<results>& all, bool backward);
oracle_result join_oracles(const setup& packed, const std::vector<oracle_result>& all, bool backward);

/// What comparing a result with the oracle found.
struct judgement {
  int compared = 0, wrong = 0;  ///< tensors; something that was written beside them counts as wrong
  std::string words;            ///< a line for each that is wrong
};
judgement judge(dtype type, const setup& s, const results& got, const oracle_result& oracle);

/// Whether the CPU may multiply pairs of bfloat16 numbers for such a forward call: one that weighs pairs, and no
/// stream's. Its gradients: not where a window limits which pairs are weighed.
bool may_multiply_pairs(const setup& s);
bool may_multiply_gradient_pairs(const setup& s);

/// Sets what those products may add to the gradients of a call.
void allow_products(dtype type, const setup& s, oracle_result& backward);

/// Fails the running test where a result is out of its bound or something was written that should not have been.
void expect_within(dtype type, const setup& s, const results& got, const oracle_result& oracle,
                   std::string_view note = "");

/// Fails the running test where a result does not meet the oracle. Checks all engines (engines.hpp) and executors, if
/// the run concerns the call.
void check_forward(dtype type, const setup& s, const numbers& x);
void check_backward(dtype type, const setup& s, const numbers& x);
inline void check_both(dtype type, const setup& s, const numbers& x) {
  check_forward(type, s, x);
  check_backward(type, s, x);
}

/// The same for random numbers, in all types, forward and backward.
void check(const setup& s);

/// Empty when two results have the same bits (any NaN equals any NaN) and nothing else was written, else what differs.
std::string first_difference(const results& a, const results& b);

}  // namespace aft::test
