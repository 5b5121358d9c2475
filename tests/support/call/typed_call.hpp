// SPDX-License-Identifier: Apache-2.0
/// @file typed_call.hpp  The tensors of a call in one storage type, and the calls themselves. Included by the files
/// that instantiate the library for a type, not by tests.
#pragma once

#include "engines/engine.hpp"
#include <aft/reference/reference.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "call/sequences.hpp"
#include "harness/harness.hpp"
#include "stream_mistake.hpp"
#include "watched_rows.hpp"

namespace aft::test {

/// Owns every tensor of a call as its caller would. Space is what its views say; memory of the emulated device is the
/// host's.
template <class T, class Space = host_space>
struct typed_call {
  using C = compute_t<T>;

  setup s;
  strided<T> q, k, v, y, dy, dq, dk, dv;
  strided<T> w, u, f, r, dw, du, df, dr;
  strided<T> narrow_average;
  strided<C> wide_average, lse;
  strided<std::uint8_t> mask;
  strided<std::int8_t> signed_mask;
  strided<std::int64_t> lengths, query_lengths;
  strided<std::int32_t> short_lengths, short_query_lengths;
  strided<std::int64_t> query_offsets, key_offsets;
  strided<std::int32_t> short_query_offsets, short_key_offsets;
  std::optional<watched_rows<C>> watched;     ///< of a generated bias
  std::vector<std::int64_t> rows_of_element;  ///< of a stream with query lengths
  std::string stream_damage;                  ///< what refused stream calls did

  typed_call(const setup& raw, const numbers& x) : s(completed(raw)) {
    const auto input = [&](strided<T>& t, std::vector<index_t> extents, const std::vector<double>& values) {
      t = strided<T>(std::move(extents), s.inputs);
      t.assign(values);
    };
    const auto sequence = [&](index_t length, index_t channels) { return sequence_extents(s, length, channels); };
    input(q, sequence(s.Tq, s.d), x.q);
    // An operator that writes over q needs a q that an output may be.
    if (s.in_place) {
      q = strided<T>(sequence(s.Tq, s.d), s.outputs);
      q.assign(x.q);
    }
    input(k, sequence(s.Tk, s.hk), x.k);
    input(v, sequence(s.Tk, s.d), x.v);
    input(dy, sequence(s.Tq, s.d), x.dy);
    if (!w_extents(s).empty()) input(w, w_extents(s), x.w);
    if (!u_extents(s).empty()) input(u, u_extents(s), x.u);
    if (!f_extents(s).empty()) input(f, f_extents(s), x.f);
    if (!filter_extents(s).empty()) input(r, filter_extents(s), x.r);
    y = strided<T>(sequence(s.Tq, s.d), s.outputs);
    dq = y;
    dk = strided<T>(k.extents(), s.outputs);
    dv = strided<T>(v.extents(), s.outputs);
    dw = strided<T>(w.extents(), s.outputs);
    du = strided<T>(u.extents(), s.outputs);
    df = strided<T>(f.extents(), s.outputs);
    dr = strided<T>(r.extents(), s.outputs);
    narrow_average = y;
    wide_average = strided<C>(sequence(s.Tq, s.d), s.outputs);
    lse = strided<C>(sequence(s.Tq, s.hk), s.outputs);
    const layout flags = s.inputs == layout::broadcast ? layout::row_major : s.inputs;
    if (s.mask != mask_form::none) {
      mask = strided<std::uint8_t>(mask_extents(s), flags);
      mask.assign(x.mask);
      signed_mask = strided<std::int8_t>(mask_extents(s), flags);
      signed_mask.assign(x.mask);
    }
    const auto both = [&](auto& wide, auto& narrow, const std::vector<std::int64_t>& values) {
      wide = strided<std::int64_t>({static_cast<index_t>(values.size())}, flags);
      wide.assign(values);
      narrow = strided<std::int32_t>({static_cast<index_t>(values.size())}, flags);
      narrow.assign(values);
    };
    if (s.lengths) both(lengths, short_lengths, x.lengths);
    if (s.query_lengths) both(query_lengths, short_query_lengths, x.query_lengths);
    if (!s.packed.empty()) both(query_offsets, short_query_offsets, offsets_of(s.packed));
    if (!s.packed_keys.empty()) both(key_offsets, short_key_offsets, offsets_of(s.packed_keys));
    if (s.generates() && std::is_same_v<Space, host_space>) watched.emplace(s, w.read());
  }

