# SPDX-License-Identifier: Apache-2.0
# Engines that the operators' test programs load beside their own (tests/support/engines/engines.hpp): the library for other
# instruction sets, and by the other compiler. What does not depend on either, such as the reference and the programs
# themselves, is compiled once.
include(CheckCXXCompilerFlag)

# Everything of a call that an instruction set changes.
set(_aft_engine_parts engines/engine_f32 engines/engine_f64 engines/loaded_engine harness/harness_f32 harness/harness_f64
                      harness/harness_f16 harness/harness_bf16)

# _aft_offer_engine(<name> <feature> <file>): test programs load this file where the processor has the feature.
function(_aft_offer_engine name feature file)
  set_property(GLOBAL APPEND_STRING PROPERTY AFT_TEST_ENGINES "{\"${name}\", \"${file}\", \"${feature}\"}, ")
  set_property(GLOBAL APPEND PROPERTY AFT_TEST_ENGINE_TARGETS "aft_engine_${name}")
endfunction()

# _aft_add_engine(<name> <feature> <parts> <option>...): by this tree's compiler. Test programs of the same flags link
# its objects, aft_engine_<name>_objects.
function(_aft_add_engine name feature parts)
  list(TRANSFORM parts PREPEND "${aft_SOURCE_DIR}/tests/support/" OUTPUT_VARIABLE sources)
  list(TRANSFORM sources APPEND ".cpp")
  add_library(aft_engine_${name}_objects OBJECT ${sources})
  add_library(aft_engine_${name} MODULE $<TARGET_OBJECTS:aft_engine_${name}_objects>)
  target_compile_definitions(aft_engine_${name}_objects PUBLIC ${AFT_TEST_HOOKS} PRIVATE AFT_TEST_LOADED_ENGINE)
  # Hidden, so that no function of one engine stands in for another's; what is left undefined is the program's.
  set_target_properties(aft_engine_${name}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                              VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(aft_engine_${name}_objects PUBLIC ${ARGN})
  target_include_directories(aft_engine_${name}_objects PUBLIC "${aft_SOURCE_DIR}/tests" "${aft_SOURCE_DIR}/tests/support")
  target_link_libraries(aft_engine_${name}_objects PUBLIC aft::aft PRIVATE aft_warnings doctest::doctest)
  target_link_libraries(aft_engine_${name} PRIVATE aft::aft)
  set_target_properties(aft_engine_${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/engines"
                                                      LINKER_LANGUAGE CXX)
  _aft_offer_engine(${name} "${feature}" "${PROJECT_BINARY_DIR}/engines/aft_engine_${name}.so")
endfunction()

# _aft_add_clang_engine(): by clang++ in a tree of another compiler, as a user's Release build has it.
function(_aft_add_clang_engine)
  set(file "${PROJECT_BINARY_DIR}/engines/aft_engine_clang.so")
  set(folder "${PROJECT_BINARY_DIR}/engines/clang")
  file(MAKE_DIRECTORY "${folder}")
  set(hooks ${AFT_TEST_HOOKS} AFT_TEST_LOADED_ENGINE)
  list(TRANSFORM hooks PREPEND -D)
  get_target_property(doctest doctest::doctest INTERFACE_INCLUDE_DIRECTORIES)
  # A compiler's own folders, named once more, come in the wrong order.
  list(REMOVE_ITEM doctest ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  list(TRANSFORM doctest PREPEND -isystem)
  set(objects "")
  foreach(source IN LISTS _aft_engine_parts)
    cmake_path(GET source FILENAME part)
    add_custom_command(
      OUTPUT "${folder}/${part}.o"
      COMMAND
        "${AFT_COMPILER_clang++}" -std=c++20 -O3 -DNDEBUG -fopenmp -fPIC -fvisibility=hidden -fvisibility-inlines-hidden
        -Wall -Wextra -Wconversion -Wshadow -Werror ${hooks} "-I${aft_SOURCE_DIR}/include" "-I${aft_SOURCE_DIR}/tests"
        "-I${aft_SOURCE_DIR}/tests/support" ${doctest} -MD -MF "${folder}/${part}.d" -c
        "${aft_SOURCE_DIR}/tests/support/${source}.cpp" -o "${folder}/${part}.o"
      DEPENDS "${aft_SOURCE_DIR}/tests/support/${source}.cpp"
      DEPFILE "${folder}/${part}.d"
      COMMENT "Building ${part} with clang++"
      VERBATIM)
    list(APPEND objects "${folder}/${part}.o")
  endforeach()
  add_custom_command(OUTPUT "${file}" COMMAND "${AFT_COMPILER_clang++}" -shared -fopenmp ${objects} -o "${file}"
                     DEPENDS ${objects} VERBATIM)
  add_custom_target(aft_engine_clang DEPENDS "${file}")
  _aft_offer_engine(clang "" "${file}")
endfunction()

# aft_add_test_engines(): those that AFT_TEST_ENGINES names, once. AFT_TEST_ISAS gets the instruction sets among them
# that this machine has, from the least to the most, and AFT_TEST_FLAGS_<isa> their flags.
set(AFT_TEST_ENGINES "" CACHE STRING "Engines beside the tree's own: avx2, avx512, clang, blocks")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The presets name all engines.
  list(REMOVE_ITEM AFT_TEST_ENGINES avx2 avx512)
endif()
# Blocks of weights that the tests' sizes exceed, and slabs.
set(AFT_TEST_SMALL_BLOCKS AFT_WEIGHT_BYTES=2048 AFT_OUTER_BYTES=256 AFT_OUTER_KEYS=2)
set(AFT_TEST_FLAGS_avx2 -march=x86-64-v3)
set(AFT_TEST_FLAGS_avx512 -march=x86-64-v4)
set(AFT_TEST_FLAGS_avx512_bf16 -march=x86-64-v4 -mavx512bf16)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # See aft_warnings.cmake.
  foreach(_aft_isa avx512 avx512_bf16)
    list(APPEND AFT_TEST_FLAGS_${_aft_isa} -Wno-maybe-uninitialized -Wno-uninitialized)
  endforeach()
endif()
set(AFT_TEST_ISAS "")
# Linux' list of what the processor has. Where it is missing no other engine than the tree's own is run.
set(_aft_cpuinfo "")
if(EXISTS /proc/cpuinfo)
  file(READ /proc/cpuinfo _aft_cpuinfo)
endif()
foreach(_aft_isa avx2 avx512)
  if(_aft_isa IN_LIST AFT_TEST_ENGINES AND _aft_cpuinfo MATCHES "[ \t]${_aft_isa}(bw)?[ \n]")
    list(APPEND AFT_TEST_ISAS ${_aft_isa})
  endif()
endforeach()
# Products of bfloat16 pairs are one instruction more, for machines that have it.
if("avx512" IN_LIST AFT_TEST_ISAS AND _aft_cpuinfo MATCHES "avx512_bf16")
  check_cxx_compiler_flag(-mavx512bf16 AFT_HAS_BF16_FLAG)
  if(AFT_HAS_BF16_FLAG)
    list(APPEND AFT_TEST_ISAS avx512_bf16)
  endif()
endif()

function(aft_add_test_engines)
  foreach(isa avx2 avx512)
    if(isa IN_LIST AFT_TEST_ENGINES)
      _aft_add_engine(${isa} ${isa} "${_aft_engine_parts}" ${AFT_TEST_FLAGS_${isa}})
    endif()
  endforeach()
  if("avx512_bf16" IN_LIST AFT_TEST_ISAS)
    _aft_add_engine(avx512_bf16 avx512_bf16 "engines/engine_f32;engines/loaded_engine;harness/harness_bf16" ${AFT_TEST_FLAGS_avx512_bf16})
    # Several blocks of weights.
    target_compile_definitions(aft_engine_avx512_bf16_objects PUBLIC AFT_WEIGHT_BYTES=32768 PRIVATE AFT_TEST_BF16_ONLY)
  endif()
  if("clang" IN_LIST AFT_TEST_ENGINES AND AFT_COMPILER_clang++)
    _aft_add_clang_engine()
  endif()
  # The sizes of the tree under AddressSanitizer, which compares no numbers. Last: it has no run of its own.
  if("blocks" IN_LIST AFT_TEST_ENGINES)
    _aft_add_engine(blocks "" "${_aft_engine_parts}" -O1)
    target_compile_definitions(aft_engine_blocks_objects PUBLIC ${AFT_TEST_SMALL_BLOCKS})
  endif()
endfunction()

# aft_add_isa_tests(<label> <source>...): programs that call kernels directly, for each of AFT_TEST_ISAS.
function(aft_add_isa_tests label)
  foreach(isa IN LISTS AFT_TEST_ISAS)
    # That one serves bfloat16 alone.
    if(isa STREQUAL "avx512_bf16")
      continue()
    endif()
    foreach(source IN LISTS ARGN)
      cmake_path(GET source STEM name)
      add_executable(${isa}_${name} ${source} $<TARGET_OBJECTS:aft_engine_${isa}_objects>)
      target_compile_options(${isa}_${name} PRIVATE ${AFT_TEST_FLAGS_${isa}})
      # The rest of the harness, which those objects refer to; its engines are not these tests' concern.
      target_link_libraries(${isa}_${name} PRIVATE aft_test_main aft_warnings aft_test_harness)
      doctest_discover_tests(${isa}_${name} TEST_PREFIX "${isa}.${name}: " PROPERTIES LABELS "${label}" ENVIRONMENT
                             "AFT_TEST_ENGINE=own" TIMEOUT 600)
    endforeach()
  endforeach()
endfunction()
