// SPDX-License-Identifier: Apache-2.0
/// @file checks/overlap.hpp  Exactly whether two strided views, or two elements of one view, share a byte.
///
/// Ranges of addresses are not enough: dq, dk and dv as slices of one packed (B, T, 3d) buffer have ranges that overlap
/// and no element in common. The question is whether an integer combination of strides, each index within its extent,
/// comes closer to 0 than an element is wide: a bounded search, which real layouts cut down to a few steps.
#pragma once

#include "../views/any_view.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// `unknown`: the strides are so irregular that the search was given up. Callers treat it as an overlap, since a wrong
/// yes is an error message and a wrong no is corrupted results.
enum class shared_memory : std::uint8_t { none, some, unknown };

/// Most steps of one search; a few milliseconds. Layouts that come from slicing, padding and transposing take under
/// 100.
inline constexpr index_t overlap_budget = index_t{1} << 18;

/// Is there a sum of x_i * step_i, 0 <= x_i <= reach_i, in an interval?
class lattice_search {
 public:
  /// Steps and reaches are non-negative; a term that cannot move is left out.
  void add(index_t step, index_t reach) {
    if (step > 0 && reach > 0) terms_[size_++] = {step, reach};
  }

  [[gnu::cold]] shared_memory solve(index_t low, index_t high) {
    compress();
    tails_[0] = 0;
    divisors_[0] = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      tails_[i + 1] = tails_[i] + terms_[i].step * terms_[i].reach;
      divisors_[i + 1] = gcd(divisors_[i], terms_[i].step);
    }
    steps_left_ = overlap_budget;
    return search(size_, low, high);
  }

 private:
  struct term {
    index_t step = 0;
    index_t reach = 0;
  };

  static index_t gcd(index_t a, index_t b) {
    while (b != 0) {
      const index_t rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }

  /// Ascending steps; a step that is a multiple of a smaller one, with no gap after the smaller one's reach, joins it.
  /// This turns contiguous and equally strided axes, nearly all there are, into one term.
  [[gnu::cold]] void compress() {
    for (std::size_t i = 1; i < size_; ++i) {
      for (std::size_t j = i; j > 0 && terms_[j].step < terms_[j - 1].step; --j) (std::swap)(terms_[j], terms_[j - 1]);
    }
    for (std::size_t i = 0; i < size_; ++i) {
      for (std::size_t j = i + 1; j < size_;) {
        const index_t multiple = terms_[j].step / terms_[i].step;
        if (terms_[j].step % terms_[i].step != 0 || multiple - 1 > terms_[i].reach) {
          ++j;
          continue;
        }
        terms_[i].reach += multiple * terms_[j].reach;
        for (std::size_t l = j; l + 1 < size_; ++l) terms_[l] = terms_[l + 1];
        --size_;
        j = i + 1;
      }
    }
  }

  /// The first `count` terms, the largest step first: what is left for the smaller ones lies in [0, tail].
  [[gnu::cold]] shared_memory search(std::size_t count, index_t low, index_t high) {
    if (low < 0) low = 0;
    if (high > tails_[count]) high = tails_[count];
    if (low > high) return shared_memory::none;
    if (low == 0) return shared_memory::some;
    // Every sum is a multiple of the steps' common divisor, so low > 0 with no terms left ends here as well.
    if (divisors_[count] == 0 || high / divisors_[count] * divisors_[count] < low) return shared_memory::none;
    if (count == 1) return shared_memory::some;
    const term& t = terms_[count - 1];
    const index_t tail = tails_[count - 1];
    index_t x = low > tail ? (low - tail + t.step - 1) / t.step : 0;
    const index_t last = high / t.step < t.reach ? high / t.step : t.reach;
    for (; x <= last; ++x) {
      if (--steps_left_ < 0) return shared_memory::unknown;
      const shared_memory found = search(count - 1, low - x * t.step, high - x * t.step);
      if (found != shared_memory::none) return found;
    }
    return shared_memory::none;
  }

  std::array<term, 2 * any_view::max_rank> terms_{};
  std::array<index_t, 2 * any_view::max_rank + 1> tails_{};
  std::array<index_t, 2 * any_view::max_rank + 1> divisors_{};
  std::size_t size_ = 0;
  index_t steps_left_ = 0;
};

