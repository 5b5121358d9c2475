// SPDX-License-Identifier: Apache-2.0
// Products as nvcc compiled them, and the same with a fault planted in the PTX: each has to show, by a wrong result, by
// an element that could not be proven, or by what the emulated device does not forgive.
#include <doctest/doctest.h>

#include <device_emulator.hpp>

#include <launch.hpp>

#include "faults.hpp"
#include "products.hpp"

using namespace aft::test;
namespace ptx = aft::ptx;

namespace {

bool all_right() {
  return gemm_right_on_warps() && split_product_right();
}

}  // namespace

TEST_CASE("ptx: products of warps prove every element and are within their bounds") {
  ptx::use_architecture("sm_80");
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    aft::emulator::seed(seed);
    CHECK(all_right());
  }
}

TEST_CASE("ptx: every fault in products of warps is caught") {
  ptx::use_architecture("sm_80");
  check_faults(15, 8, all_right);
}
