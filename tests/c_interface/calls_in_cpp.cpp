// SPDX-License-Identifier: Apache-2.0
// The calls of calls.c as a C++ program writes them.
#include <aft/aft.hpp>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "call_memory.h"

namespace {

using aft::index_t;
using space = std::conditional_t<DEVICE_TYPE == 1, aft::host_space, aft::device_space>;
template <class T, std::size_t Rank>
using view = aft::tensor_view<T, Rank, space>;

template <class T>
T* room(unsigned char* block, int at) {
  return reinterpret_cast<T*>(block + at * ROOM);
}

template <class T>
void fill(unsigned char* block, int at, double shift) {
  for (int i = 0; i < ROOM / 8; ++i) {
    const double x = std::sin(shift + 0.7 * i);
    room<T>(block, at)[i] = static_cast<T>(static_cast<float>(x));
  }
}

template <class T>
void fill_inputs(unsigned char* block) {
  using W = aft::compute_t<T>;
  std::memset(block, 0x55, static_cast<std::size_t>(ROOMS) * ROOM);
  double shift = 0;
  for (const int at : {AT_Q, AT_K, AT_V, AT_DY, AT_U, AT_FACTOR_V}) fill<T>(block, at, ++shift);
  fill<W>(block, AT_W, ++shift);
  std::memset(room<unsigned char>(block, AT_MASK), 1, LENGTH);
  room<unsigned char>(block, AT_MASK)[3] = 0;
  room<std::int32_t>(block, AT_LENGTHS)[0] = LENGTH;
  room<std::int32_t>(block, AT_LENGTHS)[1] = LENGTH - 4;
  const std::int32_t offsets[] = {0, LENGTH, LENGTH + 5, BATCH * LENGTH};
  std::memcpy(room<std::int32_t>(block, AT_OFFSETS), offsets, sizeof offsets);
  const std::int32_t ids[IDS] = {SLOTS - 1, 0, SLOTS - 1, 1};
  std::memcpy(room<std::int32_t>(block, AT_IDS), ids, sizeof ids);
  std::memcpy(room<std::int32_t>(block, AT_TAPS), sparse_offsets, sizeof sparse_offsets);
}

template <class T>
struct typed_calls {
  using W = aft::compute_t<T>;
  static constexpr aft::gate gates[] = {aft::gate::sigmoid, aft::gate::none, aft::gate::identity,
                                        aft::gate::relu,    aft::gate::tanh, aft::gate::silu};
  call_memory& memory;
  int call;
  unsigned char* block = memory.block;

  /// A tensor of the data's shape, (B, positions..., channels).
  template <class E, std::size_t Rank>
  view<E, Rank> data(int at, index_t channels) const {
    std::array<index_t, Rank> shape{};
    if constexpr (Rank == 3) shape = {BATCH, LENGTH, channels};
    if (Rank == 3 && call == CALL_PACKED) shape = {1, BATCH * LENGTH, channels};
    if constexpr (Rank == 4) shape = {BATCH, 3, 4, channels};
    if constexpr (Rank == 5) shape = {BATCH, 2, 3, 2, channels};
    return {room<E>(block, at), shape};
  }
  template <std::size_t Rank>
  view<const T, Rank> key() const {
    const auto dense = data<const T, Rank>(AT_K, KEY_CHANNELS);
    std::array<index_t, Rank> strides = dense.strides();
    for (std::size_t i = 0; i + 1 < Rank; ++i) strides[i] = strides[i] / KEY_CHANNELS * KEY_STRIDE;
    return {dense.data(), dense.extents(), strides};
  }
  template <std::size_t Rank>
  view<const T, Rank> value() const {
    const auto at = data<const T, Rank>(AT_V, CHANNELS);
    return {at.data() + V_OFFSET, at.extents()};
  }
  template <std::size_t Rank>
  aft::options options() const {
    const aft::tensor_view<const std::int32_t, 1> offsets{room<const std::int32_t>(memory.host, AT_OFFSETS),
                                                          {SEQUENCES + 1}};
    if (call == CALL_PACKED)
      return {.causal = true,
              .gate_fn = gates[gate_of_call(call)],
              .lse = data<W, Rank>(AT_LSE, KEY_CHANNELS),
              .average = data<T, Rank>(AT_AVERAGE, CHANNELS),
              .query_offsets = offsets,
              .key_offsets = offsets};
    return {.causal = is_grid(call) == 0,
            .gate_fn = gates[gate_of_call(call)],
            .mask = view<const bool, 1>{room<const bool>(block, AT_MASK), {LENGTH}},
            .key_lengths = view<const std::int32_t, 1>{room<const std::int32_t>(block, AT_LENGTHS), {BATCH}},
            .lse = data<W, Rank>(AT_LSE, KEY_CHANNELS),
            .average = data<T, Rank>(AT_AVERAGE, CHANNELS)};
  }

