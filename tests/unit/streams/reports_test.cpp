// SPDX-License-Identifier: Apache-2.0
// What users of recurrent models and of attention caches have reported of them, each as a test of slots.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engines/own_engine.hpp"
#include "call/slots.hpp"
#include "expect_error.hpp"

namespace {

using aft::index_t;
using aft::test::random_floats;
using aft::test::slots;

constexpr index_t d = 6, taps = 5, T = 150;
constexpr aft::window win{9, 0};
constexpr int operators = 4;

/// A request: the positions of one sequence.
struct sequence {
  std::vector<float> q, k, v;
  explicit sequence(unsigned seed)
      : q(random_floats(T * d, seed)), k(random_floats(T * d, seed + 1)), v(random_floats(T * d, seed + 2)) {}
};

aft::stream_spec spec_of(int op) {
  switch (op) {
    case 0: return aft::stream_spec::simple<float>(d, d);
    case 1: return aft::stream_spec::local<float>(d, d, win);
    case 2: return aft::stream_spec::conv<float>(d, d, taps);
    default: return aft::stream_spec::full<float>(d, d, T);
  }
}

using input = aft::tensor_view<const float, 3>;
using output = aft::tensor_view<float, 3>;

void call(int op, const input& q, const input& k, const input& v, const output& y, const aft::options& opt) {
  static const std::vector<float> w = random_floats(T * T, 91), filter = random_floats(taps, 92);
  const aft::dense_bias bias{aft::tensor_view<const float, 2>{w.data(), {T, T}}};
  const aft::cpu exec{.threads = 2};
  switch (op) {
    case 0: return aft::simple(exec, q, k, v, y, opt);
    case 1: return aft::local(exec, q, k, v, bias, win, y, opt);
    case 2: return aft::conv(exec, q, k, v, aft::tensor_view<const float, 2>{filter.data(), {1, taps}}, y, opt);
    default: return aft::full(exec, q, k, v, bias, y, opt);
  }
}

/// One row of a batch: the n positions from t on of a sequence, for a slot; without a sequence it is padding.
struct row {
  std::int32_t slot;
  const sequence* of;
  index_t t;
};
constexpr float untouched = 42;

/// y of all rows. Padding holds NaN.
std::vector<float> feed(int op, const slots& to, const std::vector<row>& rows, index_t n) {
  const auto B = static_cast<index_t>(rows.size());
  const std::size_t size = static_cast<std::size_t>(n * d);
  sequence batch(1);
  std::vector<std::int32_t> ids;
  for (auto* x : {&batch.q, &batch.k, &batch.v}) x->assign(rows.size() * size, std::nanf(""));
  for (std::size_t b = 0; b < rows.size(); ++b) {
    ids.push_back(rows[b].slot);
    if (rows[b].of == nullptr) continue;
    const auto copy = [&](const std::vector<float>& from, std::vector<float>& x) {
      std::copy_n(from.begin() + rows[b].t * d, size, x.begin() + static_cast<std::ptrdiff_t>(b * size));
    };
    copy(rows[b].of->q, batch.q);
    copy(rows[b].of->k, batch.k);
    copy(rows[b].of->v, batch.v);
  }
  std::vector<float> y(rows.size() * size, untouched);
  call(op, {batch.q.data(), {B, n, d}}, {batch.k.data(), {B, n, d}}, {batch.v.data(), {B, n, d}}, {y.data(), {B, n, d}},
       {.causal = true, .stream = to.view(), .slot_ids = aft::tensor_view<const std::int32_t, 1>{ids.data(), {B}}});
  return y;
}

/// The first `count` positions of a sequence in one call, from a slot of its own.
std::vector<float> whole(int op, const sequence& x, index_t count) {
  const slots own(spec_of(op), 1);
  return feed(op, own, {{0, &x, 0}}, count);
}

std::vector<float> part(const std::vector<float>& y, index_t first, index_t end) {
  return {y.begin() + first * d, y.begin() + end * d};
}

}  // namespace

TEST_CASE("reports: no state is dropped when more than one token comes") {
  const sequence x(1);
  for (int op = 0; op < operators; ++op) {
    CAPTURE(op);
    const auto all = whole(op, x, T);
    const slots s(spec_of(op), 1);
    // One token, as a loop that writes text begins; then many, as a tool's answer; then one again.
    index_t t = 0;
    for (index_t n : {1, 1, 70, 1, 2, 40, 1}) {
      CHECK(feed(op, s, {{0, &x, t}}, n) == part(all, t, t + n));
      t += n;
      CHECK(s.position(0) == t);
    }
  }
}

