// SPDX-License-Identifier: Apache-2.0
// What ranks do while messages are on their way, and communicators that wait for each.
#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <aft/distributed/in_process.hpp>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using aft::index_t;
using matrix_view = aft::tensor_view<float, 2>;

namespace {

constexpr index_t T = 30, d = 5;  // of each rank
constexpr int ranks = 3;

using bytes = std::span<const std::byte>;
using filled_bytes = std::span<std::byte>;

/// No more than the concept asks for.
struct waiting_communicator {
  aft::in_process of;
  int rank() const { return of.rank(); }
  int size() const { return of.size(); }
  void all_gather(bytes part, filled_bytes all) const { of.all_gather(part, all); }
  void send_recv(bytes out, int to, filled_bytes in, int from) const { of.send_recv(out, to, in, from); }
};
static_assert(aft::communicator<waiting_communicator> && !aft::starting_communicator<waiting_communicator>);
static_assert(aft::starting_communicator<const aft::in_process>);

/// Says what it is asked for, in order: `s` a message begins, `w` it is waited for, `m` one is made at once, `g`
/// records of all ranks are gathered; `d` before a `w` says that row `T / 2` of `done` is written.
struct watched_communicator {
  aft::in_process of;
  std::string* seen;
  const std::vector<float>* done;

  struct started {
    aft::in_process::started begun;
    const watched_communicator* by;
    void wait() {
      const float middle = (*by->done)[static_cast<std::size_t>(T / 2 * d)];
      *by->seen += std::isnan(middle) ? "w" : "dw";
      begun.wait();
    }
  };
  int rank() const { return of.rank(); }
  int size() const { return of.size(); }
  void all_gather(bytes part, filled_bytes all) const {
    *seen += 'g';
    of.all_gather(part, all);
  }
  void send_recv(bytes out, int to, filled_bytes in, int from) const {
    *seen += 'm';
    of.send_recv(out, to, in, from);
  }
  started start_send_recv(bytes out, int to, filled_bytes in, int from) const {
    *seen += 's';
    return {of.start_send_recv(out, to, in, from), this};
  }
};

/// Rank 1's first message that has begun never ends.
struct failing_communicator {
  aft::in_process of;

  struct started {
    aft::in_process::started begun;
    int rank;
    void wait() {
      if (rank == 1) throw aft::communication_error("the wire is cut");
      begun.wait();
    }
  };
  int rank() const { return of.rank(); }
  int size() const { return of.size(); }
  void all_gather(bytes part, filled_bytes all) const { of.all_gather(part, all); }
  void send_recv(bytes out, int to, filled_bytes in, int from) const { of.send_recv(out, to, in, from); }
  started start_send_recv(bytes out, int to, filled_bytes in, int from) const {
    return {of.start_send_recv(out, to, in, from), of.rank()};
  }
  void abort() const { of.abort(); }
};

/// One rank's tensors.
struct tensors {
  std::vector<float> q, k, v, dy, w, r;
  std::vector<float> y = blank(), dq = blank(), dk = blank(), dv = blank();
  explicit tensors(int rank)
      : q(numbers(T * d, rank + 1)),
        k(numbers(T * d, rank + 11)),
        v(numbers(T * d, rank + 21)),
        dy(numbers(T * d, rank + 31)),
        w(numbers(T * 5, rank + 41)),
        r(numbers(5, 51)) {}
  static std::vector<float> blank() { return std::vector<float>(static_cast<std::size_t>(T * d), std::nanf("")); }
  static std::vector<float> numbers(index_t n, int shift) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::sin(static_cast<float>(shift) + 0.7f * static_cast<float>(i));
    return x;
  }
  static matrix_view view(std::vector<float>& x) { return {x.data(), {T, d}}; }
};

enum class call { simple, local, conv };

