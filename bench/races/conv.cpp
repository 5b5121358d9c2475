// SPDX-License-Identifier: Apache-2.0
#include "../harness/peers.hpp"
#include "races.hpp"

#include <random>

namespace aft_bench {
namespace {

/// Images as vision models cut them: 14 x 14 positions, a filter of 11 x 11, one per head, one key channel per head.
constexpr index_t images = 256, side = 14, taps = 11, channels = 384;

template <class T>
struct grids {
  explicit grids(index_t heads)
      : H(heads),
        q(normal_values<T>(size(channels), 1)),
        k(normal_values<T>(size(H), 2)),
        v(normal_values<T>(size(channels), 3)),
        y(size(channels)),
        filter(normal_values<T>(H * taps * taps, 4)) {}

  void make_gradients() {
    dy = normal_values<T>(size(channels), 5);
    dq = buffer<T>(size(channels));
    dk = buffer<T>(size(H));
    dv = buffer<T>(size(channels));
    dfilter = buffer<T>(filter.size());
    lse = buffer<lse_type<T>>(size(H));
    average = buffer<T>(size(channels));
  }

  static index_t size(index_t c) { return images * side * side * c; }
  aft::tensor_view<const T, 4> in(const buffer<T>& x) const { return {x.data(), extents(x)}; }
  template <class U>
  aft::tensor_view<U, 4> out(buffer<U>& x) const {
    return {x.data(), extents(x)};
  }
  aft::tensor_view<const T, 3> taps_of() const { return {filter.data(), {H, taps, taps}}; }
  aft::tensor_view<T, 3> dtaps_of() { return {dfilter.data(), {H, taps, taps}}; }
  aft::options kept() { return {.lse = out(lse), .average = out(average)}; }

  /// Pairs within the filter and the image, numerators per channel and denominators per head, two flops each.
  double flops() const {
    const auto along = static_cast<double>(window_pairs(side, taps / 2, taps / 2));
    return 2.0 * along * along * static_cast<double>(images * (channels + H));
  }

  index_t H;
  buffer<T> q, k, v, y, filter, dy, dq, dk, dv, dfilter, average;
  buffer<lse_type<T>> lse;

 private:
  template <class U>
  static std::array<index_t, 4> extents(const buffer<U>& x) {
    return {images, side, side, x.size() / (images * side * side)};
  }
};

/// Enough work for the product to run at its full rate.
constexpr product rate{.m = 1024, .n = 4096, .k = 1024};

template <class T>
void enter_rate(race& r, int threads) {
  if constexpr (sizeof(T) == 4) enter_sgemm(r, rate, threads);
  if constexpr (sizeof(T) == 2) enter_matmul(r, rate, threads);
}

/// For attention the grid is a sequence of as many positions.
template <class T>
void enter_peers(race& r, const std::shared_ptr<grids<T>>& x, bool training) {
  const auto others = std::make_shared<peers>(type_name<T>());
  r.hold(others);
  others->share("q", x->q, {images, side, side, channels});
  others->share("k", x->k, {images, side, side, x->H});
  others->share("v", x->v, {images, side, side, channels});
  others->share("w", x->filter, {x->H, taps, taps});
  if (training) others->share("dy", x->dy, {images, side, side, channels});
  others->enter(r, "sdpa", {.kind = "sdpa", .training = training});
  // Which order of the memory suits the convolutions depends on the filter's size: both take part.
  others->enter(r, "eager", {.kind = "conv", .training = training});
  others->enter(r, "eager_nchw", {.kind = "conv_channels_first", .training = training});
  if (training) {
    others->enter(r, "compiled", {.kind = "conv", .training = true, .compiled = true});
    others->enter(r, "compiled_nchw", {.kind = "conv_channels_first", .training = true, .compiled = true});
  }
  if (!training) r.note("difference.eager", others->difference("eager", x->y));
}

template <class T>
race conv(index_t heads) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<grids<T>>(heads);
  race r;
  r.hold(x);
  r.enter("aft", [=] { aft::conv(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->taps_of(), x->out(x->y)); });
  r.note("flops.aft", x->flops());
  r.note("bytes.aft", static_cast<double>(sizeof(T)) * static_cast<double>(3 * x->q.size() + x->k.size()));
  enter_rate<T>(r, threads);
  if (peers::present()) {
    aft::conv(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->taps_of(), x->out(x->y));
    enter_peers(r, x, false);
  }
  return r;
}

template <class T>
race conv_backward(index_t heads) {
  const int threads = run_settings().threads;
  const aft::cpu exec{.threads = threads};
  const auto x = std::make_shared<grids<T>>(heads);
  x->make_gradients();
  aft::conv(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->taps_of(), x->out(x->y), x->kept());
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    aft::conv_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->taps_of(), x->in(x->dy), x->out(x->dq),
                       x->out(x->dk), x->out(x->dv), x->dtaps_of(), x->kept());
  });
  r.note("flops.aft", 3.0 * x->flops());
  r.note("bytes.aft", static_cast<double>(sizeof(T)) * static_cast<double>(6 * x->q.size() + 3 * x->k.size()));
  enter_rate<T>(r, threads);
  return r;
}

