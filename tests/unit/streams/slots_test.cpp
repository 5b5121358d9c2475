// SPDX-License-Identifier: Apache-2.0
// Slots of a stream as their owner handles them: named, skipped, saved, forked and set back, and what is refused.
#include <cstring>
#include <random>

#include "engines/own_engine.hpp"
#include "call/slots.hpp"
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::check_parts;
using aft::test::error_of;
using aft::test::random_floats;
using aft::test::slots;

constexpr index_t d = 10, hk = 5, taps = 4;

/// Sequences of T positions each, and the operators on parts of them.
struct data {
  static constexpr index_t T = 90;
  index_t B;
  std::vector<float> q, k, v, w, filter;
  static constexpr aft::window win{7, 1};

  explicit data(index_t batch)
      : B(batch),
        q(random_floats(B * T * d, 1)),
        k(random_floats(B * T * hk, 2)),
        v(random_floats(B * T * d, 3)),
        w(random_floats(hk * T * T, 4)),
        filter(random_floats(hk * taps, 5)) {}

  static aft::stream_spec spec(int op) {
    switch (op) {
      case 0: return aft::stream_spec::simple<float>(d, hk);
      case 1: return aft::stream_spec::local<float>(d, hk, win);
      case 2: return aft::stream_spec::conv<float>(d, hk, taps);
      default: return aft::stream_spec::full<float>(d, hk, T);
    }
  }
  /// Positions of batch element b, n of them from t on: copies, one after the other.
  static void gather(const std::vector<float>& x, index_t b, index_t t, index_t n, index_t channels,
                     std::vector<float>& to) {
    const auto at = x.begin() + (b * T + t) * channels;
    to.insert(to.end(), at, at + n * channels);
  }
  template <class Y>
  void call(int op, const std::vector<float>& qs, const std::vector<float>& ks, const std::vector<float>& vs,
            index_t batch, index_t n, const Y& y, const aft::options& o, int threads = 1) const {
    const aft::tensor_view<const float, 3> qv{qs.data(), {batch, n, d}}, kv{ks.data(), {batch, n, hk}},
        vv{vs.data(), {batch, n, d}};
    const aft::cpu exec{.threads = threads};
    const aft::dense_bias bias{aft::tensor_view<const float, 3>{w.data(), {hk, T, T}}};
    switch (op) {
      case 0: return aft::simple(exec, qv, kv, vv, y, o);
      case 1: return aft::local(exec, qv, kv, vv, bias, win, y, o);
      case 2: return aft::conv(exec, qv, kv, vv, aft::tensor_view<const float, 2>{filter.data(), {hk, taps}}, y, o);
      default: return aft::full(exec, qv, kv, vv, bias, y, o);
    }
  }
  /// The n positions from t on of sequence b, which go on from a slot.
  std::vector<float> next(int op, const slots& to, index_t slot, index_t b, index_t t, index_t n) const {
    std::vector<float> qs, ks, vs, y(static_cast<std::size_t>(n * d));
    gather(q, b, t, n, d, qs);
    gather(k, b, t, n, hk, ks);
    gather(v, b, t, n, d, vs);
    const std::int64_t id[] = {slot};
    call(op, qs, ks, vs, 1, n, aft::tensor_view<float, 3>{y.data(), {1, n, d}},
         {.causal = true, .stream = to.view(), .slot_ids = aft::tensor_view<const std::int64_t, 1>{id, {1}}});
    return y;
  }
};

}  // namespace

