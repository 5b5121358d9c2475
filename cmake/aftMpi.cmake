# SPDX-License-Identifier: Apache-2.0
# aft::mpi: aft::aft, and the MPI that aft/distributed/mpi.hpp includes. The package's component `mpi`, and the same
# target in a build of the project with AFT_ENABLE_MPI. Without an MPI there is no such target.
if(NOT TARGET MPI::MPI_CXX)
  find_package(MPI QUIET COMPONENTS CXX)
endif()
if(TARGET MPI::MPI_CXX AND NOT TARGET aft::mpi)
  add_library(aft_mpi INTERFACE)
  add_library(aft::mpi ALIAS aft_mpi)
  target_link_libraries(aft_mpi INTERFACE aft::aft MPI::MPI_CXX)
endif()
