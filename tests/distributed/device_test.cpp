// SPDX-License-Identifier: Apache-2.0
// Ranks with aft::cuda, each a thread with an emulated device of its own: what fails is thrown on all of them before
// anything is written, calls wait for their stream, and no memory of a device stays behind.
#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <aft/distributed/in_process.hpp>
#include <device_emulator.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <thread>

using aft::index_t;
using device_rows = aft::tensor_view<float, 3, aft::device_space>;

namespace {

namespace emulator = aft::emulator;
constexpr index_t T = 6, d = 2;

/// What a rank threw, and what its device says after the call.
struct outcome {
  std::string shape, device, communication, other;
  std::size_t in_use = 0;
  long waits = 0;
  void* stream = nullptr;

  bool failed() const { return !shape.empty() || !device.empty() || !communication.empty() || !other.empty(); }
};

std::vector<outcome> on_ranks(int size, const std::function<void(int, aft::in_process)>& f) {
  std::vector<outcome> all(static_cast<std::size_t>(size));
  const auto group = aft::in_process::group(size);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < all.size(); ++r) {
    threads.emplace_back([&, r] {
      outcome& out = all[r];
      try {
        f(static_cast<int>(r), group[r]);
      } catch (const aft::shape_error& e) {
        out.shape = e.what();
      } catch (const aft::device_error& e) {
        out.device = e.what();
      } catch (const aft::communication_error& e) {
        out.communication = e.what();
      } catch (const std::exception& e) {
        out.other = e.what();
      }
      out.in_use = emulator::memory().in_use;
      out.waits = emulator::memory().waits;
      out.stream = emulator::memory().stream;
    });
  }
  for (std::thread& t : threads) t.join();
  return all;
}

/// One rank's own tensors, all of them T long.
struct tensors {
  std::vector<float> q = std::vector<float>(T * d, 1), k = q, v = q, y = std::vector<float>(T * d, 7), dk = y, dv = y;
  device_rows view(std::vector<float>& x, index_t length = T) { return device_rows{x.data(), {1, length, d}}; }
  bool untouched() const {
    return std::ranges::all_of(y, [](float e) { return e == 7; });
  }
};

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  return text.find(part) != std::string::npos;
}

/// Causal aft::simple on three ranks, so that rows have keys of other ranks; `before` is called on each rank's thread.
std::vector<outcome> run_simple(std::vector<tensors>& all, const std::function<void(int)>& before,
                                const std::function<aft::options(int)>& options_of = {},
                                const std::function<index_t(int)>& length_of = {}) {
  all.assign(3, tensors{});
  return on_ranks(3, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    before(rank);
    aft::options o = options_of ? options_of(rank) : aft::options{};
    o.causal = true;
    aft::simple(aft::split{aft::cuda{}, comm}, x.view(x.q), x.view(x.k, length_of ? length_of(rank) : T), x.view(x.v),
                x.view(x.y), o);
  });
}

void do_nothing(int) {}

}  // namespace

TEST_CASE("devices: a wrong shape on one rank is a shape_error on all, with the rank and the argument") {
  std::vector<tensors> all;
  for (const outcome& out : run_simple(all, do_nothing, {}, [](int rank) { return rank == 1 ? T - 1 : T; })) {
    CHECK(has(out.shape, "rank 1: aft::simple: argument 'k'"));
    CHECK(out.in_use == 0);
  }
  for (const tensors& x : all) CHECK(x.untouched());
}

TEST_CASE("devices: lengths and masks are read where they lie, and what differs is a disagreement") {
  const std::int64_t lengths[] = {9, 9, 10};
  std::vector<tensors> all;
  const auto with_lengths = [&](int rank) {
    return aft::options{.key_lengths = aft::tensor_view<const std::int64_t, 1, aft::device_space>{lengths + rank, {1}}};
  };
  for (const outcome& out : run_simple(all, do_nothing, with_lengths)) CHECK(has(out.shape, "rank 2: "));
  for (const tensors& x : all) CHECK(x.untouched());
  const std::uint8_t mask[3 * T] = {1};
  const auto with_host_mask = [&](int rank) {
    return rank == 0 ? aft::options{} : aft::options{.mask = aft::tensor_view<const std::uint8_t, 1>{mask, {3 * T}}};
  };
  for (const outcome& out : run_simple(all, do_nothing, with_host_mask))
    CHECK(has(out.shape, "rank 1: aft::simple: argument 'mask': expected a device view"));
  for (const tensors& x : all) CHECK(x.untouched());
}

