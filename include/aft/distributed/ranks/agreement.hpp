// SPDX-License-Identifier: Apache-2.0
/// @file ranks/agreement.hpp  What ranks tell each other before data moves: lengths, what is asked, and whether it can
/// be done.
#pragma once

#include <aft/core/checks/call.hpp>
#include <aft/core/checks/validation.hpp>

#include "communicator.hpp"

#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// A hash of what has to be the same on all ranks (FNV-1a, 64 bits).
class digest {
 public:
  void add(const void* bytes, std::size_t n) {
    const auto* at = static_cast<const unsigned char*>(bytes);
    for (std::size_t i = 0; i < n; ++i) hash_ = (hash_ ^ at[i]) * 0x100000001b3u;
  }
  void add(index_t n) { add(&n, sizeof n); }
  void add(const char* text) { add(text, std::strlen(text)); }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

/// The first message of every rank.
struct introduction {
  index_t queries = 0, keys = 0;  ///< lengths of the part, in indices of the outermost axis
  std::uint64_t call = 0;         ///< digest of operator, options, and the shapes that are everyone's
  std::uint64_t hidden_keys = 0;  ///< digest of a mask that is the same for all rows
  std::uint64_t pair_mask = 0;    ///< 1: rows have masks of their own
  std::uint64_t failed = 0;       ///< 1: the call cannot be one of several ranks, and its lengths are not known
};

/// How a rank failed before data moved.
enum class failure : std::int32_t { none, shape, memory, device, other };

/// The second message of every rank.
struct verdict {
  failure kind = failure::none;
  char text[508] = "";

  void set(failure what, const char* why) {
    kind = what;
    std::strncpy(text, why, sizeof text - 1);
  }
};

/// Memory that some rank lacked, named in the text.
class [[gnu::visibility("default")]] rank_out_of_memory : public std::bad_alloc {
 public:
  explicit rank_out_of_memory(const std::string& text) : text_(std::make_shared<const std::string>(text)) {}
  const char* what() const noexcept override {
    return text_->c_str();
  }

 private:
  std::shared_ptr<const std::string> text_;  // copying an exception must not throw
};

/// One record of every rank, in rank order. Where that fails, the others may have theirs and wait for what comes next.
template <class Record>
std::vector<Record> all_of(const communicator_ref& ranks, const Record& own) {
  try {
    std::vector<Record> all(static_cast<std::size_t>(ranks.size()));
    ranks.all_gather(std::as_bytes(std::span<const Record>(&own, 1)), std::as_writable_bytes(std::span<Record>(all)));
    return all;
  } catch (...) {
    ranks.abort();
    throw;
  }
}

/// What `prepare` throws becomes a record, so that the others can be told.
template <class Prepare>
verdict verdict_of(const Prepare& prepare) {
  verdict v;
  try {
    prepare();
  } catch (const shape_error& e) {
    v.set(failure::shape, e.what());
  } catch (const std::bad_alloc& e) {
    v.set(failure::memory, e.what());
  } catch (const device_error& e) {
    v.set(failure::device, e.what());
  } catch (const std::exception& e) {
    v.set(failure::other, e.what());
  }
  return v;
}

/// Throws on every rank what the first rank that failed would throw, and shape_error where ranks want different things.
[[gnu::cold]] inline void require_agreement(const char* op, const communicator_ref& ranks,
                                            const std::vector<introduction>& all, const verdict& own) {
  const std::vector<verdict> verdicts = all_of(ranks, own);
  for (std::size_t r = 0; r < verdicts.size(); ++r) {
    const verdict& v = verdicts[r];
    if (v.kind == failure::none) continue;
    const std::string text = "rank " + std::to_string(r) + ": " + v.text;
    if (v.kind == failure::shape) throw shape_error(text);
    if (v.kind == failure::memory) throw rank_out_of_memory(text);
    if (v.kind == failure::device) throw device_error(text);
    throw std::runtime_error(text);
  }
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].call == all[0].call) continue;
    throw shape_error("rank " + std::to_string(r) + ": " + op +
                      ": its operator, options, lengths or shapes are not those of rank 0");
  }
}

