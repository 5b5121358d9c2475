// SPDX-License-Identifier: Apache-2.0
/// @file packed/dealt_sums.hpp  Gradients of a packed call whose bias is generated: rows for the caller's function.
///
/// The function gets the rows of a part one after the other, in the order of sequences, heads and queries. Of a bias
/// for each sequence that is the order in which the sequences have to run. Of one that they share a row is a sum over
/// them: each hands its rows to the sums, of all heads where those find room, else of one head's rows at a time, by
/// passes of their own that compute lse and average of the head once more.
#pragma once

#include <algorithm>
#include <cstring>

#include "../runtime/arena.hpp"
#include "schedule.hpp"

namespace aft::inline AFT_ISA::cpu_impl {

/// Sums over sequences of the gradient's rows, as long as the longest sequence has them.
template <class C>
class dealt_sums {
 public:
  [[gnu::cold, gnu::noinline]] dealt_sums(const backward_problem& p, const sequence_order& order)
      : longest_(p), rows_first_(p.packed->first_query), all_keys_(p.Tk) {
    longest_.packed = nullptr;
    longest_.Tq = p.packed->longest_queries;
    longest_.Tk = p.packed->longest_keys;
    if (p.packed->win.bounded) place_window(longest_, p.packed->win, rows_first_, false);
    const band& win = longest_.win;
    width_ = win.bounded ? min_of(max_of(win.before + win.after + 1, 0), longest_.Tk) : longest_.Tk;
    heads_ = p.bias.heads;
    rows_ = max_of(longest_.Tq, 1);
    const index_t row = max_of(width_, 1);
    if (heads_ * rows_ * row > most) {
      heads_ = 1;
      rows_ = min_of(rows_, max_of(most / row, 1));
    }
    parts_ = min_of(min_of(max_of(most / (heads_ * rows_ * row), 1), most_parts), order.count);
  }

  index_t parts() const { return parts_; }
  index_t rows() const { return rows_; }
  /// Whether gradients of the bias take passes of their own, of each head and some rows.
  bool blocked() const { return heads_ < longest_.bias.heads || rows_ < longest_.Tq; }
  std::size_t bytes() const { return static_cast<std::size_t>(parts_ * of_part()) * sizeof(C); }

  void lay_out(scratch& memory) {
    sums_ = memory.take<C>(parts_ * of_part());
    if (blocked() && !keys_nest()) keys_ = memory.take<std::byte>(all_keys_ * head_channels() * key_size());
  }

  /// Sums of the heads from h on, rows from r0 on.
  [[gnu::cold]] void begin(index_t h, index_t r0, int threads) {
    first_head_ = h;
    first_ = r0;
    parallel_for(parts_, threads, [&](index_t part, int) { std::fill_n(sums_ + part * of_part(), of_part(), C(0)); });
  }

  /// Takes the rows of a sequence, to the sums of a part.
  struct taker {
    const dealt_sums* to;
    index_t part;
    generated_rows rows;

    taker(const dealt_sums& sums, index_t i) : to(&sums), part(i % sums.parts_) {
      rows.f = this;
      rows.take = &taker::take;
      rows.parts = most_parts;
      rows.wide = sizeof(C) == sizeof(double);
    }
    taker(const taker&) = delete;
    taker& operator=(const taker&) = delete;

    /// `one` begins with row r0 of its sequence.
    void redirect(backward_problem& one, index_t r0) const {
      one.dbias.rows = &rows;
      one.dbias.rows_first = r0;
    }

   private:
    static void take(const void* f, index_t, index_t, index_t h, index_t t, index_t s0, const void* dw,
                     index_t n) noexcept {
      const auto* const own = static_cast<const taker*>(f);
      const C* const from = static_cast<const C*>(dw);
      C* const sums = own->to->row(own->part, h, t) + (s0 - own->to->first_key(t));
      for (index_t i = 0; i < n; ++i) sums[i] += from[i];
    }
  };

