// SPDX-License-Identifier: Apache-2.0

#include "common/training/optimizer.hpp"

#include "common/support/parallel.hpp"
#include "common/training/orthogonal.hpp"

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
    const index_t size = by_muon(*parameters_[i]) ? count : slice_size;
    for (index_t at = 0; at < count; at += size) slices_.push_back({i, at, std::min(size, count - at)});
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
  const double part = learning_rate() / settings_.learning_rate;
  ++done_;
  const auto clip = static_cast<float>(norm > settings_.clip ? settings_.clip / norm : 1.0);
  parallel_for(static_cast<index_t>(slices_.size()), threads, [&](index_t i, int) {
    const slice& s = slices_[static_cast<std::size_t>(i)];
    if (by_muon(*parameters_[s.parameter])) {
      muon_step(s, part);
    } else {
      adamw_step(s, part, clip);
    }
  });
  return norm;
}

void optimizer::adamw_step(const slice& at, double part, float clip) {
  parameter<float>& p = *parameters_[at.parameter];
  const auto t = static_cast<double>(done_);
  const auto beta1 = static_cast<float>(settings_.beta1);
  const auto beta2 = static_cast<float>(settings_.beta2);
  // The corrections for moments that start at 0, folded into the rate and the root.
  const double correction1 = 1 - std::pow(settings_.beta1, t);
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(settings_.beta2, t)));
  const auto epsilon = static_cast<float>(settings_.epsilon);
  const double rate = part * settings_.learning_rate * (p.kind == role::position_bias ? settings_.bias_scale : 1.0);
  const auto move = static_cast<float>(rate / correction1);
  const bool decays = p.kind == role::matrix || p.kind == role::table;
  const auto keep = static_cast<float>(decays ? 1 - rate * settings_.weight_decay : 1.0);
  float* x = p.value.data() + at.first;
  const float* g = p.grad.data() + at.first;
  float* m = first_[at.parameter].data() + at.first;
  float* v = second_[at.parameter].data() + at.first;
#pragma omp simd
  for (index_t j = 0; j < at.count; ++j) {
    const float d = clip * g[j];
    m[j] = beta1 * m[j] + (1 - beta1) * d;
    v[j] = beta2 * v[j] + (1 - beta2) * d * d;
    x[j] = keep * x[j] - move * m[j] / (std::sqrt(v[j]) * root + epsilon);
  }
}

void optimizer::muon_step(const slice& at, double part) {
  parameter<float>& p = *parameters_[at.parameter];
  const auto beta = static_cast<float>(settings_.momentum);
  float* x = p.value.data();
  const float* g = p.grad.data();
  float* m = first_[at.parameter].data();
  // Nesterov's: the momentum as it will be if this gradient comes once more. How long it is does not matter.
  std::vector<float> direction(static_cast<std::size_t>(at.count));
  for (index_t j = 0; j < at.count; ++j) {
    m[j] = beta * m[j] + (1 - beta) * g[j];
    direction[static_cast<std::size_t>(j)] = beta * m[j] + (1 - beta) * g[j];
  }
  const index_t rows = p.shape[0], columns = p.shape[1];
  orthogonalize(rows, columns, direction.data());
  // The root mean square of a direction is 1 / sqrt(the longer side), that of AdamW's about 0.2.
  const double rate = part * settings_.matrix_rate;
  const auto move = static_cast<float>(rate * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns))));
  const auto keep = static_cast<float>(1 - rate * settings_.weight_decay);
  for (index_t j = 0; j < at.count; ++j) x[j] = keep * x[j] - move * direction[static_cast<std::size_t>(j)];
}

}  // namespace examples