  /// Both calls of an operator; `extra` is the window of one that has it.
  template <std::size_t Rank, class Forward, class Backward>
  void both(const Forward& forward, const Backward& backward) const {
    const auto q = data<const T, Rank>(AT_Q, CHANNELS), dy = data<const T, Rank>(AT_DY, CHANNELS);
    const auto k = key<Rank>(), v = value<Rank>();
    forward(q, k, v, data<T, Rank>(AT_Y, CHANNELS), options<Rank>());
    backward(q, k, v, dy, data<T, Rank>(AT_DQ, CHANNELS), data<T, Rank>(AT_DK, KEY_CHANNELS),
             data<T, Rank>(AT_DV, CHANNELS), options<Rank>());
  }
  template <class Bias, class DBias>
  void full(const Bias& w, const DBias& dw) const {
    both<3>([&](auto q, auto k, auto v, auto y, const auto& o) { aft::full(q, k, v, w, y, o); },
            [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, const auto& o) {
              aft::full_backward(q, k, v, w, dy, dq, dk, dv, dw, o);
            });
  }
  template <class Bias, class DBias>
  void local(const Bias& w, const DBias& dw) const {
    const aft::window win{BEFORE, AFTER};
    both<3>([&](auto q, auto k, auto v, auto y, const auto& o) { aft::local(q, k, v, w, win, y, o); },
            [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, const auto& o) {
              aft::local_backward(q, k, v, w, win, dy, dq, dk, dv, dw, o);
            });
  }
  template <std::size_t Rank>
  void conv(const std::array<index_t, Rank - 1>& shape) const {
    const view<const W, Rank - 1> filter{room<const W>(block, AT_W), shape};
    const view<W, Rank - 1> dfilter{room<W>(block, AT_DW), shape};
    both<Rank>([&](auto q, auto k, auto v, auto y, const auto& o) { aft::conv(q, k, v, filter, y, o); },
               [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, const auto& o) {
                 aft::conv_backward(q, k, v, filter, dy, dq, dk, dv, dfilter, o);
               });
  }
  void sparse_conv() const {
    const view<const std::int32_t, 3> taps{room<const std::int32_t>(block, AT_TAPS), {HEADS, SPARSE_TAPS, 2}};
    const view<W, 2> dvalues{room<W>(block, AT_DW), {HEADS, SPARSE_TAPS}};
    const aft::sparse_filter filter{taps, view<const W, 2>{room<const W>(block, AT_W), {HEADS, SPARSE_TAPS}}};
    both<4>([&](auto q, auto k, auto v, auto y, const auto& o) { aft::conv(q, k, v, filter, y, o); },
            [&](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, const auto& o) {
              aft::conv_backward(q, k, v, filter, dy, dq, dk, dv, dvalues, o);
            });
  }
  /// run(q, k, v, y, options) on both parts of the positions.
  template <class Run>
  void stream(const aft::stream_spec& spec, const Run& run) const {
    const aft::stream_view<space> slots{spec, memory.slots, SLOTS};
    const aft::default_executor_t<space> exec;
    aft::reset(exec, slots);
    const auto* const ids = room<const std::int32_t>(block, AT_IDS);
    for (const aft::range part : {aft::range{0, FIRST_PART}, aft::range{FIRST_PART, LENGTH}}) {
      const auto rows = [&](auto x) { return x.subview(aft::all, part, aft::all); };
      run(rows(data<const T, 3>(AT_Q, CHANNELS)), rows(key<3>()), rows(value<3>()), rows(data<T, 3>(AT_Y, CHANNELS)),
          aft::options{.causal = true,
                       .gate_fn = gates[gate_of_call(call)],
                       .lse = rows(data<W, 3>(AT_LSE, KEY_CHANNELS)),
                       .average = rows(data<T, 3>(AT_AVERAGE, CHANNELS)),
                       .stream = slots,
                       .slot_ids = view<const std::int32_t, 1>{ids + IDS_OF_BATCH, {BATCH}}});
    }
    aft::copy(exec, slots, view<const std::int32_t, 1>{ids + ID_FROM, {1}},
              view<const std::int32_t, 1>{ids + ID_TO, {1}});
    for (int slot = 0; slot < SLOTS; ++slot) memory.positions[slot] = aft::position(exec, slots, slot);
  }