  /// The call on head h alone, for the gradient of the bias: its channels, and the key channels that they use. A head
  /// whose channels share some with another head's has copies.
  [[gnu::cold, gnu::noinline]] backward_problem of_head(const backward_problem& p, index_t h, int threads) const {
    backward_problem one = p;
    one.dq = one.dk = one.dv = {};
    const index_t channels = head_channels(), first = h * channels;
    const auto shift = [](field& f, index_t c) {
      if (f.set) f.data += c * f.sc * size_of(f.type);
    };
    for (field* f : {&one.q, &one.v, &one.dy, &one.average}) shift(*f, first);
    one.d = channels;
    one.bias.heads = one.dbias.heads = 1;
    one.bias.rows_head = h;
    if (channels == 0) return one;
    const index_t shared = p.d / p.hk;
    one.hk = keys_nest() ? max_of(channels / shared, 1) : channels;
    if (keys_nest()) {
      for (field* f : {&one.k, &one.lse}) shift(*f, first / shared);
      return one;
    }
    // A trial has no memory, and reads none.
    one.k = {keys_ != nullptr ? keys_ : p.k.data, p.k.type, true, 0, {0, 0, channels}, 1};
    if (keys_ == nullptr) return one;
    parallel_for(p.Tk, threads, item_order::runs, [&](index_t s, int) {
      const std::byte* const from = p.k.data + s * p.k.sx[2] * key_size();
      std::byte* const to = keys_ + s * channels * key_size();
      for (index_t c = 0; c < channels; ++c)
        std::memcpy(to + c * key_size(), from + (first + c) / shared * p.k.sc * key_size(),
                    static_cast<std::size_t>(key_size()));
    });
    return one;
  }

  /// Adds up the parts, and gives the caller's function its rows.
  [[gnu::cold, gnu::noinline]] void hand_out(const generated_rows& to, int threads) const {
    const index_t end = min_of(first_ + rows_, longest_.Tq);
    parallel_for(to.parts, threads, [&](index_t part, int) {
      for (index_t h = 0; h < heads_; ++h) {
        const index_t before = (first_head_ + h) * longest_.Tq;
        for (index_t t = first_ + (part + to.parts - (before + first_) % to.parts) % to.parts; t < end; t += to.parts) {
          const index_t s0 = first_key(t), n = end_key(t) - s0;
          if (n <= 0) continue;
          C* const sum = row(0, h, t);
          for (index_t i = 1; i < parts_; ++i) {
            const C* const from = row(i, h, t);
            for (index_t s = 0; s < n; ++s) sum[s] += from[s];
          }
          to.take(to.f, part, 0, first_head_ + h, rows_first_ + t, s0, sum, n);
        }
      }
    });
  }

 private:
  // Half of a call's 64 MiB, so that eight heads of a thousand positions are one pass; the rest is the engines'.
  static constexpr index_t most = (index_t{32} << 20) / static_cast<index_t>(sizeof(C));
  // As many threads as can have short sequences at a time. Each part costs a pass over its sums.
  static constexpr index_t most_parts = 16;

  index_t of_part() const { return heads_ * rows_ * width_; }
  index_t first_key(index_t t) const {
    return longest_.win.bounded ? min_of(max_of(t - longest_.win.before, 0), longest_.Tk) : 0;
  }
  index_t end_key(index_t t) const {
    return longest_.win.bounded ? min_of(t + longest_.win.after + 1, longest_.Tk) : longest_.Tk;
  }
  /// Of head h, counted from the first one that is summed.
  C* row(index_t part, index_t h, index_t t) const {
    return sums_ + part * of_part() + (h * rows_ + t - first_) * width_;
  }

  index_t head_channels() const { return longest_.d / longest_.bias.heads; }
  index_t key_size() const { return size_of(longest_.k.type); }
  /// Whether a head's channels have key channels of their own, or all the same one.
  bool keys_nest() const {
    const index_t channels = head_channels();
    if (channels == 0) return true;
    const index_t shared = longest_.d / longest_.hk;
    return channels % shared == 0 || shared % channels == 0;
  }

