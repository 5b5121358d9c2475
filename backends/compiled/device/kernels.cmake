# SPDX-License-Identifier: Apache-2.0
# The CUDA kernels of aft::compiled. Included at the top, as a language is enabled there.
if(TARGET CUDA::cudart)
  find_package(CUDAToolkit REQUIRED)
else()
  find_package(CUDAToolkit REQUIRED)
  # Whoever links a static library of another folder names it there.
  set_target_properties(CUDA::cudart PROPERTIES IMPORTED_GLOBAL TRUE)
endif()
# Chosen before the language is enabled, which sets nvcc's own default: an Ampere and a Hopper with its own instructions; code
# for every later GPU is made from that for Ampere when a program runs.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES "80;90a-real")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}" CACHE FILEPATH "CUDA compiler")
endif()
enable_language(CUDA)
include(aft_cuda_instantiations)
aft_cuda_std_20()

# aft_add_compiled_device(<prefix>): the object library <prefix>_device with the kernels for CMAKE_CUDA_ARCHITECTURES.
function(aft_add_compiled_device prefix)
  set(room "${aft_SOURCE_DIR}/backends/compiled")
  add_library(${prefix}_device OBJECT "${room}/device/kernels_f32.cu" "${room}/device/kernels_f64.cu")
  # A level of its own: neither a program's instantiations nor another version's share a function with it.
  target_compile_definitions(${prefix}_device PRIVATE AFT_COMPILED_LEVEL=cuda)
  target_include_directories(${prefix}_device PRIVATE "${room}/include" "${aft_SOURCE_DIR}/backends/cuda/include"
                                                      "${aft_SOURCE_DIR}/include")
  set_target_properties(
    ${prefix}_device
    PROPERTIES CUDA_STANDARD 20
               CUDA_STANDARD_REQUIRED ON
               CUDA_SEPARABLE_COMPILATION OFF
               CUDA_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  if(AFT_TRY_PROGRAMS AND NOT EXISTS /dev/nvidiactl)
    # Nobody runs them: 62 s instead of 87 for those of float.
    target_compile_options(${prefix}_device PRIVATE "SHELL:-Xcicc -O1" "SHELL:-Xptxas -O1" "SHELL:-Xcompiler -O1")
  endif()
endfunction()