/// Where a view's bytes lie relative to its first element: [low, high).
struct byte_span {
  index_t low = 0;
  index_t high = 0;
};

[[gnu::cold]] inline byte_span span_of(const any_view& v) {
  byte_span s{0, size_of(v.type())};
  for (std::size_t i = 0; i < v.rank(); ++i) {
    if (v.extent(i) == 0) return {0, 0};
    const index_t reach = (v.extent(i) - 1) * v.stride(i) * size_of(v.type());
    (reach < 0 ? s.low : s.high) += reach;
  }
  return s;
}

inline index_t byte_distance(const any_view& from, const any_view& to) {
  return static_cast<index_t>(reinterpret_cast<std::uintptr_t>(to.data()) -
                              reinterpret_cast<std::uintptr_t>(from.data()));
}

inline index_t magnitude(index_t i) {
  return i < 0 ? -i : i;
}

/// Whether a and b share a byte. Both have passed require_sane.
[[gnu::cold]] inline shared_memory share_memory(const any_view& a, const any_view& b) {
  const byte_span sa = span_of(a);
  const byte_span sb = span_of(b);
  if (sa.low == sa.high || sb.low == sb.high) return shared_memory::none;
  const auto begin = [](const any_view& v, index_t at) {
    return reinterpret_cast<std::uintptr_t>(v.data()) + static_cast<std::uintptr_t>(at);
  };
  if (begin(a, sa.high) <= begin(b, sb.low) || begin(b, sb.high) <= begin(a, sa.low)) return shared_memory::none;
  // address(b) - address(a) = distance + sum j_i b_i - sum i_i a_i must lie in (-size of b, size of a). Indices are
  // counted from whichever end makes their term grow, which moves the start to the lowest b and the highest a.
  lattice_search search;
  for (std::size_t i = 0; i < a.rank(); ++i) search.add(magnitude(a.stride(i)) * size_of(a.type()), a.extent(i) - 1);
  for (std::size_t i = 0; i < b.rank(); ++i) search.add(magnitude(b.stride(i)) * size_of(b.type()), b.extent(i) - 1);
  const index_t start = byte_distance(a, b) + sb.low - (sa.high - size_of(a.type()));
  return search.solve(1 - size_of(b.type()) - start, size_of(a.type()) - 1 - start);
}

/// Whether two different elements of v share a byte.
[[gnu::cold]] inline shared_memory shares_with_itself(const any_view& v) {
  const index_t size = size_of(v.type());
  for (std::size_t i = 0; i < v.rank(); ++i) {
    if (v.extent(i) == 0) return shared_memory::none;
  }
  // Two elements differ first on some axis `lead`, and which of the two is called the first can be chosen such that
  // the difference there is 1 or more; on later axes it is anything.
  shared_memory result = shared_memory::none;
  for (std::size_t lead = 0; lead < v.rank(); ++lead) {
    if (v.extent(lead) == 1) continue;
    lattice_search search;
    index_t start = magnitude(v.stride(lead)) * size;
    if (start == 0) return shared_memory::some;
    search.add(start, v.extent(lead) - 2);
    for (std::size_t i = lead + 1; i < v.rank(); ++i) {
      const index_t step = magnitude(v.stride(i)) * size;
      search.add(step, 2 * (v.extent(i) - 1));
      start -= step * (v.extent(i) - 1);
    }
    const shared_memory found = search.solve(1 - size - start, size - 1 - start);
    if (found == shared_memory::some) return found;
    if (found == shared_memory::unknown) result = found;
  }
  return result;
}

/// Whether the two views are one: the same elements in the same order, of the same type.
inline bool same_elements(const any_view& a, const any_view& b) {
  if (a.data() != b.data() || a.type() != b.type()) return false;
  std::size_t i = 0;
  std::size_t j = 0;
  while (true) {
    while (i < a.rank() && a.extent(i) == 1) ++i;
    while (j < b.rank() && b.extent(j) == 1) ++j;
    if (i == a.rank() || j == b.rank()) return i == a.rank() && j == b.rank();
    if (a.extent(i) != b.extent(j) || a.stride(i) != b.stride(j)) return false;
    ++i;
    ++j;
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
