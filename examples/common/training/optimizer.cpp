// SPDX-License-Identifier: Apache-2.0

#include "common/training/optimizer.hpp"

#include "common/support/parallel.hpp"

#include <numbers>

namespace examples {

namespace {

// Small enough to share out a model of two million weights, fixed so that the norm has one value.
constexpr index_t slice_size = 16384;

}  // namespace

optimizer::optimizer(const parameter_list<float>& parameters, const optimizer_settings& settings)
    : parameters_(parameters), settings_(settings) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const index_t count = parameters_[i]->count();
    first_.emplace_back(count);
    second_.emplace_back(count);
    for (index_t at = 0; at < count; at += slice_size) slices_.push_back({i, at, std::min(slice_size, count - at)});
  }
  squares_.resize(slices_.size());
}

double optimizer::learning_rate() const {
  const auto step = static_cast<double>(done_);
  const auto warm_up = static_cast<double>(std::min(settings_.warm_up, settings_.steps / 4));
  if (step < warm_up) return settings_.learning_rate * (step + 1) / warm_up;
  const double part = (step - warm_up) / std::max(1.0, static_cast<double>(settings_.steps) - warm_up);
  return settings_.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(1.0, part)));
}

double optimizer::gradient_norm(int threads) {
  parallel_for(static_cast<index_t>(slices_.size()), threads, [&](index_t i, int) {
    const slice& s = slices_[static_cast<std::size_t>(i)];
    const float* g = parameters_[s.parameter]->grad.data() + s.first;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (index_t j = 0; j < s.count; ++j) sum += static_cast<double>(g[j]) * static_cast<double>(g[j]);
    squares_[static_cast<std::size_t>(i)] = sum;
  });
  double total = 0;
  for (const double s : squares_) total += s;
  return std::sqrt(total);
}

double optimizer::step(int threads) {
  const double norm = gradient_norm(threads);
  const double base_rate = learning_rate();
  ++done_;
  const auto t = static_cast<double>(done_);
  const auto clip = static_cast<float>(norm > settings_.clip ? settings_.clip / norm : 1.0);
  const auto beta1 = static_cast<float>(settings_.beta1);
  const auto beta2 = static_cast<float>(settings_.beta2);
  // The corrections for moments that start at 0, folded into the rate and the root.
  const double correction1 = 1 - std::pow(settings_.beta1, t);
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(settings_.beta2, t)));
  const auto epsilon = static_cast<float>(settings_.epsilon);
  parallel_for(static_cast<index_t>(slices_.size()), threads, [&](index_t i, int) {
    const slice& s = slices_[static_cast<std::size_t>(i)];
    parameter<float>& p = *parameters_[s.parameter];
    const double rate = base_rate * (p.kind == role::position_bias ? settings_.bias_scale : 1.0);
    const auto move = static_cast<float>(rate / correction1);
    const auto keep = static_cast<float>(p.kind == role::matrix ? 1 - rate * settings_.weight_decay : 1.0);
    float* x = p.value.data() + s.first;
    const float* g = p.grad.data() + s.first;
    float* m = first_[s.parameter].data() + s.first;
    float* v = second_[s.parameter].data() + s.first;
#pragma omp simd
    for (index_t j = 0; j < s.count; ++j) {
      const float d = clip * g[j];
      m[j] = beta1 * m[j] + (1 - beta1) * d;
      v[j] = beta2 * v[j] + (1 - beta2) * d * d;
      x[j] = keep * x[j] - move * m[j] / (std::sqrt(v[j]) * root + epsilon);
    }
  });
  return norm;
}

}  // namespace examples