template <class Comm>
void call_on(call which, const aft::options& o, bool backward, const Comm& comm, tensors& x) {
  const auto exec = aft::split{aft::cpu{.threads = 1}, comm};
  const matrix_view q = x.view(x.q), k = x.view(x.k), v = x.view(x.v), y = x.view(x.y), dy = x.view(x.dy);
  const matrix_view dq = x.view(x.dq), dk = x.view(x.dk), dv = x.view(x.dv);
  const aft::window window{2, 2};
  const aft::banded_bias band{matrix_view{x.w.data(), {T, 5}}};
  const aft::tensor_view<float, 2> filter{x.r.data(), {1, 5}};
  if (which == call::simple) {
    if (!backward) return aft::simple(exec, q, k, v, y, o);
    return aft::simple_backward(exec, q, k, v, dy, dq, dk, dv, o);
  }
  if (which == call::local) {
    if (!backward) return aft::local(exec, q, k, v, band, window, y, o);
    return aft::local_backward(exec, q, k, v, band, window, dy, dq, dk, dv, aft::no_grad, o);
  }
  if (!backward) return aft::conv(exec, q, k, v, filter, y, o);
  aft::conv_backward(exec, q, k, v, filter, dy, dq, dk, dv, aft::no_grad, o);
}

/// A call on every rank of communicators that `make(rank, tensors)` gives, and what ranks throw where it is asked for.
template <class Make>
std::vector<tensors> run(call which, const aft::options& o, bool backward, const Make& make,
                         std::vector<std::string>* thrown = nullptr) {
  std::vector<tensors> all;
  for (int r = 0; r < ranks; ++r) all.emplace_back(r);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        call_on(which, o, backward, make(rank, all[static_cast<std::size_t>(rank)]),
                all[static_cast<std::size_t>(rank)]);
      } catch (const aft::communication_error& e) {
        if (thrown == nullptr) throw;
        (*thrown)[static_cast<std::size_t>(rank)] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return all;
}

/// What each rank's communicator was asked for, after the two records with which every call begins.
std::vector<std::string> seen_by(call which, const aft::options& o, bool backward) {
  std::vector<std::string> seen(ranks);
  const auto group = aft::in_process::group(ranks);
  run(which, o, backward, [&](int rank, const tensors& x) {
    const auto r = static_cast<std::size_t>(rank);
    return watched_communicator{group[r], &seen[r], backward ? &x.dq : &x.y};
  });
  for (std::string& s : seen) {
    CHECK(s.substr(0, 2) == "gg");
    s.erase(0, 2);
  }
  return seen;
}

}  // namespace

TEST_CASE("rows that see their own rank's keys alone are done while others' keys are on their way") {
  aft::options o;
  o.outside = aft::outside::excluded;
  for (const call which : {call::local, call::conv}) {
    CHECK(seen_by(which, o, false) == std::vector<std::string>{"ssdwdw", "ssdwdw", "ssdwdw"});
    // Then gradients of others' keys go back.
    CHECK(seen_by(which, o, true) == std::vector<std::string>{"ssdwdwssdwdw", "ssdwdwssdwdw", "ssdwdwssdwdw"});
    o.causal = true;
    // Only the ranks behind need keys: rank 0 sends, rank 2 receives.
    CHECK(seen_by(which, o, false)[0] == "sdw");
    CHECK(seen_by(which, o, false)[1] == "sdw");
    CHECK(seen_by(which, o, false)[2] == "sdw");
    o.causal = false;
  }
}

TEST_CASE("sums of far keys are made while near keys are on their way") {
  // Of every part a record goes to all, of neighbours the rest that is far from the rows at an edge.
  // Rows inside a part take the whole parts of others as far, and are done before their near keys come.
  CHECK(seen_by(call::local, {}, false) == std::vector<std::string>{"ssgmmdwdw", "ssgmmdwdw", "ssgmmdwdw"});
  CHECK(seen_by(call::conv, {}, false) == std::vector<std::string>{"ssgmmdwdw", "ssgmmdwdw", "ssgmmdwdw"});
  CHECK(seen_by(call::conv, {}, true)[1] == "ssgmmdwdwssgdwdw");
}

