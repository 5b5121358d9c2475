// SPDX-License-Identifier: Apache-2.0
// Started by mpiexec: rank 1 is gone before the call that the others make. They wait for it, and the engine has to end
// them: no rank comes back from the call, and mpiexec says that something failed.
#include <aft/distributed/mpi.hpp>

#include "engines/engine.hpp"

#include <cstdio>
#include <cstdlib>
#include <vector>

int main() {
  MPI_Init(nullptr, nullptr);
  const aft::mpi_ref ranks{MPI_COMM_WORLD};
  // Neither MPI_Finalize nor MPI_Abort: as a process that was killed.
  if (ranks.rank() == 1) std::_Exit(3);
  std::vector<float> numbers(12, 1), out(12);
  const aft::tensor_view<const float, 2> x{numbers.data(), {6, 2}};
  aft::simple(aft::split{aft::cpu{.threads = 1}, ranks}, x, x, x, aft::tensor_view<float, 2>{out.data(), {6, 2}});
  std::puts("the call came back");
  MPI_Finalize();
  return 0;
}
