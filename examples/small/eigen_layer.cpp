// SPDX-License-Identifier: Apache-2.0
//
// A layer with Eigen: three projections, aft::full, an output projection; its gradients against differences of the
// loss.

#include <Eigen/Core>
#include <aft/aft.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {
using matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct weights {
  matrix q, k, v, out, bias;
};

/// The layer, and what its backward pass needs of the forward call. lse and average spare that pass a recomputation.
class layer {
 public:
  explicit layer(const weights& w) : w_(w) {}

  matrix forward(const matrix& x) {
    x_ = x;
    q_ = x * w_.q, k_ = x * w_.k, v_ = x * w_.v;
    y_.resizeLike(q_), lse_.resizeLike(q_), average_.resizeLike(q_);
    aft::full(aft::as_view(q_), aft::as_view(k_), aft::as_view(v_), aft::dense_bias{aft::as_view(w_.bias)},
              aft::as_view(y_), options());
    return y_ * w_.out;
  }
  /// Gradients of all weights, and through `dx` that of the layer below.
  weights backward(const matrix& dout, matrix& dx) {
    const matrix dy = dout * w_.out.transpose();
    matrix dq(q_.rows(), q_.cols()), dk(dq), dv(dq), dbias(w_.bias);
    aft::full_backward(aft::as_view(q_), aft::as_view(k_), aft::as_view(v_), aft::dense_bias{aft::as_view(w_.bias)},
                       aft::as_view(dy), aft::as_view(dq), aft::as_view(dk), aft::as_view(dv),
                       aft::dense_bias{aft::as_view(dbias)}, options());
    dx = dq * w_.q.transpose() + dk * w_.k.transpose() + dv * w_.v.transpose();
    return {x_.transpose() * dq, x_.transpose() * dk, x_.transpose() * dv, y_.transpose() * dout, dbias};
  }

 private:
  aft::options options() { return {.causal = true, .lse = aft::as_view(lse_), .average = aft::as_view(average_)}; }

  const weights& w_;
  matrix x_, q_, k_, v_, y_, lse_, average_;
};

}  // namespace

int main() {
  const int T = 12, d = 6;
  std::srand(1);
  const auto random = [](int rows, int columns) { return matrix(matrix::Random(rows, columns)); };
  weights w{random(d, d), random(d, d), random(d, d), random(d, d), random(T, T)};
  const matrix x = random(T, d), target = random(T, d);
  layer mixer(w);
  matrix dx;  // the loss is |out - target|^2 / 2, whose gradient is out - target
  const weights gradient = mixer.backward(mixer.forward(x) - target, dx);
  double worst = 0;
  const auto compare = [&](matrix& parameter, const matrix& slopes) {
    for (Eigen::Index i = 0; i < parameter.size(); ++i) {
      const double h = 1e-5, before = parameter.data()[i];  // errors of h^2 and of rounding over h: both near 1e-10
      const auto loss_at = [&](double p) {
        parameter.data()[i] = p;
        return (mixer.forward(x) - target).squaredNorm() / 2;
      };
      worst = std::max(worst, std::abs((loss_at(before + h) - loss_at(before - h)) / (2 * h) - slopes.data()[i]));
      parameter.data()[i] = before;
    }
  };
  const auto members = {&weights::q, &weights::k, &weights::v, &weights::out, &weights::bias};
  for (auto member : members) compare(w.*member, gradient.*member);
  const bool agree = worst < 1e-7;
  std::printf("gradients %s differences of the loss\n", agree ? "agree with" : "differ from");
  return agree ? 0 : 1;
}
