// SPDX-License-Identifier: Apache-2.0
/// @file cut/part.hpp  A rank's part of a call: its arguments checked against the whole, and what the others have.
#pragma once

#include <aft/core/checks/prepare.hpp>

#include "../memory/device_memory.hpp"
#include "../ranks/agreement.hpp"
#include "pieces.hpp"

#include <memory_resource>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// A call as one rank sees it. `local` is a problem of its own rows and its own keys alone, with bias and mask that
/// begin at their first key; `bias_shift` says at which key of the whole.
struct part {
  const checks::call* call = nullptr;
  backward_problem local{};
  cut where{};
  row_pieces pieces{};
  int rank = 0;
  index_t inner = 1;                            ///< positions for each index of the outermost axis: 1 for a sequence
  bool grid = false;                            ///< queries and keys are cells of one grid
  std::pmr::memory_resource* memory = nullptr;  ///< of the host
  std::pmr::memory_resource* kernel_memory = nullptr;  ///< the same, or where kernels of a device find a twin

  int ranks() const { return where.size(); }
  positions queries() const { return where.queries(rank); }
  positions keys() const { return where.keys(rank); }
  positions near_keys() const { return where.near_keys(rank); }
  /// Whether this rank's rows have far keys alone and no bias whose gradient would be theirs: one average is that of
  /// all.
  bool has_one_average() const {
    return local.bias.kind == bias_kind::none && near_keys().count() == 0 && where.has_far(rank);
  }
  /// Whether the kernels are those of aft::cpu, which sum a rank's own keys and take the sums of others into their
  /// rows, of sequences.
  bool sums_in_kernels() const { return !grid && kernel_memory == memory; }
  /// This rank's own keys, divided into parts that are far or near for each rank, and for its own rows at an edge.
  std::vector<positions> regions() const { return where.regions(rank, {pieces.before.last, pieces.behind.first}); }
  /// Whether rows at the edges see the rest of the own keys as far ones.
  bool has_far_own_keys() const { return pieces.has_edges() && where.counts_far() && !where.causal(); }
  /// Whether sums of own keys are asked for.
  bool sums_own_keys() const { return where.sends_any(rank) || where.gives_whole(rank) || has_far_own_keys(); }
  /// Whether far keys are one more key among the kernels' own.
  bool has_stand_in() const { return where.has_far(rank) && !(sums_in_kernels() && near_keys().count() > 0); }
  /// Whether kernels get copies of rows and keys in the arithmetic type: for keys that stand for others, and on a grid.
  bool works_on_copies() const { return !has_one_average() && (grid || has_stand_in()); }
  /// Whether the bias is a function's, whose owner was promised how often a call asks it.
  bool asks_once() const { return local.bias.kind == bias_kind::generated; }
  /// Whether a key of the whole is hidden from all rows; s counts positions.
  bool hides(index_t b, index_t s) const {
    if (s >= local.lengths.of(b, where.all_keys() * inner)) return true;
    return !local.pair_mask() && local.mask_hides(b, 0, s);
  }
  /// Whether row t of this rank is padding.
  bool pads(index_t b, index_t t) const { return t >= local.query_lengths.of(b, queries().count() * inner); }
};

/// What no cut call can have.
[[gnu::cold]] inline void require_whole_sequences(const checks::call& c) {
  const options& o = *c.opt;
  if (!o.stream.empty()) checks::fail(c.op, {"stream"}, "none in a call over several ranks", "a stream");
  if (!o.slot_ids.empty()) checks::fail(c.op, {"slot_ids"}, "an empty view in a call over several ranks", "a view");
  if (!o.query_offsets.empty())
    checks::fail(c.op, {"query_offsets"}, "an empty view in a call over several ranks", "packed sequences");
  if (!o.key_offsets.empty())
    checks::fail(c.op, {"key_offsets"}, "an empty view in a call over several ranks", "packed sequences");
  if (o.first_query != 0) checks::fail(c.op, {"first_query"}, "0 in a call over several ranks", o.first_query);
}

/// Of a tensor that has all positions on an axis, those from `first` on; it may be absent.
[[gnu::cold]] inline void narrow(const checks::call& c, checks::argument& a, std::size_t axis, const char* name,
                                 index_t whole, const positions& own) {
  if (!a.given()) return;
  checks::require_extent(c.op, a, axis, name, whole);
  a.view = a.view.part_of(axis, own.first, own.count());
}