TEST_CASE("slots: many at positions of their own, some skipped, with any number of threads") {
  constexpr index_t count = 64;
  const data x(count);
  for (int op = 0; op < 4; ++op) {
    CAPTURE(op);
    const slots all(data::spec(op), count), alone(data::spec(op), 1);
    std::vector<std::vector<float>> got(count);
    std::vector<index_t> at(count, 0);
    std::mt19937 random(7);
    for (int round = 0; round < 12; ++round) {
      const index_t n = 1 + static_cast<index_t>(random() % 5);
      std::vector<std::int32_t> ids;
      std::vector<std::int64_t> rows;
      std::vector<float> qs, ks, vs;
      std::vector<index_t> order(count);
      for (index_t i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (index_t b : order) {
        const bool skipped = random() % 4 == 0;
        ids.push_back(skipped ? -1 : static_cast<std::int32_t>(b));
        rows.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(n + 1)));
        data::gather(x.q, b, at[static_cast<std::size_t>(b)], n, d, qs);
        data::gather(x.k, b, at[static_cast<std::size_t>(b)], n, hk, ks);
        data::gather(x.v, b, at[static_cast<std::size_t>(b)], n, d, vs);
      }
      std::vector<float> y(qs.size(), 42);
      x.call(op, qs, ks, vs, count, n, aft::tensor_view<float, 3>{y.data(), {count, n, d}},
             {.causal = true,
              .query_lengths = aft::tensor_view<const std::int64_t, 1>{rows.data(), {count}},
              .stream = all.view(),
              .slot_ids = aft::tensor_view<const std::int32_t, 1>{ids.data(), {count}}},
             round % 4 + 1);
      for (index_t i = 0; i < count; ++i) {
        const auto u = static_cast<std::size_t>(i), slot = static_cast<std::size_t>(order[u]);
        const auto row = y.begin() + i * n * d;
        if (ids[u] < 0) {
          CHECK(std::all_of(row, row + n * d, [](float e) { return e == 42; }));
          continue;
        }
        got[slot].insert(got[slot].end(), row, row + rows[u] * d);
        CHECK(std::all_of(row + rows[u] * d, row + n * d, [](float e) { return e == 0; }));
        at[slot] += rows[u];
        CHECK(all.position(order[u]) == at[slot]);
      }
    }
    for (index_t slot = 0; slot < count; ++slot) {
      const auto u = static_cast<std::size_t>(slot);
      if (at[u] == 0) continue;
      aft::reset(aft::cpu{}, alone.view(), 0);
      CHECK(x.next(op, alone, 0, slot, 0, at[u]) == got[u]);
    }
  }
}

TEST_CASE("slots: saved, restored, forked and set back") {
  const data x(2);
  for (int op = 0; op < 4; ++op) {
    CAPTURE(op);
    const slots s(data::spec(op), 4);
    const auto start = x.next(op, s, 0, 0, 0, 30);
    // Saved as bytes, and restored in other memory.
    const std::vector<std::byte> saved = s.bytes(0);
    const slots elsewhere(data::spec(op), 2);
    std::memcpy(elsewhere.first + s.spec.bytes(), saved.data(), saved.size());
    CHECK(elsewhere.position(1) == 30);
    // A fork to two slots, of which one takes another sequence's positions.
    const std::int64_t from[] = {0, 0}, to[] = {3, 1};
    const auto ids = [](const std::int64_t* p) { return aft::tensor_view<const std::int64_t, 1>{p, {2}}; };
    aft::copy(aft::cpu{}, s.view(), ids(from), ids(to));
    const auto rest = x.next(op, s, 0, 0, 30, 40);
    const auto other = x.next(op, s, 3, 1, 30, 40);
    CHECK(other != rest);
    CHECK(x.next(op, s, 1, 0, 30, 40) == rest);
    CHECK(x.next(op, elsewhere, 1, 0, 30, 40) == rest);
    // Candidates are verified on a copy, and what was accepted is fed to the slot as it was.
    std::memcpy(s.first, saved.data(), saved.size());
    CHECK(s.position(0) == 30);
    CHECK(x.next(op, s, 0, 0, 30, 40) == rest);
    // One position at a time, from the start.
    aft::reset(aft::cpu{}, s.view(), 2);
    std::vector<float> all;
    for (index_t t = 0; t < 70; ++t) {
      const auto y = x.next(op, s, 2, 0, t, 1);
      all.insert(all.end(), y.begin(), y.end());
    }
    std::vector<float> whole = start;
    whole.insert(whole.end(), rest.begin(), rest.end());
    CHECK(all == whole);
  }
}