TEST_CASE("reports: a prefill in chunks does not differ from a whole one") {
  const sequence x(4);
  for (int op = 0; op < operators; ++op)
    for (index_t chunk : {1, 7, 63, 64, 65, 149}) {
      CAPTURE(op);
      CAPTURE(chunk);
      const auto all = whole(op, x, T);
      const slots s(spec_of(op), 1);
      for (index_t t = 0; t < T; t += chunk) {
        const index_t end = std::min(t + chunk, T);
        CHECK(feed(op, s, {{0, &x, t}}, end - t) == part(all, t, end));
      }
    }
}

TEST_CASE("reports: slots of -1 are padding, of which nothing is read or written") {
  const sequence x(7), z(10);
  for (int op = 0; op < operators; ++op) {
    CAPTURE(op);
    const slots s(spec_of(op), 3);
    feed(op, s, {{2, &x, 0}, {0, &z, 0}}, 30);
    const auto other = s.bytes(0), unused = s.bytes(1);
    // As graphs of a fixed batch size fill up their batch: with NaN here, in front, between and behind.
    const auto y = feed(op, s, {{-1, nullptr, 0}, {2, &x, 30}, {-1, nullptr, 0}, {-1, nullptr, 0}}, 5);
    for (index_t b : {0, 2, 3})
      for (float e : part(y, b * 5, b * 5 + 5)) CHECK(e == untouched);
    CHECK(part(y, 5, 10) == part(whole(op, x, 35), 30, 35));
    CHECK(s.bytes(0) == other);
    CHECK(s.bytes(1) == unused);
    const auto before = s.memory;
    for (float e : feed(op, s, {{-1, nullptr, 0}, {-1, nullptr, 0}}, 4)) CHECK(e == untouched);
    CHECK(s.memory == before);
  }
}

TEST_CASE("reports: memcpy of a slot is a rollback and a fork, for speculative decoding") {
  const sequence accepted(13), draft(16);
  for (int op = 0; op < operators; ++op) {
    CAPTURE(op);
    const slots s(spec_of(op), 2);
    const index_t bytes = s.spec.bytes();
    feed(op, s, {{0, &accepted, 0}}, 40);
    // A fork verifies eight candidates of which three are right; the slot itself takes those alone.
    std::memcpy(s.first + bytes, s.first, static_cast<std::size_t>(bytes));
    feed(op, s, {{1, &draft, 40}}, 8);
    CHECK(s.position(1) == 48);
    CHECK(s.position(0) == 40);
    CHECK(feed(op, s, {{0, &accepted, 40}}, 3) == part(whole(op, accepted, 43), 40, 43));
    // A rollback: what was written is put back over what went wrong.
    const auto saved = s.bytes(0);
    feed(op, s, {{0, &draft, 43}}, 20);
    std::memcpy(s.first, saved.data(), saved.size());
    CHECK(s.position(0) == 43);
    CHECK(feed(op, s, {{0, &accepted, 43}}, 50) == part(whole(op, accepted, 93), 43, 93));
  }
}

