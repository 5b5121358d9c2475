// SPDX-License-Identifier: Apache-2.0
// aft::split in a file that compiles no kernels: two threads as ranks give what one call gives. Keys and biases are 0
// and values small whole numbers, so that every sum is exact and the bits are the same however the sequence is cut.
#include <aft/distributed/in_process.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr aft::index_t T = 12, d = 3, cut[] = {0, 5, T};

/// y and dv of one call, or of one rank's part of it, which are rows [first, last) of these.
struct tensors {
  std::vector<float> k = std::vector<float>(T * d), v = k, y = k, dv = k, w = std::vector<float>(T * T);
  tensors() {
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 7);
  }

  template <class E>
  void call(const std::string& name, const E& exec, aft::index_t first, aft::index_t last) {
    const aft::index_t rows = last - first;
    const auto in = [&](const std::vector<float>& x) {
      return aft::tensor_view<const float, 2>{x.data() + first * d, {rows, d}};
    };
    const auto out = [&](std::vector<float>& x) { return aft::tensor_view<float, 2>{x.data() + first * d, {rows, d}}; };
    const aft::options o{.causal = true, .gate_fn = aft::gate::none};
    const aft::dense_bias pairs{aft::tensor_view<const float, 2>{w.data() + first * T, {rows, T}}};
    const aft::tensor_view<const float, 2> filter{w.data(), {1, 3}};
    const aft::window win{2, 0};
    const auto none = aft::no_grad;
    if (name == "full") {
      aft::full(exec, in(k), in(k), in(v), pairs, out(y), o);
      aft::full_backward(exec, in(k), in(k), in(v), pairs, in(v), none, none, out(dv), none, o);
    } else if (name == "local") {
      aft::local(exec, in(k), in(k), in(v), pairs, win, out(y), o);
      aft::local_backward(exec, in(k), in(k), in(v), pairs, win, in(v), none, none, out(dv), none, o);
    } else if (name == "simple") {
      aft::simple(exec, in(k), in(k), in(v), out(y), o);
      aft::simple_backward(exec, in(k), in(k), in(v), in(v), none, none, out(dv), o);
    } else {
      aft::conv(exec, in(k), in(k), in(v), filter, out(y), o);
      aft::conv_backward(exec, in(k), in(k), in(v), filter, in(v), none, none, out(dv), none, o);
    }
  }
};

/// Whether two results may both be right: each is within eight units of the largest number and three times what the
/// plain loop loses in T sums and a quotient.
bool alike(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0, off = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(b[i]));
    off = std::max(off, std::abs(a[i] - b[i]));
  }
  return off <= 2 * (8 * std::ldexp(1.0f, std::ilogb(most) - 23) + 3 * (T + 2) * 0x1p-24f * most);
}

}  // namespace

int main() {
  int wrong = 0;
  for (const char* name : {"full", "local", "simple", "conv"}) {
    tensors whole, alone, cut_apart;
    whole.call(name, aft::cpu{.threads = 1}, 0, T);
    alone.call(name, aft::split{aft::cpu{.threads = 1}, aft::in_process::group(1)[0]}, 0, T);
    const auto ranks = aft::in_process::group(2);
    std::thread other([&] { cut_apart.call(name, aft::split{aft::cpu{.threads = 1}, ranks[1]}, cut[1], cut[2]); });
    cut_apart.call(name, aft::split{aft::cpu{.threads = 1}, ranks[0]}, cut[0], cut[1]);
    other.join();
    const bool same = alone.y == whole.y && alone.dv == whole.dv;
    const bool close = alike(cut_apart.y, whole.y) && alike(cut_apart.dv, whole.dv);
    std::printf("%s at %s: %s\n", name, aft::isa(), same && close ? "as one call" : "not as one call");
    wrong += same && close ? 0 : 1;
  }
  return wrong;
}
