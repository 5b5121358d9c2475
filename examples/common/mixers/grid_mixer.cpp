// SPDX-License-Identifier: Apache-2.0

#include "common/mixers/grid_mixer.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace examples {

namespace {

// The paper's.
constexpr double temperature = 0.5;

template <class Real>
class grid_mixer final : public mixer<Real> {
 public:
  grid_mixer(const std::string& name, const mixer_shape& shape)
      : raw_(name + ".bias", {shape.heads, shape.window, shape.window}, role::position_bias),
        gain_(name + ".bias_gain", {shape.heads}, role::position_bias),
        shift_(name + ".bias_shift", {shape.heads}, role::position_bias),
        channels_(shape.channels),
        key_channels_(shape.tied_keys ? shape.heads : shape.channels),
        heads_(shape.heads),
        taps_(shape.window),
        columns_(shape.columns),
        choices_(shape.filter),
        filter_(raw_.count()),
        dfilter_(raw_.count()),
        lse_(shape.max_batch * shape.context * key_channels_),
        average_(shape.max_batch * shape.context * channels_),
        noise_(shape.filter.one_tap ? raw_.count() : 0),
        sampled_(noise_.size()),
        dsampled_(noise_.size()),
        spread_(shape.heads),
        dspread_(raw_.count()) {
    gain_.fill(static_cast<Real>(shape.filter.gain));
    std::fill_n(spread_.data(), shape.heads, static_cast<Real>(shape.filter.entropy));
  }

  index_t input_width() const override { return query_channels() + channels_ + key_channels_; }

  typename mixer<Real>::column_range head_keys() const override {
    return {query_channels(), key_channels_ == heads_ ? heads_ : 0};
  }

  void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) override {
    const Real* filter = operator_bias();
    const Real* k = qkv + query_channels();
    const auto v = part(s, k + key_channels_, channels_);
    aft::conv(exec, choices_.gated ? part(s, qkv, channels_) : v, part(s, k, key_channels_), v, taps(filter),
              grid(s, y, channels_, channels_), options(s));
  }

  void backward(sequences s, const Real* qkv, const Real*, const Real* dy, Real* dqkv, const aft::cpu& exec) override {
    const Real* k = qkv + query_channels();
    Real* dk = dqkv + query_channels();
    // The filter is still that of the forward call, whose lse and average are used here.
    const Real* formed = choices_.naive ? raw_.value.data() : filter_.data();
    Real* dformed = choices_.naive ? raw_.grad.data() : dfilter_.data();
    const Real* filter = choices_.one_tap ? sampled_.data() : formed;
    Real* dfilter = choices_.one_tap ? dsampled_.data() : dformed;
    const auto v = part(s, k + key_channels_, channels_);
    const auto gradients = [&](const auto& q, const auto& dq) {
      aft::conv_backward(exec, q, part(s, k, key_channels_), v, taps(filter), grid(s, dy, channels_, channels_), dq,
                         part(s, dk, key_channels_), part(s, dk + key_channels_, channels_), taps(dfilter), options(s));
    };
    if (choices_.gated) {
      gradients(part(s, qkv, channels_), part(s, dqkv, channels_));
    } else {
      gradients(v, aft::no_grad);
    }
    if (choices_.one_tap) {
      if (!drawn_) throw std::logic_error("conv2d: a step of samples that nobody drew");
      aft::gumbel_filter_backward(exec, taps(formed), taps(noise_.data()), temperature, taps(dfilter), taps(dformed));
    }
    if (choices_.entropy > 0) {
      aft::filter_entropy_backward(exec, taps(formed), per_head(spread_), taps(dspread_.data()));
      for (index_t i = 0; i < raw_.count(); ++i) dformed[i] += dspread_[i];
    }
    if (choices_.naive) return;
    aft::reparameterize_backward(exec, taps(raw_.value.data()), per_head(gain_.value), per_head(shift_.value),
                                 taps(dfilter_.data()), taps(raw_.grad.data()), per_head(gain_.grad),
                                 per_head(shift_.grad));
  }