TEST_CASE("reports: a state that was exported is restored elsewhere") {
  const sequence x(19);
  for (int op = 0; op < operators; ++op) {
    CAPTURE(op);
    std::string file;
    {
      const slots here(spec_of(op), 2);
      feed(op, here, {{1, &x, 0}}, 77);
      const auto bytes = here.bytes(1);
      file.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    const slots there(spec_of(op), 5);
    std::memcpy(there.first + 3 * there.spec.bytes(), file.data(), file.size());
    CHECK(there.position(3) == 77);
    CHECK(feed(op, there, {{3, &x, 77}}, 20) == part(whole(op, x, 97), 77, 97));
  }
}

TEST_CASE("reports: no ceiling on length") {
  // With nothing outside the window a row is what a call on its window alone says, however far it is.
  constexpr index_t length = 200'000, chunk = 4000, last = 30;
  const aft::stream_spec spec = aft::stream_spec::local<float>(1, 1, win);
  const slots s(spec, 1);
  const std::vector<float> band = random_floats(win.width(), 22);
  const aft::banded_bias one_row{aft::tensor_view<const float, 2>{band.data(), {1, win.width()}}};
  std::vector<float> x, y(chunk), alone(last + win.before);
  for (index_t t = 0; t < length; t += chunk) {
    x = random_floats(chunk, static_cast<unsigned>(t));
    const input in{x.data(), {1, chunk, 1}};
    aft::local(in, in, in, one_row, win, output{y.data(), {1, chunk, 1}},
               {.causal = true, .outside = aft::outside::excluded, .stream = s.view()});
  }
  CHECK(s.position(0) == length);
  const index_t count = last + win.before;
  const input tail{x.data() + chunk - count, {1, count, 1}};
  const aft::banded_bias rows{aft::tensor_view<const float, 2>{band.data(), {count, win.width()}, {0, 1}}};
  aft::local(tail, tail, tail, rows, win, output{alone.data(), {1, count, 1}},
             {.causal = true, .outside = aft::outside::excluded});
  for (index_t i = 0; i < last; ++i) {
    const float expected = alone[static_cast<std::size_t>(win.before + i)];
    const float difference = std::abs(y[static_cast<std::size_t>(chunk - last + i)] - expected);
    // Eight units in the last place of max |v|, which is below 2, and as many roundings of the gate.
    CHECK(difference <= 16 * 2 * std::numeric_limits<float>::epsilon());
  }
}

TEST_CASE("reports: one position a call, in tensors of T = 1 with or without the axis, whatever their strides there") {
  const sequence x(25);
  for (int op = 0; op < operators; ++op) {
    CAPTURE(op);
    const auto all = whole(op, x, T);
    const slots s(spec_of(op), 1);
    for (index_t t = 0; t < T; ++t) {
      const auto of = [&](const std::vector<float>& rows) {
        const float* const at = rows.data() + t * d;
        const index_t odd = t % 3 == 0 ? 0 : (t % 3 == 1 ? -7 : std::numeric_limits<index_t>::max());
        return input{at, {1, 1, d}, {odd, odd, 1}};
      };
      std::vector<float> y(d);
      const aft::options opt{.causal = true, .stream = s.view()};
      if (t % 2 == 0) {
        call(op, of(x.q), of(x.k), of(x.v), {y.data(), {1, 1, d}}, opt);
      } else if (op == 0) {
        const auto row = [&](const std::vector<float>& rows) {
          return aft::tensor_view<const float, 2>{rows.data() + t * d, {1, d}};
        };
        aft::simple(row(x.q), row(x.k), row(x.v), aft::tensor_view<float, 2>{y.data(), {1, d}}, opt);
      } else {
        call(op, of(x.q), of(x.k), of(x.v), {y.data(), {1, 1, d}, {1, 1, 1}}, opt);
      }
      CHECK(y == part(all, t, t + 1));
    }
  }
}

TEST_CASE("reports: continuous batching, where each slot is at another position and requests join and leave") {
  constexpr std::size_t requests = 7;
  constexpr std::int32_t places = 3;
  std::vector<sequence> x;
  for (unsigned i = 0; i < requests; ++i) x.emplace_back(40 + 3 * i);
  for (int op = 0; op < operators; ++op) {
    CAPTURE(op);
    const slots s(spec_of(op), places);
    struct running {
      std::size_t request;
      std::int32_t slot;
      index_t t;
    };
    std::vector<running> active;
    std::vector<std::vector<float>> got(requests);
    std::size_t next = 0;
    std::vector<std::int32_t> free{1, 2, 0};
    while (next < requests || !active.empty()) {
      while (next < requests && !free.empty()) {
        // A slot that another request has left begins anew.
        aft::reset(aft::cpu{}, s.view(), free.back());
        active.push_back({next++, free.back(), 0});
        free.pop_back();
      }
      std::vector<row> rows;
      rows.reserve(active.size());
      for (const running& r : active) rows.push_back({r.slot, &x[r.request], r.t});
      std::reverse(rows.begin(), rows.end());
      const auto y = feed(op, s, rows, 1);
      for (std::size_t i = 0; i < active.size(); ++i) {
        const auto at = static_cast<index_t>(active.size() - 1 - i);
        const auto own = part(y, at, at + 1);
        auto& to = got[active[i].request];
        to.insert(to.end(), own.begin(), own.end());
        ++active[i].t;
        CHECK(s.position(active[i].slot) == active[i].t);
      }
      for (std::size_t i = active.size(); i-- > 0;) {
        if (active[i].t < static_cast<index_t>(20 + 11 * active[i].request)) continue;
        free.push_back(active[i].slot);
        active.erase(active.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    for (std::size_t i = 0; i < requests; ++i) CHECK(got[i] == whole(op, x[i], static_cast<index_t>(20 + 11 * i)));
  }
}
