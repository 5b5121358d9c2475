// SPDX-License-Identifier: Apache-2.0
// scale <case> <threads> <repetitions>: one call of an operator whose sequence is cut over the processes of mpirun, and
// its gradients; <case> may be `messages` for what a message costs. Times of the slowest rank, as JSON.
#include <aft/distributed/mpi.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using aft::index_t;

/// Of the whole; one batch element.
struct shape {
  index_t T, d;
  bool by_work;  ///< ranks have rows by their work
};

struct times {
  std::vector<double> forward, backward;  // ms
};

/// Numbers in [-1, 1) that a rank makes by itself.
std::vector<float> numbers(index_t count, std::uint32_t seed) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& e : x) {
    seed = seed * 1664525u + 1013904223u;
    e = static_cast<float>(seed >> 8) * 0x1p-23f - 1;
  }
  return x;
}

/// Milliseconds until the last rank is done, of a call that all begin together.
double milliseconds(const std::function<void()>& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  call();
  double own = 1e3 * (MPI_Wtime() - start), longest = 0;
  MPI_Allreduce(&own, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return longest;
}

/// The first row of a rank. Of causal `full` row t has t pairs, so that ranks have the same work where their rows end
/// at square roots of equal shares.
index_t first_row(const shape& s, int rank, int ranks) {
  const double share = static_cast<double>(rank) / ranks;
  return std::llround(static_cast<double>(s.T) * (s.by_work ? std::sqrt(share) : share));
}

/// The rank's rows of every tensor of a call.
class operands {
 public:
  operands(const shape& s, int rank, int ranks)
      : rows_(first_row(s, rank + 1, ranks) - first_row(s, rank, ranks)), d_(s.d) {
    for (std::uint32_t i = 0; i < 4; ++i) in_.push_back(numbers(rows_ * d_, 7 * i + static_cast<std::uint32_t>(rank)));
    for (int i = 0; i < 4; ++i) out_.emplace_back(static_cast<std::size_t>(rows_ * d_));
  }
  using view = aft::tensor_view<float, 3>;
  view q() { return of(in_[0]); }
  view k() { return of(in_[1]); }
  view v() { return of(in_[2]); }
  view dy() { return of(in_[3]); }
  view y() { return of(out_[0]); }
  view dq() { return of(out_[1]); }
  view dk() { return of(out_[2]); }
  view dv() { return of(out_[3]); }
  index_t rows() const { return rows_; }

 private:
  view of(std::vector<float>& x) const { return view(x.data(), {1, rows_, d_}); }

  index_t rows_, d_;
  std::vector<std::vector<float>> in_, out_;
};

/// forward(x) and backward(x) by turns, once to warm up.
template <class Forward, class Backward>
times measure(const shape& s, int repetitions, const aft::mpi_ref& ranks, const Forward& forward,
              const Backward& backward) {
  operands x(s, ranks.rank(), ranks.size());
  times result;
  for (int i = 0; i <= repetitions; ++i) {
    const double one = milliseconds([&] { forward(x); }), other = milliseconds([&] { backward(x); });
    if (i == 0) continue;
    result.forward.push_back(one);
    result.backward.push_back(other);
  }
  return result;
}

times measure_case(const std::string& name, int threads, int repetitions, const aft::mpi_ref& ranks) {
  const aft::split exec{aft::cpu{.threads = threads}, ranks};
  const shape s{name == "full" ? 16384 : 65536, 512, name == "full"};
  const aft::options o{.causal = name == "full" || name == "simple_causal"};
  if (name == "simple" || name == "simple_causal") {
    return measure(
        s, repetitions, ranks, [&](operands& x) { aft::simple(exec, x.q(), x.k(), x.v(), x.y(), o); },
        [&](operands& x) { aft::simple_backward(exec, x.q(), x.k(), x.v(), x.dy(), x.dq(), x.dk(), x.dv(), o); });
  }
  if (name == "conv") {
    constexpr index_t heads = 8, taps = 32;
    std::vector<float> r = numbers(heads * taps, 5), dr(r.size());
    const auto filter = [](std::vector<float>& of) { return aft::tensor_view<float, 2>(of.data(), {heads, taps}); };
    return measure(
        s, repetitions, ranks, [&](operands& x) { aft::conv(exec, x.q(), x.k(), x.v(), filter(r), x.y(), o); },
        [&](operands& x) {
          aft::conv_backward(exec, x.q(), x.k(), x.v(), filter(r), x.dy(), x.dq(), x.dk(), x.dv(), filter(dr), o);
        });
  }
  if (name == "local") {
    const aft::window near = aft::window::strict(32);
    const index_t width = near.before + near.after + 1,
                  rows = operands(shape{s.T, 1, false}, ranks.rank(), ranks.size()).rows();
    std::vector<float> w = numbers(rows * width, 6), dw(w.size());
    const auto band = [&](std::vector<float>& of) {
      return aft::banded_bias{aft::tensor_view<float, 2>(of.data(), {rows, width})};
    };
    return measure(
        s, repetitions, ranks, [&](operands& x) { aft::local(exec, x.q(), x.k(), x.v(), band(w), near, x.y(), o); },
        [&](operands& x) {
          aft::local_backward(exec, x.q(), x.k(), x.v(), band(w), near, x.dy(), x.dq(), x.dk(), x.dv(), band(dw), o);
        });
  }
  if (name == "full") {
    constexpr index_t rank = 64;
    std::vector<float> u = numbers(s.T * rank, 8), v = numbers(s.T * rank, 9), du(u.size()), dv(v.size());
    // Entries of u v^T of about 1 in size.
    for (std::vector<float>* factor : {&u, &v})
      for (float& e : *factor) e *= 0.5f;
    const auto bias = [&](std::vector<float>& a, std::vector<float>& b) {
      return aft::factorized_bias{aft::tensor_view<float, 2>(a.data(), {s.T, rank}),
                                  aft::tensor_view<float, 2>(b.data(), {s.T, rank})};
    };
    return measure(
        s, repetitions, ranks, [&](operands& x) { aft::full(exec, x.q(), x.k(), x.v(), bias(u, v), x.y(), o); },
        [&](operands& x) {
          aft::full_backward(exec, x.q(), x.k(), x.v(), bias(u, v), x.dy(), x.dq(), x.dk(), x.dv(), bias(du, dv), o);
        });
  }
  throw std::invalid_argument("no such case: " + name);
}

void print(const char* name, const std::vector<double>& values, const char* end) {
  std::printf("\"%s\": [", name);
  for (std::size_t i = 0; i < values.size(); ++i) std::printf("%s%.6g", i == 0 ? "" : ", ", values[i]);
  std::printf("]%s", end);
}

/// Between each rank and the next, all at once, as calls do it.
void measure_messages(int repetitions, const aft::mpi_ref& ranks) {
  const int n = ranks.size(), to = (ranks.rank() + 1) % n, from = (ranks.rank() + n - 1) % n;
  std::vector<double> sizes, sent, gathered;
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 12, std::size_t{1} << 16, std::size_t{1} << 20,
                                  std::size_t{1} << 24, std::size_t{1} << 26}) {
    std::vector<std::byte> out(bytes), in(bytes), all(bytes <= 4096 ? bytes * static_cast<std::size_t>(n) : 0);
    const int calls = bytes < 65536 ? 200 : 1;
    double shortest = 1e9, shortest_gather = 0;
    for (int i = 0; i < repetitions + 2; ++i)
      shortest = std::min(shortest, milliseconds([&] {
                                      for (int j = 0; j < calls; ++j) ranks.send_recv(out, to, in, from);
                                    }) / calls);
    if (!all.empty()) {
      shortest_gather = 1e9;
      for (int i = 0; i < repetitions + 2; ++i)
        shortest_gather = std::min(shortest_gather, milliseconds([&] {
                                                      for (int j = 0; j < calls; ++j) ranks.all_gather(out, all);
                                                    }) / calls);
    }
    sizes.push_back(static_cast<double>(bytes));
    sent.push_back(1e3 * shortest);
    gathered.push_back(1e3 * shortest_gather);
  }
  if (ranks.rank() != 0) return;
  std::printf("{\"ranks\": %d, ", n);
  print("bytes", sizes, ", ");
  print("send_recv_us", sent, ", ");
  print("all_gather_us", gathered, "}\n");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = EXIT_SUCCESS;
  try {
    if (argc != 4)
      throw std::invalid_argument("scale <simple|simple_causal|local|conv|full|messages> <threads> <repetitions>");
    const aft::mpi_ref ranks{MPI_COMM_WORLD};
    const int threads = std::stoi(argv[2]), repetitions = std::stoi(argv[3]);
    if (std::string(argv[1]) == "messages") {
      measure_messages(repetitions, ranks);
    } else {
      const times t = measure_case(argv[1], threads, repetitions, ranks);
      if (ranks.rank() == 0) {
        std::printf("{\"case\": \"%s\", \"ranks\": %d, \"threads\": %d, ", argv[1], ranks.size(), threads);
        print("forward_ms", t.forward, ", ");
        print("backward_ms", t.backward, "}\n");
      }
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "scale: %s\n", e.what());
    status = EXIT_FAILURE;
  }
  if (status != EXIT_SUCCESS) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