  options call_options(bool backward = false) {
    options o{.causal = s.causal, .gate_fn = s.gate_fn};
    if (s.call == op::local || s.call == op::conv) o.outside = s.outside;
    o.first_query = s.first_query;
    o.arithmetic = s.arithmetic;
    const auto narrowed = [&](auto& wide, auto& narrow) {
      return s.narrow_integers ? narrow.template any<Space>() : wide.template any<Space>();
    };
    if (s.mask != mask_form::none) o.mask = narrowed(mask, signed_mask);
    if (s.lengths) o.key_lengths = narrowed(lengths, short_lengths);
    if (s.query_lengths) o.query_lengths = narrowed(query_lengths, short_query_lengths);
    // The host reads offsets, wherever the call runs.
    const auto offsets = [&](auto& wide, auto& narrow) {
      return s.narrow_integers ? narrow.template any<host_space>() : wide.template any<host_space>();
    };
    if (!s.packed.empty()) o.query_offsets = offsets(query_offsets, short_query_offsets);
    if (!s.packed_keys.empty()) o.key_offsets = offsets(key_offsets, short_key_offsets);
    if (s.save && s.has_lse()) o.lse = lse.template any<Space>();
    // A backward call takes both or neither.
    if (s.save && (!backward || s.has_lse()))
      o.average = s.narrow_average ? narrow_average.template any<Space>() : wide_average.template any<Space>();
    return o;
  }

  /// Calls f(bias, gradient) with the bias in the form that the setup names.
  template <class F>
  void with_bias(F f_) {
    switch (s.bias) {
      case bias_form::dense_tt: return f_(dense_bias{in<2>(w)}, dense_bias{view<2>(dw)});
      case bias_form::dense_htt: return f_(dense_bias{in<3>(w)}, dense_bias{view<3>(dw)});
      case bias_form::dense_bhtt:
      case bias_form::dense_1htt: return f_(dense_bias{in<4>(w)}, dense_bias{view<4>(dw)});
      case bias_form::factorized_tn:
        return f_(factorized_bias{in<2>(u), in<2>(f)}, factorized_bias{view<2>(du), view<2>(df)});
      case bias_form::factorized_htn:
        return f_(factorized_bias{in<3>(u), in<3>(f)}, factorized_bias{view<3>(du), view<3>(df)});
      case bias_form::factorized_mixed:
        return f_(factorized_bias{in<2>(u), in<3>(f)}, factorized_bias{view<2>(du), view<3>(df)});
      case bias_form::banded_tj: return f_(banded_bias{in<2>(w)}, banded_bias{view<2>(dw)});
      case bias_form::banded_htj: return f_(banded_bias{in<3>(w)}, banded_bias{view<3>(dw)});
    }
  }

  /// The same for a call of the library, which may have a generated bias in place of a dense one.
  template <class F>
  void with_called_bias(F f_) {
    if constexpr (std::is_same_v<Space, host_space>) {
      if (watched) return f_(watched->bias(), watched->gradient());
    }
    with_bias(f_);
  }

  /// Calls f.operator()<Rank>() with the rank of the sequences of a convolution.
  template <class F>
  void with_grid(F f_) {
    switch (s.grid.size()) {
      case 1: return f_.template operator()<3>();
      case 2: return f_.template operator()<4>();
      default: return f_.template operator()<5>();
    }
  }

  template <class Exec>
  void forward(const Exec& exec) {
    const options o = call_options();
    strided<T>& out = s.in_place ? q : y;
    if (!s.cuts.empty()) return forward_in_pieces(exec, out);
    switch (s.call) {
      case op::simple: return aft::simple(exec, in3(q), in3(k), in3(v), out3(out), o);
      case op::full:
        return with_called_bias([&](auto bias, auto) {
          if constexpr (!is_banded_bias<decltype(bias)>) aft::full(exec, in3(q), in3(k), in3(v), bias, out3(out), o);
        });
      case op::local:
        return with_called_bias(
            [&](auto bias, auto) { aft::local(exec, in3(q), in3(k), in3(v), bias, s.win, out3(out), o); });
      case op::conv:
        return with_grid(
            [&]<std::size_t R>() { aft::conv(exec, in<R>(q), in<R>(k), in<R>(v), in<R - 1>(r), view<R>(out), o); });
    }
  }

