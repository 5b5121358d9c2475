// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

#include <array>
#include <string>

#include "call_table.hpp"
#include "device_numbers.hpp"

namespace aft::gpu {

namespace {

/// B slots that have seen `position` positions each; every call takes one more. What has been seen costs only `full`,
/// whose slots have room for as many as are timed.
struct step {
  const char* name;
  stream_operator op;
  index_t B, d, reach, position;
};

constexpr index_t timed_at_most = 4096;  // positions of one slot that may be asked for
constexpr step steps[] = {
    {"step of simple B4096 d512", stream_operator::simple, 4096, 512, 0, 64},
    {"step of local s=32 B64 d512", stream_operator::local, 64, 512, 32, 64},
    {"step of conv k=32 B64 d512", stream_operator::conv, 64, 512, 32, 64},
    {"step of full at 4096 B1 d512", stream_operator::full, 1, 512, 4096, 4096},
    {"step of full at 4096 B16 d512", stream_operator::full, 16, 512, 4096, 4096},
};

template <class T>
class stream_step {
 public:
  static constexpr bool trains = false;
  explicit stream_step(const step& s)
      : s_(s),
        spec_(spec_of(s)),
        slots_(s.B * spec_.bytes()),
        q_(s.B * s.position * s.d),
        k_(s.B * s.position * s.d),
        v_(s.B * s.position * s.d),
        y_(s.B * s.position * s.d),
        bias_(bias_size(), 0.3f) {
    reset(cuda{}, slots());
    if (s.op == stream_operator::full) prefill();
    finish_device();
  }

  /// What is kept of the positions in reach, e^k and v; of all but full the fold of the others, read and written; and
  /// the new rows.
  double bytes(bool) const {
    const bool full = s_.op == stream_operator::full;
    const index_t numbers = 2 * (full ? s_.position : s_.reach) + (full ? 0 : 2 * spec_.layout().fold);
    return static_cast<double>(s_.B * s_.d) * static_cast<double>(4 * numbers + 4 * index_t{sizeof(T)});
  }

  static timed_product product(bool) { return {}; }

  void run(std::size_t, bool, void* stream) const { call(cuda{stream}, 1); }

 private:
  static stream_spec spec_of(const step& s) {
    switch (s.op) {
      case stream_operator::simple: return stream_spec::simple<T>(s.d, s.d);
      case stream_operator::local: return stream_spec::local<T>(s.d, s.d, window::strict(s.reach));
      case stream_operator::conv: return stream_spec::conv<T>(s.d, s.d, s.reach);
      case stream_operator::full: break;
    }
    return stream_spec::full<T>(s.d, s.d, s.position + timed_at_most);
  }
  index_t bias_size() const {
    if (s_.op == stream_operator::full) return s_.position + timed_at_most;
    return s_.op == stream_operator::local ? 2 * s_.reach - 1 : s_.reach;
  }
  stream_view<device_space> slots() const { return {spec_, slots_.data(), s_.B}; }
  void prefill() const { call(cuda{}, s_.position); }

  void call(const cuda& exec, index_t rows) const {
    const std::array<index_t, 3> wide{s_.B, rows, s_.d};
    using in = tensor_view<const T, 3, device_space>;
    const in q{q_.data(), wide}, k{k_.data(), wide}, v{v_.data(), wide};
    const tensor_view<T, 3, device_space> y{y_.data(), wide};
    options o{.causal = true};
    o.stream = slots();
    using matrix = tensor_view<const T, 2, device_space>;
    // Rows repeat: position p of a bias is row p.
    const auto repeated = [&](index_t width) { return matrix{bias_.data(), {index_t{1} << 40, width}, {0, 1}}; };
    switch (s_.op) {
      case stream_operator::simple: return simple(exec, q, k, v, y, o);
      case stream_operator::local: {
        const window win = window::strict(s_.reach);
        return local(exec, q, k, v, banded_bias{repeated(win.width())}, win, y, o);
      }
      case stream_operator::conv: return conv(exec, q, k, v, matrix{bias_.data(), {1, s_.reach}}, y, o);
      case stream_operator::full: {
        const index_t room = s_.position + timed_at_most;
        return full(exec, q, k, v, dense_bias{matrix{bias_.data(), {room, room}, {0, 1}}}, y, o);
      }
    }
  }

  const step& s_;
  stream_spec spec_;
  device_numbers<char> slots_;
  device_numbers<T> q_, k_, v_, y_, bias_;
};

}  // namespace

void stream_steps(const std::string& only, const call_visitor& visit) {
  visit_table<stream_step>(steps, only, visit);
}
void stream_steps(const name_listener& name) {
  for (const step& s : steps) name(s.name);
}

}  // namespace aft::gpu
