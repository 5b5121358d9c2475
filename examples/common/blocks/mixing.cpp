// SPDX-License-Identifier: Apache-2.0

#include "common/blocks/mixing.hpp"

#include <chrono>

namespace examples {

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

}  // namespace

template <class Real>
mixing<Real>::mixing(const std::string& name, mixer_kind kind, const mixer_shape& shape)
    : mix(make_mixer<Real>(kind, name, shape)),
      norm(name + ".norm", shape.channels, shape.rows()),
      project(name + ".project", {shape.channels, mix->input_width()}, role::matrix),
      output(name + ".output", {shape.channels, shape.channels}, role::matrix),
      channels_(shape.channels),
      normed_(shape.rows() * shape.channels),
      projected_(shape.rows() * mix->input_width()),
      mixed_(shape.rows() * shape.channels) {}

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

template class mixing<float>;
template class mixing<double>;

}  // namespace examples
