// SPDX-License-Identifier: Apache-2.0

#include <aft/aft.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "call_table.hpp"
#include "device_numbers.hpp"

namespace aft::gpu {

namespace {

enum class op { full, factorized, local, simple, conv };

/// A shape to time; `side` is a grid's edge, of a convolution only, and T then side * side.
struct shape {
  const char* name;
  op call;
  index_t B, T, d;
  bool causal = false;
  index_t window = 0, rank = 0, side = 0, taps = 0, heads = 1, keys = 0;
};

constexpr shape shapes[] = {
    {"full B32 T3072 d512", op::full, 32, 3072, 512},
    {"full causal B32 T3072 d512", op::full, 32, 3072, 512, true},
    {"full B256 T197 d384", op::full, 256, 197, 384},
    {"full causal B128 T1024 d512", op::full, 128, 1024, 512, true},
    {"factorized rank 128 B32 T3072 d512", op::factorized, 32, 3072, 512, false, 0, 128},
    {"local s=256 causal B32 T3072 d512", op::local, 32, 3072, 512, true, 256},
    {"local s=32 causal B128 T1024 d512", op::local, 128, 1024, 512, true, 32},
    {"simple B128 T1024 d512", op::simple, 128, 1024, 512},
    {"simple causal B128 T1024 d512", op::simple, 128, 1024, 512, true},
    {"conv 14x14 k=11 heads 16 B256 d384", op::conv, 256, 196, 384, false, 0, 0, 14, 11, 16, 16},
    {"conv 14x14 k=11 heads 384 B256 d384", op::conv, 256, 196, 384, false, 0, 0, 14, 11, 384},
    {"conv 24x24 k=25 heads 16 B64 d384", op::conv, 64, 576, 384, false, 0, 0, 24, 25, 16, 16},
};

template <class T>
struct tensors {
  device_numbers<T> q, k, v, y, dq, dk, dv;
  device_numbers<float> lse, average;
  tensors(const shape& s, index_t keys)
      : q(s.B * s.T * s.d),
        k(s.B * s.T * keys),
        v(s.B * s.T * s.d),
        y(s.B * s.T * s.d),
        dq(s.B * s.T * s.d),
        dk(s.B * s.T * keys),
        dv(s.B * s.T * s.d),
        lse(s.B * s.T * keys),
        average(s.B * s.T * s.d) {}
};

/// One shape in one type: everything a call needs, and the calls.
template <class T>
class whole_call {
 public:
  static constexpr bool trains = true;
  explicit whole_call(const shape& s)
      : s_(s),
        keys_(s.keys == 0 ? s.d : s.keys),
        bias_(bias_size(), 0.3f),
        dbias_(bias_size()),
        factor_(s.T * s.rank, 0.1f),
        dfactor_(s.T * s.rank) {
    // Inputs rotate through more memory than a cache holds.
    const index_t bytes = 4 * s.B * s.T * s.d * static_cast<index_t>(sizeof(T));
    const index_t sets = std::clamp<index_t>((index_t{512} << 20) / std::max<index_t>(bytes, 1), 1, 4);
    for (index_t i = 0; i < sets; ++i) sets_.emplace_back(s, keys_);
  }

  /// Bytes that any implementation moves: q, k, v and y once, and for gradients all again with their gradients.
  double bytes(bool backward) const {
    const double wide = static_cast<double>(s_.B * s_.T) * static_cast<double>(sizeof(T));
    const double one_way = wide * static_cast<double>(3 * s_.d + keys_);
    return backward ? one_way * 3 : one_way;
  }

  /// Forward is one product T x T x 2Bd; its gradient two of that size.
  timed_product product(bool backward) const {
    if (s_.call != op::full && s_.call != op::factorized) return {};
    return {sizeof(T) == 2, s_.T, 2 * s_.B * s_.d, backward ? 3 : 1};
  }

