// SPDX-License-Identifier: Apache-2.0
/// @file exchange/mirrors.hpp  The caller's tensors of a device that the host reads or writes: copies in their place.
#pragma once

#include "../cut/part.hpp"
#include "rows.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Keys, their gradients and those of what is whole on every rank, and of a call that works on copies the rows too.
/// What kernels alone touch, such as a dense bias, stays where it is and moves nowhere. Copies of all of it are made
/// with the call's other memory, filled once all ranks agree, and taken back at the end.
class mirrors {
 public:
  mirrors(part& x, twin_memory& twins) : twins_(&twins) {
    backward_problem& p = x.local;
    const std::array<index_t, 3> rows = p.grid;
    const std::array<index_t, 3> keys = x.grid ? p.grid : std::array<index_t, 3>{1, 1, p.Tk};
    const bool backward = x.call->backward;
    add(p.k, p.B, keys, p.hk, false);
    add(p.v, p.B, keys, p.d, false);
    add(p.dk, p.B, keys, p.hk, true);
    add(p.dv, p.B, keys, p.d, true);
    add_gradient(x);
    if (!x.works_on_copies()) return;
    add(p.q, p.B, rows, p.d, false);
    add(p.dy, p.B, rows, p.d, false);
    add(p.dq, p.B, rows, p.d, true);
    if (backward) return;
    add(p.y, p.B, rows, p.d, true);
    add(p.lse, p.B, rows, p.hk, true);
    add(p.average, p.B, rows, p.d, true);
  }

  void fill() const {
    for (const mirror& m : all_)
      if (!m.written) move(m, m.of, of_device(m));
  }
  /// Waits, so that the call's memory may go.
  void take_back() const {
    for (const mirror& m : all_)
      if (m.written) move(m, of_device(m), m.of);
    twins_->stream().wait();
  }

 private:
  struct mirror {
    element_block of;  ///< the caller's
    buffer<std::byte> host;
    bool written;
  };

  /// The copy's twin on the device.
  element_block of_device(const mirror& m) const {
    element_block b = m.of;
    b.data = twins_->find(m.host.data())->device;
    b.set_contiguous();
    return b;
  }
  void move(const mirror& m, const element_block& from, const element_block& to) const {
    const twin_memory::twin& t = *twins_->find(m.host.data());
    if (m.written) twins_->write(t);
    twins_->stream().copy(to, from);
    if (!m.written) twins_->read(t);
  }

  /// Where the copy is, or null where the caller's has no element.
  std::byte* add_block(const element_block& of, bool written) {
    if (of.count() == 0) return nullptr;
    all_.push_back({of, buffer<std::byte>(twins_, of.count() * of.size), written});
    return all_.back().host.data();
  }

  void add(field& f, index_t batch, const std::array<index_t, 3>& grid, index_t channels, bool written) {
    if (!f.set) return;
    const element_block of{
        f.data, size_of(f.type), {batch, grid[0], grid[1], grid[2], channels}, {f.sb, f.sx[0], f.sx[1], f.sx[2], f.sc}};
    std::byte* const host = add_block(of, written);
    if (host != nullptr) f = contiguous(host, f.type, grid, grid[0] * grid[1] * grid[2], channels);
  }

  /// A matrix that begins at row `first` of `rows`.
  void add(matrix& m, index_t heads, index_t rows, index_t columns, index_t first) {
    if (!m.set) return;
    const index_t size = size_of(m.type);
    const element_block of{m.data - first * m.sr * size, size, {1, 1, heads, rows, columns}, {0, 0, m.sh, m.sr, m.sc}};
    std::byte* const host = add_block(of, true);
    if (host == nullptr) return;
    m.data = host + first * columns * size;
    m.sh = rows * columns;
    m.sr = columns;
    m.sc = 1;
  }

  void add_gradient(part& x) {
    bias_ref& d = x.local.dbias;
    const auto& taps = x.local.taps;
    if (d.kind == bias_kind::factorized) {
      const index_t n = x.local.bias.rank;
      add(d.u, d.u_heads, x.where.all_queries(), n, x.queries().first);
      add(d.v, d.v_heads, x.where.all_keys(), n, x.keys().first);
    }
    if (d.kind != bias_kind::filter) return;
    const element_block of{
        d.r, size_of(d.r_type), {1, d.heads, taps[0], taps[1], taps[2]}, {0, d.r_sh, d.r_sj[0], d.r_sj[1], d.r_sj[2]}};
    std::byte* const host = add_block(of, true);
    if (host == nullptr) return;
    d.r = host;
    d.r_sh = taps[0] * taps[1] * taps[2];
    d.r_sj = {taps[1] * taps[2], taps[2], 1};
  }

  twin_memory* twins_;
  std::vector<mirror> all_;
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
