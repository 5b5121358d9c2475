// SPDX-License-Identifier: Apache-2.0

#include <aft/distributed/mpi.hpp>

#include "char_lm/ranks/started.hpp"

#include <cstdio>

namespace examples::char_lm {

started::started(int* argc, char*** argv) {
  // Messages are the main thread's; others compute, or draw the progress of the run.
  int offered = 0;
  MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &offered);
  all_ = std::make_unique<ranks_over<aft::mpi_ref>>(aft::mpi_ref{MPI_COMM_WORLD});
  if (all_->rank() > 0 && std::freopen("/dev/null", "w", stdout) == nullptr) std::perror("char_lm: /dev/null");
}

started::~started() {
  MPI_Finalize();
}

}  // namespace examples::char_lm
