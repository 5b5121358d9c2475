// SPDX-License-Identifier: Apache-2.0
// What a slot keeps of the positions that have left its window (aft/cuda/stream/slot_fold.cuh), for values of every
// size: the power of two that sums are divided by rounds nothing, whenever it changes.
#include <doctest/doctest.h>

#include <aft/cuda/device/runtime.cuh>
#include <aft/cuda/stream/slot_fold.cuh>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

using aft::index_t;
using namespace aft::cuda_impl;

namespace {

template <class C>
struct position {
  C key, value;
};

/// The averages after each position, by a thread of the emulated device. Before position `cut` the fold is written to a
/// slot, as one channel of three, and read again.
template <class C>
std::vector<C> averages(const std::vector<position<C>>& all, std::size_t cut = 0) {
  constexpr index_t channels = 3, c = 1, arrays = 3 + 2 * slot_fold<C>::levels;
  alignas(64) std::byte slot[aft::checks::slot_layout::header_bytes + arrays * channels * sizeof(C)];
  std::vector<C> result;
  aft::emulator::run(1, 1, [&] {
    slot_fold<C> fold;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == cut) {
        aft::emulator::fill_poison(slot, sizeof slot);
        fold.write(slot, channels, c);
        fold = {};
        fold.read(slot, channels, c);
      }
      fold.add(all[i].key, all[i].value, static_cast<index_t>(i) + 1);
      result.push_back(fold.average());
    }
  });
  return result;
}

/// Keys that are 0, so that every position weighs 1 and the sum of small integers is exact.
template <class C>
std::vector<position<C>> of_values(const std::vector<long double>& values) {
  std::vector<position<C>> all;
  for (const long double v : values) all.push_back({C(0), static_cast<C>(v)});
  return all;
}

/// The averages rounded once, of sums that lose nothing in long double.
template <class C>
std::vector<C> rounded_averages(const std::vector<long double>& values) {
  std::vector<C> result;
  long double sum = 0;
  for (const long double v : values) {
    sum += v;
    result.push_back(static_cast<C>(sum / static_cast<long double>(result.size() + 1)));
  }
  return result;
}

/// `count` positions with keys of a few units around 0 and values around 1, positive so that no sum is near 0.
template <class C>
std::vector<position<C>> ordinary(index_t count, C scale) {
  std::mt19937 random(11);
  std::vector<position<C>> all;
  for (index_t i = 0; i < count; ++i) {
    const C key = static_cast<C>(static_cast<int>(random() % 6001) - 3000) / C(1000);
    const C value = static_cast<C>(static_cast<int>(random() % 4001) + 500) / C(1000);
    all.push_back({key, value * scale});
  }
  return all;
}

/// A power of two well beyond the values that are summed as they are, whose averages are normal numbers all the same.
template <class C>
constexpr int beyond = std::numeric_limits<C>::max_exponent - 28;

}  // namespace

TEST_CASE_TEMPLATE("slot fold: a power of two in all values is one in the averages, bit for bit", C, float, double) {
  // Long enough for every level of partial sums.
  constexpr index_t count = 128 * 128 + 300;
  const std::vector<C> plain = averages(ordinary<C>(count, C(1)));
  for (const int power : {61, beyond<C>, -61, -beyond<C>}) {
    CAPTURE(power);
    const std::vector<C> scaled = averages(ordinary<C>(count, std::ldexp(C(1), power)));
    index_t different = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) different += scaled[i] != std::ldexp(plain[i], power);
    CHECK(different == 0);
  }
}

TEST_CASE_TEMPLATE("slot fold: sums that are there already take part when the power of two changes", C, float, double) {
  // Partial sums in two levels. Integers in units of 2^57, then of 2^-62, whose sums take less than a float's 24 bits.
  for (const int unit : {57, -62}) {
    CAPTURE(unit);
    std::vector<long double> values;
    for (int i = 0; i < 300; ++i) values.push_back(std::ldexp(1.0L + i % 7, unit));
    // Beyond the bound above, and 1 where it was not within the one below.
    for (int i = 0; i < 5; ++i) values.push_back(std::ldexp(9.0L + i, unit));
    CHECK(averages(of_values<C>(values)) == rounded_averages<C>(values));
  }
}

