// SPDX-License-Identifier: Apache-2.0
#include "setup.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>

namespace aft::test {

namespace {

index_t product(const std::vector<index_t>& extents) {
  index_t n = 1;
  for (index_t e : extents) n *= e;
  return n;
}

}  // namespace

setup completed(setup s) {
  if (!s.packed.empty()) {
    s.B = 1;
    s.Tq = std::accumulate(s.packed.begin(), s.packed.end(), index_t{0});
    s.Tk = std::accumulate(s.key_counts().begin(), s.key_counts().end(), index_t{0});
    s.grid = {s.Tk};
    s.queries = s.Tq;
  }
  if (s.call == op::conv) {
    s.Tk = product(s.grid);
    s.Tq = s.queries < 0 ? s.Tk : s.queries;
  }
  if (s.hk == 0) s.hk = s.d;
  return s;
}

std::vector<index_t> sequence_extents(const setup& s, index_t T, index_t channels) {
  if (s.call != op::conv || s.grid.size() == 1) return {s.B, T, channels};
  std::vector<index_t> e{s.B};
  e.insert(e.end(), s.grid.begin(), s.grid.end());
  e.push_back(channels);
  return e;
}

namespace {

/// Rows and columns of a bias, which in a packed call begin anew with each sequence.
index_t bias_length(const setup& s, const std::vector<index_t>& packed, index_t T) {
  return packed.empty() ? T : *std::max_element(packed.begin(), packed.end()) + s.spare;
}
index_t bias_queries(const setup& s) {
  return bias_length(s, s.packed, s.Tq);
}
index_t bias_keys(const setup& s) {
  return bias_length(s, s.key_counts(), s.Tk);
}

}  // namespace

std::vector<index_t> w_extents(const setup& s) {
  if (s.call == op::simple || s.call == op::conv) return {};
  switch (s.bias) {
    case bias_form::dense_tt: return {bias_queries(s), bias_keys(s)};
    case bias_form::dense_htt: return {s.H, bias_queries(s), bias_keys(s)};
    case bias_form::dense_bhtt:
      return {s.packed.empty() ? s.B : static_cast<index_t>(s.packed.size()), s.H, bias_queries(s), bias_keys(s)};
    case bias_form::dense_1htt: return {1, s.H, bias_queries(s), bias_keys(s)};
    case bias_form::banded_tj: return {bias_queries(s), s.win.width()};
    case bias_form::banded_htj: return {s.H, bias_queries(s), s.win.width()};
    default: return {};
  }
}

std::vector<index_t> u_extents(const setup& s) {
  if (s.call == op::simple || s.call == op::conv) return {};
  if (s.bias == bias_form::factorized_tn || s.bias == bias_form::factorized_mixed) return {bias_queries(s), s.n};
  if (s.bias == bias_form::factorized_htn) return {s.H, bias_queries(s), s.n};
  return {};
}

std::vector<index_t> f_extents(const setup& s) {
  if (s.call == op::simple || s.call == op::conv) return {};
  if (s.bias == bias_form::factorized_tn) return {bias_keys(s), s.n};
  if (s.bias == bias_form::factorized_htn || s.bias == bias_form::factorized_mixed) return {s.H, bias_keys(s), s.n};
  return {};
}

std::vector<index_t> filter_extents(const setup& s) {
  if (s.call != op::conv) return {};
  std::vector<index_t> e{s.H};
  e.insert(e.end(), s.taps.begin(), s.taps.end());
  return e;
}

std::vector<index_t> mask_extents(const setup& s) {
  const index_t per_batch = s.mask == mask_form::batch_keys || s.mask == mask_form::batch_pairs ? s.B : 1;
  const index_t per_query = s.pair_mask() ? s.Tq : 1;
  if (s.mask == mask_form::flat_keys) return {s.Tk};
  if (s.mask == mask_form::flat_pairs) return {per_query, s.Tk};
  return {per_batch, per_query, s.Tk};
}

numbers random_numbers(const setup& raw) {
  const setup s = completed(raw);
  std::mt19937_64 engine(s.seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::vector<double>& x, const std::vector<index_t>& extents, double scale) {
    x.resize(extents.empty() ? 0 : static_cast<std::size_t>(product(extents)));
    for (double& e : x) e = scale * normal(engine);
  };
  numbers x;
  fill(x.q, sequence_extents(s, s.Tq, s.d), s.q_scale);
  fill(x.k, sequence_extents(s, s.Tk, s.hk), s.k_scale);
  fill(x.v, sequence_extents(s, s.Tk, s.d), s.v_scale);
  fill(x.dy, sequence_extents(s, s.Tq, s.d), 1);
  fill(x.w, w_extents(s), s.w_scale);
  // A dot product of n normal deviates has standard deviation sqrt(n).
  const double factor = std::sqrt(s.w_scale / std::sqrt(static_cast<double>(s.n > 0 ? s.n : 1)));
  fill(x.u, u_extents(s), factor);
  fill(x.f, f_extents(s), factor);
  fill(x.r, filter_extents(s), s.w_scale);
  if (s.mask != mask_form::none) {
    x.mask.resize(static_cast<std::size_t>(product(mask_extents(s))));
    for (auto& m : x.mask) m = engine() % 3 != 0;
    // One query that sees nothing, or the first of a batch where the mask has no query axis.
    if (s.pair_mask()) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(s.Tk) && i < x.mask.size(); ++i) x.mask[i] = 0;
    }
  }
  if (s.lengths) {
    for (index_t b = 0; b < s.B; ++b)
      x.lengths.push_back(static_cast<std::int64_t>(engine() % static_cast<unsigned>(s.Tk + 1)));
    if (s.B > 1) x.lengths[0] = s.Tk;
  }
  if (s.query_lengths) {
    for (index_t b = 0; b < s.B; ++b)
      x.query_lengths.push_back(static_cast<std::int64_t>(engine() % static_cast<unsigned>(s.Tq + 1)));
    if (s.B > 2) x.query_lengths[1] = s.Tq;
    for (index_t b = 0; b < s.B; ++b) {
      const auto first = (b * s.Tq + x.query_lengths[static_cast<std::size_t>(b)]) * s.d;
      for (auto* rows : {&x.q, &x.dy})
        std::fill(rows->begin() + first, rows->begin() + (b + 1) * s.Tq * s.d,
                  std::numeric_limits<double>::quiet_NaN());
    }
  }
  return x;
}

