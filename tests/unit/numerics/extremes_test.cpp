// SPDX-License-Identifier: Apache-2.0
// Every finite input: large scales, the ends of the type's range, and cases where separate exponentials are 0/0.
#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <utility>

#include "harness/harness.hpp"

using namespace aft::test;
using aft::gate;
using aft::index_t;
using aft::outside;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// One setup per operator and bias form.
std::vector<setup> operators(index_t T = 24) {
  const setup base{.B = 2, .Tq = T, .Tk = T, .d = 4, .H = 2, .win = {5, 4}, .grid = {T}, .taps = {7}};
  std::vector<setup> all;
  for (bool causal : {false, true})
    for (auto [call, form] : {std::pair<op, bias_form>{op::full, bias_form::dense_htt},
                              {op::full, bias_form::factorized_htn},
                              {op::local, bias_form::dense_htt},
                              {op::local, bias_form::banded_htj},
                              {op::simple, bias_form::dense_htt},
                              {op::conv, bias_form::dense_htt}}) {
      all.push_back(base);
      all.back().call = call;
      all.back().bias = form;
      all.back().causal = causal;
    }
  all.push_back(base);
  all.back().call = op::conv;
  all.back().grid = {4, T / 4};
  all.back().taps = {3, 3};
  return all;
}

double largest(aft::dtype type) {
  return static_cast<double>(precision_of(type).max);
}
double least_normal(aft::dtype type) {
  return std::ldexp(1.0, precision_of(type).min_exponent);
}
double least(aft::dtype type) {
  return std::ldexp(least_normal(type), 1 - precision_of(type).digits);
}

}  // namespace

TEST_CASE("extremes: k and w at every scale") {
  for (setup s : operators())
    for (double k : {1., 10., 50., 200.})
      for (double w : {1., 10., 50., 200.}) {
        s.k_scale = k;
        s.w_scale = w;
        check(s);
        s.save = !s.save;
      }
}

TEST_CASE("extremes: what is hidden or far below its row counts for nothing, however low the row") {
  // The borders are those where arguments of exp are cut and where maxima are taken out first.
  for (double level : {-600., -2047., -2049., -4000., -4090., -4095., -4097., -6000., 4090., 4097.})
    for (setup s : {setup{.call = op::full}, setup{.call = op::local, .win = {9, 9}, .outside = outside::excluded}}) {
      s.B = 2;
      s.Tq = s.Tk = 6;
      s.d = 3;
      s.bias = bias_form::dense_tt;
      s.mask = mask_form::pairs;
      // Hidden by the mask, by a bias of -inf, and far below in w; then the same far below in k.
      for (bool in_keys : {false, true}) {
        numbers x = random_numbers(s);
        for (double& w : x.w) w += in_keys ? 0 : level;
        for (double& k : x.k) k += in_keys ? level : 0;
        for (std::size_t i = 0; i < x.mask.size(); ++i) x.mask[i] = i % 6 != 1 || i / 6 == 3;
        for (std::size_t i = 2; i < x.w.size(); i += 6) x.w[i] = -infinity;
        for (std::size_t i = 4; !in_keys && i < x.w.size(); i += 6) x.w[i] -= 3000;
        for (std::size_t i = 12; in_keys && i < 15; ++i) x.k[i] -= 3000;
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, x);
      }
    }
}

TEST_CASE("extremes: gradients near the least normal number, and below it") {
  // One channel as well as several: what the idle lanes of a vector hold must not scale the others.
  for (setup s : operators())
    for (index_t d : {1, 4})
      for (double size : {0x1p12, 1.})
        for (bool save : {false, true}) {
          s.d = d;
          s.H = 1;
          s.save = save;
          s.k_scale = 8;
          for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
            numbers x = random_numbers(s);
            for (double& dy : x.dy) dy *= size * least_normal(type);
            check_backward(type, s, x);
          }
        }
}

