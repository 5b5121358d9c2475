// SPDX-License-Identifier: Apache-2.0
/// @file checks/packed.hpp  The offsets of packed sequences: their entries, and what does not go with them.
#pragma once

#include "bias.hpp"
#include "options.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

inline bool is_packed(const call& c) {
  return c.sequences && (c.sequences->query_offsets.given() || c.sequences->key_offsets.given());
}

/// For what has no packed form.
[[gnu::cold]] inline void refuse_offsets(const call& c) {
  if (!c.sequences) return;
  for (const argument* a : {&c.sequences->query_offsets, &c.sequences->key_offsets})
    if (a->given())
      fail(c.op, *a, "an empty view, as it takes no packed sequences", text("shape ") << shape_text(a->view));
}

/// Offsets as tensors, before anything is read of them, and the options that they exclude.
[[gnu::cold]] inline void require_offsets(const call& c) {
  if (!is_packed(c)) return;
  const argument &query_offsets = c.sequences->query_offsets, &key_offsets = c.sequences->key_offsets;
  if (!query_offsets.given()) fail(c.op, query_offsets, "a view, as 'key_offsets' is one", "an empty view");
  if (!c.cross_lengths) fail(c.op, query_offsets, "an empty view on a grid of more than one axis", "a view");
  for (const argument* a : {&c.mask, &c.key_lengths, &c.query_lengths}) {
    if (a->given()) fail(c.op, *a, "an empty view beside 'query_offsets'", text("shape ") << shape_text(a->view));
  }
  for (const argument* a : {&query_offsets, &key_offsets}) {
    if (!a->given()) continue;
    // The host reads them before it returns, wherever the call runs.
    if (a->view.on_device()) fail(c.op, *a, "a host view", "a device view");
    if (a->view.type() != dtype::i64 && a->view.type() != dtype::i32)
      fail(c.op, *a, "int64 or int32", name_of(a->view.type()));
    require_rank(c, *a, 1);
    if (a->view.extent(0) < 1) fail(c.op, *a, "extent 0 (N + 1) to be at least 1", a->view.extent(0));
    require_data(c.op, *a);
  }
  if (key_offsets.given() && key_offsets.view.extent(0) != query_offsets.view.extent(0))
    fail(c.op, key_offsets, text("extent 0 (N + 1) to be ") << query_offsets.view.extent(0) << " as in 'query_offsets'",
         key_offsets.view.extent(0));
}

inline offset_list to_offsets(const any_view& v) {
  return {static_cast<const std::byte*>(v.data()), v.extent(0) > 1 ? v.stride(0) * size_of(v.type()) : 0,
          v.type() == dtype::i64};
}

/// Entries begin with 0, do not decrease and end with the number of rows. Returns the longest sequence.
[[gnu::cold]] inline index_t require_entries(const call& c, const argument& a, index_t count, index_t rows,
                                             const char* of) {
  const offset_list offsets = to_offsets(a.view);
  if (offsets.at(0) != 0) fail(c.op, a, "entry 0 to be 0", offsets.at(0));
  index_t longest = 0;
  for (index_t n = 0; n < count; ++n) {
    const index_t begin = offsets.at(n), end = offsets.at(n + 1);
    if (end < begin)
      fail(c.op, a, text("entry ") << n + 1 << " to be at least entry " << n << ", which is " << begin, end);
    if (end - begin > longest) longest = end - begin;
  }
  const index_t last = offsets.at(count);
  if (last != rows)
    fail(c.op, a, text("entry ") << count << ", the last, to be " << rows << ", the rows of '" << of << "'", last);
  return longest;
}

/// A bias has a row for each position of the longest sequence, or more.
[[gnu::cold]] inline void require_positions(const call& c, const argument& w, std::size_t axis, const char* name,
                                            index_t longest) {
  if (w.view.extent(axis) >= longest) return;
  fail(c.op, w, axis_text(axis, name) << " to be at least " << longest << ", the length of the longest sequence",
       w.view.extent(axis));
}

/// New positions of a stream are queries and keys at once. How many its bias needs, the slots say.
[[gnu::cold]] inline void require_same_offsets(const call& c, const packed_sequences& s) {
  for (index_t n = 0; n <= s.count; ++n) {
    if (s.keys.at(n) == s.queries.at(n)) continue;
    fail(c.op, c.sequences->key_offsets,
         text("entry ") << n << " to be " << s.queries.at(n) << " as in 'query_offsets' beside a stream", s.keys.at(n));
  }
}

/// After extents were settled: B, Tq and Tk are known.
[[gnu::cold]] inline void set_sequences(call& c, problem& p) {
  if (p.B != 1) {
    const argument& a = c.v.view.rank() == 3 ? c.v : c.k;
    fail(c.op, a, axis_text(0, "B") << " to be 1, as sequences are packed", p.B);
  }
  packed_sequences& s = c.sequences->packed;
  p.packed = &s;
  const argument &query_offsets = c.sequences->query_offsets, &key_offsets = c.sequences->key_offsets;
  s.count = query_offsets.view.extent(0) - 1;
  const argument& keys = key_offsets.given() ? key_offsets : query_offsets;
  s.queries = to_offsets(query_offsets.view);
  s.keys = to_offsets(keys.view);
  s.longest_queries = require_entries(c, query_offsets, s.count, p.Tq, c.backward ? "dy" : "y");
  if (key_offsets.given() || p.Tk != p.Tq) {
    if (!key_offsets.given())
      fail(c.op, key_offsets, text("offsets of the keys, as there are ") << p.Tk << " and " << p.Tq << " queries",
           "an empty view");
    s.longest_keys = require_entries(c, key_offsets, s.count, p.Tk, "k");
  } else {
    s.longest_keys = s.longest_queries;
  }
  if (!c.opt->stream.empty()) return require_same_offsets(c, s);
  s.causal = c.opt->causal;
  s.first_query = c.opt->first_query;
  if (c.windowed) s.win = {true, c.win.before, c.win.after};
  const bias_arguments& b = c.bias;
  if (b.kind == bias_kind::dense || b.kind == bias_kind::banded) {
    const std::size_t rows = row_axis(b.w.view);
    require_positions(c, b.w, rows, "Tq", s.longest_queries);
    if (b.kind == bias_kind::dense) require_positions(c, b.w, rows + 1, "Tk", s.longest_keys);
    s.bias_rows = b.w.view.extent(rows);
    s.bias_columns = b.w.view.extent(rows + 1);
  } else if (b.kind == bias_kind::factorized) {
    require_positions(c, b.u, row_axis(b.u.view), "Tq", s.longest_queries);
    require_positions(c, b.v, row_axis(b.v.view), "Tk", s.longest_keys);
    s.bias_rows = b.u.view.extent(row_axis(b.u.view));
    s.bias_columns = b.v.view.extent(row_axis(b.v.view));
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
