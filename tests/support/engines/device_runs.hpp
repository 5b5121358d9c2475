// SPDX-License-Identifier: Apache-2.0
/// @file device_runs.hpp  Test cases once more on the emulated device, in the program that ran them on the processor.
///
/// There the reference takes a third of the time, and its answer is the one that the processor's calls were held to. So
/// a check against it, in the first run, visits the devices too, and the runs on them repeat the rest of each case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aft::test {

/// What calls run on: the processor, or the emulated device with matrix products where the backend chooses them, with
/// one for every size that can have it, or with that on the kernel for warpgroups (emulator::products).
enum class place { processor, device, tensor_cores, warpgroups };

/// From the start the one that the variable AFT_TEST_ON_DEVICE names: yes, tensor_cores or warpgroups.
place current_place();
inline bool on_device() {
  return current_place() != place::processor;
}

/// Those that the cases run on, in this order: the one that the environment names, or the processor and then each that
/// the command line asks for by --also-on=device and so on.
const std::vector<place>& places();
/// "emulated device" and what it does with products.
std::string name_of(place where);

/// Makes a place the current one while it lives.
class with_place {
 public:
  explicit with_place(place where);
  ~with_place();
  with_place(const with_place&) = delete;
  with_place& operator=(const with_place&) = delete;

 private:
  place before_;
};

/// True on the processor. While it lives, checks in the run there do not visit the devices: their run leaves out what
/// follows.
class processor_alone {
 public:
  processor_alone();
  ~processor_alone();
  processor_alone(const processor_alone&) = delete;
  processor_alone& operator=(const processor_alone&) = delete;
  explicit operator bool() const { return !on_device(); }
};

/// The places that a check in this run has to visit besides the current one.
std::vector<place> places_beside();

/// Notes that a call, told apart by the number, was compared in a place by the run on the processor.
void note_visit(place where, std::uint64_t call);
bool visited(place where, std::uint64_t call);

/// Goes on to the run in a place.
void begin_run_on(place where);

}  // namespace aft::test
