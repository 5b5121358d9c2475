// SPDX-License-Identifier: Apache-2.0
/// @file checks/memory.hpp  The memory behind a call's tensors: it exists, and outputs share it with nothing.
#pragma once

#include "overlap.hpp"
#include "validation.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// The tensors of a call that are read and those that are written.
struct tensors {
  std::array<const argument*, 16> read{};
  std::size_t reads = 0;
  std::array<const argument*, 8> written{};
  std::size_t writes = 0;

  void input(const argument& a) {
    if (a.given()) read[reads++] = &a;
  }
  void output(const argument& a) {
    if (a.given()) written[writes++] = &a;
  }
};

[[gnu::cold]] inline tensors tensors_of(const call& c) {
  tensors all;
  if (c.opt->gate_fn != gate::none) all.input(c.q);
  all.input(c.k);
  all.input(c.v);
  all.input(c.bias.w);
  all.input(c.bias.u);
  all.input(c.bias.v);
  all.input(c.bias.r);
  if (c.sparse) {
    all.input(c.sparse->taps);
    all.input(c.sparse->values);
  }
  all.input(c.dy);
  all.input(c.mask);
  all.input(c.key_lengths);
  all.input(c.query_lengths);
  if (c.sequences) {
    all.input(c.sequences->query_offsets);
    all.input(c.sequences->key_offsets);
    all.input(c.sequences->slot_ids);
  }
  all.output(c.y);
  if (c.sequences) all.output(c.sequences->stream_bytes);
  all.output(c.dq);
  all.output(c.dk);
  all.output(c.dv);
  all.output(c.dbias.w);
  all.output(c.dbias.u);
  all.output(c.dbias.v);
  all.output(c.dbias.r);
  for (const argument* saved : {&c.lse, &c.average}) {
    if (c.backward) {
      all.input(*saved);
    } else {
      all.output(*saved);
    }
  }
  return all;
}

[[gnu::cold]] inline void require_sane_all(const call& c) {
  const tensors all = tensors_of(c);
  for (std::size_t i = 0; i < all.reads; ++i) require_sane(c.op, *all.read[i]);
  for (std::size_t i = 0; i < all.writes; ++i) require_sane(c.op, *all.written[i]);
}

/// An element of `a` shares memory with an element of `b`, both of them tensors of one call.
[[gnu::cold]] inline void require_apart(const char* op, const argument& a, const argument& b) {
  const shared_memory shared = share_memory(a.view, b.view);
  if (shared == shared_memory::none) return;
  text got(shared == shared_memory::some ? "an overlap" : "strides too irregular to rule out an overlap");
  got << ": '" << a.name << "' begins " << byte_distance(b.view, a.view) << " bytes after '" << b.name << "'";
  fail(op, a, text("memory that '") << b.name << "' does not use", got);
}

[[gnu::cold]] inline void require_apart_from_itself(const char* op, const argument& a) {
  const shared_memory shared = shares_with_itself(a.view);
  if (shared == shared_memory::none) return;
  text got("extents ");
  got << shape_text(a.view) << " with strides ";
  for (std::size_t i = 0; i < a.view.rank(); ++i) got << (i == 0 ? "(" : ", ") << a.view.stride(i);
  got << (shared == shared_memory::some ? "), where elements overlap" : "), too irregular to rule out an overlap");
  fail(op, a, "memory of its own for every element of an output", got);
}

/// Inputs may share memory freely. Outputs may not, with one exception: a forward call reads q where it writes y and
/// nowhere else, so y may be q itself.
[[gnu::cold]] inline void require_memory(const call& c) {
  const tensors all = tensors_of(c);
  for (std::size_t i = 0; i < all.reads; ++i) require_data(c.op, *all.read[i]);
  for (std::size_t i = 0; i < all.writes; ++i) require_output(c.op, *all.written[i]);
  for (std::size_t i = 0; i < all.writes; ++i) {
    require_apart_from_itself(c.op, *all.written[i]);
    for (std::size_t j = 0; j < i; ++j) require_apart(c.op, *all.written[i], *all.written[j]);
    for (std::size_t j = 0; j < all.reads; ++j) {
      const bool in_place = all.written[i] == &c.y && all.read[j] == &c.q && same_elements(c.y.view, c.q.view);
      if (!in_place) require_apart(c.op, *all.written[i], *all.read[j]);
    }
  }
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