  void reparameterize() const {
    const view<const W, 3> r{room<const W>(block, AT_W), {HEADS, 3, 2}};
    const view<const T, 3> dout{room<const T>(block, AT_DY), {HEADS, 3, 2}};
    const view<const T, 1> gain{room<const T>(block, AT_Q), {HEADS}}, shift{room<const T>(block, AT_U), {HEADS}};
    aft::reparameterize(r, gain, shift, view<T, 3>{room<T>(block, AT_Y), {HEADS, 3, 2}});
    aft::reparameterize_backward(r, gain, shift, dout, view<W, 3>{room<W>(block, AT_DW), {HEADS, 3, 2}},
                                 view<T, 1>{room<T>(block, AT_DQ), {HEADS}},
                                 view<T, 1>{room<T>(block, AT_DU), {HEADS}});
  }

  void sparsity() const {
    const view<const W, 3> r{room<const W>(block, AT_W), {HEADS, 3, 2}};
    const view<const T, 3> noise{room<const T>(block, AT_U), {HEADS, 3, 2}};
    const view<const T, 3> dout{room<const T>(block, AT_DY), {HEADS, 3, 2}};
    const view<const T, 1> dentropy{room<const T>(block, AT_DY), {HEADS}};
    aft::filter_entropy(r, view<T, 1>{room<T>(block, AT_DK), {HEADS}});
    aft::filter_entropy_backward(r, dentropy, view<T, 3>{room<T>(block, AT_DV), {HEADS, 3, 2}});
    aft::gumbel_filter(r, noise, 0.5, view<T, 3>{room<T>(block, AT_Y), {HEADS, 3, 2}});
    aft::gumbel_filter_backward(r, noise, 0.5, dout, view<W, 3>{room<W>(block, AT_DW), {HEADS, 3, 2}});
    aft::gumbel_filter_hard(r, view<T, 3>{room<T>(block, AT_DQ), {HEADS, 3, 2}});
  }

