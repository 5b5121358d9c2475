// SPDX-License-Identifier: Apache-2.0
// Products as nvcc compiled them, and the same with a fault planted in the PTX: each has to show, by a wrong result, by
// an element that could not be proven, or by what the emulated device does not forgive.
#include <doctest/doctest.h>

#include <device_emulator.hpp>

#include <launch.hpp>

#include <string>

#include "products.hpp"

using namespace aft::test;
namespace ptx = aft::ptx;

namespace {

bool all_right() {
  return gemm_right_on_warps() && split_product_right();
}

bool caught(int fault) {
  // Of orders of threads some hide a missing barrier.
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    aft::emulator::seed(seed);
    ptx::plant(fault);
    bool right = false;
    try {
      right = all_right();
    } catch (const aft::emulator::kernel_error& error) {
      MESSAGE(std::string(error.what()));
    }
    REQUIRE(ptx::faults_run > 0);
    ptx::plant(0);
    if (!right) return true;
  }
  return false;
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
  CHECK(ptx::known_faults().size() >= 15);
  for (const ptx::fault_entry& fault : ptx::known_faults()) {
    CAPTURE(fault.name);
    CHECK(caught(fault.number));
  }
}