TEST_CASE("slots: without ids element b continues slot b") {
  constexpr index_t count = 3, n = 7;
  const data x(count);
  for (int op = 0; op < 4; ++op) {
    CAPTURE(op);
    const slots unnamed(data::spec(op), count + 1), apart(data::spec(op), count);
    const auto before = unnamed.bytes(count);
    std::vector<float> qs, ks, vs, y(static_cast<std::size_t>(count * n * d)), each;
    for (index_t b = 0; b < count; ++b) {
      data::gather(x.q, b, 0, n, d, qs);
      data::gather(x.k, b, 0, n, hk, ks);
      data::gather(x.v, b, 0, n, d, vs);
      const auto own = x.next(op, apart, b, b, 0, n);
      each.insert(each.end(), own.begin(), own.end());
    }
    x.call(op, qs, ks, vs, count, n, aft::tensor_view<float, 3>{y.data(), {count, n, d}},
           {.causal = true, .stream = unnamed.view()});
    CHECK(y == each);
    for (index_t b = 0; b < count; ++b) CHECK(unnamed.bytes(b) == apart.bytes(b));
    CHECK(unnamed.bytes(count) == before);
  }
}

TEST_CASE("slots: a bias of one row serves every position") {
  const slots a(aft::stream_spec::local<float>(d, hk, {3, 0}), 1), b(aft::stream_spec::local<float>(d, hk, {3, 0}), 1);
  const data x(1);
  const std::vector<float> row = random_floats(4, 9);
  const aft::tensor_view<const float, 3> q{x.q.data(), {1, 20, d}}, k{x.k.data(), {1, 20, hk}},
      v{x.v.data(), {1, 20, d}};
  std::vector<float> y(20 * d), z(20 * d);
  aft::local(q, k, v, aft::banded_bias{aft::tensor_view<const float, 2>{row.data(), {1, 4}}}, {3, 0},
             aft::tensor_view<float, 3>{y.data(), {1, 20, d}}, {.causal = true, .stream = a.view()});
  aft::local(q, k, v, aft::banded_bias{aft::tensor_view<const float, 2>{row.data(), {20, 4}, {0, 1}}}, {3, 0},
             aft::tensor_view<float, 3>{z.data(), {1, 20, d}}, {.causal = true, .stream = b.view()});
  CHECK(y == z);
}

TEST_CASE("slots: their size is a multiple of 64, of the reach and of the arithmetic type alone") {
  using aft::stream_spec;
  for (index_t channels : {index_t{1}, index_t{7}, index_t{512}}) {
    CHECK(stream_spec::simple<float>(channels, channels).bytes() % 64 == 0);
    CHECK(stream_spec::simple<float>(channels, 1).bytes() == stream_spec::simple<aft::half>(channels, 1).bytes());
    CHECK(stream_spec::simple<double>(channels, 1).bytes() > stream_spec::simple<float>(channels, 1).bytes());
    CHECK(stream_spec::local<float>(channels, 1, {5, 9}).bytes() == stream_spec::conv<float>(channels, 1, 6).bytes());
    CHECK(stream_spec::full<float>(channels, 1, 100).bytes() < stream_spec::full<float>(channels, 1, 101).bytes());
  }
  CHECK(stream_spec().bytes() % 64 == 0);
}