/// The bias's rows and columns that belong to this rank's own queries and keys.
[[gnu::cold]] inline void narrow_bias(const checks::call& c, checks::bias_arguments& b, const part& x) {
  const positions q = x.queries(), k = x.keys();
  if (b.kind == bias_kind::dense && b.w.given())
    narrow(c, b.w, b.w.view.rank() - 1, "Tk of all ranks", x.where.all_keys(), k);
  if (b.kind != bias_kind::factorized) return;
  if (b.u.given()) narrow(c, b.u, checks::row_axis(b.u.view), "Tq of all ranks", x.where.all_queries(), q);
  if (b.v.given()) narrow(c, b.v, checks::row_axis(b.v.view), "Tk of all ranks", x.where.all_keys(), k);
}

/// Checks a call against the lengths of all ranks and makes its local problem. Throws shape_error.
[[gnu::cold]] inline void prepare_part(const checks::call& whole, part& x) {
  checks::require_memory(whole);
  checks::call c = whole;
  narrow_bias(c, c.bias, x);
  narrow_bias(c, c.dbias, x);
  if (c.mask.given()) {
    // Other ranks than 1 to 3 are refused with the rest.
    const positions cells{x.keys().first * x.inner, x.keys().last * x.inner};
    if (c.mask.view.rank() >= 1)
      narrow(c, c.mask, c.mask.view.rank() - 1, "Tk of all ranks", x.where.all_keys() * x.inner, cells);
  }
  x.local = checks::prepare(c);
  // Functions are those of the caller's record, which lives on.
  if (x.local.bias.kind == bias_kind::generated) x.local.bias.rows = &x.call->bias.rows;
  if (x.local.dbias.kind == bias_kind::generated) x.local.dbias.rows = &x.call->dbias.rows;
  // Lengths are those of the whole sequence.
  x.local.query_lengths.less = x.queries().first * x.inner;
  if (x.local.mask != nullptr) {
    // Of the whole mask: an axis of one own key is none of one key.
    const any_view& m = whole.mask.view;
    x.local.mask = static_cast<const std::byte*>(m.data());
    x.local.mask_ss = m.extent(m.rank() - 1) > 1 ? m.stride(m.rank() - 1) : 0;
  }
}

/// What says which keys are hidden and which rows padding, where a device has it: copies of the host, which has to know
/// that before any rank can say which keys it needs.
class hidden_on_host {
 public:
  /// Lets the views of c be copies. What no check has passed yet and cannot be read stays as it is, for the checks.
  void copy(checks::call& c, twin_memory& device) {
    const dtype mask = c.mask.view.type();
    if (mask == dtype::u8 || mask == dtype::i8) mask_ = copy_of(c.mask.view, 3, device);
    for (checks::argument* a : {&c.key_lengths, &c.query_lengths}) {
      const dtype type = a->view.type();
      if (type == dtype::i64 || type == dtype::i32)
        (a == &c.key_lengths ? lengths_ : query_lengths_) = copy_of(a->view, 1, device);
    }
  }

  void set(problem& p) const {
    const auto set_lengths = [](length_list& of, const buffer<std::byte>& copy) {
      if (copy.size() == 0 || of.data == nullptr) return;
      of.data = copy.data();
      if (of.step != 0) of.step = of.wide ? 8 : 4;
    };
    set_lengths(p.lengths, lengths_.memory);
    set_lengths(p.query_lengths, query_lengths_.memory);
    if (p.mask == nullptr || mask_.memory.size() == 0) return;
    p.mask = mask_.memory.data();
    if (p.mask_sb != 0) p.mask_sb = mask_.of.extents[3] * mask_.of.extents[4];
    if (p.mask_st != 0) p.mask_st = mask_.of.extents[4];
    if (p.mask_ss != 0) p.mask_ss = 1;
  }

 private:
  struct hidden_copy {
    element_block of{};
    buffer<std::byte> memory{};
  };

  static hidden_copy copy_of(any_view& v, std::size_t axes, twin_memory& device) {
    if (v.empty() || !v.on_device() || v.data() == nullptr || v.rank() < 1 || v.rank() > axes) return {};
    hidden_copy copy;
    copy.of.data = static_cast<std::byte*>(v.data());
    copy.of.size = size_of(v.type());
    index_t extents[3] = {};
    for (std::size_t i = 0; i < v.rank(); ++i) {
      const std::size_t at = static_cast<std::size_t>(element_block::axes) - v.rank() + i;
      copy.of.extents[at] = extents[i] = v.extent(i);
      copy.of.strides[at] = v.stride(i);
    }
    copy.memory = host_copy(copy.of, device);
    v = any_view(copy.memory.data(), v.type(), v.rank(), extents, nullptr);
    return copy;
  }

  hidden_copy mask_{}, lengths_{}, query_lengths_{};
};

