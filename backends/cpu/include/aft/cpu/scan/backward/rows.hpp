// SPDX-License-Identifier: Apache-2.0
/// @file scan/backward/rows.hpp  Rows as the backward scan wants them: g = dy gate(q), o and e^-lse; and dq on the way.
#pragma once

#include "../../math/gates.hpp"
#include "../keys.hpp"
#include "kernel_causal.hpp"

namespace aft::inline AFT_ISA::cpu_impl::scan {

/// Rows whose average and weight the forward fold gave again, at lane positions; row t is t - t0.
template <class C>
struct known_rows {
  panel<C> o, inverse, power, base;
  index_t t0 = 0;
  bool rebased = false;
  bool same = false;  ///< one row for all, which sees keys and has no base
};

/// The buffers of one thread for a panel of rows.
template <class C>
struct row_workspace {
  static constexpr index_t arrays = 9;
  C *dy, *q, *o, *lse, *g, *inverse, *power, *base, *dq;

  row_workspace(C* at, index_t width) {
    cut_arrays(at, scan_tuning<C>::rows * width, {&dy, &q, &o, &lse, &g, &inverse, &power, &base, &dq});
  }
  static index_t size(index_t width) { return arrays * scan_tuning<C>::rows * width; }
};

template <class C>
class gradient_rows {
 public:
  gradient_rows(const backward_problem& p, const cache_policy& policy, bool given, bool with_average, bool with_weights)
      : gate_(p.gate_fn),
        by_row_(given && p.causal),
        with_average_(with_average),
        with_weights_(with_weights),
        dy_(p.dy, p.d, 1),
        q_(p.q, p.d, 1),
        average_(p.average, p.d, 1),
        lse_(p.lse, p.d, p.d / p.hk),
        dq_(p.dq, p.d, 1),
        uncached_(policy.uncached_rows),
        streamed_(policy.streamed),
        step_(p.causal ? -1 : 1) {}

  /// Rows [t, t + n). `zeros` is a row of them. Writes dq where it is wanted and `write_dq`.
  reverse_rows<C> read(const segment& x, index_t t, index_t n, const row_workspace<C>& workspace,
                       const known_rows<C>& known, C* zeros, bool write_dq) const {
    const row_inputs<C> in = open_inputs(x, t, n, workspace, write_dq);
    reverse_rows<C> rows = open(x, t, n, workspace, known, zeros);
    rows.g = gate_ == gate::none ? in.dy : panel<C>{workspace.g, x.width};
    if (by_row_) with_weights_ ? weigh(n, 0, x.width, in.lse, rows) : find_empty(n, x.width, in.lse, rows);
    if (gate_ == gate::none) {
      if (write_dq && dq_.set()) dq_.write(x, t, n, {zeros, 0});
      return rows;
    }
    gate_rows(n, 0, x.width, in, rows);
    if (in.dq.data != nullptr) dq_.close(x, t, n, in.dq);
    return rows;
  }

  /// Whether add_causal may do for whole panels.
  bool causal_sums(const known_rows<C>& known) const { return gate_ == gate::sigmoid && !known.rebased; }

  /// As read, for a panel of scan_tuning::rows rows, which it adds to the sums of `job` with their keys.
  void add_causal(const segment& x, index_t t, const row_workspace<C>& workspace, const known_rows<C>& known, C* zeros,
                  bool write_dq, reverse_job<C>& job) const {
    const row_inputs<C> in = open_inputs(x, t, scan_tuning<C>::rows, workspace, write_dq);
    add_causal(x, t, workspace, known, zeros, in, job.keys, job);
    if (in.dq.data != nullptr) dq_.close(x, t, scan_tuning<C>::rows, in.dq);
  }
  /// Of rows and keys that lie as T.
  template <class T>
  void add_causal_as(const segment& x, index_t t, const row_workspace<C>& workspace, const known_rows<C>& known,
                     C* zeros, bool write_dq, const reverse_keys<C, T>& keys, reverse_job<C>& job) const {
    row_inputs<C, T> in = inputs_as<T>(x, t, write_dq);
    if (by_row_) in.lse = lse_.read(x, t, scan_tuning<C>::rows, workspace.lse);
    add_causal(x, t, workspace, known, zeros, in, keys, job);
  }

  /// The row that stands for all where they see the same keys, as the forward call left it in the first of them.
  void read_shared(const segment& x, const row_workspace<C>& workspace, C* zeros, const known_rows<C>& to) const {
    const panel<C> o = with_average_ ? average_.read(x, 0, 1, workspace.o) : panel<C>{zeros, 0};
    std::copy_n(o.data, x.width, to.o.data + x.lane);
    reverse_rows<C> row{{}, {}, at(to.inverse, 0, x), at(to.power, 0, x), at(to.base, 0, x)};
    weigh(1, 0, x.width, lse_.read(x, 0, 1, workspace.lse), row);
  }

