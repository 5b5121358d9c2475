// SPDX-License-Identifier: Apache-2.0
// What one rank finds wrong is thrown on all of them, before anything is written.
#include "engines/engine.hpp"

#include <doctest/doctest.h>

#include <aft/distributed/in_process.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <thread>

using aft::index_t;
using sequence_view = aft::tensor_view<float, 3>;

namespace {

constexpr index_t T = 6, d = 2;

struct outcome {
  std::vector<std::string> shape, memory, other;  ///< by rank, what was thrown
};

/// Calls f(rank, communicator) on `size` threads.
outcome on_ranks(int size, const std::function<void(int, aft::in_process)>& f) {
  const auto n = static_cast<std::size_t>(size);
  outcome out{std::vector<std::string>(n), std::vector<std::string>(n), std::vector<std::string>(n)};
  const auto group = aft::in_process::group(size);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      try {
        f(static_cast<int>(r), group[r]);
      } catch (const aft::shape_error& e) {
        out.shape[r] = e.what();
      } catch (const std::bad_alloc& e) {
        out.memory[r] = e.what();
      } catch (const std::exception& e) {
        out.other[r] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return out;
}

/// One rank's own tensors, all of them `T` long.
struct tensors {
  std::vector<float> q = std::vector<float>(T * d, 1), k = q, v = q, y = std::vector<float>(T * d, 7);
  std::vector<float> w = std::vector<float>(T * 3 * T, 0.5f);
  sequence_view view(std::vector<float>& x, index_t length = T) { return sequence_view{x.data(), {1, length, d}}; }
  bool untouched() const {
    return std::all_of(y.begin(), y.end(), [](float e) { return e == 7; });
  }
};

void expect_all(const std::vector<std::string>& thrown, const std::string& part) {
  for (const std::string& text : thrown) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  }
}

/// aft::simple on three ranks with what `options_of` and `length_of` say; nothing may be written.
outcome run_simple(const std::function<aft::options(int)>& options_of, const std::function<index_t(int)>& length_of) {
  std::vector<tensors> all(3);
  const outcome out = on_ranks(3, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    aft::simple(aft::split{aft::cpu{}, comm}, x.view(x.q), x.view(x.k, length_of(rank)), x.view(x.v), x.view(x.y),
                options_of(rank));
  });
  for (const tensors& x : all) CHECK(x.untouched());
  return out;
}

}  // namespace

TEST_CASE("a wrong shape on one rank is a shape_error on all, with the rank and the argument") {
  const outcome out = run_simple([](int) { return aft::options{}; }, [](int rank) { return rank == 1 ? T - 1 : T; });
  expect_all(out.shape, "rank 1: aft::simple: argument 'k'");
}

TEST_CASE("ranks that ask for different things are told so") {
  const outcome gates =
      run_simple([](int rank) { return aft::options{.gate_fn = rank == 2 ? aft::gate::tanh : aft::gate::relu}; },
                 [](int) { return T; });
  expect_all(gates.shape, "rank 2: aft::simple: its operator, options");
  const outcome causal = run_simple([](int rank) { return aft::options{.causal = rank == 1}; }, [](int) { return T; });
  expect_all(causal.shape, "rank 1: ");

  std::vector<tensors> all(2);
  const outcome operators = on_ranks(2, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    const aft::split exec{aft::cpu{}, comm};
    if (rank == 0) return aft::simple(exec, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y));
    const aft::tensor_view<float, 2> filter{x.w.data(), {1, 3}};
    aft::conv(exec, x.view(x.q), x.view(x.k), x.view(x.v), filter, x.view(x.y));
  });
  expect_all(operators.shape, "rank 1: aft::");
  for (const tensors& x : all) CHECK(x.untouched());
}

