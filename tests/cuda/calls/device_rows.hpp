// SPDX-License-Identifier: Apache-2.0
/// @file device_rows.hpp  Stream calls of every kind on the emulated device, with biases of exactly so many positions.
#pragma once

#include <algorithm>
#include <cmath>

#include "call/slots.hpp"
#include "device_slots.hpp"

namespace aft::test::device_rows {

enum class kind { simple, dense_local, banded, conv, dense, factorized };
inline constexpr kind all_kinds[] = {kind::simple, kind::dense_local, kind::banded,
                                     kind::conv,   kind::dense,       kind::factorized};

inline constexpr index_t hk = 5, taps = 4, rank = 3, heads = 5;
inline constexpr window win{7, 1};

/// Tensors (B, n, channels) of a call, with biases of exactly `room` positions.
struct calls {
  index_t d = 10, room = 90;
  std::vector<float> w = random_floats(heads * room * room, 4), band = random_floats(room * win.width(), 5),
                     u = random_floats(room * rank, 6), z = random_floats(room * rank, 7),
                     filter = random_floats(heads * taps, 8);

  aft::stream_spec spec(kind of) const {
    switch (of) {
      case kind::simple: return aft::stream_spec::simple<float>(d, hk);
      case kind::dense_local:
      case kind::banded: return aft::stream_spec::local<float>(d, hk, win);
      case kind::conv: return aft::stream_spec::conv<float>(d, hk, taps);
      default: return aft::stream_spec::full<float>(d, hk, 90);
    }
  }
  template <class Q, class K, class Y>
  void run(kind of, const Q& q, const K& k, const Q& v, const Y& y, const aft::options& o) const {
    const aft::cuda exec;
    const device_view<const float, 3> dense{w.data(), {heads, room, room}};
    switch (of) {
      case kind::simple: return aft::simple(exec, q, k, v, y, o);
      case kind::dense_local: return aft::local(exec, q, k, v, aft::dense_bias{dense}, win, y, o);
      case kind::banded:
        return aft::local(exec, q, k, v,
                          aft::banded_bias{device_view<const float, 2>{band.data(), {room, win.width()}}}, win, y, o);
      case kind::conv: return aft::conv(exec, q, k, v, device_view<const float, 2>{filter.data(), {heads, taps}}, y, o);
      case kind::dense: return aft::full(exec, q, k, v, aft::dense_bias{dense}, y, o);
      case kind::factorized:
        return aft::full(exec, q, k, v,
                         aft::factorized_bias{device_view<const float, 2>{u.data(), {room, rank}},
                                              device_view<const float, 2>{z.data(), {room, rank}}},
                         y, o);
    }
  }
};

/// Rows of several sequences, (B, T, channels).
struct rows {
  index_t B, T, d;
  std::vector<float> q, k, v, y;

  rows(index_t batch, index_t length, index_t channels, unsigned seed = 1)
      : B(batch),
        T(length),
        d(channels),
        q(random_floats(B * T * d, seed)),
        k(random_floats(B * T * hk, seed + 1)),
        v(random_floats(B * T * d, seed + 2)),
        y(q.size(), 42) {}

  /// Elements [b, b + count), of each the n rows from t on.
  void run(const calls& c, kind of, const aft::options& o, index_t b, index_t count, index_t t, index_t n) {
    const auto in = [&](auto& x, index_t channels) {
      return device_view<std::remove_reference_t<decltype(x[0])>, 3>{
          x.data() + (b * T + t) * channels, {count, n, channels}, {T * channels, channels, 1}};
    };
    c.run(of, in(std::as_const(q), d), in(std::as_const(k), hk), in(std::as_const(v), d), in(y, d), o);
  }
  std::vector<float> of(index_t b, index_t t, index_t n) const {
    const auto at = y.begin() + (b * T + t) * d;
    return {at, at + n * d};
  }
};

inline bool all_are(const std::vector<float>& x, float value) {
  return std::all_of(x.begin(), x.end(), [&](float e) { return std::isnan(value) ? std::isnan(e) : e == value; });
}
inline const float no_number = std::nanf("");

template <class T>
device_view<const T, 1> list(const std::vector<T>& x) {
  return {x.data(), {static_cast<index_t>(x.size())}};
}

}  // namespace aft::test::device_rows
