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
if(AFT_TRY_PROGRAMS AND NOT EXISTS /dev/nvidiactl)
  # Nobody runs what is compiled here: PTX is not assembled. tests/cuda/toolkit has every kernel as users get it. Those of
  # float take 10 s of a core so, and 26 as machine code at -O1.
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "-real$" "-virtual")
  foreach(_aft_stage cicc compiler)
    add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-X${_aft_stage} -O0>")
  endforeach()
endif()
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
endfunction()