TEST_CASE("extremes: gradients of early rows far above or below those of late ones, with rows of zeros between") {
  // 256 rows join what came after them: the zeros before the first number of the other size leave open what it will be.
  for (op call : {op::simple, op::full})
    for (auto [save, g] : {std::pair{false, gate::sigmoid}, {true, gate::sigmoid}, {false, gate::tanh}}) {
      if (call == op::full && save) continue;  // simple alone has a loop of its own for what was saved
      for (auto [early, late, values] : {std::array{1., 0x1p-106, 1.},
                                         {1., 0x1p-106, 0x1p25},
                                         {0x1p30, 0x1p-106, 1.},
                                         {0x1p30, 0x1p-60, 0x1p25},
                                         {0x1p-60, 0x1p30, 1.}})
        for (auto type : {aft::dtype::f32, aft::dtype::f64}) {
          setup s{.call = call,
                  .B = 1,
                  .Tq = 300,
                  .Tk = 300,
                  .d = 16,
                  .causal = true,
                  .gate_fn = g,
                  .v_scale = values,
                  .save = save};
          numbers x = random_numbers(s);
          for (index_t t = 0; t < s.Tq; ++t)
            for (index_t c = 0; c < s.d; ++c)
              x.dy[static_cast<std::size_t>(t * s.d + c)] *= t < 246 ? early : (t < 256 ? 0 : late);
          check_backward(type, s, x);
        }
    }
}

TEST_CASE("extremes: keys and biases that cancel, where exp(k - max k) exp(w - max w) is 0/0") {
  for (double size : {60., 88., 120., 700., 5000.}) {
    setup s{.B = 1, .Tq = 2, .Tk = 2, .d = 1, .bias = bias_form::dense_tt};
    numbers x = random_numbers(s);
    x.k = {size, -size};
    x.w = {-size, size, 0, 0};
    for (auto type : all_types) check_both(type, s, x);
    s.bias = bias_form::factorized_tn;
    s.n = 1;
    x.u = {1, 0};
    x.f = {-size, size};
    for (auto type : all_types) check_both(type, s, x);
    s.call = op::conv;
    s.grid = {2};
    s.taps = {3};
    x.k = {size, -size};
    x.r = {size, -size, -size};
    for (auto type : all_types) check_both(type, s, x);
    s.call = op::local;
    s.bias = bias_form::banded_tj;
    s.win = {1, 1};
    x.w = {0, -size, size, size, -size, 0};
    for (auto type : all_types) check_both(type, s, x);
  }
}

TEST_CASE("extremes: keys at one level and biases at the opposite one, whose log-sum-exp keeps its digits") {
  // On both sides of where a maximum is taken out of the keys, of the biases, or of both.
  for (setup s : operators())
    for (auto [keys, biases] : {std::pair{2041., -2050.},
                                {-2050., 2041.},
                                {4090., -4097.},
                                {-4097., 4090.},
                                {5000., -5003.},
                                {-5003., 5000.},
                                {90000., -90000.}}) {
      if (s.call == op::simple || s.call == op::conv) continue;
      s.outside = outside::excluded;
      numbers x = random_numbers(s);
      for (double& k : x.k) k += keys;
      if (s.bias == bias_form::factorized_htn) {
        for (std::size_t i = 0; i < x.u.size(); ++i) x.u[i] = i % static_cast<std::size_t>(s.n) == 0 ? 1 : x.u[i];
        for (std::size_t i = 0; i < x.f.size(); ++i) x.f[i] += i % static_cast<std::size_t>(s.n) == 0 ? biases : 0;
      }
      for (double& w : x.w) w += biases;
      for (auto type : {aft::dtype::f32, aft::dtype::f64}) check_both(type, s, x);
    }
}

TEST_CASE("extremes: a bias that is very negative where the keys peak, as in the papers' cancelling forms") {
  for (const setup& s : operators()) {
    numbers x = random_numbers(s);
    for (std::size_t i = 0; i < x.k.size(); ++i) x.k[i] += i / 4 % 5 == 0 ? 30 : 0;
    for (auto* bias : {&x.w, &x.r})
      for (double& e : *bias) e = -40 + e;
    for (auto type : all_types) check_both(type, s, x);
  }
}

