# SPDX-License-Identifier: Apache-2.0
# What the library itself needs. Test and example dependencies are found where they are used.
if(NOT TARGET xsimd)
  find_package(xsimd CONFIG REQUIRED)
  # Checked here because the packages' own compatibility rules differ (exact minor in one, any newer in another).
  if(xsimd_VERSION VERSION_LESS 8.1)
    message(FATAL_ERROR "aft needs xsimd 8.1 or newer, found ${xsimd_VERSION}")
  endif()
endif()

if(AFT_OPENMP AND NOT TARGET OpenMP::OpenMP_CXX)
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(STATUS "aft: no OpenMP for ${CMAKE_CXX_COMPILER_ID}, calls run on one thread")
  endif()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/aft_link_dependencies.cmake")
