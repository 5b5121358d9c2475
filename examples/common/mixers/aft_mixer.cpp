// SPDX-License-Identifier: Apache-2.0
//
// The AFT operators as mixers: y = sigmoid(q) * average(k + w, v).

#include "common/mixers/aft_mixer.hpp"

#include <aft/distributed/split.hpp>

#include <stdexcept>
#include <utility>

namespace examples {

namespace {

template <class T>
using view = aft::tensor_view<T, 3>;

template <class T>
struct projections {
  view<T> q, k, v;
};

/// Where the operators run: in this process, or on every rank with its part of the sequences.
struct place {
  const aft::cpu& exec;
  const ranks* cut;

  /// call(executor).
  template <class Call>
  void run(const Call& call) const {
    if (cut == nullptr)
      call(exec);
    else
      call(aft::split{exec, ranks_ref{cut}});
  }
};

/// The rows of a call among the positions that a bias is for. With a stream these are all that there may come.
struct rows_of_bias {
  index_t first;
  index_t count;
  index_t whole;
};

/// What the four share: where q, k, v lie in the joint projection, and the two arrays that a forward
/// call leaves for its backward.
template <class Real>
class aft_mixer : public mixer<Real> {
 public:
  aft_mixer(const mixer_shape& shape, index_t key_channels)
      : channels_(shape.channels),
        key_channels_(key_channels),
        context_(shape.context),
        causal_(shape.causal),
        cut_(shape.cut),
        lse_(shape.rows() * key_channels),
        average_(shape.rows() * shape.channels) {}

  index_t input_width() const final { return 2 * channels_ + key_channels_; }

  void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) final {
    call({exec, cut_}, rows_of(s), split(s, qkv), whole(s, y), options(s));
  }
  void backward(sequences s, const Real* qkv, const Real*, const Real* dy, Real* dqkv, const aft::cpu& exec) final {
    call_backward({exec, cut_}, rows_of(s), split(s, qkv), whole(s, dy), split(s, dqkv), options(s));
  }
  std::unique_ptr<mixer_stream<Real>> make_stream(index_t count) final {
    if (!causal_) throw std::logic_error("a stream of a mixer whose rows see later ones");
    return std::make_unique<slots>(*this, spec(), count);
  }

 protected:
  virtual void call(const place& at, rows_of_bias rows, projections<const Real> in, view<Real> y,
                    const aft::options& o) = 0;
  virtual void call_backward(const place& at, rows_of_bias rows, projections<const Real> in, view<const Real> dy,
                             projections<Real> d, const aft::options& o) = 0;
  virtual aft::stream_spec spec() const = 0;

  index_t channels() const { return channels_; }
  index_t key_channels() const { return key_channels_; }

 private:
  class slots final : public mixer_stream<Real> {
   public:
    slots(aft_mixer& of, const aft::stream_spec& spec, index_t count)
        : of_(of), memory_(spec.bytes() * count), stream_(spec, memory_.data(), count) {
      slots::reset();
    }
    // Neither lse nor average: nobody goes backward from here.
    void forward(sequences s, const Real* qkv, Real* y, const aft::cpu& exec) override {
      of_.call({exec, nullptr}, {0, of_.context_, of_.context_}, of_.split(s, qkv), of_.whole(s, y),
               aft::options{.causal = true, .stream = stream_});
    }
    void reset() override { aft::reset(aft::cpu{}, stream_); }
    index_t bytes() const override { return stream_.spec().bytes(); }

   private:
    aft_mixer& of_;
    buffer<std::byte> memory_;
    aft::stream_view<> stream_;
  };

  static rows_of_bias rows_of(sequences s) { return {s.first, s.time, s.whole == 0 ? s.time : s.whole}; }
  // The joint projection is one matrix product; strides make three tensors of its columns.
  template <class T>
  projections<T> split(sequences s, T* qkv) const {
    const index_t width = input_width();
    const auto columns = [&](index_t first, index_t count) {
      return view<T>(qkv + first, {s.batch, s.time, count}, {s.time * width, width, 1});
    };
    return {columns(0, channels_), columns(channels_, key_channels_), columns(channels_ + key_channels_, channels_)};
  }
  template <class T>
  view<T> whole(sequences s, T* x) const {
    return view<T>(x, {s.batch, s.time, channels_});
  }
  aft::options options(sequences s) {
    aft::options o{.causal = causal_};
    o.lse = view<Real>(lse_.data(), {s.batch, s.time, key_channels_});
    o.average = whole(s, average_.data());
    return o;
  }

  index_t channels_;
  index_t key_channels_;
  index_t context_;
  bool causal_;
  const ranks* cut_;
  buffer<Real> lse_;
  buffer<Real> average_;
};

template <class Real>
class simple_mixer final : public aft_mixer<Real> {
 public:
  explicit simple_mixer(const mixer_shape& shape) : aft_mixer<Real>(shape, shape.channels) {}

  bool unlimited() const override { return true; }

