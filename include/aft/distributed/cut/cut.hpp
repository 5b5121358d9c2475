// SPDX-License-Identifier: Apache-2.0
/// @file cut/cut.hpp  Which positions every rank has, and which keys the rows of a rank need one by one.
#pragma once

#include <aft/core/problem/problem.hpp>
#include <aft/math/integers.hpp>

#include <algorithm>
#include <vector>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Positions [first, last) of a sequence, or indices of a grid's outermost axis.
struct positions {
  index_t first = 0, last = 0;
  index_t count() const { return last > first ? last - first : 0; }
};
inline positions overlap(const positions& a, const positions& b) {
  const index_t first = max_of(a.first, b.first), last = min_of(a.last, b.last);
  return {first, max_of(first, last)};
}

/// Where a bias may be other than 0, seen from a query at position p: keys p - before to p + after.
enum class reach_kind : std::uint8_t {
  none,   ///< of an operator without a bias
  empty,  ///< of a window that holds no pair
  window,
  everywhere
};
struct bias_reach {
  reach_kind kind = reach_kind::none;
  index_t before = 0, after = 0;
  bool hidden_too = false;  ///< pairs that causal order hides are asked for all the same
};

/// The parts of all ranks. The keys of a row fall into near ones, which have to be there one by one, and far ones: all
/// rows of a rank see all of its far keys, with bias 0, so that one sum stands for them.
class cut {
 public:
  cut() = default;
  /// Lengths of the parts in rank order.
  cut(const std::vector<index_t>& queries, const std::vector<index_t>& keys, const bias_reach& reach, bool causal,
      bool excluded)
      : queries_(parts_of(queries)), keys_(parts_of(keys)), reach_(reach), causal_(causal), sums_(!excluded) {
    for (int r = 0; r < size(); ++r) near_.push_back(find_near(r, reach));
    gathers_sums_ = any_sends();
  }

  int size() const { return static_cast<int>(queries_.size()); }
  const positions& queries(int rank) const { return queries_[static_cast<std::size_t>(rank)]; }
  const positions& keys(int rank) const { return keys_[static_cast<std::size_t>(rank)]; }
  index_t all_queries() const { return queries_.empty() ? 0 : queries_.back().last; }
  index_t all_keys() const { return keys_.empty() ? 0 : keys_.back().last; }

  const bias_reach& reach() const { return reach_; }
  bool causal() const { return causal_; }
  /// Whether keys out of reach count.
  bool counts_far() const { return sums_; }

  /// The keys that rank `of` needs one by one.
  const positions& near_keys(int of) const { return near_[static_cast<std::size_t>(of)]; }
  /// Those of them that rank `from` has.
  positions near_from(int from, int of) const { return overlap(near_keys(of), keys(from)); }

  /// Whether the keys `some`, which no edge of a rank's near keys divides, are far from the rows of rank `of`.
  bool is_far(const positions& some, int of) const {
    if (!sums_ || queries(of).count() == 0 || some.count() == 0) return false;
    return some.last <= near_keys(of).first || (!causal_ && some.first >= near_keys(of).last);
  }
  /// Whether rank `from` has keys that are far from the rows of rank `of`.
  bool sends_sums(int from, int of) const {
    const positions& part = keys(from);
    const positions before{part.first, min_of(part.last, near_keys(of).first)};
    const positions behind{max_of(part.first, near_keys(of).last), part.last};
    return is_far(before, of) || is_far(behind, of);
  }
  /// Whether all keys of rank `from` are: then their sum is the same for whoever sees them so.
  bool sends_whole(int from, int of) const { return is_far(keys(from), of); }
  /// Whether sums of whole parts go to all ranks at once.
  bool gathers_sums() const { return gathers_sums_; }
  /// Whether rank `from` gives the sum of its part then: rows inside of others see all of it as far, or may.
  bool gives_whole(int from) const {
    if (!gathers_sums_ || keys(from).count() == 0) return false;
    // The next rank first, which mostly says so; itself where its own keys are far from its rows.
    for (int i = 1; i <= size(); ++i) {
      const int r = (from + i) % size();
      if (sends_whole(from, r) || (r != from && queries(r).count() > 0 && (!causal_ || r > from))) return true;
    }
    return false;
  }
  /// Whether rank `from` makes a sum for rank `of` alone, of what that one does not see one by one; also for itself.
  bool sends_rest(int from, int of) const { return sends_sums(from, of) && !(gathers_sums_ && sends_whole(from, of)); }
  bool sends_any(int from) const {
    for (int r = 0; r < size(); ++r)
      if (sends_sums(from, r)) return true;
    return false;
  }
  bool has_far(int of) const {
    for (int r = 0; r < size(); ++r)
      if (sends_sums(r, of)) return true;
    return false;
  }

  /// The keys of rank `of`, divided where any rank's near keys begin or end, far or near for each rank as a whole, and
  /// at `edges`, some of which may lie elsewhere.
  std::vector<positions> regions(int of, std::vector<index_t> edges) const {
    const positions& part = keys(of);
    for (index_t& edge : edges) edge = min_of(max_of(edge, part.first), part.last);
    edges.insert(edges.end(), {part.first, part.last});
    for (const positions& n : near_) {
      for (const index_t edge : {n.first, n.last})
        if (edge > part.first && edge < part.last) edges.push_back(edge);
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    std::vector<positions> all;
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) all.push_back({edges[i], edges[i + 1]});
    return all;
  }

 private:
  static std::vector<positions> parts_of(const std::vector<index_t>& lengths) {
    std::vector<positions> parts;
    index_t first = 0;
    for (const index_t n : lengths) {
      parts.push_back({first, first + n});
      first += n;
    }
    return parts;
  }

  /// Of the first and the last rank with keys, which are the farthest from others.
  bool any_sends() const {
    for (const bool last : {false, true}) {
      int from = last ? size() - 1 : 0;
      while (from >= 0 && from < size() && keys(from).count() == 0) from += last ? -1 : 1;
      for (int r = 0; r < size() && from >= 0 && from < size(); ++r)
        if (r != from && sends_sums(from, r)) return true;
    }
    return false;
  }

  positions find_near(int rank, const bias_reach& reach) const {
    const positions q = queries(rank);
    if (q.count() == 0) return {};
    if (reach.kind == reach_kind::everywhere) return {0, all_keys()};
    // All rows see all keys alike: a rank's own ones are as far as the others'.
    if (reach.kind == reach_kind::none && !causal_ && sums_) return {keys(rank).first, keys(rank).first};
    positions n = causal_ ? q : keys(rank);
    if (reach.kind == reach_kind::window) {
      // Causal rows see other keys of their own part each, so that none of those is far.
      n.last = q.last + reach.after;
      n.first = q.first - reach.before;
      if (causal_) n = {min_of(n.first, q.first), reach.hidden_too ? max_of(n.last, q.last) : q.last};
    }
    const auto within = [&](index_t at) { return min_of(max_of(at, index_t{0}), all_keys()); };
    n = {within(n.first), within(n.last)};
    return {n.first, max_of(n.first, n.last)};
  }

  std::vector<positions> queries_, keys_, near_;
  bias_reach reach_{};
  bool causal_ = false, sums_ = true, gathers_sums_ = false;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
