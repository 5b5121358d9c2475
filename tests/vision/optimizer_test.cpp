// SPDX-License-Identifier: Apache-2.0
//
// Muon's steps for matrices, AdamW's for all else.
#include "common/training/optimizer.hpp"
#include "common/training/orthogonal.hpp"

#include <doctest/doctest.h>

#include <Eigen/SVD>

using namespace examples;

namespace {

using matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void draw(buffer<float>& x, std::uint64_t seed) {
  random_stream random(seed, 0);
  for (float& value : x) value = static_cast<float>(random.normal());
}

// One step of a matrix of 4 x 6, a table as large and a vector of 6, from these gradients times a factor.
struct step_of {
  explicit step_of(const optimizer_settings& settings, float factor) {
    const parameter_list<float> all{&weight, &table, &vector};
    for (parameter<float>* p : all) {
      draw(p->value, 1);
      draw(p->grad, 2);
      for (float& g : p->grad) g *= factor;
    }
    optimizer(all, settings).step(2);
  }
  parameter<float> weight{"weight", {4, 6}, role::matrix};
  parameter<float> table{"table", {4, 6}, role::table};
  parameter<float> vector{"vector", {6}, role::vector};
};

optimizer_settings settings_with(double matrix_rate) {
  optimizer_settings s;
  s.learning_rate = 0.25;
  s.matrix_rate = matrix_rate;
  s.steps = 1;
  s.clip = 1e30;
  return s;
}

}  // namespace

TEST_CASE("orthogonalize: singular vectors stay, and singular values go through the polynomial") {
  for (const auto& [rows, columns] : {std::pair<index_t, index_t>{4, 32}, {32, 4}, {16, 16}, {1, 7}}) {
    CAPTURE(rows);
    CAPTURE(columns);
    matrix x(rows, columns);
    random_stream random(3, static_cast<std::uint64_t>(rows));
    for (index_t i = 0; i < x.size(); ++i) x.data()[i] = random.normal();
    const Eigen::JacobiSVD<matrix> parts(x, Eigen::ComputeThinU | Eigen::ComputeThinV);
    Eigen::VectorXd values = parts.singularValues() / parts.singularValues().norm();
    for (double& value : values)
      for (int step = 0; step < orthogonal_steps; ++step)
        value = orthogonal_coefficients[0] * value + orthogonal_coefficients[1] * std::pow(value, 3) +
                orthogonal_coefficients[2] * std::pow(value, 5);
    // The iteration, and nothing else, decides how far from 1 they are: within a third for those that were not tiny.
    CHECK((values.array() - 1).abs().maxCoeff() < 1.0 / 3);
    const matrix expected = parts.matrixU() * values.asDiagonal() * parts.matrixV().transpose();
    orthogonalize(rows, columns, x.data());
    // A step multiplies an error in the spectral norm by no more than the polynomial's absolute derivative where
    // singular values end, below 1.2, and adds that of its three products.
    double growth = 1;
    for (int step = 0; step < orthogonal_steps; ++step) growth = 46 * growth + 3 * static_cast<double>(rows + columns);
    CHECK((x - expected).norm() < growth * std::numeric_limits<double>::epsilon());
  }
}

TEST_CASE("orthogonalize: zeros stay zeros") {
  buffer<float> x(12);
  x.zero();
  orthogonalize<float>(3, 4, x.data());
  for (const float value : x) CHECK(value == 0);
}

TEST_CASE("optimizer: Muon moves matrices by an orthogonal direction of one length, whatever the gradient's") {
  const optimizer_settings settings = settings_with(0.5);
  const step_of once(settings, 1);
  const step_of larger(settings, 1024);
  parameter<float> before{"weight", {4, 6}, role::matrix};
  draw(before.value, 1);
  draw(before.grad, 2);
  matrix direction(4, 6), gradient(4, 6);
  for (index_t i = 0; i < before.count(); ++i) {
    // Powers of two change no bit of a direction.
    CHECK(once.weight.value[i] == larger.weight.value[i]);
    const double kept = (1 - 0.5 * settings.weight_decay) * static_cast<double>(before.value[i]);
    direction.data()[i] = (kept - static_cast<double>(once.weight.value[i])) / (0.5 * 0.2 * std::sqrt(6.0));
    gradient.data()[i] = static_cast<double>(before.grad[i]);
  }
  // With the singular vectors of the gradient and values within a third of 1, as above, the two have this product: any
  // other direction of that length has less in the gradient's.
  const double sum = Eigen::JacobiSVD<matrix>(gradient).singularValues().sum();
  const double product = (direction.array() * gradient.array()).sum();
  CHECK(product > sum * 2 / 3);
  CHECK(product < sum * 4 / 3);
  CHECK(Eigen::JacobiSVD<matrix>(direction).singularValues().maxCoeff() < 4.0 / 3);
}

TEST_CASE("optimizer: tables and vectors are AdamW's, and without Muon's rate matrices are") {
  const step_of with(settings_with(0.5), 1);
  const step_of without(settings_with(0), 1);
  for (index_t i = 0; i < 24; ++i) {
    CHECK(with.table.value[i] == without.table.value[i]);
    CHECK(without.weight.value[i] == without.table.value[i]);
  }
  for (index_t i = 0; i < 6; ++i) CHECK(with.vector.value[i] == without.vector.value[i]);
  CHECK(with.weight.value[0] != without.weight.value[0]);
}
