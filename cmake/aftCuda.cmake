# SPDX-License-Identifier: Apache-2.0
# The package's component `cuda`; included by aftConfig.cmake.
include(CMakeFindDependencyMacro)
if(NOT TARGET CUDA::cudart)
  find_dependency(CUDAToolkit)
endif()
if(NOT TARGET aft::cuda)
  include("${CMAKE_CURRENT_LIST_DIR}/aftCudaTargets.cmake")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/aft_cuda_instantiations.cmake")