TEST_CASE("lengths that differ between ranks are a disagreement") {
  const std::int64_t lengths[] = {9, 9, 10};
  const outcome out = run_simple(
      [&](int rank) {
        return aft::options{.key_lengths = aft::tensor_view<const std::int64_t, 1>{lengths + rank, {1}}};
      },
      [](int) { return T; });
  expect_all(out.shape, "rank 2: ");
}

TEST_CASE("tensors that are whole, or as long as the whole, have the lengths of all ranks") {
  std::vector<tensors> all(3);
  const auto call = [&](index_t columns, int wrong_rank) {
    return on_ranks(3, [&](int rank, aft::in_process comm) {
      tensors& x = all[static_cast<std::size_t>(rank)];
      const index_t n = rank == wrong_rank ? columns : 3 * T;
      const aft::dense_bias w{aft::tensor_view<const float, 2>{x.w.data(), {T, n}, {1, 1}}};
      aft::full(aft::split{aft::cpu{}, comm}, x.view(x.q), x.view(x.k), x.view(x.v), w, x.view(x.y));
    });
  };
  expect_all(call(T, 0).shape, "rank 0: aft::full: argument 'w' of bias: expected extent 1 (Tk of all ranks) to be 18");
  for (const tensors& x : all) CHECK(x.untouched());
  const std::uint8_t mask[T] = {1, 1, 1, 1, 1, 1};
  const outcome masks = run_simple(
      [&](int) {
        return aft::options{.mask = aft::tensor_view<const std::uint8_t, 1>{mask, {T}}};
      },
      [](int) { return T; });
  expect_all(masks.shape, "rank 0: aft::simple: argument 'mask': expected extent 0 (Tk of all ranks) to be 18");
}

TEST_CASE("what a cut call cannot have is refused, by one rank alone too") {
  const std::int64_t offsets[] = {0, T};
  const aft::tensor_view<const std::int64_t, 1> packed{offsets, {2}};
  for (const aft::options& o : {aft::options{.first_query = 2}, aft::options{.query_offsets = packed}}) {
    const outcome out = run_simple([&](int) { return o; }, [](int) { return T; });
    expect_all(out.shape, o.first_query != 0 ? "rank 0: aft::simple: argument 'first_query'"
                                             : "rank 0: aft::simple: argument 'query_offsets'");
    tensors x;
    const outcome alone = on_ranks(1, [&](int, aft::in_process comm) {
      aft::simple(aft::split{aft::cpu{}, comm}, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y), o);
    });
    CHECK_FALSE(alone.shape[0].empty());
  }
}

TEST_CASE("the rank that is wrong is named, not those whose tensors no longer fit") {
  std::vector<tensors> all(3);
  const outcome out = on_ranks(3, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    const aft::dense_bias w{aft::tensor_view<const float, 2>{x.w.data(), {T, 3 * T}, {1, 1}}};
    aft::full(aft::split{aft::cpu{}, comm}, x.view(x.q), x.view(x.k), x.view(x.v), w, x.view(x.y),
              aft::options{.first_query = rank == 1 ? 3 : 0});
  });
  expect_all(out.shape, "rank 1: aft::full: argument 'first_query'");
  for (const tensors& x : all) CHECK(x.untouched());
}

TEST_CASE("a negative number of threads on one rank") {
  std::vector<tensors> all(2);
  const outcome out = on_ranks(2, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    aft::simple(aft::split{aft::cpu{.threads = rank == 1 ? -1 : 1}, comm}, x.view(x.q), x.view(x.k), x.view(x.v),
                x.view(x.y));
  });
  expect_all(out.shape, "rank 1: aft::simple: argument 'exec'");
}

TEST_CASE("memory that one rank lacks is std::bad_alloc on all") {
  struct empty_resource : std::pmr::memory_resource {
    void* do_allocate(std::size_t, std::size_t) override { throw std::bad_alloc(); }
    void do_deallocate(void*, std::size_t, std::size_t) override {}
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
  } empty;
  std::vector<tensors> all(3);
  const outcome out = on_ranks(3, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    const aft::cpu exec{.threads = 1, .memory = rank == 2 ? &empty : nullptr};
    aft::simple(aft::split{exec, comm}, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y));
  });
  expect_all(out.memory, "rank 2: ");
  for (const tensors& x : all) CHECK(x.untouched());
}