  void run(std::size_t round, bool backward, void* stream) const {
    const tensors<T>& x = sets_[round % sets_.size()];
    if (s_.call == op::conv) return run_conv(x, backward, stream);
    const std::array<index_t, 3> wide{s_.B, s_.T, s_.d}, narrow{s_.B, s_.T, keys_};
    using in = tensor_view<const T, 3, device_space>;
    using out = tensor_view<T, 3, device_space>;
    const in q{x.q.data(), wide}, k{x.k.data(), narrow}, v{x.v.data(), wide};
    const out y{x.y.data(), wide}, dq{x.dq.data(), wide}, dk{x.dk.data(), narrow}, dv{x.dv.data(), wide};
    options o{.causal = s_.causal};
    if (backward) {
      o.lse = tensor_view<float, 3, device_space>{x.lse.data(), narrow};
      o.average = tensor_view<float, 3, device_space>{x.average.data(), wide};
    }
    const cuda exec{stream};
    using matrix = tensor_view<const T, 2, device_space>;
    using gradient = tensor_view<T, 2, device_space>;
    const in dy{x.y.data(), wide};
    switch (s_.call) {
      case op::full: {
        const dense_bias w{matrix{bias_.data(), {s_.T, s_.T}}};
        full(exec, q, k, v, w, y, o);
        if (backward)
          full_backward(exec, q, k, v, w, dy, dq, dk, dv, dense_bias{gradient{dbias_.data(), {s_.T, s_.T}}}, o);
        break;
      }
      case op::factorized: {
        const factorized_bias w{matrix{bias_.data(), {s_.T, s_.rank}}, matrix{factor_.data(), {s_.T, s_.rank}}};
        const factorized_bias dw{gradient{dbias_.data(), {s_.T, s_.rank}}, gradient{dfactor_.data(), {s_.T, s_.rank}}};
        full(exec, q, k, v, w, y, o);
        if (backward) full_backward(exec, q, k, v, w, dy, dq, dk, dv, dw, o);
        break;
      }
      case op::local: {
        const window win = window::strict(s_.window);
        const banded_bias w{matrix{bias_.data(), {s_.T, win.width()}}};
        local(exec, q, k, v, w, win, y, o);
        if (backward)
          local_backward(exec, q, k, v, w, win, dy, dq, dk, dv,
                         banded_bias{gradient{dbias_.data(), {s_.T, win.width()}}}, o);
        break;
      }
      case op::simple:
        simple(exec, q, k, v, y, o);
        if (backward) simple_backward(exec, q, k, v, dy, dq, dk, dv, o);
        break;
      case op::conv: break;
    }
  }

 private:
  index_t bias_size() const {
    switch (s_.call) {
      case op::full: return s_.T * s_.T;
      case op::factorized: return s_.T * s_.rank;
      case op::local: return s_.T * (2 * s_.window - 1);
      case op::simple: return 0;
      case op::conv: return s_.heads * s_.taps * s_.taps;
    }
    return 0;
  }

  void run_conv(const tensors<T>& x, bool backward, void* stream) const {
    const std::array<index_t, 4> wide{s_.B, s_.side, s_.side, s_.d}, narrow{s_.B, s_.side, s_.side, keys_};
    using in = tensor_view<const T, 4, device_space>;
    using out = tensor_view<T, 4, device_space>;
    const std::array<index_t, 3> taps{s_.heads, s_.taps, s_.taps};
    const in q{x.q.data(), wide}, k{x.k.data(), narrow}, v{x.v.data(), wide};
    const tensor_view<const T, 3, device_space> r{bias_.data(), taps};
    options o;
    if (backward) {
      o.lse = tensor_view<float, 4, device_space>{x.lse.data(), narrow};
      if (keys_ % s_.heads != 0) o.lse = {};
      o.average = tensor_view<float, 4, device_space>{x.average.data(), wide};
    }
    const cuda exec{stream};
    conv(exec, q, k, v, r, out{x.y.data(), wide}, o);
    if (!backward) return;
    conv_backward(exec, q, k, v, r, in{x.y.data(), wide}, out{x.dq.data(), wide}, out{x.dk.data(), narrow},
                  out{x.dv.data(), wide}, tensor_view<T, 3, device_space>{dbias_.data(), taps}, o);
  }

  const shape& s_;
  index_t keys_;
  device_numbers<T> bias_, dbias_, factor_, dfactor_;
  std::vector<tensors<T>> sets_;
};

}  // namespace

void whole_calls(const std::string& only, const call_visitor& visit) {
  visit_table<whole_call>(shapes, only, visit);
}
void whole_calls(const name_listener& name) {
  for (const shape& s : shapes) name(s.name);
}

}  // namespace aft::gpu
