// SPDX-License-Identifier: Apache-2.0

#include "common/mixers/grid_mixer.hpp"

#include <stdexcept>

namespace examples {

namespace {

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
        filter_(raw_.count()),
        dfilter_(raw_.count()),
        lse_(shape.max_batch * shape.context * key_channels_),
        average_(shape.max_batch * shape.context * channels_) {}

  index_t input_width() const override { return 2 * channels_ + key_channels_; }

  void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) override {
    const Real* filter = operator_bias();
    const Real* k = qkv + channels_;
    aft::conv(exec, part(s, qkv, channels_), part(s, k, key_channels_), part(s, k + key_channels_, channels_),
              taps(filter), grid(s, y, channels_, channels_), options(s));
  }

  void backward(sequences s, const Real* qkv, const Real*, const Real* dy, Real* dqkv, const aft::cpu& exec) override {
    const Real* k = qkv + channels_;
    Real* dk = dqkv + channels_;
    // The filter is still that of the forward call, whose lse and average are used here.
    const Real* filter = filter_.data();
    aft::conv_backward(exec, part(s, qkv, channels_), part(s, k, key_channels_), part(s, k + key_channels_, channels_),
                       taps(filter), grid(s, dy, channels_, channels_), part(s, dqkv, channels_),
                       part(s, dk, key_channels_), part(s, dk + key_channels_, channels_), taps(dfilter_.data()),
                       options(s));
    aft::reparameterize_backward(exec, taps(raw_.value.data()), per_head(gain_.value), per_head(shift_.value),
                                 taps(dfilter_.data()), taps(raw_.grad.data()), per_head(gain_.grad),
                                 per_head(shift_.grad));
  }

  std::unique_ptr<mixer_stream<Real>> make_stream(index_t) override {
    throw std::logic_error("conv2d: a grid has no order for a stream to follow");
  }

  void collect(parameter_list<Real>& all) override {
    for (parameter<Real>* p : {&raw_, &gain_, &shift_}) all.push_back(p);
  }
  parameter<Real>* position_bias() override { return &raw_; }
  // Gain and shift start at 0, as in the papers, and every filter with them. Only the form of this counts, so that its
  // size says how soon steps of the optimizer's size give it another.
  double bias_deviation() const override { return 0.01; }
  const Real* operator_bias() override {
    aft::reparameterize(taps(raw_.value.data()), per_head(gain_.value), per_head(shift_.value), taps(filter_.data()));
    return filter_.data();
  }

 private:
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
  buffer<Real> filter_;
  buffer<Real> dfilter_;
  buffer<Real> lse_;
  buffer<Real> average_;
};

}  // namespace

template <class Real>
std::unique_ptr<mixer<Real>> make_grid_mixer(const std::string& name, const mixer_shape& shape) {
  return std::make_unique<grid_mixer<Real>>(name, shape);
}

template std::unique_ptr<mixer<float>> make_grid_mixer(const std::string&, const mixer_shape&);
template std::unique_ptr<mixer<double>> make_grid_mixer(const std::string&, const mixer_shape&);

}  // namespace examples
