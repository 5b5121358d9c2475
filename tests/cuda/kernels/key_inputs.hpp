// SPDX-License-Identifier: Apache-2.0
/// @file key_inputs.hpp  What the tests of the products for gradients share: what a forward call would have saved, and
/// dv and dk by the definition.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "product_inputs.hpp"

namespace aft::test {

/// lse and average (B, Tq, d), rounded to float as a caller's are.
struct saved_inputs {
  std::vector<float> lse, average;
};

inline index_t seen_keys(const inputs& x, index_t t) {
  return x.causal ? std::min(t + 1, x.Tk) : x.Tk;
}

inline saved_inputs saved_of(inputs& x) {
  saved_inputs saved;
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        long double top = -std::numeric_limits<long double>::infinity(), num = 0, den = 0;
        const auto logit = [&](index_t s) { return static_cast<long double>(x.key(b, s, c)) + x.bias(t, s); };
        for (index_t s = 0; s < seen_keys(x, t); ++s) top = std::max(top, logit(s));
        for (index_t s = 0; s < seen_keys(x, t); ++s) {
          den += std::exp(logit(s) - top);
          num += std::exp(logit(s) - top) * x.v[static_cast<std::size_t>((b * x.Tk + s) * x.d + c)];
        }
        saved.lse.push_back(static_cast<float>(top + std::log(den)));
        saved.average.push_back(static_cast<float>(num / den));
      }
  return saved;
}

/// dv and dk of one key and channel.
struct gradient_element {
  float dv, dk;
  bool flagged;
  long double exact_dv, exact_dk;
};

struct exact_gradients {
  std::vector<gradient_element> elements;
  long double scale_dv = 0, scale_dk = 0;  ///< the largest sums of absolute terms, as in tolerance.hpp
};

/// By the definition, for the gradient g (B, Tq, d); what a product makes of them is the test's to fill in.
inline exact_gradients exact_keys(inputs& x, const saved_inputs& saved, const std::vector<float>& g) {
  const auto keys = static_cast<std::size_t>(x.B * x.Tk * x.d);
  exact_gradients result;
  result.elements.resize(keys);
  std::vector<long double> terms_dv(keys), terms_dk(keys);
  for (index_t b = 0; b < x.B; ++b)
    for (index_t t = 0; t < x.Tq; ++t)
      for (index_t c = 0; c < x.d; ++c) {
        const auto row = static_cast<std::size_t>((b * x.Tq + t) * x.d + c);
        for (index_t s = 0; s < seen_keys(x, t); ++s) {
          const auto key = static_cast<std::size_t>((b * x.Tk + s) * x.d + c);
          const long double z = static_cast<long double>(x.key(b, s, c)) + x.bias(t, s);
          const long double ag = std::exp(z - saved.lse[row]) * g[row];
          const long double apart = static_cast<long double>(x.v[key]) - saved.average[row];
          result.elements[key].exact_dv += ag;
          result.elements[key].exact_dk += ag * apart;
          terms_dv[key] += std::abs(ag);
          terms_dk[key] += std::abs(ag * apart);
        }
      }
  for (std::size_t i = 0; i < keys; ++i) {
    result.scale_dv = std::max(result.scale_dv, terms_dv[i]);
    result.scale_dk = std::max(result.scale_dk, terms_dk[i]);
  }
  return result;
}

/// The call that has to write dv and dk (B, Tk, d) for the gradient g (B, Tq, d), from what the forward call saved; it
/// refers to all of them.
inline device_call<float> key_call(inputs& x, saved_inputs& saved, std::vector<float>& g, std::vector<float>& dv,
                                   std::vector<float>& dk) {
  device_call<float> call = dense_call(x);
  call.dv = sequence_of(x, dv, x.Tk);
  call.dk = sequence_of(x, dk, x.Tk);
  call.lse = sequence_of(x, saved.lse, x.Tq);
  call.average = sequence_of(x, saved.average, x.Tq);
  call.from_lse = true;
  call.g = g.data();
  return call;
}

/// What the call wrote and flagged, beside it.
inline void take_results(exact_gradients& to, const inputs& x, const fold_plan& rows, const std::vector<float>& dv,
                         const std::vector<float>& dk) {
  for (index_t b = 0; b < x.B; ++b)
    for (index_t s = 0; s < x.Tk; ++s)
      for (index_t c = 0; c < x.d; ++c) {
        const auto i = static_cast<std::size_t>((b * x.Tk + s) * x.d + c);
        const index_t column = b * x.d + c;
        const std::uint32_t word = rows.flags[flag_word(rows, s, column / tuning::lanes)];
        to.elements[i].dv = dv[i];
        to.elements[i].dk = dk[i];
        to.elements[i].flagged = (word >> column % tuning::lanes & 1u) != 0;
      }
}

inline std::vector<float> incoming_of(const inputs& x, float scale) {
  std::mt19937 engine(17);
  std::normal_distribution<float> normal;
  std::vector<float> g;
  for (index_t i = 0; i < x.B * x.Tq * x.d; ++i) g.push_back(scale * normal(engine));
  return g;
}

struct key_verdict {
  std::size_t flagged = 0;
  long double dv = 0, dk = 0;  ///< largest errors of what is not flagged, relative to the scale
};

inline key_verdict judge_keys(const exact_gradients& r) {
  key_verdict all;
  for (const gradient_element& e : r.elements) {
    all.flagged += e.flagged ? 1 : 0;
    if (e.flagged) {
      CHECK((std::isnan(e.dv) && std::isnan(e.dk)));
      continue;
    }
    const auto merge_into = [](long double& worst, float got, long double want, long double scale) {
      const long double error = std::isnan(got) ? std::numeric_limits<long double>::infinity() : std::abs(got - want);
      if (error > 0) worst = std::max(worst, error / scale);
    };
    merge_into(all.dv, e.dv, e.exact_dv, r.scale_dv);
    merge_into(all.dk, e.dk, e.exact_dk, r.scale_dk);
  }
  return all;
}

}  // namespace aft::test