/// Whether a view can be read before a call has been checked as a whole.
inline bool is_readable(const any_view& v) {
  return !v.empty() && !v.on_device() && v.data() != nullptr;
}

/// Extents of a view and, of lengths and masks, what it holds.
inline void add_extents(digest& d, const any_view& v, std::size_t from, std::size_t to) {
  d.add(static_cast<index_t>(v.rank()));
  for (std::size_t i = from; i < to && i < v.rank(); ++i) d.add(v.extent(i));
}
inline void add_lengths(digest& d, const any_view& v) {
  d.add(v.empty() ? -1 : static_cast<index_t>(v.rank()));
  if (!is_readable(v) || v.rank() != 1 || (v.type() != dtype::i64 && v.type() != dtype::i32)) return;
  const auto* const data = static_cast<const std::byte*>(v.data());
  for (index_t b = 0; b < v.extent(0); ++b)
    d.add(integer_at(data + b * v.stride(0) * size_of(v.type()), v.type() == dtype::i64));
}

/// The digest of a call's operator and options, and of the extents that no cut changes.
[[gnu::cold]] inline std::uint64_t digest_of(const checks::call& c) {
  digest d;
  d.add(c.op);
  const options& o = *c.opt;
  for (const index_t n :
       {index_t{c.backward}, index_t{o.causal}, static_cast<index_t>(o.gate_fn), static_cast<index_t>(o.outside),
        static_cast<index_t>(o.arithmetic), static_cast<index_t>(c.type), c.win.before, c.win.after,
        static_cast<index_t>(c.bias.kind), c.bias.heads, index_t{c.bias.batched}, index_t{c.dk.given()},
        index_t{c.dv.given()}, static_cast<index_t>(c.dbias.kind), index_t{!o.mask.empty()}}) {
    d.add(n);
  }
  const any_view& rows = c.backward ? c.dy.view : c.y.view;
  for (const any_view* v : {&c.k.view, &c.v.view, &rows}) {
    // Batch, and what follows the outermost position. A tensor without a batch axis is a batch of one.
    const std::size_t first = v->rank() == 2 ? 0 : 1;
    d.add(first == 0 ? 1 : v->extent(0));
    for (std::size_t i = first + 1; i < v->rank(); ++i) d.add(v->extent(i));
  }
  // Of gradients too, of which an extent of 1 asks for a sum.
  for (const checks::bias_arguments* b : {&c.bias, &c.dbias}) {
    add_extents(d, b->u.view, 0, 3);
    add_extents(d, b->v.view, 0, 3);
    add_extents(d, b->r.view, 0, 4);
    const any_view& w = b->w.view;
    add_extents(d, w, 0, w.rank() < 2 ? 0 : w.rank() - 2);
  }
  add_lengths(d, c.key_lengths.view);
  add_lengths(d, c.query_lengths.view);
  return d.value();
}

/// Whether rows have masks of their own, and else what a mask hides.
[[gnu::cold]] inline void introduce_mask(const checks::call& c, introduction& own) {
  const any_view& m = c.mask.view;
  if (!is_readable(m) || m.rank() < 1 || m.rank() > 3) {
    own.pair_mask = m.empty() ? 0 : 1;
    return;
  }
  if (m.rank() >= 2 && m.extent(m.rank() - 2) != 1) {
    own.pair_mask = 1;
    return;
  }
  digest d;
  const index_t batch = m.rank() == 3 ? m.extent(0) : 1;
  d.add(batch);
  const auto* const data = static_cast<const std::byte*>(m.data());
  for (index_t b = 0; b < batch; ++b) {
    for (index_t s = 0; s < m.extent(m.rank() - 1); ++s) {
      const index_t at = (m.rank() == 3 ? b * m.stride(0) : 0) + s * m.stride(m.rank() - 1);
      d.add(index_t{data[at] != std::byte{0}});
    }
  }
  own.hidden_keys = d.value();
}

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