TEST_CASE("a group that is aborted lets waiting ranks go") {
  const outcome out = on_ranks(2, [](int rank, aft::in_process comm) {
    if (rank == 0) {
      std::byte one{};
      comm.send_recv({}, 1, std::span<std::byte>(&one, 1), 1);
    }
    comm.abort();
  });
  CHECK_FALSE(out.other[0].empty());
  CHECK(out.other[1].empty());
}

TEST_CASE("ranks that ask for gradients of other shapes are told so") {
  // A filter that both heads share: the gradient of each head, or of both together.
  std::vector<tensors> all(3);
  const outcome out = on_ranks(3, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    const aft::tensor_view<const float, 2> filter{x.w.data(), {2, 3}, {0, 1}};
    std::vector<float> gradient(6, 7);
    const aft::tensor_view<float, 2> dfilter{gradient.data(), {rank == 1 ? 1 : 2, 3}};
    aft::conv_backward(aft::split{aft::cpu{.threads = 1}, comm}, x.view(x.q), x.view(x.k), x.view(x.v), filter,
                       x.view(x.q), x.view(x.y), aft::no_grad, aft::no_grad, dfilter);
    CHECK(gradient == std::vector<float>(6, 7));
  });
  expect_all(out.shape, "rank 1: aft::conv_backward: its operator, options, lengths or shapes are not those of rank 0");
  for (const tensors& x : all) CHECK(x.untouched());
}

TEST_CASE("a connection that fails before data moves lets the other ranks go") {
  /// Whose n-th record fails.
  struct failing {
    aft::in_process of;
    int* left;
    int rank() const { return of.rank(); }
    int size() const { return of.size(); }
    void all_gather(std::span<const std::byte> part, std::span<std::byte> gathered) const {
      if (of.rank() == 1 && (*left)-- == 0) throw aft::communication_error("the wire is cut");
      of.all_gather(part, gathered);
    }
    void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
      of.send_recv(out, to, in, from);
    }
    void abort() const { of.abort(); }
  };
  for (const int records : {0, 1}) {
    std::vector<tensors> all(3);
    std::vector<int> left(3, records);
    const outcome out = on_ranks(3, [&](int rank, aft::in_process comm) {
      tensors& x = all[static_cast<std::size_t>(rank)];
      const failing cut{comm, &left[static_cast<std::size_t>(rank)]};
      aft::simple(aft::split{aft::cpu{.threads = 1}, cut}, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y));
    });
    CHECK(out.other[1] == "the wire is cut");
    for (const std::size_t r : {std::size_t{0}, std::size_t{2}})
      CHECK(out.other[r] == "aft::in_process: another rank gave up");
    for (const tensors& x : all) CHECK(x.untouched());
  }
}

TEST_CASE("calls after one that failed go on with the same group") {
  std::vector<tensors> all(2);
  const outcome out = on_ranks(2, [&](int rank, aft::in_process comm) {
    tensors& x = all[static_cast<std::size_t>(rank)];
    const aft::split exec{aft::cpu{.threads = 1}, comm};
    CHECK_THROWS_AS(
        aft::simple(exec, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y), aft::options{.first_query = rank}),
        aft::shape_error);
    aft::simple(exec, x.view(x.q), x.view(x.k), x.view(x.v), x.view(x.y), aft::options{.gate_fn = aft::gate::none});
  });
  for (const std::string& text : out.shape) CHECK(text == "");
  // An average of ones, by the bound of every average: 8 units in the last place.
  const auto is_one = [](float e) { return std::abs(e - 1) <= 8 * std::numeric_limits<float>::epsilon(); };
  for (const tensors& x : all) CHECK(std::all_of(x.y.begin(), x.y.end(), is_one));
}