  /// What all rows share where one is known for all, at lane positions.
  static reverse_rows<C> shared(const known_rows<C>& known) {
    reverse_rows<C> rows;
    rows.o = known.o;
    rows.inverse = known.inverse;
    rows.power = known.power;
    return rows;
  }

  /// Whether add_uniform may do for whole panels, if enter_uniform_references agrees.
  bool same(const known_rows<C>& known) const { return known.same && gate_ == gate::sigmoid; }

  /// As read, for rows [t, t + n), a multiple of scan_tuning::rows, which it adds to the sums of `job` as well.
  void add_uniform(const segment& x, index_t t, index_t n, const row_workspace<C>& workspace,
                   const known_rows<C>& known, bool write_dq, reverse_job<C>& job, const narrow_entries* narrow) const {
    constexpr index_t rows = scan_tuning<C>::rows, few = scan_tuning<C>::uncached_rows;
    job.rows = given_again(x, t, known);
    job.rows.g = {workspace.g, x.width};
    if (try_narrow_rows(narrow, narrow_rows{this, &x, t, n, write_dq, &job})) return;
    const bool in_place = lies_as<C>(x, write_dq);
    const index_t together = panel_rows<C>(uncached_ && in_place);
    const auto open = [&](index_t from, index_t count) { return open_inputs(x, from, count, workspace, write_dq); };
    const auto add = [&](const row_inputs<C>& in, index_t count) {
      together == few ? uniform_panels<C, few>(job, in, x, count) : uniform_panels<C, rows>(job, in, x, count);
    };
    for_panels(t, t + n, together, in_place, open, add, [&](index_t from, index_t count, const row_inputs<C>& in) {
      if (in.dq.data != nullptr) dq_.close(x, from, count, in.dq);
    });
  }

  struct narrow_rows {
    static constexpr narrow_loop loop = narrow_loop::row_gradients;
    const gradient_rows* own;
    const segment* x;
    index_t t, n;
    bool write_dq;
    reverse_job<C>* job;

    template <class T>
    bool run() const {
      if (!own->template lies_as<T>(*x, write_dq)) return false;
      uniform_panels<C, scan_tuning<C>::rows>(*job, own->template inputs_as<T>(*x, t, write_dq), *x, n);
      return true;
    }
  };

  /// Whether dy, q and dq are read and written where they lie, as T.
  template <class T>
  bool lies_as(const segment& x, bool write_dq) const {
    const auto lies = [&](const columns<C>& of) { return of.template lies_as<T>(x); };
    return lies(dy_) && lies(q_) && (!write_dq || !dq_.set() || lies(dq_));
  }

  /// The o of rows [t0, t1) that is nearest to 0, or 0 where they differ in sign: the centre for which no o - c is
  /// larger than o, but much smaller where all o are nearly equal. A row that saw nothing has no say.
  void find_centre(const segment& x, index_t t0, index_t t1, const row_workspace<C>& workspace,
                   const known_rows<C>& known, C* centre) const {
    constexpr index_t rows = scan_tuning<C>::rows;
    if (!with_average_) return;
    // One panel's buffers that read() fills later.
    C* const low = workspace.dy;
    C* const high = workspace.q;
    std::fill_n(low, x.width, exp_constants<C>::largest);
    std::fill_n(high, x.width, -exp_constants<C>::largest);
    if (!by_row_ && known.o.stride == 0) t1 = min_of(t1, t0 + 1);
    for (index_t t = t0; t < t1; t += rows) {
      const index_t n = min_of(rows, t1 - t);
      const panel<C> o = by_row_ ? average_.read(x, t, n, workspace.o) : at(known.o, t - known.t0, x);
      if (widen(x, n, o, low, high))
        widen_by_zeros(x, n, o, by_row_ ? lse_.read(x, t, n, workspace.lse) : at(known.inverse, t - known.t0, x), low,
                       high);
    }
    for (index_t i = 0; i < x.width; ++i) {
      const bool some = low[i] <= high[i];
      centre[x.lane + i] = !some ? C(0) : (low[i] > C(0) ? low[i] : high[i] < C(0) ? high[i] : C(0));
    }
  }

 private:
  template <class T>
  row_inputs<C, T> inputs_as(const segment& x, index_t t, bool write_dq) const {
    row_inputs<C, T> in;
    in.dy = dy_.template in_place<T>(x, t);
    in.q = q_.template in_place<T>(x, t);
    if (write_dq && dq_.set()) in.dq = dq_.template in_place<T>(x, t);
    in.uncached = uncached_;
    return in;
  }

