# SPDX-License-Identifier: Apache-2.0
# The package's component `compiled`; included by aftConfig.cmake. A static library leaves OpenMP to its program.
if(NOT TARGET aft::compiled)
  include("${CMAKE_CURRENT_LIST_DIR}/aftCompiledTargets.cmake")
  get_target_property(_aft_links aft::compiled INTERFACE_LINK_LIBRARIES)
  if(_aft_links MATCHES "OpenMP" AND NOT TARGET OpenMP::OpenMP_CXX)
    include(CMakeFindDependencyMacro)
    find_dependency(OpenMP COMPONENTS CXX)
  endif()
  unset(_aft_links)
endif()