TEST_CASE_TEMPLATE("slot fold: values that grow or shrink through the whole range", C, float, double) {
  using limits = std::numeric_limits<C>;
  std::vector<long double> growing;
  for (int power = limits::min_exponent; power < limits::max_exponent; power += 7)
    growing.push_back(std::ldexp(power % 2 == 0 ? 1.25L : -1.25L, power));
  for (const bool shrinks : {false, true}) {
    CAPTURE(shrinks);
    const std::vector<long double> values =
        shrinks ? std::vector<long double>(growing.rbegin(), growing.rend()) : growing;
    const std::vector<C> got = averages(of_values<C>(values));
    long double sum = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      largest = std::max(largest, std::abs(values[i]));
      const auto n = static_cast<long double>(i + 1);
      // Each addition rounds a sum that is never above 1.2 times the largest value, since every one is 128 times the
      // one before or a part of it; the division rounds once more, and so does a subnormal result.
      const long double allowed =
          (1.2L * n + 1) * limits::epsilon() / 2 * largest / n + static_cast<long double>(limits::denorm_min());
      CHECK(std::abs(static_cast<long double>(got[i]) - sum / n) <= allowed);
    }
  }
}

TEST_CASE_TEMPLATE("slot fold: the largest numbers, zeros, and values that cancel", C, float, double) {
  constexpr C largest = std::numeric_limits<C>::max();
  std::vector<position<C>> all = ordinary<C>(1000, C(1));
  for (position<C>& each : all) each.value = each.value < C(2) ? -largest : largest;
  std::vector<position<C>> positive = all;
  for (position<C>& each : positive) each.value = largest;
  for (const C x : averages(all)) CHECK(std::isfinite(x));
  for (const C x : averages(positive)) {
    CHECK(std::isfinite(x));
    // Both sums have the same weights, and in three levels at most 128 additions each, which round by half a unit.
    CHECK(x >= largest * (C(1) - (3 * 128 + 1) * std::numeric_limits<C>::epsilon()));
  }
  for (const C x : averages(of_values<C>(std::vector<long double>(300, 0.0L)))) CHECK(x == C(0));
  // What is left of the sum is 0, so that the next value may choose the power of two anew, below the bounds or above.
  const long double tiny = std::ldexp(1.0L, -beyond<C>), huge = std::ldexp(1.0L, beyond<C>);
  const std::vector<long double> values{huge, -huge, tiny, 0, -tiny, huge};
  CHECK(averages(of_values<C>(values)) == rounded_averages<C>(values));
}

TEST_CASE_TEMPLATE("slot fold: units that a row's sums can have too, once values are ordinary again", C, float,
                   double) {
  bool plain[3];
  aft::emulator::run(1, 1, [&] {
    slot_fold<C> fold;
    const C values[] = {std::ldexp(C(1), -beyond<C>), C(1), std::ldexp(C(1), beyond<C>)};
    for (int i = 0; i < 3; ++i) {
      fold.add(C(0), values[i], i + 1);
      plain[i] = fold.is_plain();
    }
  });
  CHECK_FALSE(plain[0]);
  CHECK(plain[1]);
  CHECK_FALSE(plain[2]);
}

TEST_CASE_TEMPLATE("slot fold: the bits of a fold that was kept in a slot meanwhile", C, float, double) {
  std::vector<position<C>> all = ordinary<C>(140, C(1));
  // A power of two, and a base that keys beyond the range of exponentials ask for.
  for (std::size_t i = 20; i < all.size(); i += 9) all[i].value = std::ldexp(all[i].value, beyond<C>);
  for (std::size_t i = 60; i < all.size(); ++i) all[i].key += C(2) * number<C>::range;
  const std::vector<C> whole = averages(all);
  for (std::size_t cut = 1; cut < all.size(); ++cut) {
    CAPTURE(cut);
    CHECK(averages(all, cut) == whole);
  }
}