 private:
  aft::stream_spec spec() const override {
    return aft::stream_spec::simple<Real>(this->channels(), this->key_channels());
  }
  void call(const place& at, rows_of_bias, projections<const Real> in, view<Real> y, const aft::options& o) override {
    at.run([&](const auto& exec) { aft::simple(exec, in.q, in.k, in.v, y, o); });
  }
  void call_backward(const place& at, rows_of_bias, projections<const Real> in, view<const Real> dy,
                     projections<Real> d, const aft::options& o) override {
    at.run([&](const auto& exec) { aft::simple_backward(exec, in.q, in.k, in.v, dy, d.q, d.k, d.v, o); });
  }
};

/// The three whose position bias is learned.
template <class Real>
class biased_mixer : public aft_mixer<Real> {
 public:
  biased_mixer(const mixer_shape& shape, index_t key_channels, const std::string& name, std::vector<index_t> extents,
               share rank_has)
      : aft_mixer<Real>(shape, key_channels),
        bias_(name + ".bias", std::move(extents), role::position_bias, rank_has) {}

  void collect(parameter_list<Real>& all) final { all.push_back(&bias_); }
  parameter<Real>* position_bias() final { return &bias_; }
  double bias_deviation() const override { return 0.01; }

 protected:
  const Real* value() const { return bias_.value.data(); }
  // A short sequence leaves the rest of the bias without a gradient, and so does a part.
  Real* cleared_gradient() {
    bias_.grad.zero();
    return bias_.grad.data();
  }

 private:
  parameter<Real> bias_;
};

/// One bias for every pair of positions, (T, T): with causal order its upper triangle is never read.
template <class Real>
class full_mixer final : public biased_mixer<Real> {
 public:
  full_mixer(const std::string& name, const mixer_shape& shape)
      : biased_mixer<Real>(shape, shape.channels, name, {shape.context, shape.context}, share::rows),
        context_(shape.context) {}

 private:
  aft::stream_spec spec() const override {
    return aft::stream_spec::full<Real>(this->channels(), this->key_channels(), context_);
  }
  void call(const place& at, rows_of_bias rows, projections<const Real> in, view<Real> y,
            const aft::options& o) override {
    at.run([&](const auto& exec) { aft::full(exec, in.q, in.k, in.v, bias(rows, this->value()), y, o); });
  }
  void call_backward(const place& at, rows_of_bias rows, projections<const Real> in, view<const Real> dy,
                     projections<Real> d, const aft::options& o) override {
    at.run([&](const auto& exec) {
      aft::full_backward(exec, in.q, in.k, in.v, bias(rows, this->value()), dy, d.q, d.k, d.v,
                         bias(rows, this->cleared_gradient()), o);
    });
  }
  template <class T>
  auto bias(rows_of_bias rows, T* w) const {
    return aft::dense_bias{aft::tensor_view<T, 2>(w + rows.first * context_, {rows.count, rows.whole}, {context_, 1})};
  }
  index_t context_;
};

/// A bias for the keys nearer than `window` to every position, stored as a band (T, width): the dense matrix would hold
/// T - width zeros a row for the optimizer to walk over.
template <class Real>
class local_mixer final : public biased_mixer<Real> {
 public:
  local_mixer(const std::string& name, const mixer_shape& shape)
      : biased_mixer<Real>(shape, shape.channels, name, {shape.context, width_of(shape)}, share::rows),
        window_{.before = shape.window - 1, .after = shape.causal ? 0 : shape.window - 1},
        width_(width_of(shape)) {}

 private:
  static index_t width_of(const mixer_shape& shape) { return shape.causal ? shape.window : 2 * shape.window - 1; }
  aft::stream_spec spec() const override {
    return aft::stream_spec::local<Real>(this->channels(), this->key_channels(), window_);
  }
  void call(const place& at, rows_of_bias rows, projections<const Real> in, view<Real> y,
            const aft::options& o) override {
    at.run([&](const auto& exec) { aft::local(exec, in.q, in.k, in.v, bias(rows, this->value()), window_, y, o); });
  }
  void call_backward(const place& at, rows_of_bias rows, projections<const Real> in, view<const Real> dy,
                     projections<Real> d, const aft::options& o) override {
    at.run([&](const auto& exec) {
      aft::local_backward(exec, in.q, in.k, in.v, bias(rows, this->value()), window_, dy, d.q, d.k, d.v,
                          bias(rows, this->cleared_gradient()), o);
    });
  }
  template <class T>
  auto bias(rows_of_bias rows, T* w) const {
    return aft::banded_bias{aft::tensor_view<T, 2>(w + rows.first * width_, {rows.count, width_})};
  }
  aft::window window_;  // window::strict, or its causal half
  index_t width_;
};

/// The same two with a bias of few parameters, w = u v^T (AFT Eq. 7). The papers learn it so, and find the result
/// better, too.
template <class Real>
class factored_mixer final : public aft_mixer<Real> {
 public:
  factored_mixer(const std::string& name, const mixer_shape& shape, bool local)
      : aft_mixer<Real>(shape, shape.channels),
        u_(name + ".bias_u", {shape.context, shape.bias_rank}, role::position_bias, share::whole),
        v_(name + ".bias_v", {shape.context, shape.bias_rank}, role::position_bias, share::whole),
        context_(shape.context),
        local_(local),
        window_{.before = shape.window - 1, .after = shape.causal ? 0 : shape.window - 1} {}

