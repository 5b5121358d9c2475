// SPDX-License-Identifier: Apache-2.0
//
// AdamW with clipping at a global norm, a warm-up and a cosine; for matrices Muon, where it is asked for.
#pragma once

#include "common/layers/parameter.hpp"

namespace examples {

struct optimizer_settings {
  double learning_rate = 3e-3;
  double bias_scale = 1;   // of the position biases' learning rate
  double matrix_rate = 0;  // of matrices, by Muon; 0: they are AdamW's, at learning_rate
  std::int64_t steps = 500;
  std::int64_t warm_up = 60;
  double momentum = 0.95;  // Muon's
  double beta1 = 0.9;
  double beta2 = 0.98;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip = 1;
};

class optimizer {
 public:
  optimizer(const parameter_list<float>& parameters, const optimizer_settings& settings);

  /// Uses every parameter's gradient; returns the gradient's norm before clipping.
  double step(int threads);
  /// The rate of the step that comes next.
  double learning_rate() const;

  std::int64_t steps_done() const { return done_; }
  void set_steps_done(std::int64_t done) { done_ = done; }
  /// First and second moments, in the order of the parameters.
  std::vector<buffer<float>>& first() { return first_; }
  std::vector<buffer<float>>& second() { return second_; }
  const parameter_list<float>& parameters() const { return parameters_; }

 private:
  struct slice {
    std::size_t parameter;
    index_t first;
    index_t count;
  };
  bool by_muon(const parameter<float>& p) const { return p.kind == role::matrix && settings_.matrix_rate > 0; }
  double gradient_norm(int threads);
  /// `part`: this step's share of the highest learning rate.
  void adamw_step(const slice& at, double part, float clip);
  void muon_step(const slice& at, double part);

  parameter_list<float> parameters_;
  optimizer_settings settings_;
  std::vector<buffer<float>> first_;
  std::vector<buffer<float>> second_;
  std::vector<slice> slices_;
  std::vector<double> squares_;
  std::int64_t done_ = 0;
};

}  // namespace examples
