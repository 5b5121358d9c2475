// SPDX-License-Identifier: Apache-2.0

#include "char_lm/model/model.hpp"

#include <stdexcept>

namespace examples::char_lm {

namespace {

class stopwatch {
 public:
  explicit stopwatch(double& total) : total_(total) {}
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() { total_ += std::chrono::duration<double>(clock::now() - start_).count(); }

 private:
  using clock = std::chrono::steady_clock;
  double& total_;
  clock::time_point start_ = clock::now();
};

mixer_shape mixer_shape_of(const model_shape& shape, index_t max_batch) {
  return {shape.channels, shape.heads, shape.context, max_batch, shape.window, shape.tied_keys};
}

}  // namespace

template <class Real>
mixing<Real>::mixing(const std::string& name, const model_shape& shape, index_t max_batch)
    : mix(make_mixer<Real>(shape.mixer, name, mixer_shape_of(shape, max_batch))),
      norm(name + ".norm", shape.channels, max_batch * shape.context),
      project(name + ".project", {shape.channels, mix->input_width()}, role::matrix),
      output(name + ".output", {shape.channels, shape.channels}, role::matrix),
      channels_(shape.channels),
      normed_(max_batch * shape.context * shape.channels),
      projected_(max_batch * shape.context * mix->input_width()),
      mixed_(max_batch * shape.context * shape.channels) {}

template <class Real>
void mixing<Real>::forward(sequences s, const Real* x, Real* out, const aft::cpu& exec, mixer_stream<Real>* stream) {
  const index_t d = channels_;
  const index_t width = mix->input_width();
  const auto mix_rows = [&] {
    const stopwatch watch(seconds);
    if (stream != nullptr)
      stream->forward(s, projected_.data(), mixed_.data(), exec);
    else
      mix->forward(s, projected_.data(), mixed_.data(), exec);
  };
  if (s.rows() == 1) {
    norm.forward({0, 1, 0, 0}, x, normed_.data());
    row_through<Real>(d, width, normed_.data(), project.value.data(), Real(0), projected_.data(), exec.threads);
    mix_rows();
    std::copy(x, x + d, out);
    row_through<Real>(d, d, mixed_.data(), output.value.data(), Real(1), out, exec.threads);
    return;
  }
  parallel_rows(s.rows(), exec.threads, [&](row_range r) {
    Real* normed = normed_.data() + r.first * d;
    norm.forward(r, x, normed);
    through<Real>(r.count, d, width, normed, project.value.data(), Real(0), projected_.data() + r.first * width);
  });
  mix_rows();
  parallel_rows(s.rows(), exec.threads, [&](row_range r) {
    std::copy(x + r.first * d, x + (r.first + r.count) * d, out + r.first * d);
    through<Real>(r.count, d, d, mixed_.data() + r.first * d, output.value.data(), Real(1), out + r.first * d);
  });
}

template <class Real>
void mixing<Real>::backward(sequences s, const Real* x, Real* d_out, workspace<Real>& work, const aft::cpu& exec) {
  const index_t d = channels_;
  const index_t width = mix->input_width();
  Real* dmixed = work.narrow.data();
  Real* dprojected = work.wide.data();
  parallel_rows(s.rows(), exec.threads, [&](row_range r) {
    back_through<Real>(r.count, d, d, d_out + r.first * d, output.value.data(), Real(0), dmixed + r.first * d);
  });
  weight_gradient<Real>(s.rows(), d, d, mixed_.data(), d_out, output.grad.data(), exec.threads);
  {
    const stopwatch watch(seconds);
    mix->backward(s, projected_.data(), mixed_.data(), dmixed, dprojected, exec);
  }
  weight_gradient<Real>(s.rows(), d, width, normed_.data(), dprojected, project.grad.data(), exec.threads);
  parallel_rows(s.rows(), exec.threads, [&](row_range r) {
    Real* dnormed = work.of_thread(r.thread);
    back_through<Real>(r.count, d, width, dprojected + r.first * width, project.value.data(), Real(0), dnormed);
    norm.backward(r, x, dnormed, d_out);
  });
  norm.finish_backward(s.rows());
}

template <class Real>
void mixing<Real>::collect(parameter_list<Real>& all) {
  norm.collect(all);
  all.push_back(&project);
  mix->collect(all);
  all.push_back(&output);
}

template <class Real>
model<Real>::model(const model_shape& shape, index_t max_batch, int threads)
    : shape_(shape),
      exec_{threads, &memory_},
      embedding_(shape.channels, shape.context, max_batch * shape.context),
      work_(max_batch * shape.context, shape.channels, std::max(vocabulary, mlp<Real>::expansion * shape.channels),
            threads),
      embedded_(max_batch * shape.context * shape.channels),
      gradient_(max_batch * shape.context * shape.channels) {
  const index_t rows = max_batch * shape.context;
  embedding_.collect(parameters_);
  for (index_t layer = 0; layer < shape.layers; ++layer) {
    const std::string name = "block." + std::to_string(layer);
    blocks_.push_back({mixing<Real>(name + ".mixer", shape, max_batch), mlp<Real>(name + ".mlp", shape.channels, rows),
                       buffer<Real>(rows * shape.channels), buffer<Real>(rows * shape.channels)});
    blocks_.back().mix.collect(parameters_);
    blocks_.back().feed_forward.collect(parameters_);
  }
}

template <class Real>
void model<Real>::initialize(std::uint64_t seed) {
  // Output projections and second MLP matrices stay 0: every block begins as the identity, and the
  // deepest layers do not drown the signal of the first steps.
  const auto normal = [&](parameter<Real>& p, std::uint64_t place, double deviation) {
    p.fill_normal(random_stream(seed, purpose::initial + place), deviation);
  };
  const double fan_in = 1.0 / std::sqrt(static_cast<double>(shape_.channels));
  normal(embedding_.bytes, 0, 0.02);
  normal(embedding_.positions, 1, 0.02);
  std::uint64_t place = 2;
  for (block& b : blocks_) {
    normal(b.feed_forward.up, place++, fan_in);
    normal(b.mix.project, place++, fan_in);
    parameter<Real>* bias = b.mix.mix->position_bias();
    if (bias != nullptr) normal(*bias, place, b.mix.mix->bias_deviation());
    ++place;
  }
}

template <class Real>
const Real* model<Real>::run(sequences s, const std::uint8_t* text, model_stream<Real>* stream) {
  embedding_.forward(s, stream == nullptr ? 0 : stream->position, text, embedded_.data(), exec_.threads);
  const Real* x = embedded_.data();
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    block& b = blocks_[layer];
    b.mix.forward(s, x, b.middle.data(), exec_, stream == nullptr ? nullptr : stream->layers[layer].get());
    b.feed_forward.forward(s.rows(), b.middle.data(), b.out.data(), work_, exec_.threads);
    x = b.out.data();
  }
  return x;
}

