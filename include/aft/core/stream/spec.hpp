// SPDX-License-Identifier: Apache-2.0
/// @file stream/spec.hpp  What a stream is of, and how the bytes of one slot are laid out.
#pragma once

#include <type_traits>

#include "../errors.hpp"
#include "../numeric.hpp"
#include "../text.hpp"

namespace aft {

struct window;
struct problem;
struct cpu;

/// What runs a call that goes on from slots.
using stream_engine = void (*)(const problem&, const cpu&);

/// The operators that streams are of.
enum class stream_operator : std::uint8_t { full, local, simple, conv };

inline namespace AFT_ISA {

/// The engine for arithmetic in C, float or double: a spec takes it along. Calls reach it through the spec alone, so
/// that files which make none do not compile it, which takes as long as an operator does. Defined by the CPU backend;
/// null in files that link aft::compiled, whose library has its own.
template <class C>
stream_engine find_stream_engine();

namespace checks {

[[gnu::__noreturn__, gnu::cold, gnu::noinline]] inline void refuse_spec(const char* name, const text& expected,
                                                                        const text& got) {
  text message("aft::stream_spec: argument '");
  throw shape_error((message << name << "': expected " << expected << ", got " << got).str());
}

/// Where the parts of a slot lie, in elements of the arithmetic type behind the header. All instruction sets share it,
/// so that a slot can move between them: rows of channels are padded to 64 bytes of float.
struct slot_layout {
  static constexpr index_t header_bytes = 64;
  /// Positions whose keys share a power of two, see stream/kept.hpp of the CPU. Without it (one for the whole sequence)
  /// keys that grow slowly would leave the range of float.
  static constexpr index_t block = 64;
  /// Arrays of the fold of what left the window, see stream/fold.hpp of the CPU.
  static constexpr index_t fold_arrays = 12;

  index_t channels = 0;  ///< d, padded
  index_t kept = 0;      ///< positions that are kept, each with e^k, v and k
  index_t blocks = 0;    ///< powers of two of their blocks
  index_t fold = 0;      ///< arrays of the fold: fold_arrays, or none
  index_t element = 4;   ///< bytes

  constexpr index_t rows_at() const { return fold * channels; }
  constexpr index_t keys_at() const { return rows_at() + 2 * kept * channels; }
  constexpr index_t references_at() const { return keys_at() + kept * channels; }
  /// The last vector of a row may be read past its end: 64 bytes more.
  constexpr index_t bytes() const { return header_bytes + (references_at() + blocks * channels) * element + 64; }
};

}  // namespace checks
}  // namespace AFT_ISA

/// The operator, shape and type that a stream is of. `T` is the data's type, one of float, double, half, bfloat16; hk
/// divides d. Errors: shape_error for numbers that no call could have.
class stream_spec {
 public:
  /// Of aft::simple.
  template <element T>
  [[gnu::always_inline]] static stream_spec simple(index_t d, index_t hk) {
    return stream_spec(stream_operator::simple, dtype_of<T>, d, hk, 0, 0, 0, 0).with_engine<T>();
  }
  /// Of aft::local with this window. Defined in ops/streams.hpp.
  template <element T>
  static stream_spec local(index_t d, index_t hk, const window& win);
  /// Of aft::conv with a filter of so many taps.
  template <element T>
  [[gnu::always_inline]] static stream_spec conv(index_t d, index_t hk, index_t taps) {
    return stream_spec(stream_operator::conv, dtype_of<T>, d, hk, 0, 0, taps, 0).with_engine<T>();
  }
  /// Of aft::full; the first `capacity` positions of a sequence find room.
  template <element T>
  [[gnu::always_inline]] static stream_spec full(index_t d, index_t hk, index_t capacity) {
    return stream_spec(stream_operator::full, dtype_of<T>, d, hk, 0, 0, 0, capacity).with_engine<T>();
  }
  /// The same with everything as values, as other languages have it.
  template <class C = double>
  [[gnu::always_inline]] static stream_spec of_values(stream_operator op, dtype type, index_t d, index_t hk,
                                                      index_t before, index_t after, index_t taps, index_t capacity) {
    using single = std::conditional_t<std::is_same_v<C, double>, float, C>;
    const stream_spec spec(op, type, d, hk, before, after, taps, capacity);
    return type == dtype::f64 ? spec.with_engine<C>() : spec.with_engine<single>();
  }
  [[gnu::always_inline]] constexpr stream_spec() = default;

  /// Bytes of one slot, a multiple of 64. They depend on the arithmetic type (float or double), on d, on the reach of
  /// the window or filter and, for full, on the capacity.
  [[gnu::always_inline]] index_t bytes() const { return layout().bytes(); }