TEST_CASE("devices: memory that one lacks is a device_error on all before data moves, and ends the call after") {
  std::vector<tensors> all;
  int agreed = 0, later = 0;
  for (long nth = 0;; ++nth) {
    CAPTURE(nth);
    const std::vector<outcome> outs = run_simple(all, [&](int rank) {
      if (rank == 1) emulator::fail_allocation(nth);
    });
    for (const outcome& out : outs) CHECK(out.in_use == 0);
    if (!outs[1].failed()) break;
    CHECK(has(outs[1].device, "cudaErrorMemoryAllocation"));
    if (!outs[1].device.starts_with("rank 1: ")) {
      // Rank 2 waits for what rank 1 sends it; once it has that, it may end before it hears of the failure.
      if (++later == 1 || outs[2].failed())
        CHECK(has(outs[2].communication, "another rank gave up"));
      else
        CHECK(std::ranges::count(all[2].y, 7.0F) == 0);
      continue;
    }
    ++agreed;
    CHECK(later == 0);
    for (const outcome& out : outs)
      CHECK(has(out.device, "rank 1: aft::simple: allocating memory: cudaErrorMemoryAllocation"));
    for (const tensors& x : all) CHECK(x.untouched());
  }
  CHECK(agreed > 0);
  CHECK(later > 0);
}

TEST_CASE("devices: a launch that fails lets the other ranks go") {
  std::vector<tensors> all;
  const std::vector<outcome> outs = run_simple(all, [](int rank) {
    if (rank == 0) emulator::fail_launch(0);
  });
  CHECK(has(outs[0].device, "aft::simple: launching a kernel: cudaErrorLaunchFailure"));
  for (const outcome& out : outs) {
    CHECK(out.in_use == 0);
    if (&out != outs.data()) CHECK(has(out.communication, "another rank gave up"));
  }
}

TEST_CASE("devices: a stream that is being captured is refused, by one rank and by all") {
  std::vector<tensors> all;
  for (const outcome& out : run_simple(all, [](int rank) { emulator::capture(rank == 2); }))
    CHECK(has(out.device,
              "rank 2: aft::simple: waiting for the stream, as a call over several ranks does: "
              "cudaErrorStreamCaptureUnsupported"));
  for (const tensors& x : all) CHECK(x.untouched());
  tensors x;
  const std::vector<outcome> alone = on_ranks(1, [&](int, aft::in_process comm) {
    emulator::capture(true);
    aft::simple(aft::split{aft::cuda{}, comm}, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y));
  });
  CHECK(has(alone[0].device, "aft::simple: waiting for the stream"));
  CHECK(x.untouched());
}

TEST_CASE("devices: calls are on the caller's stream, and wait for it") {
  for (const int ranks : {1, 2}) {
    std::vector<tensors> all(2);
    int streams[2] = {};
    const std::vector<outcome> outs = on_ranks(ranks, [&](int rank, aft::in_process comm) {
      tensors& x = all[static_cast<std::size_t>(rank)];
      const aft::split exec{aft::cuda{streams + rank}, comm};
      aft::simple(exec, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y));
      const long waits = emulator::memory().waits;
      CHECK(waits > 0);
      aft::simple_backward(exec, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.q), aft::no_grad, x.view(x.dk),
                           x.view(x.dv));
      CHECK(emulator::memory().waits > waits);
    });
    for (std::size_t r = 0; r < outs.size(); ++r) {
      CHECK_FALSE(outs[r].failed());
      CHECK(outs[r].stream == streams + r);
      CHECK(outs[r].in_use == 0);
      CHECK_FALSE(all[r].untouched());
    }
  }
}