TEST_CASE("slots: what a call with a stream is refused, and nothing is written") {
  const data x(3);
  constexpr int local = 1;
  const slots s(data::spec(local), 3);
  x.next(local, s, 0, 0, 0, 5);
  x.next(local, s, 1, 1, 0, data::T - 1);
  const std::vector<std::byte> before = s.memory;
  aft::test::canary<float> y(1000);
  const auto refused = [&](int op, index_t batch, index_t n, const aft::options& o,
                           std::initializer_list<const char*> parts) {
    const std::string message = error_of([&] {
      x.call(op, x.q, x.k, x.v, batch, n, aft::tensor_view<float, 3>{y.data(), {batch, n, d}}, o);
    });
    check_parts(message, parts);
    CHECK(y.untouched());
    CHECK(s.memory == before);
  };
  std::vector<std::int64_t> numbers{2, 1, 0, 0, 0};
  const auto ids = [&](std::vector<std::int64_t> values) {
    numbers = std::move(values);
    return aft::tensor_view<const std::int64_t, 1>{numbers.data(), {static_cast<index_t>(numbers.size())}};
  };
  const auto st = s.view();
  refused(local, 1, 1, {.stream = st}, {"aft::local", "'causal'", "expected true with a stream, got false"});
  refused(local, 1, 1, {.causal = true, .first_query = 3, .stream = st}, {"'first_query'", "0 with a stream", "got 3"});
  refused(local, 3, 1, {.causal = true, .key_lengths = ids({1, 1, 1}), .stream = st}, {"'key_lengths'", "none"});
  std::uint8_t flags[] = {1, 1, 1};
  refused(local, 1, 3, {.causal = true, .mask = aft::tensor_view<std::uint8_t, 1>{flags, {3}}, .stream = st},
          {"'mask'", "none with a stream"});
  refused(local, 1, 1, {.causal = true, .slot_ids = ids({0})}, {"'slot_ids'", "without a stream"});
  refused(local, 1, 1, {.causal = true, .stream = st, .slot_ids = ids({0, 1})}, {"'slot_ids'", "(B) to be 1, got 2"});
  refused(local, 3, 1, {.causal = true, .stream = st, .slot_ids = ids({2, 0, 3})},
          {"'slot_ids'", "slots from 0 to 2, or -1, got slot 3 for batch element 2"});
  refused(local, 3, 1, {.causal = true, .stream = st, .slot_ids = ids({2, -2, -1})}, {"'slot_ids'", "got slot -2"});
  refused(local, 3, 1, {.causal = true, .stream = st, .slot_ids = ids({2, 0, 2})}, {"'slot_ids'", "got slot 2 twice"});
  refused(local, 1, 2, {.causal = true, .stream = st, .slot_ids = ids({1})},
          {"'w' of bias", "extent 1 (Tq) to be at least 91 for slot 1 at position 89, got 90"});
  refused(0, 1, 1, {.causal = true, .stream = st},
          {"aft::simple", "'stream'", "a spec of aft::simple, got aft::local"});
  const auto other = [&](const aft::stream_spec& spec) { return aft::stream_view<>{spec, s.first, 1}; };
  using aft::stream_spec;
  refused(local, 1, 1, {.causal = true, .stream = other(stream_spec::local<aft::half>(d, hk, data::win))},
          {"'stream'", "a spec of float as the data is, got half"});
  refused(local, 1, 1, {.causal = true, .stream = other(stream_spec::local<float>(d + hk, hk, data::win))},
          {"'stream'", "a spec with d = 10 as the call has, got 15"});
  refused(local, 1, 1, {.causal = true, .stream = other(stream_spec::local<float>(d, d, data::win))},
          {"'stream'", "a spec with hk = 5", "got 10"});
  refused(local, 1, 1, {.causal = true, .stream = other(stream_spec::local<float>(d, hk, {7, 2}))},
          {"'stream'", "a spec with window.after = 1", "got 2"});
  refused(local, 1, 1, {.causal = true, .stream = other(stream_spec::local<float>(d, hk, {6, 1}))},
          {"'stream'", "a spec with window.before = 7", "got 6"});
  refused(2, 1, 1, {.causal = true, .stream = other(stream_spec::conv<float>(d, hk, 3))},
          {"'stream'", "a spec with taps = 4", "got 3"});
  refused(local, 3, 1, {.causal = true, .stream = aft::stream_view<>{s.spec, s.first, 2}},
          {"'stream'", "at least B = 3 slots, as there are no slot_ids, got 2 slots"});
  refused(local, 1, 1, {.causal = true, .stream = aft::stream_view<>{s.spec, s.first + 4, 2}},
          {"'stream'", "aligned to 64 bytes", "4 bytes after"});
  const std::size_t one_less = 2;
  enum { too_few = 1 };
  refused(local, 3, 1, {.causal = true, .stream = aft::stream_view{s.spec, s.first, too_few}},
          {"'stream'", "at least B = 3 slots, as there are no slot_ids, got 1 slot"});
  refused(local, 3, 1, {.causal = true, .stream = aft::stream_view{s.spec, s.first, one_less}},
          {"'stream'", "at least B = 3 slots, as there are no slot_ids, got 2 slots"});
  refused(local, 1, 1, {.causal = true, .stream = aft::stream_view<>{s.spec, nullptr, 2}},
          {"'stream'", "null pointer"});
  refused(local, 1, 1, {.causal = true, .stream = aft::stream_view<aft::device_space>{s.spec, s.first, 2}},
          {"'stream'", "host memory"});
  const auto backward = [&](const aft::options& o) {
    const aft::tensor_view<const float, 3> q{x.q.data(), {1, 1, d}}, k{x.k.data(), {1, 1, hk}};
    return error_of([&] { aft::simple_backward(q, k, q, q, aft::no_grad, aft::no_grad, aft::no_grad, o); });
  };
  check_parts(backward({.causal = true, .stream = st}),
              {"aft::simple_backward", "'stream'", "none in a backward call"});
  const aft::tensor_view<const float, 4> image{x.q.data(), {1, 2, 2, d}};
  check_parts(error_of([&] {
                aft::conv(image, image, image, aft::tensor_view<const float, 3>{x.w.data(), {1, 1, 1}},
                          aft::tensor_view<float, 4>{y.data(), {1, 2, 2, d}}, {.stream = st});
              }),
              {"aft::conv", "'stream'", "none on a grid"});
  // y in the slots themselves.
  check_parts(error_of([&] {
                x.call(local, x.q, x.k, x.v, 1, 1,
                       aft::tensor_view<float, 3>{reinterpret_cast<float*>(s.first + 128), {1, 1, d}},
                       {.causal = true, .stream = st});
              }),
              {"an overlap", "'stream'"});
  CHECK(s.memory == before);
  CHECK(y.untouched());
}

