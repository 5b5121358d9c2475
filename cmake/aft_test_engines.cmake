# SPDX-License-Identifier: Apache-2.0
# Engines that the operators' test programs load beside their own (tests/support/engines/engines.hpp): the levels of
# aft::compiled, and the library by the other compiler. What does not depend on either, such as the reference and the programs
# themselves, is compiled once.

# Everything of a call that an instruction set changes.
set(_aft_engine_parts engines/engine_f32 engines/engine_f64 engines/loaded_engine harness/harness_f32 harness/harness_f64
                      harness/harness_f16 harness/harness_bf16)

# _aft_offer_engine(<name> <feature> <file>): test programs load this file where the processor has the feature.
function(_aft_offer_engine name feature file)
  set_property(GLOBAL APPEND_STRING PROPERTY AFT_TEST_ENGINES "{\"${name}\", \"${file}\", \"${feature}\"}, ")
  set_property(GLOBAL APPEND PROPERTY AFT_TEST_ENGINE_TARGETS "aft_engine_${name}")
endfunction()

# _aft_add_engine_objects(<name> <option>...): the parts of an engine by this tree's compiler.
function(_aft_add_engine_objects name)
  list(TRANSFORM _aft_engine_parts PREPEND "${aft_SOURCE_DIR}/tests/support/" OUTPUT_VARIABLE sources)
  list(TRANSFORM sources APPEND ".cpp")
  add_library(aft_engine_${name}_objects OBJECT ${sources})
  target_compile_definitions(aft_engine_${name}_objects PUBLIC ${AFT_TEST_HOOKS} PRIVATE AFT_TEST_LOADED_ENGINE)
  # Hidden, so that no function of one engine stands in for another's; what is left undefined is the program's.
  set_target_properties(aft_engine_${name}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                              VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(aft_engine_${name}_objects PUBLIC ${ARGN})
  target_include_directories(aft_engine_${name}_objects PUBLIC "${aft_SOURCE_DIR}/tests" "${aft_SOURCE_DIR}/tests/support")
  target_link_libraries(aft_engine_${name}_objects PUBLIC aft::aft PRIVATE aft_warnings doctest::doctest)
endfunction()

# _aft_add_engine_module(<name> <feature> <objects>...): what test programs load.
function(_aft_add_engine_module name feature)
  add_library(aft_engine_${name} MODULE ${ARGN})
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
    set(level -O3)
    if(part MATCHES "^harness")
      set(level -O1)
    endif()
    add_custom_command(
      OUTPUT "${folder}/${part}.o"
      COMMAND
        "${AFT_COMPILER_clang++}" -std=c++20 ${level} -DNDEBUG -fopenmp -fPIC -fvisibility=hidden -fvisibility-inlines-hidden
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

# _aft_add_compiled_engines(): aft::compiled, once for each of its levels. The library is in each of them, built with the
# tests' sizes, and told its level by AFT_ISA as a user would tell it; what calls it is compiled once, without kernels.
function(_aft_add_compiled_engines)
  aft_add_compiled_levels(aft_test_level "${AFT_COMPILED_KNOWN_ISAS}" ${AFT_TEST_HOOKS})
  foreach(isa IN LISTS AFT_COMPILED_KNOWN_ISAS)
    if(isa MATCHES "-bf16")
      # Several blocks of weights.
      target_compile_definitions(aft_test_level_${isa} PRIVATE AFT_WEIGHT_BYTES=32768)
    endif()
  endforeach()
  _aft_add_engine_objects(compiled)
  target_compile_definitions(aft_engine_compiled_objects PRIVATE AFT_COMPILED)
  target_include_directories(aft_engine_compiled_objects PRIVATE "${aft_SOURCE_DIR}/backends/compiled/include")
  set(isas ${AFT_COMPILED_KNOWN_ISAS})
  if(NOT AFT_TEST_FULL)
    # v2 has the vectors of the tree's own engine and its sums: it is there to be chosen (tests/compiled). So are levels
    # that this machine does not run. Not less than -O1: without, levels share functions that are inlined otherwise.
    list(REMOVE_ITEM isas v2)
    foreach(isa IN LISTS AFT_COMPILED_KNOWN_ISAS)
      string(REPLACE "-bf16" "" needed "${isa}")
      if(needed STREQUAL "v2" OR (needed MATCHES "^v" AND NOT needed IN_LIST AFT_TEST_ISAS))
        target_compile_options(aft_test_level_${isa} PRIVATE -O1)
      endif()
    endforeach()
    # As many packages compile their users' files; it takes four fifths of the time of -O3, which the other levels have.
    if(v3 IN_LIST AFT_TEST_ISAS)
      target_compile_options(aft_test_level_v3 PRIVATE -O2)
    endif()
  endif()
  foreach(isa IN LISTS isas)
    _aft_add_engine_module(${isa} ${isa} $<TARGET_OBJECTS:aft_engine_compiled_objects> ${aft_test_level_objects})
  endforeach()
  # For tests/compiled.
  set_property(GLOBAL PROPERTY AFT_TEST_LEVEL_OBJECTS "${aft_test_level_objects}")
  set_property(GLOBAL PROPERTY AFT_TEST_LEVEL_DEFINITIONS "${AFT_TEST_HOOKS}")
endfunction()

# aft_add_test_engines(): those that AFT_TEST_ENGINES names, once. AFT_TEST_ISAS gets the levels that this machine has
# beyond the tree's own instruction set, from the least to the most, and AFT_TEST_FLAGS_<level> their flags.
set(AFT_TEST_ENGINES "" CACHE STRING "Engines beside the tree's own: compiled, clang, blocks")
if(NOT AFT_COMPILED_KNOWN_ISAS)
  # The presets name all engines.
  list(REMOVE_ITEM AFT_TEST_ENGINES compiled)
endif()
# Blocks of weights that the tests' sizes exceed, and slabs.
set(AFT_TEST_SMALL_BLOCKS AFT_WEIGHT_BYTES=2048 AFT_OUTER_BYTES=256 AFT_OUTER_KEYS=2)
set(AFT_TEST_ISAS "")
if("compiled" IN_LIST AFT_TEST_ENGINES AND EXISTS /proc/cpuinfo)
  file(READ /proc/cpuinfo _aft_cpuinfo)
  # Those with kernels of their own to look at.
  set(_aft_flag_v3 avx2)
  set(_aft_flag_v4 avx512bw)
  foreach(_aft_isa v3 v4)
    if(_aft_cpuinfo MATCHES "[ \t]${_aft_flag_${_aft_isa}}[ \n]")
      list(APPEND AFT_TEST_ISAS ${_aft_isa})
      set(AFT_TEST_FLAGS_${_aft_isa} ${_aft_level_flags_${_aft_isa}})
    endif()
  endforeach()
endif()

function(aft_add_test_engines)
  if("compiled" IN_LIST AFT_TEST_ENGINES)
    _aft_add_compiled_engines()
  endif()
  if("clang" IN_LIST AFT_TEST_ENGINES AND AFT_COMPILER_clang++)
    _aft_add_clang_engine()
  endif()
  # The sizes of the tree under AddressSanitizer, which compares no numbers. Last: it has no run of its own.
  if("blocks" IN_LIST AFT_TEST_ENGINES)
    _aft_add_engine_objects(blocks)
    target_compile_options(aft_engine_blocks_objects PUBLIC -O1)
    target_compile_definitions(aft_engine_blocks_objects PUBLIC ${AFT_TEST_SMALL_BLOCKS})
    _aft_add_engine_module(blocks "" $<TARGET_OBJECTS:aft_engine_blocks_objects>)
  endif()
endfunction()

# aft_add_isa_tests(<label> <source>...): programs that call kernels directly, for each of AFT_TEST_ISAS. They are a
# level's files: its objects have what they do not compile themselves.
function(aft_add_isa_tests label)
  foreach(isa IN LISTS AFT_TEST_ISAS)
    foreach(source IN LISTS ARGN)
      cmake_path(GET source STEM name)
      add_executable(${isa}_${name} ${source} $<TARGET_OBJECTS:aft_test_level_${isa}>)
      target_compile_options(${isa}_${name} PRIVATE ${AFT_TEST_FLAGS_${isa}})
      target_compile_definitions(${isa}_${name} PRIVATE AFT_COMPILED_LEVEL=${isa})
      # Its engines are not these tests' concern.
      target_link_libraries(${isa}_${name} PRIVATE aft_test_main aft_warnings aft_test_harness)
      doctest_discover_tests(${isa}_${name} TEST_PREFIX "${isa}.${name}: " PROPERTIES LABELS "${label}" ENVIRONMENT
                             "AFT_TEST_ENGINE=own" TIMEOUT 600)
    endforeach()
  endforeach()
endfunction()