TEST_CASE("extremes: a large negative number as a mask, in some pairs or in whole rows") {
  for (const setup& s : operators()) {
    if (s.call == op::simple) continue;
    for (bool whole_rows : {false, true}) {
      for (auto type : all_types) {
        const double masked = type == aft::dtype::f16 ? -6e4 : -1e9;
        numbers x = random_numbers(s);
        for (auto* bias : {&x.w, &x.r})
          for (std::size_t i = 0; i < bias->size(); ++i) {
            if (whole_rows ? i / static_cast<std::size_t>(s.Tk) % 3 == 0 : i % 3 == 0) (*bias)[i] = masked;
          }
        check_both(type, s, x);
      }
    }
  }
}

TEST_CASE("extremes: k and w at the ends of the range, where k + w is not representable") {
  for (const setup& s : operators(9))
    for (int which = 0; which < 4; ++which)
      for (auto type : all_types)
        for (double size : {largest(type), -largest(type), largest(type) / 1e8}) {
          numbers x = random_numbers(s);
          std::size_t i = 0;
          for (auto* tensor : {&x.k, &x.w, &x.r})
            for (double& e : *tensor) {
              ++i;
              if (which == 0 && i % 5 == 0) e = size;
              if (which == 1 && i % 2 == 0) e = i % 4 == 0 ? size : -size;
              if (which == 2) e = size;
              if (which == 3 && tensor == &x.k) e = size * (1 + e / 10 < 1 ? 1 + e / 10 : 1);
            }
          check_both(type, s, x);
        }
}

TEST_CASE("extremes: values at the ends of the range, tiny, denormal or huge") {
  for (const setup& s : operators(9))
    for (auto type : all_types)
      for (double size :
           {least(type), 100 * least(type), 8 * least_normal(type), 1e-30, largest(type) / 4, largest(type)}) {
        numbers x = random_numbers(s);
        for (double& v : x.v) v = size * std::tanh(v);
        check_forward(type, s, x);
        for (double& v : x.v) v = v > 0 ? size : -size;
        check_forward(type, s, x);
        for (double& v : x.v) v = size;
        check_forward(type, s, x);
        if (size < 1) check_backward(type, s, x);
      }
}

TEST_CASE("extremes: values that are tiny up to a place, which is all that some rows see of them") {
  for (const setup& s : operators(20))
    for (auto type : all_types)
      for (double size : {70 * least(type), 1e-30})
        for (index_t where : {1, 3, 6, 17}) {
          numbers x = random_numbers(s);
          for (index_t i = 0; i < std::ssize(x.v); ++i)
            if (i / s.d % 20 < where) x.v[static_cast<std::size_t>(i)] *= size;
          check_both(type, s, x);
        }
}

TEST_CASE("extremes: one key of one channel beyond the range of exponentials, beside tiles of ordinary ones") {
  for (const setup& s : operators(36))
    for (auto type : all_types)
      for (double height : {-3e4, 3e4})
        for (index_t where : {2, 20, 35}) {
          numbers x = random_numbers(s);
          for (double& k : x.k) k *= 0.5;
          const auto at = static_cast<std::size_t>(where * std::ssize(x.k) / (s.B * 36) + 1);
          x.k[at] = height;
          check_both(type, s, x);
          // The formula's value is then no number, also where the weight is none in any type.
          x.v[static_cast<std::size_t>(where * s.d + 1)] = infinity;
          check_forward(type, s, x);
        }
}

TEST_CASE("extremes: values that are all tiny, under keys that lie far apart") {
  for (const setup& s : operators(12))
    for (auto type : all_types)
      for (double size : {70 * least(type), 1e-30}) {
        numbers x = random_numbers(s);
        for (double& v : x.v) v *= size;
        for (double& k : x.k) k *= 30;
        check_backward(type, s, x);
      }
}

TEST_CASE("extremes: large gradients of rows that see zeros alone, before rows that see large values") {
  for (setup s : operators(20))
    for (bool save : {false, true})
      for (auto type : all_types)
        for (index_t where : {3, 11}) {
          s.save = save;
          numbers x = random_numbers(s);
          for (index_t i = 0; i < std::ssize(x.v); ++i)
            x.v[static_cast<std::size_t>(i)] = i / s.d % 20 < where ? 0 : 3e4;
          for (index_t i = 0; i < std::ssize(x.dy); ++i)
            if (i / s.d % 20 < where) x.dy[static_cast<std::size_t>(i)] *= 1e4;
          check_backward(type, s, x);
        }
}