TEST_CASE("slots: full is refused beyond its capacity and beyond the bias") {
  const data x(1);
  const slots s(aft::stream_spec::full<float>(d, hk, 8), 1);
  x.next(3, s, 0, 0, 0, 6);
  check_parts(error_of([&] { x.next(3, s, 0, 0, 6, 3); }),
              {"'stream'", "a capacity of at least 9 for slot 0 at position 6, got 8"});
  CHECK(s.position(0) == 6);
  x.next(3, s, 0, 0, 6, 2);
  CHECK(s.position(0) == 8);
  const slots wide(aft::stream_spec::full<float>(d, hk, 200), 1);
  x.next(3, wide, 0, 0, 0, data::T);
  check_parts(error_of([&] { x.next(3, wide, 0, 0, 0, 1); }), {"'w' of bias", "at least 91 for slot 0"});
}

TEST_CASE("slots: bytes that reset did not write are refused") {
  const data x(1);
  const slots s(data::spec(0), 2);
  const auto refused = [&](std::size_t byte, const char* got) {
    const std::byte old = s.first[byte];
    s.first[byte] ^= std::byte{1};
    const std::string call = error_of([&] { x.next(0, s, 0, 0, 0, 1); });
    check_parts(call, {"aft::simple", "'stream'", "slot 0 to have the header that aft::reset writes", got});
    check_parts(error_of([&] { s.position(0); }), {"aft::position", "slot 0", got});
    s.first[byte] = old;
    CHECK(s.position(0) == 0);
  };
  refused(2, "other bytes");
  refused(8, "another version");
  refused(16, "checksum");
  refused(24, "checksum");
  refused(33, "checksum");
  const slots other(aft::stream_spec::simple<float>(d, d), 1);
  std::memcpy(s.first, other.first, 64);
  check_parts(error_of([&] { s.position(0); }), {"another spec"});
  aft::reset(aft::cpu{}, s.view());
  CHECK(s.position(0) == 0);
}

