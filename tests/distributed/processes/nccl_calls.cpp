// SPDX-License-Identifier: Apache-2.0
// Calls over NCCL: one rank for each GPU of this machine, a thread each. With one GPU the bits are those of the plain
// call; with more, every rank's part has the bits that threads give for the same cut. 77 where there is none.
#include <aft/distributed/in_process.hpp>
#include <aft/distributed/nccl.hpp>

#include "engines/engine.hpp"

#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

static_assert(aft::starting_communicator<const aft::nccl_ref>);

namespace {

constexpr aft::index_t rows_of_a_rank = 5, d = 6;

std::vector<float> numbers(std::size_t n, float shift) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(shift + 0.7f * static_cast<float>(i));
  return x;
}

/// Every rank's part of y and dv, by `communicator_of(rank)` in a thread of its own.
template <class Communicator>
std::vector<float> run(int ranks, const Communicator& communicator_of) {
  const auto n = static_cast<std::size_t>(ranks * rows_of_a_rank * d);
  const std::vector<float> q = numbers(n, 1), k = numbers(n, 2), v = numbers(n, 3), w = numbers(5, 4);
  std::vector<float> y(n, 7), dv(n, 7);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const auto part = [&](const std::vector<float>& x) {
        return aft::tensor_view<const float, 2>{x.data() + r * rows_of_a_rank * d, {rows_of_a_rank, d}};
      };
      const auto written = [&](std::vector<float>& x) {
        return aft::tensor_view<float, 2>{x.data() + r * rows_of_a_rank * d, {rows_of_a_rank, d}};
      };
      const aft::tensor_view<const float, 2> filter{w.data(), {1, 5}};
      const aft::split exec{aft::cpu{.threads = 1}, communicator_of(r)};
      aft::conv(exec, part(q), part(k), part(v), filter, written(y));
      aft::conv_backward(exec, part(q), part(k), part(v), filter, part(q), aft::no_grad, aft::no_grad, written(dv),
                         aft::no_grad);
    });
  for (std::thread& t : threads) t.join();
  y.insert(y.end(), dv.begin(), dv.end());
  return y;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("not run: nccl.calls: this machine has no GPU");
    return 77;
  }
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(devices));
  if (ncclCommInitAll(comms.data(), devices, nullptr) != ncclSuccess) return 1;
  const auto got = run(devices, [&](int r) {
    cudaSetDevice(r);
    return aft::nccl_ref{comms[static_cast<std::size_t>(r)]};
  });
  const auto group = aft::in_process::group(devices);
  const auto want = run(devices, [&](int r) { return group[static_cast<std::size_t>(r)]; });
  for (ncclComm_t comm : comms) ncclCommDestroy(comm);
  std::printf("%d GPUs: %s\n", devices, got == want ? "the bits of threads" : "other bits than threads give");
  return got == want ? 0 : 1;
}