TEST_CASE("extremes: gradients of huge values under small upstream gradients, and the reverse") {
  for (const setup& s : operators(9))
    for (auto type : all_types)
      for (double size : {largest(type) / 1e3, 1 / (largest(type) / 1e3)}) {
        numbers x = random_numbers(s);
        for (double& v : x.v) v = size * std::tanh(v);
        for (double& g : x.dy) g /= 10 * size;
        check_backward(type, s, x);
      }
}

TEST_CASE("extremes: gradients of values whose differences lie beyond the range") {
  for (setup s : operators(9))
    for (bool save : {false, true})
      for (auto type : all_types)
        for (double spread : {1., 300.}) {
          s.save = save;
          numbers x = random_numbers(s);
          for (double& v : x.v) v = largest(type) * (v > 0 ? 1 : -1);
          for (double& k : x.k) k *= spread;
          for (double& g : x.dy) g *= 1e4 / largest(type);
          check_backward(type, s, x);
        }
}

TEST_CASE("extremes: gradients of biases in the thousands beside keys so large that no digit of a sum is theirs") {
  // One key has all of the weight, 1 to the last place, and the rest of the logit is w alone.
  for (auto type : {aft::dtype::f32, aft::dtype::f64})
    for (double size : {1e9, 1e15, 1e30})
      for (double w : {-3000., 350., 1000., 2000., 4093.}) {
        const setup s{
            .call = op::full, .B = 1, .Tq = 1, .Tk = 2, .d = 1, .hk = 1, .H = 1, .gate_fn = gate::none, .save = false};
        numbers x = random_numbers(s);
        x.k = {size, -size};
        x.w = {w, 0.5};
        check_backward(type, s, x);
      }
}

TEST_CASE("extremes: gradients of rows that see one huge value each, which is taken off itself") {
  // The two terms of dk, dv v and what the rows' averages make, are beyond the range, and their difference is not.
  for (setup s : operators(9))
    for (bool save : {false, true})
      for (auto type : all_types) {
        s.save = save;
        numbers x = random_numbers(s);
        for (std::size_t i = 0; i < x.k.size(); ++i) x.k[i] = 40 * static_cast<double>(i / 4 % 9);
        for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] = 0.4 * largest(type) * (static_cast<double>(i % 3) - 1);
        for (double& g : x.dy) g = g > 0 ? 8 : -8;
        check_backward(type, s, x);
      }
}

TEST_CASE("extremes: gates of arguments at the ends of the range") {
  for (auto g : {gate::none, gate::identity, gate::sigmoid, gate::relu, gate::tanh, gate::silu})
    for (auto type : all_types) {
      const setup s{.B = 1, .Tq = 16, .Tk = 3, .d = 1, .bias = bias_form::dense_tt, .gate_fn = g};
      numbers x = random_numbers(s);
      const double most = largest(type);
      x.q = {0, -0., 1e-3, -1e-3, 5, -5, 17, -17, 88, -88, 104, -104, most / 8, -most / 8, least(type), -least(type)};
      check_both(type, s, x);
    }
}

TEST_CASE("extremes: one key far above all others, at every place") {
  for (const setup& s : operators(20))
    for (double height : {20., 100., 1000.})
      for (index_t where : {0, 3, 10, 19}) {
        numbers x = random_numbers(s);
        for (index_t b = 0; b < s.B; ++b)
          for (index_t c = 0; c < 4; ++c) x.k[static_cast<std::size_t>((b * 20 + where) * 4 + c)] += height;
        for (auto type : all_types) check_both(type, s, x);
      }
}

TEST_CASE("extremes: heights that fall along the sequence, each key beyond the reach of the one before") {
  for (const setup& s : operators(20))
    for (double step : {-30., 30.}) {
      numbers x = random_numbers(s);
      for (std::size_t i = 0; i < x.k.size(); ++i) x.k[i] += step * static_cast<double>(i / 4 % 20);
      for (auto type : all_types) check_both(type, s, x);
      for (std::size_t i = 0; i < x.w.size(); ++i) x.w[i] -= step * static_cast<double>(i % 20);
      for (auto type : all_types) check_both(type, s, x);
    }
}
