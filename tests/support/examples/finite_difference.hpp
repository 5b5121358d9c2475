// SPDX-License-Identifier: Apache-2.0
//
// Gradients against central differences in double.
#pragma once

#include "common/support/buffer.hpp"
#include "common/support/rng.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace examples::test {

inline void fill_normal(buffer<double>& x, std::uint64_t stream, double deviation = 1) {
  random_stream random(7, stream);
  for (double& value : x) value = deviation * random.normal();
}

/// sum_i a[i] b[i]: makes a scalar of a layer's output, whose gradient is then the weight a.
inline double dot_all(const buffer<double>& a, const buffer<double>& b) {
  double sum = 0;
  for (index_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Checks `gradient` against value() as a function of x, at up to `checks` places.
///
/// Tolerance: Richardson's D = (4 D(h/2) - D(h)) / 3 is free of the h^2 error; what is left of the truncation is
/// below the step that the extrapolation made, |D(h/2) - D(h)|. Each value carries a relative rounding of some
/// hundred operations, 100 eps |f|, divided by h in the quotient and weighted (8 + 1) / 3 by the extrapolation.
template <class Value>
void check_gradient(const std::string& what, double* x, const double* gradient, index_t count, Value&& value,
                    index_t checks = 40) {
  constexpr double h = 1e-3;
  const double rounding = 3 * 100 * std::numeric_limits<double>::epsilon() / h;
  const index_t step = std::max<index_t>(1, count / checks);
  double largest = 0;
  for (index_t i = 0; i < count; i += step) {
    const double kept = x[i];
    const auto at = [&](double shift) {
      x[i] = kept + shift;
      const double f = value();
      x[i] = kept;
      return f;
    };
    const double scale = std::abs(at(0)) + 1;
    const double coarse = (at(h) - at(-h)) / (2 * h);
    const double fine = (at(h / 2) - at(-h / 2)) / h;
    const double extrapolated = fine + (fine - coarse) / 3;
    const double tolerance = std::abs(fine - coarse) + rounding * scale;
    INFO(what, " [", i, "]: gradient ", gradient[i], ", difference ", extrapolated, " +- ", tolerance);
    CHECK(std::abs(gradient[i] - extrapolated) <= tolerance);
    largest = std::max(largest, std::abs(gradient[i]));
    // A tolerance as large as the gradient would accept anything.
    CHECK(tolerance <= 1e-4 * scale);
  }
  INFO(what);
  CHECK(largest > 0);
}

}  // namespace examples::test