  void run() const {
    const aft::dense_bias dense{view<const W, 3>{room<const W>(block, AT_W), {HEADS, LENGTH, LENGTH}}};
    const aft::dense_bias ddense{view<W, 3>{room<W>(block, AT_DW), {HEADS, LENGTH, LENGTH}}};
    const aft::factorized_bias factors{view<const T, 3>{room<const T>(block, AT_U), {HEADS, LENGTH, FACTORS}},
                                       view<const T, 2>{room<const T>(block, AT_FACTOR_V), {LENGTH, FACTORS}}};
    const aft::factorized_bias dfactors{view<T, 3>{room<T>(block, AT_DU), {HEADS, LENGTH, FACTORS}},
                                        view<T, 2>{room<T>(block, AT_DFACTOR_V), {LENGTH, FACTORS}}};
    const aft::banded_bias band{view<const T, 3>{room<const T>(block, AT_W), {HEADS, LENGTH, WIDTH}}};
    const aft::banded_bias dband{view<T, 3>{room<T>(block, AT_DW), {HEADS, LENGTH, WIDTH}}};
    switch (call) {
      case CALL_FULL_DENSE: return full(dense, ddense);
      case CALL_FULL_FACTORIZED: return full(factors, dfactors);
      case CALL_LOCAL_DENSE: return local(dense, ddense);
      case CALL_LOCAL_FACTORIZED: return local(factors, dfactors);
      case CALL_LOCAL_BANDED:
      case CALL_PACKED: return local(band, dband);
      case CALL_SIMPLE:
        return both<3>([](auto q, auto k, auto v, auto y, const auto& o) { aft::simple(q, k, v, y, o); },
                       [](auto q, auto k, auto v, auto dy, auto dq, auto dk, auto dv, const auto& o) {
                         aft::simple_backward(q, k, v, dy, dq, dk, dv, o);
                       });
      case CALL_CONV_1: return conv<3>({HEADS, 3});
      case CALL_CONV_2: return conv<4>({HEADS, 3, 2});
      case CALL_CONV_3: return conv<5>({HEADS, 2, 3, 1});
      case CALL_CONV_SPARSE: return sparse_conv();
      case CALL_STREAM_FULL:
        return stream(aft::stream_spec::full<T>(CHANNELS, KEY_CHANNELS, LENGTH),
                      [&](auto q, auto k, auto v, auto y, const auto& o) { aft::full(q, k, v, dense, y, o); });
      case CALL_STREAM_LOCAL: {
        const aft::window win{BEFORE, AFTER};
        return stream(aft::stream_spec::local<T>(CHANNELS, KEY_CHANNELS, win),
                      [&](auto q, auto k, auto v, auto y, const auto& o) { aft::local(q, k, v, band, win, y, o); });
      }
      case CALL_STREAM_SIMPLE:
        return stream(aft::stream_spec::simple<T>(CHANNELS, KEY_CHANNELS),
                      [](auto q, auto k, auto v, auto y, const auto& o) { aft::simple(q, k, v, y, o); });
      case CALL_STREAM_CONV: {
        const view<const W, 2> filter{room<const W>(block, AT_W), {HEADS, 3}};
        return stream(aft::stream_spec::conv<T>(CHANNELS, KEY_CHANNELS, 3),
                      [&](auto q, auto k, auto v, auto y, const auto& o) { aft::conv(q, k, v, filter, y, o); });
      }
      case CALL_REPARAMETERIZE: return reparameterize();
      case CALL_SPARSITY: return sparsity();
      default: {
        aft::options o = options<3>();
        o.lse = o.average = {};
        aft::attention_map(key<3>(), dense, view<T, 4>{room<T>(block, AT_DW), {BATCH, LENGTH, LENGTH, CHANNELS}}, o);
      }
    }
  }
};

template <class F>
void with_type(int type, const F& f) {
  switch (type) {
    case TYPE_FLOAT: return f(float{});
    case TYPE_DOUBLE: return f(double{});
    case TYPE_HALF: return f(aft::half{});
    default: return f(aft::bfloat16{});
  }
}

}  // namespace

void fill_block(int type, unsigned char* block) {
  with_type(type, [&](auto x) { fill_inputs<decltype(x)>(block); });
}

void call_in_cpp(int call, int type, call_memory* memory) {
  with_type(type, [&](auto x) { typed_calls<decltype(x)>{*memory, call}.run(); });
}