  /// The operator.
  [[gnu::always_inline]] constexpr stream_operator op() const { return op_; }
  /// The data's type.
  [[gnu::always_inline]] constexpr dtype type() const { return type_; }
  /// Channels of v.
  [[gnu::always_inline]] constexpr index_t d() const { return d_; }
  /// Channels of k.
  [[gnu::always_inline]] constexpr index_t hk() const { return hk_; }
  /// Of the window, as named.
  [[gnu::always_inline]] constexpr index_t before() const { return before_; }
  /// Of the window, as named.
  [[gnu::always_inline]] constexpr index_t after() const { return after_; }
  /// Of the filter.
  [[gnu::always_inline]] constexpr index_t taps() const { return taps_; }
  /// Positions of full.
  [[gnu::always_inline]] constexpr index_t capacity() const { return capacity_; }

  /// What the CPU runs calls with, see find_stream_engine; null from a file that nvcc compiles.
  [[gnu::always_inline]] constexpr stream_engine engine() const { return engine_; }

  /// Keys p - reach() to p of position p may have a weight of their own; -1: none has.
  [[gnu::always_inline]] constexpr index_t reach() const {
    switch (op_) {
      case stream_operator::full: return capacity_ - 1;
      case stream_operator::local: return before_ < 0 ? -1 : before_;
      case stream_operator::simple: return -1;
      case stream_operator::conv: return taps_ - 1;
    }
    return -1;
  }
  /// Where the parts of a slot lie.
  [[gnu::always_inline]] constexpr checks::slot_layout layout() const {
    checks::slot_layout l;
    l.channels = (d_ + 15) / 16 * 16;
    l.kept = reach() + 1;
    const bool fixed = op_ == stream_operator::full;
    l.blocks =
        l.kept == 0 ? 0 : (l.kept + checks::slot_layout::block - 1) / checks::slot_layout::block + (fixed ? 0 : 1);
    l.fold = fixed ? 0 : checks::slot_layout::fold_arrays;
    l.element = type_ == dtype::f64 ? 8 : 4;
    return l;
  }

 private:
  [[gnu::always_inline]] constexpr stream_spec(stream_operator op, dtype type, index_t d, index_t hk, index_t before,
                                               index_t after, index_t taps, index_t capacity)
      : op_(op), type_(type), d_(d), hk_(hk), before_(before), after_(after), taps_(taps), capacity_(capacity) {}

  template <class T>
  [[gnu::always_inline]] stream_spec with_engine() const {
#if defined(__CUDACC__)
    // nvcc compiles no kernels of the CPU, and calls with aft::cuda need none.
    return checked();
#else
    stream_spec spec = checked();
    spec.engine_ = find_stream_engine<compute_t<T>>();
    return spec;
#endif
  }
  [[gnu::always_inline]] const stream_spec& checked() const {
    // Half a word's range for the product of channels, positions and bytes.
    constexpr index_t most = index_t{1} << 61, most_d = index_t{1} << 40;
    if (d_ < 0 || d_ > most_d) checks::refuse_spec("d", "0 to 2^40", d_);
    if (hk_ < 0 || (hk_ == 0) != (d_ == 0) || (hk_ > 0 && d_ % hk_ != 0))
      checks::refuse_spec("hk", checks::text("a divisor of d = ") << d_, hk_);
    if (before_ < -most || before_ > most || after_ < -most || after_ > most || before_ + after_ + 1 < 0) {
      checks::refuse_spec("window", "before and after within 2^61, and before + after + 1 of at least 0",
                          checks::text("window{") << before_ << ", " << after_ << "}");
    }
    if (taps_ < 0) checks::refuse_spec("taps", "at least 0", taps_);
    if (capacity_ < 0) checks::refuse_spec("capacity", "at least 0", capacity_);
    const index_t positions = reach() + 1, row = (d_ + 15) / 16 * 16 * 64;
    if (row > 0 && positions > most / row) {
      checks::refuse_spec(op_ == stream_operator::full   ? "capacity"
                          : op_ == stream_operator::conv ? "taps"
                                                         : "window",
                          checks::text("a slot of fewer than 2^61 bytes with d = ") << d_,
                          checks::text(positions) << " positions to keep");
    }
    return *this;
  }

  stream_operator op_ = stream_operator::simple;
  dtype type_ = dtype::f32;
  index_t d_ = 0, hk_ = 0, before_ = 0, after_ = 0, taps_ = 0, capacity_ = 0;
  stream_engine engine_ = nullptr;
};

}  // namespace aft