  void collect(parameter_list<Real>& all) override {
    all.push_back(&u_);
    all.push_back(&v_);
  }
  parameter_list<Real> bias_parameters() override { return {&u_, &v_}; }
  // AFT, section 5.1: N(0, 10^-2).
  double bias_deviation() const override { return 0.1; }

 private:
  aft::stream_spec spec() const override {
    return local_ ? aft::stream_spec::local<Real>(this->channels(), this->key_channels(), window_)
                  : aft::stream_spec::full<Real>(this->channels(), this->key_channels(), context_);
  }
  void call(const place& at, rows_of_bias rows, projections<const Real> in, view<Real> y,
            const aft::options& o) override {
    if (local_)
      at.run(
          [&](const auto& exec) { aft::local(exec, in.q, in.k, in.v, bias(rows, u_.value, v_.value), window_, y, o); });
    else
      at.run([&](const auto& exec) { aft::full(exec, in.q, in.k, in.v, bias(rows, u_.value, v_.value), y, o); });
  }
  void call_backward(const place& at, rows_of_bias rows, projections<const Real> in, view<const Real> dy,
                     projections<Real> d, const aft::options& o) override {
    // A short sequence leaves the rest without a gradient.
    u_.grad.zero();
    v_.grad.zero();
    const auto w = bias(rows, u_.value, v_.value);
    const auto dw = bias(rows, u_.grad, v_.grad);
    if (local_)
      at.run(
          [&](const auto& exec) { aft::local_backward(exec, in.q, in.k, in.v, w, window_, dy, d.q, d.k, d.v, dw, o); });
    else
      at.run([&](const auto& exec) { aft::full_backward(exec, in.q, in.k, in.v, w, dy, d.q, d.k, d.v, dw, o); });
  }
  auto bias(rows_of_bias rows, buffer<Real>& u, buffer<Real>& v) const {
    const index_t rank = u_.shape[1];
    return aft::factorized_bias{aft::tensor_view<Real, 2>(u.data(), {rows.whole, rank}),
                                aft::tensor_view<Real, 2>(v.data(), {rows.whole, rank})};
  }

  parameter<Real> u_;
  parameter<Real> v_;
  index_t context_;
  bool local_;
  aft::window window_;
};

/// A filter of `window` taps for every head.
template <class Real>
class conv_mixer final : public biased_mixer<Real> {
 public:
  conv_mixer(const std::string& name, const mixer_shape& shape)
      : biased_mixer<Real>(shape, shape.tied_keys ? shape.heads : shape.channels, name, {shape.heads, shape.window},
                           share::whole),
        heads_(shape.heads),
        taps_(shape.window) {}

  // The papers start filters at 0: every tap then begins as the plain global average.
  double bias_deviation() const override { return 0.0; }
  bool unlimited() const override { return true; }

 private:
  aft::stream_spec spec() const override {
    return aft::stream_spec::conv<Real>(this->channels(), this->key_channels(), taps_);
  }
  void call(const place& at, rows_of_bias, projections<const Real> in, view<Real> y, const aft::options& o) override {
    at.run([&](const auto& exec) { aft::conv(exec, in.q, in.k, in.v, filter(this->value()), y, o); });
  }
  void call_backward(const place& at, rows_of_bias, projections<const Real> in, view<const Real> dy,
                     projections<Real> d, const aft::options& o) override {
    at.run([&](const auto& exec) {
      aft::conv_backward(exec, in.q, in.k, in.v, filter(this->value()), dy, d.q, d.k, d.v,
                         filter(this->cleared_gradient()), o);
    });
  }
  template <class T>
  auto filter(T* r) const {
    return aft::tensor_view<T, 2>(r, {heads_, taps_});
  }
  index_t heads_;
  index_t taps_;
};

}  // namespace

template <class Real>
std::unique_ptr<mixer<Real>> make_aft_mixer(mixer_kind kind, const std::string& name, const mixer_shape& shape) {
  if (shape.bias_rank > 0 && (kind == mixer_kind::full || kind == mixer_kind::local))
    return std::make_unique<factored_mixer<Real>>(name, shape, kind == mixer_kind::local);
  switch (kind) {
    case mixer_kind::simple: return std::make_unique<simple_mixer<Real>>(shape);
    case mixer_kind::full: return std::make_unique<full_mixer<Real>>(name, shape);
    case mixer_kind::local: return std::make_unique<local_mixer<Real>>(name, shape);
    case mixer_kind::conv: return std::make_unique<conv_mixer<Real>>(name, shape);
    case mixer_kind::attention:
    case mixer_kind::conv2d: break;
  }
  return nullptr;
}

template std::unique_ptr<mixer<float>> make_aft_mixer(mixer_kind, const std::string&, const mixer_shape&);
template std::unique_ptr<mixer<double>> make_aft_mixer(mixer_kind, const std::string&, const mixer_shape&);

}  // namespace examples