std::string describe(const setup& s, dtype type) {
  static constexpr const char* ops[] = {"full", "local", "simple", "conv"};
  static constexpr const char* forms[] = {
      "dense (T,T)",        "dense (H,T,T)",           "dense (B,H,T,T)", "dense (1,H,T,T)", "factorized (T,n)",
      "factorized (H,T,n)", "factorized (T,n)(H,T,n)", "banded (T,j)",    "banded (H,T,j)"};
  static constexpr const char* masks[] = {"none", "(1,1,Tk)", "(B,1,Tk)", "(1,Tq,Tk)", "(B,Tq,Tk)", "(Tk)", "(Tq,Tk)"};
  static constexpr const char* gates[] = {"none", "identity", "sigmoid", "relu", "tanh", "silu"};
  const auto list = [](const std::vector<index_t>& x) {
    std::ostringstream out;
    for (index_t e : x) out << e << ' ';
    return out.str();
  };
  std::ostringstream out;
  out << ops[static_cast<int>(s.call)] << " of " << name_of(type) << " B " << s.B << " Tq " << s.Tq << " Tk " << s.Tk
      << " d " << s.d << " hk " << s.hk << " H " << s.H;
  if (s.call == op::full || s.call == op::local) out << ", " << forms[static_cast<int>(s.bias)] << " n " << s.n;
  if (s.call == op::local) out << ", window " << s.win.before << ' ' << s.win.after;
  if (s.call == op::conv) out << ", grid " << list(s.grid) << "taps " << list(s.taps);
  out << ", causal " << s.causal << ", mask " << masks[static_cast<int>(s.mask)] << ", lengths " << s.lengths
      << ", excluded " << (s.outside == outside::excluded) << ", gate " << gates[static_cast<int>(s.gate_fn)]
      << ", inputs " << name_of(s.inputs) << ", outputs " << name_of(s.outputs) << ", scales q " << s.q_scale << " k "
      << s.k_scale << " v " << s.v_scale << " w " << s.w_scale << ", seed " << s.seed << ", save " << s.save
      << s.narrow_average << ", in place " << s.in_place << ", first query " << s.first_query << ", query lengths "
      << s.query_lengths << ", narrow integers " << s.narrow_integers << ", full arithmetic "
      << (s.arithmetic == arithmetic::full) << ", generated " << s.generated;
  if (!s.packed.empty()) out << ", packed " << list(s.packed) << "keys " << list(s.key_counts()) << "spare " << s.spare;
  if (s.interrupted) out << ", interrupted";
  for (const index_t& n : s.cuts) out << (&n == s.cuts.data() ? ", in a stream " : " ") << n;
  return out.str();
}

}  // namespace aft::test
