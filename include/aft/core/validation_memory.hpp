// SPDX-License-Identifier: Apache-2.0
/// @file validation_memory.hpp  The memory behind a call's tensors: it exists, and outputs share it with nothing.
#pragma once

#include "validation.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// The tensors of a call that are read and those that are written.
struct tensors {
  std::array<const argument*, 12> read{};
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

inline tensors tensors_of(const call& c) {
  tensors all;
  if (c.opt.gate_fn != gate::none) all.input(c.q);
  all.input(c.k);
  all.input(c.v);
  all.input(c.bias.w);
  all.input(c.bias.u);
  all.input(c.bias.v);
  all.input(c.bias.r);
  all.input(c.dy);
  all.input(c.mask);
  all.input(c.key_lengths);
  all.output(c.y);
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

inline void require_sane_all(const call& c) {
  const tensors all = tensors_of(c);
  for (std::size_t i = 0; i < all.reads; ++i) require_sane(c.op, *all.read[i]);
  for (std::size_t i = 0; i < all.writes; ++i) require_sane(c.op, *all.written[i]);
}

inline void require_memory(const call& c) {
  const tensors all = tensors_of(c);
  for (std::size_t i = 0; i < all.reads; ++i) require_data(c.op, *all.read[i]);
  for (std::size_t i = 0; i < all.writes; ++i) require_output(c.op, *all.written[i]);
}

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
