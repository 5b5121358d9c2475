# SPDX-License-Identifier: Apache-2.0
# Installed too: the build tree and the package hang the same things on the target.

# aft_link_dependencies(<target> [BUILD_INTERFACE]): with BUILD_INTERFACE nothing of it reaches an export.
function(aft_link_dependencies target)
  set(before "")
  set(after "")
  if("BUILD_INTERFACE" IN_LIST ARGN)
    set(before "$<BUILD_INTERFACE:")
    set(after ">")
  endif()
  # Debian's target asks for a library `xtl` that its package does not bring; of that one only the headers are taken.
  get_target_property(xsimd_links xsimd INTERFACE_LINK_LIBRARIES)
  if("xtl" IN_LIST xsimd_links AND NOT TARGET xtl)
    get_target_property(xsimd_includes xsimd INTERFACE_INCLUDE_DIRECTORIES)
    target_include_directories(${target} SYSTEM INTERFACE "${before}${xsimd_includes}${after}")
  else()
    target_link_libraries(${target} INTERFACE "${before}xsimd${after}")
  endif()
  if((NOT DEFINED AFT_OPENMP OR AFT_OPENMP) AND TARGET OpenMP::OpenMP_CXX)
    target_link_libraries(${target} INTERFACE "${before}OpenMP::OpenMP_CXX${after}")
  endif()
endfunction()

# aft_add_mpi_target([IMPORTED]): the target aft::mpi, which is aft::aft and the MPI that aft/distributed/mpi.hpp includes.
# Without an MPI for C++ there is none. Only an imported one may be linked by what another project exports.
function(aft_add_mpi_target)
  if(TARGET aft::mpi)
    return()
  endif()
  if(NOT TARGET MPI::MPI_CXX)
    find_package(MPI QUIET COMPONENTS CXX)
    if(NOT TARGET MPI::MPI_CXX)
      return()
    endif()
    # A parent project links aft::mpi in folders that did not look for an MPI.
    set_target_properties(MPI::MPI_CXX PROPERTIES IMPORTED_GLOBAL TRUE)
  endif()
  if("IMPORTED" IN_LIST ARGN)
    add_library(aft::mpi INTERFACE IMPORTED)
    target_link_libraries(aft::mpi INTERFACE aft::aft MPI::MPI_CXX)
  else()
    add_library(aft_mpi INTERFACE)
    add_library(aft::mpi ALIAS aft_mpi)
    target_link_libraries(aft_mpi INTERFACE aft::aft MPI::MPI_CXX)
  endif()
endfunction()