  stream_spec spec() const {
    switch (s.call) {
      case op::simple: return stream_spec::simple<T>(s.d, s.hk);
      case op::full: return stream_spec::full<T>(s.d, s.hk, s.Tk);
      case op::local: return stream_spec::local<T>(s.d, s.hk, s.win);
      case op::conv: return stream_spec::conv<T>(s.d, s.hk, s.taps[0]);
    }
    return {};
  }

  using slot_numbers = std::vector<std::int32_t, tensor_allocator<std::int32_t>>;
  using row_counts = std::vector<std::int64_t, tensor_allocator<std::int64_t>>;

  /// The positions of `cuts`, each call going on from slots that batch elements share out from the last on.
  template <class Exec>
  void forward_in_pieces(const Exec& exec, strided<T>& out) {
    const stream_spec of = spec();
    const index_t count = s.B + (s.interrupted ? 2 : 0);  // some are nobody's
    const auto bytes = static_cast<std::size_t>(of.bytes() * count);
    std::vector<std::byte, tensor_allocator<std::byte>> memory(bytes + 64, std::byte{0xff});
    void* first = memory.data();
    std::size_t room = memory.size();
    const stream_view<Space> slots{of, std::align(64, bytes, first, room), count};
    reset(exec, slots);
    rows_of_element.clear();
    if (s.query_lengths) query_lengths.each([&](std::int64_t n) { rows_of_element.push_back(n); });
    slot_numbers ids(static_cast<std::size_t>(s.B));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(ids.size() - 1 - i);
    index_t begin = 0;
    for (std::size_t i = 0; i < s.cuts.size(); ++i) {
      const range part{begin, std::min(begin + s.cuts[i], s.Tq)};
      if (!s.interrupted) {
        forward_piece(exec, out, part, slots, ids);
      } else {
        // What the host cannot see of a device's slots is not refused.
        if constexpr (std::is_same_v<Space, host_space>) refused_piece(exec, out, part, slots, ids, s.seed + i);
        for (std::size_t turn : {1u, 0u}) {
          auto some = ids;
          for (std::size_t b = turn; b < some.size(); b += 2) some[b] = -1;
          forward_piece(exec, out, part, slots, some);
        }
      }
      begin = part.end;
    }
  }

  /// Options of a stream call on the rows of `part`; `counts` lives as long as they are used.
  options piece_options(const range& part, const stream_view<Space>& slots, const slot_numbers& ids,
                        row_counts& counts) {
    options o = call_options();
    o.stream = slots;
    o.slot_ids = tensor_view<const std::int32_t, 1, Space>{ids.data(), {static_cast<index_t>(ids.size())}};
    const auto of_part = [&](auto rows) { return rows.subview(all, part, all); };
    if (!o.lse.empty()) o.lse = of_part(lse.template view<3, C, Space>());
    if (!o.average.empty())
      o.average = s.narrow_average ? any_view(of_part(view<3>(narrow_average)))
                                   : any_view(of_part(wide_average.template view<3, C, Space>()));
    for (std::int64_t n : rows_of_element) counts.push_back(n - part.begin);
    if (s.query_lengths) o.query_lengths = tensor_view<const std::int64_t, 1, Space>{counts.data(), {s.B}};
    return o;
  }

  template <class Exec>
  void forward_piece(const Exec& exec, strided<T>& out, const range& part, const stream_view<Space>& slots,
                     const slot_numbers& ids) {
    row_counts counts;
    call_piece(exec, out, part, piece_options(part, slots, ids, counts));
    finish_device_work();
  }

  template <class Exec>
  void call_piece(const Exec& exec, strided<T>& out, const range& part, const options& o) {
    const auto piece = [&](strided<T>& t) { return in3(t).subview(all, part, all); };
    const auto y_piece = out3(out).subview(all, part, all);
    switch (s.call) {
      case op::simple: return aft::simple(exec, piece(q), piece(k), piece(v), y_piece, o);
      case op::full:
        return with_called_bias([&](auto bias, auto) {
          if constexpr (!is_banded_bias<decltype(bias)>)
            aft::full(exec, piece(q), piece(k), piece(v), bias, y_piece, o);
        });
      case op::local:
        return with_called_bias(
            [&](auto bias, auto) { aft::local(exec, piece(q), piece(k), piece(v), bias, s.win, y_piece, o); });
      case op::conv: return aft::conv(exec, piece(q), piece(k), piece(v), in<2>(r), y_piece, o);
    }
  }

