// SPDX-License-Identifier: Apache-2.0

#include "common/blocks/block_stack.hpp"

#include <utility>

namespace examples {

template <class Real>
block_stack<Real>::block_stack(mixer_kind kind, const mixer_shape& shape, index_t layers, index_t widest, int threads)
    : channels_(shape.channels),
      work_(shape.rows(), shape.channels, std::max(widest, mlp<Real>::expansion * shape.channels), threads) {
  const index_t rows = shape.rows();
  for (index_t layer = 0; layer < layers; ++layer) {
    const std::string name = "block." + std::to_string(layer);
    blocks_.push_back({mixing<Real>(name + ".mixer", kind, shape), mlp<Real>(name + ".mlp", shape.channels, rows),
                       buffer<Real>(rows * shape.channels), buffer<Real>(rows * shape.channels)});
  }
}

template <class Real>
void block_stack<Real>::collect(parameter_list<Real>& all) {
  for (block& b : blocks_) {
    b.mix.collect(all);
    b.feed_forward.collect(all);
  }
}

// Beyond the places of any model's parameters.
constexpr std::uint64_t factors_apart = 1 << 20;

template <class Real>
void block_stack<Real>::initialize(std::uint64_t seed, std::uint64_t place) {
  // Output projections and second MLP matrices stay 0: every block begins as the identity, and the
  // deepest layers do not drown the signal of the first steps.
  const auto normal = [&](parameter<Real>& p, std::uint64_t at, double deviation) {
    p.fill_normal(random_stream(seed, purpose::initial + at), deviation);
  };
  const double fan_in = 1.0 / std::sqrt(static_cast<double>(channels_));
  for (block& b : blocks_) {
    normal(b.feed_forward.up, place++, fan_in);
    normal(b.mix.project, place++, fan_in);
    // Of a bias without factors one number names the stream, so that other mixers start the same.
    std::uint64_t factor = 0;
    for (parameter<Real>* bias : b.mix.mix->bias_parameters())
      normal(*bias, place + factor++ * factors_apart, b.mix.mix->bias_deviation());
    ++place;
  }
}

template <class Real>
void block_stack<Real>::draw(std::uint64_t seed, std::uint64_t step) {
  const auto count = static_cast<std::uint64_t>(layers());
  for (std::uint64_t i = 0; i < count; ++i) blocks_[i].mix.mix->draw({seed, purpose::noise, step * count + i});
}

template <class Real>
void block_stack<Real>::settle() {
  for (block& b : blocks_) b.mix.mix->settle();
}

template <class Real>
const Real* block_stack<Real>::forward(sequences s, const Real* x, const aft::cpu& exec,
                                       const std::vector<std::unique_ptr<mixer_stream<Real>>>* streams) {
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    block& b = blocks_[layer];
    b.mix.forward(s, x, b.middle.data(), exec, streams == nullptr ? nullptr : (*streams)[layer].get());
    b.feed_forward.forward(s.rows(), b.middle.data(), b.out.data(), work_, exec.threads);
    x = b.out.data();
  }
  return x;
}

template <class Real>
void block_stack<Real>::backward(sequences s, const Real* x, Real* d, const aft::cpu& exec) {
  for (std::size_t layer = blocks_.size(); layer-- > 0;) {
    block& b = blocks_[layer];
    const Real* in = layer == 0 ? x : blocks_[layer - 1].out.data();
    b.feed_forward.backward(s.rows(), b.middle.data(), d, work_, exec.threads);
    b.mix.backward(s, in, d, work_, exec);
  }
}

template <class Real>
double block_stack<Real>::take_mixer_seconds() {
  double sum = 0;
  for (block& b : blocks_) sum += std::exchange(b.mix.seconds, 0.0);
  return sum;
}

template class block_stack<float>;
template class block_stack<double>;

}  // namespace examples