  template <class T>
  void add_causal(const segment& x, index_t t, const row_workspace<C>& workspace, const known_rows<C>& known, C* zeros,
                  const row_inputs<C, T>& in, const reverse_keys<C, T>& keys, reverse_job<C>& job) const {
    constexpr index_t n = scan_tuning<C>::rows;
    job.rows = open(x, t, n, workspace, known, zeros);
    job.rows.g = {workspace.g, x.width};
    for (index_t i = 0; i < x.width; i += lanes<C>) {
      i = by_row_ ? add_causal_rows<C, true>(job, in, keys, x, i) : add_causal_rows<C, false>(job, in, keys, x, i);
      if (i >= x.width) break;
      if (by_row_) weigh(n, i, i + lanes<C>, in.lse, job.rows);
      gate_rows(n, i, i + lanes<C>, in, job.rows);
      for (index_t r = n - 1; r >= 0; --r) reverse_any_with_key<C>(job, keys, x.lane + i, i, r);
    }
  }

  row_inputs<C> open_inputs(const segment& x, index_t t, index_t n, const row_workspace<C>& workspace,
                            bool write_dq) const {
    row_inputs<C> in;
    in.dy = dy_.read(x, t, n, workspace.dy);
    if (by_row_) in.lse = lse_.read(x, t, n, workspace.lse);
    if (gate_ == gate::none) return in;
    in.q = q_.read(x, t, n, workspace.q);
    if (write_dq && dq_.set()) in.dq = dq_.open(x, t, workspace.dq);
    in.streamed = streamed_ && in.dq.data != nullptr && dq_.direct(x) && on_lines(in.dq);
    in.uncached = uncached_;
    return in;
  }

  /// Without averages of exactly 0, whose rows may have seen nothing. Says whether there are any.
  [[gnu::flatten]] static bool widen(const segment& x, index_t n, const panel<C>& o, C* low, C* high) {
    const vec<C> zero(C(0));
    auto zeros = differs<C>(zero, zero);
    for (index_t i = 0; i < x.width; i += lanes<C>) {
      vec<C> least = load(low + i);
      vec<C> most = load(high + i);
      for (index_t r = 0; r < n; ++r) {
        const vec<C> value = load(o.row(r) + i);
        const auto none = value == zero;
        const auto odd = none | ((xsimd::abs)(value) > vec<C>(exp_constants<C>::largest));
        zeros = zeros | none;
        least = min_ignoring_nan<C>(least, xsimd::select(odd, least, value));
        most = max_ignoring_nan<C>(most, xsimd::select(odd, most, value));
      }
      store(low + i, least);
      store(high + i, most);
    }
    return xsimd::any(zeros);
  }

  /// `weight` is a row's lse, or what e^-lse has for a mantissa: -inf or 0 where the row saw nothing.
  [[gnu::noinline, gnu::flatten]] void widen_by_zeros(const segment& x, index_t n, const panel<C>& o,
                                                      const panel<C>& weight, C* low, C* high) const {
    const vec<C> zero(C(0));
    const vec<C> nothing(by_row_ ? -std::numeric_limits<C>::infinity() : C(0));
    for (index_t r = 0; r < n; ++r) {
      for (index_t i = 0; i < x.width; i += lanes<C>) {
        const auto counts = (load(o.row(r) + i) == zero) & differs<C>(load(weight.row(r) + i), nothing);
        const vec<C> least = load(low + i);
        const vec<C> most = load(high + i);
        store(low + i, xsimd::select(counts, (xsimd::min)(least, zero), least));
        store(high + i, xsimd::select(counts, (xsimd::max)(most, zero), most));
      }
    }
  }

  static reverse_rows<C> given_again(const segment& x, index_t t, const known_rows<C>& known) {
    reverse_rows<C> rows;
    rows.o = at(known.o, t - known.t0, x);
    rows.inverse = at(known.inverse, t - known.t0, x);
    rows.power = at(known.power, t - known.t0, x);
    rows.base = at(known.base, t - known.t0, x);
    rows.rebased = known.rebased;
    return rows;
  }

  static panel<C> at(const panel<C>& from, index_t r, const segment& x) { return {from.row(r) + x.lane, from.stride}; }

  /// What read() and add_causal() begin with: places of rows [t, t + n), but for g.
  reverse_rows<C> open(const segment& x, index_t t, index_t n, const row_workspace<C>& workspace,
                       const known_rows<C>& known, C* zeros) const {
    reverse_rows<C> rows;
    if (by_row_) {
      rows.o = with_average_ ? average_.read(x, t, n, workspace.o) : panel<C>{zeros, 0};
      rows.inverse = {workspace.inverse, x.width};
      rows.power = {workspace.power, x.width};
      rows.base = {workspace.base, x.width};
    } else {
      rows = given_again(x, t, known);
    }
    return rows;
  }