template <class T>
race conv_training(index_t heads) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<grids<T>>(heads);
  x->make_gradients();
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    aft::conv(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->taps_of(), x->out(x->y), x->kept());
    aft::conv_backward(exec, x->in(x->q), x->in(x->k), x->in(x->v), x->taps_of(), x->in(x->dy), x->out(x->dq),
                       x->out(x->dk), x->out(x->dv), x->dtaps_of(), x->kept());
  });
  if (peers::present()) enter_peers(r, x, true);
  return r;
}

/// What a filter is that training has made sparse: one tap a head, drawn within the filter's width. Keys are of every
/// channel, as those of AFT-simple, which reads the same memory as a sequence of 196 positions.
template <class T>
race sparse_conv(index_t heads) {
  struct one_tap : grids<T> {
    explicit one_tap(index_t n) : grids<T>(channels), values(normal_values<T>(n, 6)) {
      std::mt19937 random(7);
      std::uniform_int_distribution<std::int32_t> offset(-taps / 2, taps / 2);
      for (index_t i = 0; i < 2 * n; ++i) offsets.push_back(offset(random));
    }
    std::vector<std::int32_t> offsets;
    buffer<T> values;
  };
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<one_tap>(heads);
  race r;
  r.hold(x);
  r.enter("aft", [=] {
    const aft::sparse_filter filter{aft::tensor_view<const std::int32_t, 3>{x->offsets.data(), {heads, 1, 2}},
                                    aft::tensor_view<const T, 2>{x->values.data(), {heads, 1}}};
    aft::conv(exec, x->in(x->q), x->in(x->k), x->in(x->v), filter, x->out(x->y));
  });
  r.enter("simple", [=] {
    const auto line = [](auto* data) {
      return aft::tensor_view<std::remove_pointer_t<decltype(data)>, 3>{data, {images, side * side, channels}};
    };
    const buffer<T>&q = x->q, &k = x->k, &v = x->v;
    aft::simple(exec, line(q.data()), line(k.data()), line(v.data()), line(x->y.data()));
  });
  for (const char* name : {"bytes.aft", "bytes.simple"})
    r.note(name, 4.0 * static_cast<double>(sizeof(T)) * static_cast<double>(x->q.size()));
  return r;
}

}  // namespace

void add_conv() {
  for (const index_t heads : {channels, index_t{16}}) {
    const std::string at = "/14x14_k11_B256_d384_H" + std::to_string(heads);
    add_race("conv" + at + "/float", 11, [=] { return conv<float>(heads); });
    add_race("conv" + at + "/bfloat16", 7, [=] { return conv<aft::bfloat16>(heads); });
    add_race("conv_backward" + at + "/float", 7, [=] { return conv_backward<float>(heads); });
    add_race("conv_backward" + at + "/bfloat16", 5, [=] { return conv_backward<aft::bfloat16>(heads); });
    add_race("conv_training" + at + "/float", 5, [=] { return conv_training<float>(heads); });
    add_race("conv_training" + at + "/bfloat16", 5, [=] { return conv_training<aft::bfloat16>(heads); });
  }
  for (const index_t heads : {channels, index_t{32}, index_t{1}}) {
    const std::string at = "/14x14_m1_B256_d384_H" + std::to_string(heads);
    add_race("conv_sparse" + at + "/float", 11, [=] { return sparse_conv<float>(heads); });
  }
}

}  // namespace aft_bench
