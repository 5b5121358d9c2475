// SPDX-License-Identifier: Apache-2.0
#include "common/layers/gemm.hpp"

#include <Eigen/Core>

#ifdef EXAMPLES_WITH_ONEDNN
#include <oneapi/dnnl/dnnl.h>

#include <stdexcept>
#endif

namespace examples {

namespace {

// Doubles are only used by the gradient tests; floats come here when oneDNN is not installed. Eigen
// measured 0.7 of oneDNN's speed on AVX-512.
template <class Real>
void gemm_eigen(index_t m, index_t n, index_t k, const matrix<Real>& a, const matrix<Real>& b, Real beta, Real* c,
                index_t c_stride) {
  using rows = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using pitch = Eigen::OuterStride<>;
  using input = Eigen::Map<const rows, 0, pitch>;
  Eigen::Map<rows, 0, pitch> out(c, m, n, pitch(c_stride));
  const auto view = [](const matrix<Real>& x, index_t r, index_t s) {
    return x.form == as::is ? input(x.data, r, s, pitch(x.stride)) : input(x.data, s, r, pitch(x.stride));
  };
  const input left = view(a, m, k);
  const input right = view(b, k, n);
  if (beta == Real(0))
    out.setZero();
  else
    out *= beta;
  if (a.form == as::is && b.form == as::is)
    out.noalias() += left * right;
  else if (a.form == as::is)
    out.noalias() += left * right.transpose();
  else if (b.form == as::is)
    out.noalias() += left.transpose() * right;
  else
    out.noalias() += left.transpose() * right.transpose();
}

}  // namespace

template <class Real>
void gemm(index_t m, index_t n, index_t k, matrix<Real> a, matrix<Real> b, Real beta, Real* c, index_t c_stride) {
  if (m == 0 || n == 0) return;
  gemm_eigen(m, n, k, a, b, beta, c, c_stride);
}

#ifdef EXAMPLES_WITH_ONEDNN
namespace {

/// Inside a parallel region oneDNN stays on its thread. Outside it would start OpenMP's full team for a product
/// of a few rows; the setting changed here is the calling thread's own.
class one_thread {
 public:
  one_thread() : before_(hardware_threads()) { set(1); }
  one_thread(const one_thread&) = delete;
  one_thread& operator=(const one_thread&) = delete;
  ~one_thread() { set(before_); }

 private:
  static void set([[maybe_unused]] int threads) {
#ifdef _OPENMP
    omp_set_num_threads(threads);
#endif
  }
  int before_;
};

/// oneDNN generates a kernel for each form at its first call. With two threads first at once, one start in 15 ended in
/// a corrupt heap (oneDNN 2.7), so one thread asks for all of them before any other call: none of 72 did since.
bool make_kernels() {
  constexpr index_t n = 64;
  static float zeros[n * n] = {};
  static float product[n * n];
  for (const char a_form : {'N', 'T'})
    for (const char b_form : {'N', 'T'})
      for (const float beta : {0.0F, 1.0F})
        if (dnnl_sgemm(a_form, b_form, n, n, n, 1.0F, zeros, n, zeros, n, beta, product, n) != dnnl_success)
          return false;
  return true;
}

}  // namespace

template <>
void gemm<float>(index_t m, index_t n, index_t k, matrix<float> a, matrix<float> b, float beta, float* c,
                 index_t c_stride) {
  if (m == 0 || n == 0) return;
  const char a_form = a.form == as::is ? 'N' : 'T';
  const char b_form = b.form == as::is ? 'N' : 'T';
  const one_thread alone;
  static const bool ready = make_kernels();  // others wait here for the first to be done
  if (!ready) throw std::runtime_error("dnnl_sgemm failed");
  const dnnl_status_t status =
      dnnl_sgemm(a_form, b_form, m, n, k, 1.0F, a.data, a.stride, b.data, b.stride, beta, c, c_stride);
  if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm failed");
}
#endif

template <class Real>
void gemm_row(index_t n, index_t k, const Real* a, matrix<Real> b, Real beta, Real* c) {
  gemm_eigen<Real>(1, n, k, {a, k}, b, beta, c, n);
}

#ifndef EXAMPLES_WITH_ONEDNN
template void gemm<float>(index_t, index_t, index_t, matrix<float>, matrix<float>, float, float*, index_t);
#endif
template void gemm_row<float>(index_t, index_t, const float*, matrix<float>, float, float*);
template void gemm_row<double>(index_t, index_t, const double*, matrix<double>, double, double*);
template void gemm<double>(index_t, index_t, index_t, matrix<double>, matrix<double>, double, double*, index_t);

}  // namespace examples
