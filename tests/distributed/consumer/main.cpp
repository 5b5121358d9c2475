// SPDX-License-Identifier: Apache-2.0
// As a user's first program over several processes: the same call on every rank, with its own part.
#include <aft/distributed/mpi.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const aft::mpi_ref ranks{MPI_COMM_WORLD};
  const aft::index_t T = 4 + ranks.rank(), d = 2;
  std::vector<float> k(static_cast<std::size_t>(T * d), 1), v(k.size(), static_cast<float>(ranks.rank())), y(k.size());
  const auto part = [&](std::vector<float>& of) { return aft::tensor_view<float, 2>{of.data(), {T, d}}; };
  aft::simple(aft::split{aft::cpu{.threads = 1}, ranks}, part(y), part(k), part(v), part(y),
              aft::options{.gate_fn = aft::gate::none});

  // The mean over 4 zeros, 5 ones, 6 twos and so on.
  double sum = 0, count = 0;
  for (int r = 0; r < ranks.size(); ++r) {
    sum += (4 + r) * r;
    count += 4 + r;
  }
  // Eight units in the last place of the largest value, as every average.
  const double bound = 8 * 0x1p-23 * ranks.size();
  bool right = true;
  for (const float value : y) right = right && std::abs(static_cast<double>(value) - sum / count) <= bound;
  if (!right) std::printf("rank %d: %g, not %g\n", ranks.rank(), static_cast<double>(y[0]), sum / count);
  MPI_Finalize();
  return right ? 0 : 1;
}
