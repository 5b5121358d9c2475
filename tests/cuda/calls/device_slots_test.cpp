// SPDX-License-Identifier: Apache-2.0
// Slots on the emulated device: what the host cannot see is passed over or makes rows that are no numbers, the rest is
// refused before anything is launched; and how much is launched.
#include <algorithm>
#include <cmath>
#include <random>

#include "engines/own_engine.hpp"
#include "call/slots.hpp"
#include "device_rows.hpp"
#include "expect_error.hpp"
#include <device_emulator.hpp>

namespace {

using aft::index_t;
using aft::test::check_parts;
using namespace aft::test::device_rows;
using aft::test::device_slots;
using aft::test::device_view;
using aft::test::error_of;
namespace emulator = aft::emulator;

}  // namespace

TEST_CASE("device streams: slots at positions of their own; those skipped and out of range are not touched") {
  const calls c;
  for (const kind of : all_kinds) {
    CAPTURE(static_cast<int>(of));
    constexpr index_t B = 6, n = 9;
    const device_slots shared(c.spec(of), B), alone(c.spec(of), 1);
    rows x(B, 5 * n, c.d), one(B, 5 * n, c.d);
    std::mt19937 random(3);
    std::vector<index_t> at(B, 0);
    for (index_t round = 0; round < 5; ++round) {
      // Element b goes on from slot (b + 2) % 6, if at all: 6 and -7 are no slots, and not the host's to see.
      std::vector<std::int32_t> ids;
      std::vector<std::int64_t> lengths;
      for (index_t b = 0; b < B; ++b) {
        const auto choice = random() % 6;
        ids.push_back(choice == 0 ? -1 : choice == 1 ? 6 : choice == 2 ? -7 : static_cast<std::int32_t>((b + 2) % 6));
        lengths.push_back(static_cast<std::int64_t>(random() % (n + 2)));
      }
      std::vector<std::vector<std::byte>> before;
      for (index_t slot = 0; slot < B; ++slot) before.push_back(shared.bytes(slot));
      std::fill(x.y.begin(), x.y.end(), 42.0F);
      x.run(c, of, {.causal = true, .query_lengths = list(lengths), .stream = shared.view(), .slot_ids = list(ids)}, 0,
            B, round * n, n);
      for (index_t b = 0; b < B; ++b) {
        const auto u = static_cast<std::size_t>(b);
        const index_t slot = (b + 2) % 6;
        if (ids[u] != slot) {
          CHECK(all_are(x.of(b, round * n, n), 42));
          CHECK(shared.bytes(slot) == before[static_cast<std::size_t>(slot)]);
          lengths[u] = 0;
        }
        const index_t taken = std::min<index_t>(lengths[u], n);
        if (taken < n && ids[u] == slot) CHECK(all_are(x.of(b, round * n + taken, n - taken), 0));
        CHECK(shared.position(slot) == at[u] + taken);
        // The same rows, given to a slot of their own from the start.
        for (index_t t = 0; t < taken; ++t) {
          const auto copy = [&](std::vector<float>& to, const std::vector<float>& from, index_t channels) {
            std::copy_n(from.begin() + (b * x.T + round * n + t) * channels, channels,
                        to.begin() + (b * x.T + at[u] + t) * channels);
          };
          copy(one.q, x.q, c.d);
          copy(one.k, x.k, hk);
          copy(one.v, x.v, c.d);
        }
        if (taken > 0) {
          aft::reset(aft::cuda{}, alone.view(), 0);
          const index_t end = at[u] + taken;
          one.run(c, of, {.causal = true, .stream = alone.view()}, b, 1, 0, end);
          CHECK(one.of(b, at[u], taken) == x.of(b, round * n, taken));
        }
        at[u] += taken;
      }
    }
  }
}