  std::unique_ptr<mixer_stream<Real>> make_stream(index_t) override {
    throw std::logic_error("conv2d: a grid has no order for a stream to follow");
  }

  void collect(parameter_list<Real>& all) override {
    all.push_back(&raw_);
    if (choices_.naive) return;
    for (parameter<Real>* p : {&gain_, &shift_}) all.push_back(p);
  }
  // Gumbel's distribution, from numbers that are neither 0 nor 1.
  void draw(random_stream random) override {
    drawn_ = true;
    for (Real& x : noise_) x = static_cast<Real>(-std::log(-std::log(random.uniform() + 0x1p-54)));
  }
  void settle() override { drawn_ = false; }
  parameter<Real>* position_bias() override { return &raw_; }
  // Gain and shift start at 0, as in the papers, and every filter with them. Only the form of this counts, so that its
  // size says how soon steps of the optimizer's size give it another.
  double bias_deviation() const override { return 0.01; }
  const Real* operator_bias() override {
    if (!choices_.naive)
      aft::reparameterize(taps(raw_.value.data()), per_head(gain_.value), per_head(shift_.value), taps(filter_.data()));
    const Real* formed = choices_.naive ? raw_.value.data() : filter_.data();
    if (!choices_.one_tap) return formed;
    if (drawn_) {
      aft::gumbel_filter(taps(formed), taps(noise_.data()), temperature, taps(sampled_.data()));
    } else {
      aft::gumbel_filter_hard(taps(formed), taps(sampled_.data()));
    }
    return sampled_.data();
  }

 private:
  index_t query_channels() const { return choices_.gated ? channels_ : 0; }
  template <class T>
  aft::tensor_view<T, 4> grid(sequences s, T* x, index_t count, index_t stride) const {
    const index_t rows = s.time / columns_;
    return {x, {s.batch, rows, columns_, count}, {s.time * stride, columns_ * stride, stride, 1}};
  }
  /// Columns of the joint projection.
  template <class T>
  aft::tensor_view<T, 4> part(sequences s, T* x, index_t count) const {
    return grid(s, x, count, input_width());
  }
  template <class T>
  aft::tensor_view<T, 3> taps(T* r) const {
    return {r, {heads_, taps_, taps_}};
  }
  aft::tensor_view<Real, 1> per_head(buffer<Real>& x) const { return {x.data(), {heads_}}; }
  aft::options options(sequences s) {
    aft::options o;
    if (!choices_.gated) o.gate_fn = aft::gate::none;
    if (!choices_.connected) o.outside = aft::outside::excluded;
    o.lse = grid(s, lse_.data(), key_channels_, key_channels_);
    o.average = grid(s, average_.data(), channels_, channels_);
    return o;
  }

  parameter<Real> raw_;
  parameter<Real> gain_;
  parameter<Real> shift_;
  index_t channels_;
  index_t key_channels_;
  index_t heads_;
  index_t taps_;
  index_t columns_;
  filter_choices choices_;
  buffer<Real> filter_;
  buffer<Real> dfilter_;
  buffer<Real> lse_;
  buffer<Real> average_;
  bool drawn_ = false;
  buffer<Real> noise_;  // one_tap alone
  buffer<Real> sampled_;
  buffer<Real> dsampled_;
  buffer<Real> spread_;   // the gradient of each filter's entropy in the loss
  buffer<Real> dspread_;  // and what it is of the filters
};

}  // namespace

template <class Real>
std::unique_ptr<mixer<Real>> make_grid_mixer(const std::string& name, const mixer_shape& shape) {
  return std::make_unique<grid_mixer<Real>>(name, shape);
}

template std::unique_ptr<mixer<float>> make_grid_mixer(const std::string&, const mixer_shape&);
template std::unique_ptr<mixer<double>> make_grid_mixer(const std::string&, const mixer_shape&);

}  // namespace examples
