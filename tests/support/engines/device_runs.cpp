// SPDX-License-Identifier: Apache-2.0
#include "device_runs.hpp"

#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
#include <device_emulator.hpp>
#endif

namespace aft::test {

namespace {

place named([[maybe_unused]] const char* name) {
#if defined(AFT_TEST_DEVICE)
  if (name == nullptr) return place::processor;
  const std::string_view word(name);
  if (word == "tensor_cores") return place::tensor_cores;
  if (word == "warpgroups") return place::warpgroups;
  return place::device;
#else
  return place::processor;
#endif
}

place& current() {
  static place now = named(std::getenv("AFT_TEST_ON_DEVICE"));
  return now;
}

std::vector<place>& all_places() {
  static std::vector<place> all{current()};
  return all;
}

void go_to(place where) {
  current() = where;
#if defined(AFT_TEST_DEVICE) && !defined(AFT_TEST_ON_GPU)
  using emulator::products;
  emulator::current_products() = where == place::tensor_cores ? products::forced
                                 : where == place::warpgroups ? products::by_warpgroups
                                                              : products::chosen;
#endif
}

std::set<std::pair<place, std::uint64_t>> visits;
int alone = 0;

}  // namespace

place current_place() {
  return current();
}

const std::vector<place>& places() {
  return all_places();
}

std::string name_of(place where) {
  switch (where) {
    case place::processor: return "processor";
    case place::device: return "emulated device";
    case place::tensor_cores: return "emulated device, products forced";
    case place::warpgroups: return "emulated device, products by warpgroups";
  }
  return {};
}

with_place::with_place(place where) : before_(current()) {
  go_to(where);
}
with_place::~with_place() {
  go_to(before_);
}

processor_alone::processor_alone() {
  ++alone;
}
processor_alone::~processor_alone() {
  --alone;
}

std::vector<place> places_beside() {
  const auto& all = places();
  if (on_device() || alone > 0) return {};
  return {all.begin() + 1, all.end()};
}

void note_visit(place where, std::uint64_t call) {
  visits.emplace(where, call);
}
bool visited(place where, std::uint64_t call) {
  return visits.contains({where, call});
}

void begin_run_on(place where) {
  go_to(where);
}

}  // namespace aft::test

// What main.cpp calls for each --also-on of the command line.
extern "C" {
void aft_test_also_on(const char* name);
void aft_test_also_on(const char* name) {
  // A program that is started for one place has no other.
  if (!aft::test::on_device()) aft::test::all_places().push_back(aft::test::named(name));
}
}
