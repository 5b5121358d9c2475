// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong where the weighted average is computed in the ways that are often met: one row each, of two or three
// keys and one channel, in float. The guide on numerics shows what this prints.

#include <aft/aft.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <vector>

namespace {

/// Keys, biases and values as one query sees them.
struct row {
  std::vector<float> k, w, v;
};

long double exact(const row& r) {
  long double most = -std::numeric_limits<long double>::infinity(), num = 0, den = 0;
  for (std::size_t s = 0; s < r.k.size(); ++s) most = std::max(most, static_cast<long double>(r.k[s]) + r.w[s]);
  for (std::size_t s = 0; s < r.k.size(); ++s) {
    const long double a = std::exp(static_cast<long double>(r.k[s]) + r.w[s] - most);
    num += a * r.v[s];
    den += a;
  }
  return num / den;
}

/// The library's answer to the same row.
float ours(row r) {
  const auto n = static_cast<aft::index_t>(r.k.size());
  float y = 0;
  aft::full(aft::tensor_view<const float, 2>{}, aft::as_view(r.k.data(), {n, 1}), aft::as_view(r.v.data(), {n, 1}),
            aft::dense_bias{aft::as_view(r.w.data(), {1, n})}, aft::as_view(&y, {1, 1}),
            aft::options{.gate_fn = aft::gate::none});
  return y;
}

/// num / den over the keys, with weights by `weight` and `added` to the denominator.
template <class Weight>
float average(const row& r, float added, Weight&& weight) {
  float num = 0, den = added;
  for (std::size_t s = 0; s < r.k.size(); ++s) {
    num += weight(s) * r.v[s];
    den += weight(s);
  }
  return num / den;
}

float with_epsilon(const row& r) {
  return average(r, 1e-6F, [&](std::size_t s) { return std::exp(r.k[s] + r.w[s]); });
}

float with_clamp(const row& r) {
  return average(r, 0, [&](std::size_t s) { return std::exp(std::clamp(r.k[s], -10.0F, 10.0F) + r.w[s]); });
}

float with_separate_maxima(const row& r) {
  const float most_k = *std::max_element(r.k.begin(), r.k.end()), most_w = *std::max_element(r.w.begin(), r.w.end());
  return average(r, 0, [&](std::size_t s) { return std::exp(r.k[s] - most_k) * std::exp(r.w[s] - most_w); });
}

/// Sums that overflowed become the largest float, and 0/0 becomes 0.
float with_nan_to_num(const row& r) {
  const auto finite = [](float x) {
    return std::isnan(x) ? 0 : std::clamp(x, -std::numeric_limits<float>::max(), std::numeric_limits<float>::max());
  };
  float num = 0, den = 0;
  for (std::size_t s = 0; s < r.k.size(); ++s) {
    num += std::exp(r.w[s]) * std::exp(r.k[s]) * r.v[s];
    den += std::exp(r.w[s]) * std::exp(r.k[s]);
  }
  return finite(finite(num) / finite(den));
}

/// The sum over all keys plus exp(w) - 1 where there is a bias, as the papers write it for a filter.
float with_correction(const row& r) {
  float num = 0, den = 0;
  for (std::size_t s = 0; s < r.k.size(); ++s) {
    num += std::exp(r.k[s]) * r.v[s];
    den += std::exp(r.k[s]);
  }
  for (std::size_t s = 0; s < r.k.size(); ++s) {
    num += (std::exp(r.w[s]) - 1) * std::exp(r.k[s]) * r.v[s];
    den += (std::exp(r.w[s]) - 1) * std::exp(r.k[s]);
  }
  return num / den;
}

void show(const char* name, float (*formula)(const row&), const row& r) {
  std::printf("%-22s %12.6Lf %12.6f %12.6f\n", name, exact(r), static_cast<double>(ours(r)),
              std::fabs(static_cast<double>(formula(r))));
}

}  // namespace

int main() {
  std::printf("%-22s %12s %12s %12s\n", "", "exact", "aft::full", "the formula");
  show("den + 1e-6", with_epsilon, {{-20, -20}, {0, 0}, {1, 3}});
  show("k clamped to +-10", with_clamp, {{30, 20}, {0, 0}, {1, 3}});
  show("max k and max w apart", with_separate_maxima, {{60, -60}, {-60, 60}, {1, 3}});
  show("nan_to_num", with_nan_to_num, {{100, 99}, {0, 0}, {1, 3}});
  show("exp(w) - 1", with_correction, {{20, 0}, {-25, 0}, {1, 3}});
  return 0;
}