  backward_problem longest_;  ///< a sequence that has every position
  index_t rows_first_;        ///< the position of its first row
  index_t all_keys_;
  index_t width_ = 0, heads_ = 1, rows_ = 1, parts_ = 1;
  index_t first_head_ = 0, first_ = 0;
  C* sums_ = nullptr;
  std::byte* keys_ = nullptr;
};

struct earlier_sequence {
  bool operator()(const sequence_order::entry& a, const sequence_order::entry& b) const { return a.n < b.n; }
};

/// Every gradient that is set, that of a generated bias among them.
template <class C>
[[gnu::cold, gnu::noinline]] void packed_dealt_backward(const backward_problem& p, const cpu& given,
                                                        work_estimate estimate, const sequence_gradients& run) {
  scratch memory(given);
  const sequence_order order = order_sequences(p, true, estimate, memory);
  const cpu exec = limit_threads(given, 2 * order.work);
  if (p.bias.batch > 1 || order.count <= 1) {
    const auto in_order = [&](index_t i, int, const cpu& own) { run(sequence_of(p, order.at(i).n), own); };
    const sequence_job job(in_order);
    sequence_schedule schedule(order, 1, exec);
    schedule.measure(room_of<C>(p, 0), job);
    std::sort(order.entries, order.entries + order.count, earlier_sequence{});
    return schedule.run(memory.take<std::byte>(static_cast<index_t>(schedule.bytes())), job);
  }
  dealt_sums<C> sums(p, order);
  backward_problem head;
  index_t r0 = 0;
  const auto whole = [&](index_t i, int, const cpu& own) {
    backward_problem one = sequence_of(p, order.at(i).n);
    const typename dealt_sums<C>::taker taker(sums, i);
    one.folds_once = sums.blocked();
    if (sums.blocked()) {
      one.dbias = {};
    } else {
      taker.redirect(one, 0);
    }
    run(one, own);
  };
  const auto block = [&](index_t i, int, const cpu& own) {
    const index_t end = min_of(r0 + sums.rows(), order.at(i).queries);
    if (end <= r0) return;
    backward_problem one = sequence_of(head, order.at(i).n, r0, end);
    one.folds_once = true;
    const typename dealt_sums<C>::taker taker(sums, i);
    taker.redirect(one, r0);
    run(one, own);
  };
  const sequence_job all_of_one(whole), block_of_one(block);
  const std::size_t room = room_of<C>(p, sums.bytes());
  sequence_schedule schedule(order, sums.blocked() ? 0 : sums.parts(), exec), blocks(order, sums.parts(), exec);
  schedule.measure(room, all_of_one);
  std::size_t bytes = schedule.bytes();
  if (sums.blocked()) {
    head = sums.of_head(p, 0, 1);
    // Of all of them, as in packed/backward.hpp.
    for (; r0 < p.packed->longest_queries; r0 += sums.rows()) blocks.measure(room, block_of_one);
    r0 = 0;
    bytes = max_of(bytes, blocks.bytes());
  }
  sums.lay_out(memory);
  std::byte* const arenas = memory.take<std::byte>(static_cast<index_t>(bytes));

  // Nothing below takes memory of the caller's, so from here on the call cannot fail half-way.
  const int threads = thread_count(exec);
  if (!sums.blocked()) sums.begin(0, 0, threads);
  schedule.run(arenas, all_of_one);
  if (!sums.blocked()) return sums.hand_out(*p.dbias.rows, threads);
  for (index_t h = 0; h < p.bias.heads; ++h) {
    head = sums.of_head(p, h, threads);
    for (r0 = 0; r0 < p.packed->longest_queries; r0 += sums.rows()) {
      sums.begin(h, r0, threads);
      blocks.run(arenas, block_of_one);
      sums.hand_out(*p.dbias.rows, threads);
    }
  }
}

}  // namespace aft::inline AFT_ISA::cpu_impl
