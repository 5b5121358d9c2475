// SPDX-License-Identifier: Apache-2.0
/// @file faults.hpp  Whether the faults planted in a program's PTX show in what it is asked to compute.
#pragma once

#include <doctest/doctest.h>

#include <device_emulator.hpp>

#include <launch.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace aft::test {

/// Whether right() is false, or the emulated device does not forgive it, in one of so many orders of threads: some hide
/// a missing barrier. The fault must have been run.
template <class Right>
bool fault_shows(int fault, std::uint64_t orders, const Right& right) {
  for (std::uint64_t seed = 1; seed <= orders; ++seed) {
    emulator::seed(seed);
    ptx::plant(fault);
    bool hidden = false;
    try {
      hidden = right();
    } catch (const emulator::kernel_error& error) {
      MESSAGE(std::string(error.what()));
    }
    REQUIRE(ptx::faults_run > 0);
    ptx::plant(0);
    if (!hidden) return true;
  }
  return false;
}

/// Fails the running test where a fault does not show, or where there are fewer than `least`.
template <class Right>
void check_faults(std::size_t least, std::uint64_t orders, const Right& right) {
  CHECK(ptx::known_faults().size() >= least);
  for (const ptx::fault_entry& fault : ptx::known_faults()) {
    CAPTURE(fault.name);
    CHECK(fault_shows(fault.number, orders, right));
  }
}

}  // namespace aft::test