TEST_CASE("device streams: without its header a slot gives rows that are no numbers, and stays as it is") {
  const calls c;
  for (const kind of : all_kinds) {
    CAPTURE(static_cast<int>(of));
    const device_slots s(c.spec(of), 3);
    rows x(3, 4, c.d);
    const std::vector<std::int64_t> lengths{4, 3, 4};
    const aft::options o{.causal = true, .query_lengths = list(lengths), .stream = s.view()};
    // Of each word of the header one bit, of the position's one that makes it as large as can be.
    for (const int bit : {17, 70, 130, 200, 254, 260}) {
      aft::reset(aft::cuda{}, s.view());
      s.first[s.spec.bytes() + bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      const std::vector<std::byte> before = s.bytes(1);
      x.run(c, of, o, 0, 3, 0, 4);
      CHECK(all_are(x.of(1, 0, 3), no_number));
      CHECK(all_are(x.of(1, 3, 1), 0));
      CHECK(s.bytes(1) == before);
      CHECK(s.position(0) == 4);
      CHECK(s.position(2) == 4);
      for (const index_t b : {0, 2}) CHECK(!std::isnan(x.y[static_cast<std::size_t>(b * 4 * c.d)]));
      check_parts(error_of([&] { s.position(1); }), {"aft::position", "'stream'", "slot 1 to have the header"});
    }
  }
  // A slot of the host is none of a device, nor the other way round.
  const device_slots s(c.spec(kind::simple), 1);
  const std::vector<std::byte> of_device = s.bytes(0);
  const aft::test::slots host(c.spec(kind::simple), 1);
  std::memcpy(s.first, host.first, s.size());
  rows x(1, 2, c.d);
  x.run(c, kind::simple, {.causal = true, .stream = s.view()}, 0, 1, 0, 2);
  CHECK(all_are(x.of(0, 0, 2), no_number));
  std::memcpy(host.first, of_device.data(), s.size());
  check_parts(error_of([&] { host.position(0); }), {"another spec"});
}

TEST_CASE("device streams: beyond the bias or the capacity rows are no numbers, and the slot stands where it ended") {
  const calls c{.room = 13};
  for (const kind of : {kind::dense_local, kind::banded, kind::dense, kind::factorized}) {
    CAPTURE(static_cast<int>(of));
    // The same numbers in a bias with more room.
    calls wide;
    for (index_t t = 0; t < c.room; ++t) {
      std::copy_n(c.band.begin() + t * win.width(), win.width(), wide.band.begin() + t * win.width());
      for (index_t h = 0; h < heads; ++h)
        std::copy_n(c.w.begin() + (h * c.room + t) * c.room, c.room, wide.w.begin() + (h * wide.room + t) * wide.room);
    }
    std::copy(c.u.begin(), c.u.end(), wide.u.begin());
    std::copy(c.z.begin(), c.z.end(), wide.z.begin());
    const device_slots s(c.spec(of), 1), free(c.spec(of), 1);
    rows x(1, 20, c.d), y(1, 20, c.d);
    x.run(c, of, {.causal = true, .stream = s.view()}, 0, 1, 0, 9);
    x.run(c, of, {.causal = true, .stream = s.view()}, 0, 1, 9, 7);
    y.run(wide, of, {.causal = true, .stream = free.view()}, 0, 1, 0, 13);
    CHECK(x.of(0, 0, 13) == y.of(0, 0, 13));
    CHECK(all_are(x.of(0, 13, 3), no_number));
    CHECK(s.position(0) == 13);
    const std::vector<std::byte> before = s.bytes(0);
    x.run(c, of, {.causal = true, .stream = s.view()}, 0, 1, 16, 4);
    CHECK(all_are(x.of(0, 16, 4), no_number));
    CHECK(s.bytes(0) == before);
  }
  // A capacity of 90 and a bias of 100.
  const calls wide{.room = 100};
  const device_slots s(wide.spec(kind::dense), 1);
  rows x(1, 95, wide.d);
  x.run(wide, kind::dense, {.causal = true, .stream = s.view()}, 0, 1, 0, 95);
  CHECK(all_are(x.of(0, 90, 5), no_number));
  CHECK(!std::isnan(x.y[89 * 10]));
  CHECK(s.position(0) == 90);
}

TEST_CASE("device streams: forks, copies that no slot has, and what a copy moves") {
  const calls c;
  for (const kind of : all_kinds) {
    CAPTURE(static_cast<int>(of));
    const device_slots s(c.spec(of), 5);
    rows x(1, 60, c.d);
    const auto next = [&](std::int64_t slot, index_t t, index_t n) {
      const std::vector<std::int64_t> id{slot};
      x.run(c, of, {.causal = true, .stream = s.view(), .slot_ids = list(id)}, 0, 1, t, n);
      return x.of(0, t, n);
    };
    next(0, 0, 31);
    const std::vector<std::byte> untouched = s.bytes(4);
    const std::vector<std::int64_t> from{0, 0, 5, -1, 0}, to{3, 1, 4, 4, 99};
    const long launches = emulator::memory().launches;
    aft::copy(aft::cuda{}, s.view(), list(from), list(to));
    CHECK(emulator::memory().launches == launches + 1);
    CHECK(s.bytes(4) == untouched);
    const std::vector<float> rest = next(0, 31, 29);
    for (const std::int64_t slot : {1, 3}) {
      CHECK(s.position(slot) == 31);
      CHECK(next(slot, 31, 29) == rest);
    }
    // Set back by a copy of bytes.
    const std::vector<std::byte> saved = s.bytes(3);
    next(3, 0, 5);
    std::memcpy(s.first + 3 * s.spec.bytes(), saved.data(), saved.size());
    CHECK(s.position(3) == 60);
    if (of != kind::dense) continue;
    // Positions that full has not seen are not moved.
    aft::reset(aft::cuda{}, s.view(), 2);
    next(2, 0, 1);
    std::memset(s.first + 4 * s.spec.bytes(), 0x5a, static_cast<std::size_t>(s.spec.bytes()));
    const std::vector<std::int32_t> two{2}, four{4};
    aft::copy(aft::cuda{}, s.view(), list(two), list(four));
    CHECK(s.position(4) == 1);
    CHECK(s.bytes(4).back() == std::byte{0x5a});
    CHECK(next(4, 1, 3) == next(2, 1, 3));
  }
}

TEST_CASE("device streams: packed sequences, more than one launch takes along") {
  const calls c;
  for (const kind of : {kind::simple, kind::banded, kind::dense}) {
    CAPTURE(static_cast<int>(of));
    constexpr index_t N = 300;
    const device_slots packed(c.spec(of), N), apart(c.spec(of), N);
    std::mt19937 random(5);
    for (unsigned round = 0; round < 2; ++round) {
      std::vector<std::int64_t> offsets{0};
      for (index_t n = 0; n < N; ++n) offsets.push_back(offsets.back() + static_cast<std::int64_t>(random() % 4));
      std::vector<std::int32_t> ids;
      for (index_t n = 0; n < N; ++n) ids.push_back(n % 7 == 3 ? -1 : static_cast<std::int32_t>(N - 1 - n));
      rows x(1, offsets.back(), c.d, 20 + round);
      const long launches = emulator::memory().launches;
      x.run(c, of,
            {.causal = true,
             .stream = packed.view(),
             .slot_ids = list(ids),
             .query_offsets = aft::tensor_view<const std::int64_t, 1>{offsets.data(), {N + 1}}},
            0, 1, 0, x.T);
      CHECK(emulator::memory().launches == launches + 2);
      const std::vector<float> got = x.y;
      std::fill(x.y.begin(), x.y.end(), 42.0F);
      for (std::size_t n = 0; n < N; ++n) {
        const std::vector<std::int32_t> id{ids[n]};
        x.run(c, of, {.causal = true, .stream = apart.view(), .slot_ids = list(id)}, 0, 1, offsets[n],
              offsets[n + 1] - offsets[n]);
      }
      CHECK(x.y == got);
      for (index_t slot = 0; slot < N; slot += 13) CHECK(packed.position(slot) == apart.position(slot));
    }
  }
}

TEST_CASE("device streams: one launch, or two where channels are many; no scratch; a failed launch is a device_error") {
  for (const index_t d : {10, 260}) {
    const calls c{.d = d};
    for (const kind of : all_kinds) {
      CAPTURE(static_cast<int>(of));
      const device_slots s(c.spec(of), 2);
      rows x(2, 5, d);
      const bool full = of == kind::dense || of == kind::factorized;
      const emulator::memory_statistics before = emulator::memory();
      x.run(c, of, {.causal = true, .stream = s.view()}, 0, 2, 0, 5);
      CHECK(emulator::memory().launches == before.launches + (d > (full ? 32 : 256) ? 2 : 1));
      CHECK(emulator::memory().allocations == before.allocations);
      CHECK(s.position(1) == 5);
      emulator::fail_launch(0);
      CHECK_THROWS_AS(x.run(c, of, {.causal = true, .stream = s.view()}, 0, 2, 0, 1), aft::device_error);
      emulator::fail_launch(-1);
      CHECK(s.position(1) == 5);
    }
  }
}

TEST_CASE("device streams: a bias of one row serves every position") {
  const calls c;
  const device_slots a(c.spec(kind::banded), 1), b(c.spec(kind::banded), 1);
  rows x(1, 120, c.d);
  const auto call = [&](const device_slots& s, const device_view<const float, 2>& w) {
    aft::local(aft::cuda{}, device_view<const float, 3>{x.q.data(), {1, 120, c.d}},
               device_view<const float, 3>{x.k.data(), {1, 120, hk}},
               device_view<const float, 3>{x.v.data(), {1, 120, c.d}}, aft::banded_bias{w}, win,
               device_view<float, 3>{x.y.data(), {1, 120, c.d}}, {.causal = true, .stream = s.view()});
    return x.y;
  };
  const std::vector<float> one = call(a, {c.band.data(), {1, win.width()}});
  CHECK(one == call(b, {c.band.data(), {120, win.width()}, {0, 1}}));
  CHECK(std::none_of(one.begin(), one.end(), [](float e) { return std::isnan(e); }));
}

TEST_CASE("device streams: what the host can see is refused, and nothing is launched") {
  const calls c;
  const device_slots s(c.spec(kind::banded), 2);
  rows x(3, 4, c.d);
  const long launches = emulator::memory().launches;
  const auto refused = [&](kind of, const aft::options& o, index_t count, std::initializer_list<const char*> parts) {
    check_parts(error_of([&] { x.run(c, of, o, 0, count, 0, 4); }), parts);
    CHECK(all_are(x.y, 42));
    CHECK(emulator::memory().launches == launches);
  };
  const auto st = s.view();
  const std::vector<std::int64_t> ids{0, 1, 0};
  refused(kind::banded, {.stream = st}, 1, {"aft::local", "'causal'", "true with a stream, got false"});
  refused(kind::banded, {.causal = true, .stream = st}, 3, {"'stream'", "at least B = 3 slots", "got 2 slots"});
  refused(kind::banded, {.causal = true, .stream = st, .slot_ids = list(ids)}, 1, {"'slot_ids'", "(B) to be 1, got 3"});
  refused(kind::banded, {.causal = true, .key_lengths = list(ids), .stream = st}, 3, {"'key_lengths'", "none"});
  refused(kind::banded,
          {.causal = true, .stream = st, .slot_ids = aft::tensor_view<const std::int64_t, 1>{ids.data(), {1}}}, 1,
          {"'slot_ids'", "a device view, got a host view"});
  refused(kind::conv, {.causal = true, .stream = st}, 1, {"aft::conv", "'stream'", "a spec of aft::conv"});
  refused(kind::banded, {.causal = true, .stream = aft::stream_view<>{s.spec, s.first, 2}}, 1,
          {"'stream'", "slots in device memory", "host memory"});
  const auto other = [&](const aft::stream_spec& spec, index_t beyond = 0) {
    return aft::stream_view<aft::device_space>{spec, s.first + beyond, 1};
  };
  refused(kind::banded, {.causal = true, .stream = other(aft::stream_spec::local<float>(10, hk, {6, 1}))}, 1,
          {"'stream'", "window.before = 7", "got 6"});
  refused(kind::banded, {.causal = true, .stream = other(aft::stream_spec::local<aft::half>(10, hk, win))}, 1,
          {"'stream'", "a spec of float as the data is, got half"});
  refused(kind::banded, {.causal = true, .stream = other(s.spec, 32)}, 1, {"'stream'", "aligned to 64 bytes"});
  check_parts(error_of([&] {
                const device_view<const float, 3> q{x.q.data(), {1, 4, 10}}, k{x.k.data(), {1, 4, hk}};
                aft::simple_backward(aft::cuda{}, q, k, q, q, aft::no_grad, aft::no_grad, aft::no_grad,
                                     {.causal = true, .stream = st});
              }),
              {"aft::simple_backward", "'stream'", "none in a backward call"});
  check_parts(error_of([&] { aft::reset(aft::cuda{}, st, 2); }), {"aft::reset", "'slot'", "got 2"});
  check_parts(error_of([&] { s.position(-1); }), {"aft::position", "'slot'", "got -1"});
  check_parts(error_of([&] { aft::reset(aft::cpu{}, st); }), {"'stream'", "host memory"});
  check_parts(error_of([&] {
                const aft::tensor_view<const std::int64_t, 1> host{ids.data(), {1}};
                aft::copy(aft::cuda{}, st, host, host);
              }),
              {"aft::copy", "'from'", "a device view, got a host view"});
  check_parts(error_of([&] {
                aft::copy(aft::cuda{}, st, list(ids), device_view<const std::int64_t, 1>{ids.data(), {2}});
              }),
              {"aft::copy", "'to'", "(n) to be 3", "got 2"});
  CHECK(emulator::memory().launches == launches);
}