  /// The call with a mistake in it.
  void refused_piece(const cpu& exec, strided<T>& out, const range& part, const stream_view<>& slots,
                     const slot_numbers& ids, std::size_t number) {
    const stream_mistake<T> mistake(s, part.end - part.begin, number);
    const auto wrong = mistake.ids({ids.begin(), ids.end()}, slots);
    const slot_numbers named(wrong.begin(), wrong.end());
    row_counts counts;
    options o = piece_options(part, slots, named, counts);
    mistake.make(o, slots);
    stream_damage += mistake.damage(
        slots, ids.empty() ? 0 : ids[0], [&] { call_piece(exec, out, part, o); }, [&] { return out.bytes(); });
  }

  template <class Exec>
  void backward(const Exec& exec) {
    call_backward(exec);
    if (watched) dw.assign(watched->dw());
  }

  template <class Exec>
  void call_backward(const Exec& exec) {
    const options o = call_options(true);
    switch (s.call) {
      case op::simple:
        return aft::simple_backward(exec, in3(q), in3(k), in3(v), in3(dy), out3(dq), out3(dk), out3(dv), o);
      case op::full:
        return with_called_bias([&](auto bias, auto dbias) {
          if constexpr (!is_banded_bias<decltype(bias)>)
            aft::full_backward(exec, in3(q), in3(k), in3(v), bias, in3(dy), out3(dq), out3(dk), out3(dv), dbias, o);
        });
      case op::local:
        return with_called_bias([&](auto bias, auto dbias) {
          aft::local_backward(exec, in3(q), in3(k), in3(v), bias, s.win, in3(dy), out3(dq), out3(dk), out3(dv), dbias,
                              o);
        });
      case op::conv:
        return with_grid([&]<std::size_t R>() {
          aft::conv_backward(exec, in<R>(q), in<R>(k), in<R>(v), in<R - 1>(r), in<R>(dy), view<R>(dq), view<R>(dk),
                             view<R>(dv), view<R - 1>(dr), o);
        });
    }
  }

  template <class Real>
  reference::forward_result<Real> reference_forward() {
    const options o = call_options();
    reference::forward_result<Real> result;
    switch (s.call) {
      case op::simple: result = reference::simple<Real>(in3(q), in3(k), in3(v), o); break;
      case op::full:
        with_bias([&](auto bias, auto) {
          if constexpr (!is_banded_bias<decltype(bias)>)
            result = reference::full<Real>(in3(q), in3(k), in3(v), bias, o);
        });
        break;
      case op::local:
        with_bias([&](auto bias, auto) { result = reference::local<Real>(in3(q), in3(k), in3(v), bias, s.win, o); });
        break;
      case op::conv:
        with_grid(
            [&]<std::size_t R>() { result = reference::conv<Real>(in<R>(q), in<R>(k), in<R>(v), in<R - 1>(r), o); });
        break;
    }
    return result;
  }

  template <class Real>
  reference::backward_result<Real> reference_backward() {
    const options o = call_options(true);
    reference::backward_result<Real> result;
    switch (s.call) {
      case op::simple: result = reference::simple_backward<Real>(in3(q), in3(k), in3(v), in3(dy), o); break;
      case op::full:
        with_bias([&](auto bias, auto) {
          if constexpr (!is_banded_bias<decltype(bias)>)
            result = reference::full_backward<Real>(in3(q), in3(k), in3(v), bias, in3(dy), o);
        });
        break;
      case op::local:
        with_bias([&](auto bias, auto) {
          result = reference::local_backward<Real>(in3(q), in3(k), in3(v), bias, s.win, in3(dy), o);
        });
        break;
      case op::conv:
        with_grid([&]<std::size_t R>() {
          result = reference::conv_backward<Real>(in<R>(q), in<R>(k), in<R>(v), in<R - 1>(r), in<R>(dy), o);
        });
        break;
    }
    return result;
  }

 private:
  template <std::size_t Rank>
  static auto in(strided<T>& t) {
    return t.template in<Rank, Space>();
  }
  template <std::size_t Rank>
  static auto view(strided<T>& t) {
    return t.template view<Rank, T, Space>();
  }
  static auto in3(strided<T>& t) { return in<3>(t); }
  static auto out3(strided<T>& t) { return view<3>(t); }
};

}  // namespace aft::test