template <class Real>
double model<Real>::loss(sequences s, const std::uint8_t* text, const std::uint8_t* next) {
  return embedding_.loss(s, run(s, text), next, work_, exec_.threads);
}

template <class Real>
double model<Real>::loss_and_gradient(sequences s, const std::uint8_t* text, const std::uint8_t* next) {
  const Real* x = run(s, text);
  Real* d = gradient_.data();
  const double total = embedding_.loss_and_gradient(s, x, next, d, work_, exec_.threads);
  for (std::size_t layer = blocks_.size(); layer-- > 0;) {
    block& b = blocks_[layer];
    const Real* in = layer == 0 ? embedded_.data() : blocks_[layer - 1].out.data();
    b.feed_forward.backward(s.rows(), b.middle.data(), d, work_, exec_.threads);
    b.mix.backward(s, in, d, work_, exec_);
  }
  embedding_.backward(s, text, d, exec_.threads);
  return total;
}

template <class Real>
void model<Real>::logits(index_t time, const std::uint8_t* text, index_t t, Real* out) {
  const index_t most = unlimited() ? embedded_.size() / shape_.channels : shape_.context;
  if (time > most)
    throw std::length_error("model: " + std::to_string(time) + " bytes are more than the " + std::to_string(most) +
                            " that there is room for");
  embedding_.logits(t, run({1, time}, text), out);
}

template <class Real>
model_stream<Real> model<Real>::make_stream() {
  model_stream<Real> result;
  for (block& b : blocks_) result.layers.push_back(b.mix.mix->make_stream(1));
  return result;
}

template <class Real>
void model<Real>::logits(model_stream<Real>& stream, const std::uint8_t* text, index_t count, Real* out) {
  const Real* x = run({1, count}, text, &stream);
  stream.position += count;
  embedding_.logits(count - 1, x, out);
}

template <class Real>
index_t model<Real>::parameter_count() const {
  index_t n = 0;
  for (const parameter<Real>* p : parameters_) n += p->count();
  return n;
}

template <class Real>
double model<Real>::take_mixer_seconds() {
  double sum = 0;
  for (block& b : blocks_) sum += std::exchange(b.mix.seconds, 0.0);
  return sum;
}

template <class Real>
parameter<Real>* model<Real>::position_bias(index_t layer) {
  return blocks_[static_cast<std::size_t>(layer)].mix.mix->position_bias();
}

template class mixing<float>;
template class mixing<double>;
template class model<float>;
template class model<double>;

}  // namespace examples::char_lm