TEST_CASE("full works on some batch elements while the keys of others are on their way") {
  // Two blocks of two elements; row 0 of the first one holds what the communicator looks at.
  constexpr index_t B = 4, rows_each = 3, channels = 1024;
  using tensor = aft::tensor_view<float, 3>;
  const auto run_full = [&](const auto& make) {
    std::vector<std::vector<float>> y(ranks, std::vector<float>(B * rows_each * channels, std::nanf("")));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        std::vector<float> q = tensors::numbers(B * rows_each * channels, rank + 1), k = q, v = q;
        std::vector<float> w = tensors::numbers(rows_each * rows_each * ranks, rank + 11);
        std::vector<float>& out = y[static_cast<std::size_t>(rank)];
        const auto view = [&](std::vector<float>& x) { return tensor{x.data(), {B, rows_each, channels}}; };
        const aft::dense_bias bias{matrix_view{w.data(), {rows_each, rows_each * ranks}}};
        aft::full(aft::split{aft::cpu{.threads = 1}, make(static_cast<std::size_t>(rank), out)}, view(q), view(k),
                  view(v), bias, view(out));
      });
    for (std::thread& t : threads) t.join();
    return y;
  };
  std::vector<std::string> seen(ranks);
  const auto group = aft::in_process::group(ranks), other = aft::in_process::group(ranks);
  const auto watched = run_full([&](std::size_t rank, const std::vector<float>& y) {
    return watched_communicator{group[rank], &seen[rank], &y};
  });
  // Keys and values of two elements from and to each of two ranks are eight messages.
  for (const std::string& s : seen)
    CHECK(s ==
          "gg"
          "ssssssss"
          "wwwwwwww"
          "ssssssss"
          "dwdwdwdwdwdwdwdw");
  CHECK(watched ==
        run_full([&](std::size_t rank, const std::vector<float>&) { return waiting_communicator{other[rank]}; }));
}

TEST_CASE("simple makes no messages but records of all ranks") {
  for (const bool causal : {false, true}) {
    aft::options o;
    o.causal = causal;
    CHECK(seen_by(call::simple, o, false) == std::vector<std::string>{"g", "g", "g"});
    CHECK(seen_by(call::simple, o, true) == std::vector<std::string>{"gg", "gg", "gg"});
  }
}

TEST_CASE("communicators that wait for each message give the same bits") {
  for (const call which : {call::simple, call::local, call::conv}) {
    for (const auto outside : {aft::outside::zero_bias, aft::outside::excluded}) {
      aft::options o;
      if (which != call::simple) o.outside = outside;
      for (const bool backward : {false, true}) {
        const auto one = aft::in_process::group(ranks), other = aft::in_process::group(ranks);
        const auto starting =
            run(which, o, backward, [&](int r, const tensors&) { return one[static_cast<std::size_t>(r)]; });
        const auto waiting = run(which, o, backward, [&](int r, const tensors&) {
          return waiting_communicator{other[static_cast<std::size_t>(r)]};
        });
        for (std::size_t r = 0; r < ranks; ++r) {
          if (backward) {
            CHECK(starting[r].dq == waiting[r].dq);
            CHECK(starting[r].dk == waiting[r].dk);
            CHECK(starting[r].dv == waiting[r].dv);
          } else {
            CHECK(starting[r].y == waiting[r].y);
          }
        }
      }
    }
  }
}

TEST_CASE("a message that fails while others are on their way ends the call on all ranks") {
  for (const call which : {call::local, call::conv}) {
    for (const bool backward : {false, true}) {
      const auto group = aft::in_process::group(ranks);
      std::vector<std::string> thrown(ranks);
      run(
          which, {}, backward,
          [&](int rank, const tensors&) { return failing_communicator{group[static_cast<std::size_t>(rank)]}; },
          &thrown);
      CHECK(thrown[1] == "the wire is cut");
      // Forward the others may have had what they need from it.
      if (!backward) continue;
      CHECK(thrown[0] == "aft::in_process: another rank gave up");
      CHECK(thrown[2] == "aft::in_process: another rank gave up");
    }
  }
}

TEST_CASE("messages between threads come in the order in which they began, whichever is waited for first") {
  const auto group = aft::in_process::group(2);
  const std::array<std::byte, 1> one{std::byte{1}}, two{std::byte{2}};
  group[0].send_recv(one, 1, {}, 1);
  group[0].send_recv(two, 1, {}, 1);
  std::array<std::byte, 1> a{}, b{}, c{};
  auto first = group[1].start_send_recv({}, 0, a, 0), second = group[1].start_send_recv({}, 0, b, 0);
  second.wait();
  first.wait();
  CHECK(a == one);
  CHECK(b == two);
  // What has been taken makes room.
  group[0].send_recv(one, 1, {}, 1);
  group[1].send_recv({}, 0, c, 0);
  CHECK(c == one);
}