/// Where the bias of a validated call may be other than 0.
inline bias_reach reach_of(const checks::call& c) {
  if (c.bias.kind == bias_kind::filter) {
    // The outermost axis of a grid, which comes behind the heads.
    const index_t taps = c.bias.r.view.extent(1);
    // A rank keeps its own planes, since on a grid they are those of its rows; a sequence needs none.
    if (taps == 0 && c.v.view.rank() > 3) return {reach_kind::empty, 0, 0};
    const index_t left = c.opt->causal ? taps - 1 : (taps - 1) / 2;
    return {reach_kind::window, left, taps - 1 - left};
  }
  if (!c.windowed) return {c.bias.kind == bias_kind::none ? reach_kind::none : reach_kind::everywhere, 0, 0};
  if (c.win.before + c.win.after + 1 <= 0) return {reach_kind::empty, 0, 0};
  // The function of a gradient gets every pair of the window, hidden ones with 0.
  return {reach_kind::window, c.win.before, c.win.after, c.dbias.kind == bias_kind::generated};
}

/// The outermost position axis of a tensor of the call, and its extent as it came.
inline index_t outermost_extent(const any_view& v) {
  return v.rank() < 2 ? 0 : v.extent(checks::first_position(v));
}

[[gnu::cold]] inline introduction introduce(const checks::call& c) {
  introduction own;
  own.queries = outermost_extent(c.backward ? c.dy.view : c.y.view);
  own.keys = outermost_extent(c.v.view);
  own.call = digest_of(c);
  introduce_mask(c, own);
  return own;
}

/// The cut that all ranks' lengths make. Rows with masks of their own, or ranks with different ones, need every key.
[[gnu::cold]] inline void set_cut(const checks::call& c, const std::vector<introduction>& all, part& x) {
  std::vector<index_t> queries, keys;
  bool pairs = false;
  for (const introduction& one : all) {
    constexpr index_t most = index_t{1} << 48;
    if (one.queries < 0 || one.keys < 0 || one.queries > most || one.keys > most)
      throw shape_error(std::string(c.op) + ": lengths of other ranks that no sequence has");
    // Planes without cells are none.
    queries.push_back(x.inner == 0 ? 0 : one.queries);
    keys.push_back(x.inner == 0 ? 0 : one.keys);
    pairs = pairs || one.pair_mask != 0 || one.hidden_keys != all[0].hidden_keys;
  }
  bias_reach reach = reach_of(c);
  if (pairs) reach = {reach_kind::everywhere, 0, 0};
  x.where = cut(queries, keys, reach, c.opt->causal, c.opt->outside == outside::excluded);
}

/// Both rounds of messages around the checks of a call. `take` takes the memory that the call of part x needs, which
/// has its own memory set; a device's lengths and masks become `hidden`. Throws the same on all ranks, before anything
/// is written and before data moves.
template <class Take>
[[gnu::cold]] void agree(const checks::call& given, const communicator_ref& ranks, twin_memory* device,
                         hidden_on_host& hidden, part& x, const Take& take) {
  checks::call c = given;
  x.call = &given;
  x.rank = ranks.rank();
  introduction own;
  verdict v = verdict_of([&] {
    require_whole_sequences(c);
    checks::require_sane_all(c);
    if (device == nullptr) {
      own = introduce(c);
      return;
    }
    device->stream().require_waiting();
    checks::call readable = c;
    hidden.copy(readable, *device);
    own = introduce(readable);
  });
  own.failed = v.kind == failure::none ? 0 : 1;
  const std::vector<introduction> all = all_of(ranks, own);
  // With lengths that are not known others would blame their own tensors.
  const bool known = std::all_of(all.begin(), all.end(), [](const introduction& one) { return one.failed == 0; });
  if (known) {
    v = verdict_of([&] {
      checks::sum_broadcast_axes(c.bias, c.dbias);
      const any_view& values = c.v.view;
      x.grid = values.rank() > 3;
      for (std::size_t i = checks::first_position(values) + 1; i + 1 < values.rank(); ++i) x.inner *= values.extent(i);
      set_cut(c, all, x);
      prepare_part(c, x);
      hidden.set(x.local);
      const bias_kind kind = x.local.bias.kind;
      const bool by_rows = kind == bias_kind::none || kind == bias_kind::banded || kind == bias_kind::filter;
      if (by_rows && x.sums_in_kernels()) x.pieces = row_pieces::of(x.where, x.rank);
      // Those who want something else would be answered by nobody.
      for (const introduction& one : all)
        if (one.call != own.call) return;
      take();
    });
  }
  require_agreement(given.op, ranks, all, v);
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
