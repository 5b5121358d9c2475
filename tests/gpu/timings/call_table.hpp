// SPDX-License-Identifier: Apache-2.0
/// @file call_table.hpp  Rows of a table of calls, each in both types and with the passes that it has.
#pragma once

#include <aft/core/numeric.hpp>

#include <string>

#include "timed_calls.hpp"

namespace aft::gpu {

/// `Call<T>` is made of a row, says with `trains` whether there are gradients, and has bytes, product and run of a
/// pass.
template <template <class> class Call, class T, class Row>
void visit_row(const Row& row, const char* type, const call_visitor& visit) {
  const Call<T> call(row);
  for (const bool backward : {false, true}) {
    if (backward && !Call<T>::trains) break;
    timed_call one;
    one.name = row.name;
    one.type = type;
    one.pass = backward ? "forward+backward" : "forward";
    one.bytes = call.bytes(backward);
    one.product = call.product(backward);
    one.run = [&call, backward](std::size_t round, void* stream) { call.run(round, backward, stream); };
    visit(one);
  }
}

template <template <class> class Call, class Table>
void visit_table(const Table& table, const std::string& only, const call_visitor& visit) {
  for (const auto& row : table) {
    if (std::string(row.name).find(only) == std::string::npos) continue;
    visit_row<Call, bfloat16>(row, "bf16", visit);
    visit_row<Call, float>(row, "f32", visit);
  }
}

}  // namespace aft::gpu
