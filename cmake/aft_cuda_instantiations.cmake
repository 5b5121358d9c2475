# SPDX-License-Identifier: Apache-2.0
# Installed too.

# aft_cuda_std_20(): CMake before 3.25.2 does not know the C++20 flag of recent nvcc. Call it where the CUDA language is
# enabled; it does nothing where CMake knows.
macro(aft_cuda_std_20)
  if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA_STANDARD_LATEST 20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
endmacro()

# aft_add_cuda_instantiations(<target> <dtype>...): adds the kernels to a program or library whose .cpp files call aft
# with aft::cuda. Each dtype is float, half, bfloat16 (all three are one set of kernels) or double. A program needs it
# once, in one of its targets; programs that make all such calls in .cu files do not need it.
function(aft_write_cuda_instantiations target)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "aft_add_cuda_instantiations: enable the language first: enable_language(CUDA)")
  endif()
  if(NOT ARGN)
    message(FATAL_ERROR "aft_add_cuda_instantiations(${target}): name the types: float, half, bfloat16 or double")
  endif()
  set(types "")
  foreach(dtype IN LISTS ARGN)
    if(dtype MATCHES "^(float|half|bfloat16)$")
      list(APPEND types float)
    elseif(dtype STREQUAL "double")
      list(APPEND types double)
    else()
      message(FATAL_ERROR "aft_add_cuda_instantiations(${target}): float, half, bfloat16 or double, not ${dtype}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES types)
  foreach(type IN LISTS types)
    # A file for each, so that they compile side by side.
    set(source "${CMAKE_CURRENT_BINARY_DIR}/aft_cuda_${target}_${type}.cu")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include <aft/cuda/backend.hpp>\nAFT_CUDA_INSTANTIATE(@type@);\n" @ONLY)
    target_sources(${target} PRIVATE "${source}")
  endforeach()
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  target_link_libraries(${target} PRIVATE aft::cuda)
endfunction()

# A macro, since what aft_cuda_std_20 sets is read in the scope of the target's directory.
macro(aft_add_cuda_instantiations)
  aft_cuda_std_20()
  aft_write_cuda_instantiations(${ARGV})
endmacro()