  /// e^-lse as inverse * 2^power * e^base, columns [i, end).
  [[gnu::flatten]] static void weigh(index_t n, index_t i, index_t end, const panel<C>& lse, reverse_rows<C>& rows) {
    const vec<C> zero(C(0));
    const vec<C> range(exp_constants<C>::range);
    for (; i < end; i += lanes<C>) {
      for (index_t r = 0; r < n; ++r) {
        const vec<C> minus = -load(lse.row(r) + i);
        const auto hidden = minus == vec<C>(std::numeric_limits<C>::infinity());
        const auto moderate = (xsimd::abs)(minus) <= range;
        const split_exp<C> e = exp_weight<C>(xsimd::select(moderate, minus, zero));
        // 1 where finite: a row whose lse is NaN or +inf has no weights.
        const vec<C> one = vec<C>(C(1)) + minus * zero;
        store(rows.inverse.row(r) + i, xsimd::select(hidden, zero, xsimd::select(moderate, e.mantissa, one)));
        store(rows.power.row(r) + i, xsimd::select(hidden, vec<C>(-empty_exponent<C>), xsimd::floor(e.exponent)));
        const vec<C> base = xsimd::select(moderate | ((xsimd::abs)(minus) > vec<C>(exp_constants<C>::largest)), zero,
                                          xsimd::select(minus == minus, minus, zero));
        store(rows.base.row(r) + i, base);
        if (xsimd::any(differs<C>(base, zero))) rows.rebased = true;
      }
    }
  }

  /// Of those only whether they are 0, which is all that dq asks.
  [[gnu::noinline]] static void find_empty(index_t n, index_t width, const panel<C>& lse, const reverse_rows<C>& rows) {
    const vec<C> zero(C(0)), one(C(1)), nothing(-std::numeric_limits<C>::infinity());
    for (index_t r = 0; r < n; ++r)
      for (index_t i = 0; i < width; i += lanes<C>)
        store(rows.inverse.row(r) + i, xsimd::select(load(lse.row(r) + i) == nothing, zero, one));
  }

  /// g = dy gate(q) and, where it has a place, dq = dy gate'(q) o, columns [i, end). A switch inside the loop costs a
  /// third of it.
  template <class T>
  void gate_rows(index_t n, index_t i, index_t end, const row_inputs<C, T>& in, const reverse_rows<C>& rows) const {
    if (gate_ == gate::sigmoid) {
      gate_rows(n, i, end, in, rows,
                [](const vec<C>& up, const vec<C>& z) { return sigmoid_gradient<C>(up, quotient_exp_minus<C>(z)); });
    } else {
      gate_rows(n, i, end, in, rows, [this](const vec<C>& up, const vec<C>& z) {
        const gate_pair<C> both = gate_both<C>(gate_, z);
        return gate_gradient_pair<C>{up * both.value, up * both.slope};
      });
    }
  }
  template <class T, class Gate>
  [[gnu::flatten]] void gate_rows(index_t n, index_t begin, index_t end, const row_inputs<C, T>& in,
                                  const reverse_rows<C>& rows, const Gate& both) const {
    const reverse_rows<C> to = rows;
    const panel<T> dy = in.dy, q = in.q, dq = in.dq;
    const bool streamed = in.streamed;
    const prefetch_lines<C> next_dy(dy, step_), next_q(q, step_);
    const vec<C> zero(C(0));
    for (index_t r = n - 1; r >= 0; --r) {
      for (index_t i = begin; i < end; i += lanes<C>) {
        next_dy.prefetch_into(r, i);
        next_q.prefetch_into(r, i);
        const vec<C> up = load_as<C>(dy.row(r) + i);
        const gate_gradient_pair<C> gate = both(up, load_as<C>(q.row(r) + i));
        store(to.g.row(r) + i, gate.g);
        if (dq.data == nullptr) continue;
        const vec<C> value = gate.slope * load(to.o.row(r) + i);
        put_gradient<C>(dq.row(r) + i, xsimd::select(load(to.inverse.row(r) + i) == zero, zero, value), streamed);
      }
    }
  }

  gate gate_;
  bool by_row_;  ///< average and lse are what the caller gave, and differ from row to row
  bool with_average_, with_weights_;
  columns<C> dy_, q_, average_, lse_, dq_;
  bool uncached_, streamed_;
  index_t step_;  ///< of the panels, see backward_pass::panels
};

}  // namespace aft::inline AFT_ISA::cpu_impl::scan