TEST_CASE("slots: what reset, copy and position refuse") {
  const slots s(data::spec(2), 3);
  const aft::cpu exec;
  std::vector<std::int32_t> a{0, 1}, b{2, 0};
  const auto copied = [&](std::vector<std::int32_t> from, std::vector<std::int32_t> to) {
    return error_of([&] {
      aft::copy(exec, s.view(),
                aft::tensor_view<const std::int32_t, 1>{from.data(), {static_cast<index_t>(from.size())}},
                aft::tensor_view<const std::int32_t, 1>{to.data(), {static_cast<index_t>(to.size())}});
    });
  };
  const std::vector<std::byte> before = s.memory;
  check_parts(copied({0, 1}, {2}), {"aft::copy", "'to'", "(n) to be 2 as in 'from', got 1"});
  check_parts(copied({0, 0}, {2, 2}), {"'to'", "slot 2 twice"});
  check_parts(copied({0, 1}, {1, 2}), {"'to'", "slot 1, which 'from' names too"});
  check_parts(copied({0}, {3}), {"'to'", "slots from 0 to 2, got 3"});
  check_parts(copied({-1}, {0}), {"'from'", "slots from 0 to 2, got -1"});
  std::vector<float> numbers{0, 1};
  check_parts(error_of([&] {
                aft::copy(exec, s.view(), aft::tensor_view<const float, 1>{numbers.data(), {2}},
                          aft::tensor_view<const float, 1>{numbers.data(), {2}});
              }),
              {"'from'", "int64 or int32, got float"});
  CHECK(s.memory == before);
  check_parts(error_of([&] { aft::reset(exec, s.view(), 3); }), {"aft::reset", "'slot'", "slots from 0 to 2, got 3"});
  check_parts(error_of([&] { s.position(-1); }), {"aft::position", "'slot'", "got -1"});
  check_parts(error_of([&] { aft::reset(aft::cpu{.threads = -1}, s.view()); }), {"'exec'", "-1"});
  check_parts(error_of([&] { aft::reset(aft::cuda{}, s.view()); }),
              {"'stream'", "slots in device memory", "host memory"});
  check_parts(error_of([&] { aft::reset(exec, aft::stream_view<>{s.spec, s.first + 8, 1}); }), {"aligned to 64 bytes"});
}

TEST_CASE("slots: specs that no call could have") {
  using aft::stream_spec;
  check_parts(error_of([] { stream_spec::simple<float>(-1, 1); }), {"aft::stream_spec", "'d'", "got -1"});
  check_parts(error_of([] { stream_spec::simple<float>(6, 4); }), {"'hk'", "a divisor of d = 6, got 4"});
  check_parts(error_of([] { stream_spec::simple<float>(6, 0); }), {"'hk'", "got 0"});
  check_parts(error_of([] { stream_spec::conv<float>(6, 6, -1); }), {"'taps'", "at least 0, got -1"});
  check_parts(error_of([] { stream_spec::full<float>(6, 6, -2); }), {"'capacity'", "got -2"});
  check_parts(error_of([] { stream_spec::full<float>(6, 6, index_t{1} << 60); }), {"'capacity'", "2^61 bytes"});
  check_parts(error_of([] { stream_spec::local<float>(6, 6, {index_t{1} << 60, 0}); }), {"'window'", "2^61 bytes"});
  check_parts(error_of([] { stream_spec::local<float>(6, 6, {-3, 1}); }), {"'window'", "window{-3, 1}"});
}
