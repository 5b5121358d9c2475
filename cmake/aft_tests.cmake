# SPDX-License-Identifier: Apache-2.0
# Helpers of the test tree.
include(aft_test_engines)

# The compilers that the compile-only tests use: all that the project supports and this machine has.
set(AFT_TEST_COMPILERS "")
foreach(_aft_name g++ clang++)
  find_program(AFT_COMPILER_${_aft_name} ${_aft_name})
  if(AFT_COMPILER_${_aft_name})
    list(APPEND AFT_TEST_COMPILERS "${AFT_COMPILER_${_aft_name}}")
  endif()
endforeach()
if(NOT AFT_TEST_COMPILERS)
  set(AFT_TEST_COMPILERS "${CMAKE_CXX_COMPILER}")
endif()

# One variable at most: doctest_discover_tests does not pass lists on.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
  # Archer tells ThreadSanitizer about OpenMP's own synchronisation; the runtime library, which is not instrumented,
  # has to be left out of sight for that.
  set(AFT_TEST_ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1")
else()
  # Programs run side by side: a waiting OpenMP thread should sleep.
  set(AFT_TEST_ENVIRONMENT "OMP_WAIT_POLICY=passive")
endif()

# aft_add_unit_tests(<label> <source>...): one program a file, its cases discovered as single tests. Programs that the caller
# lists in AFT_ON_DEVICE run their cases on the emulated device too; those of AFT_ON_TENSOR_CORES with a matrix product for
# every size that can have one, also those that are too small for it to be chosen; and those of AFT_ON_WARPGROUPS, which
# bfloat16 products serve, on the kernel for sm_90a.
function(aft_add_unit_tests label)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM name)
    add_executable(${name} "${source}")
    target_link_libraries(${name} PRIVATE aft_test_main aft_warnings)
    # Listing the cases runs the program at build time; sanitizers make its start slow on a busy machine.
    set(places "")
    if("device" IN_LIST AFT_TEST_SUITES)
      foreach(place DEVICE TENSOR_CORES WARPGROUPS)
        if(name IN_LIST AFT_ON_${place})
          string(TOLOWER "--also-on=${place}" place)
          list(APPEND places ${place})
        endif()
      endforeach()
    endif()
    doctest_discover_tests(${name} EXTRA_ARGS ${places} TEST_PREFIX "${name}: " PROPERTIES LABELS "${label}" ENVIRONMENT
                           "${AFT_TEST_ENVIRONMENT}" TIMEOUT 600)
  endforeach()
endfunction()

# aft_optimise_little(<program>...): kernels come from the harness, and a test's own loops are short: optimising them takes
# longer than they run, under AddressSanitizer several times (slots_test compiles in 43 s at -O1 and in 11 at -O0).
function(aft_optimise_little)
  foreach(program IN LISTS ARGN)
    if(CMAKE_BUILD_TYPE STREQUAL "Release")
      target_compile_options(${program} PRIVATE -O1)
    elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address" AND NOT AFT_TEST_FULL)
      target_compile_options(${program} PRIVATE -O0)
    endif()
  endforeach()
endfunction()

# aft_share_headers(<group> <program>...): what nearly all tests include is read once for the programs of a group, whose flags
# are the same. It takes 0.9 of the 1.4 s in which g++ compiles full_test, and more of clang++'s; elsewhere each file
# shows that it includes what it needs.
function(aft_share_headers group)
  if(NOT AFT_TRY_PROGRAMS)
    return()
  endif()
  foreach(program IN LISTS ARGN)
    get_property(first GLOBAL PROPERTY "AFT_TEST_HEADERS_${group}")
    if(first)
      target_precompile_headers(${program} REUSE_FROM ${first})
    else()
      target_precompile_headers(${program} PRIVATE <doctest/doctest.h> <aft/aft.hpp>
                                                   "${aft_SOURCE_DIR}/tests/support/harness/harness.hpp")
      set_property(GLOBAL PROPERTY "AFT_TEST_HEADERS_${group}" ${program})
    endif()
  endforeach()
endfunction()

# _aft_leave_uncounted(<source>...): without the counters that lead libFuzzer to its inputs, which are none for this.
function(_aft_leave_uncounted)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize-coverage=([a-z0-9,-]*)")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS "-fno-sanitize-coverage=${CMAKE_MATCH_1}")
  endif()
endfunction()

# aft_need_test_harness(): the target aft_test_harness, the typed code behind the operators' tests, made at first call.
function(aft_need_test_harness)
  if(TARGET aft_test_harness)
    return()
  endif()
  set(support "${aft_SOURCE_DIR}/tests/support")
  file(GLOB sources CONFIGURE_DEPENDS "${support}/call/*.cpp" "${support}/harness/*.cpp" "${support}/engines/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/loaded_engine\\.cpp$")
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    list(FILTER sources EXCLUDE REGEX "/oracle\\.cpp$")
  endif()
  add_library(aft_test_harness STATIC ${sources})
  # The oracle's time is that of long-double exponentials, whatever the level, and at -O3 it compiles twice as long.
  set_property(SOURCE "${support}/harness/oracle.cpp" APPEND PROPERTY COMPILE_OPTIONS -O1)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    # Copies of tensors and calls; the kernels are the engine's. Loaded engines have the same files, of this directory.
    file(GLOB callers "${support}/harness/harness*.cpp")
    set_property(SOURCE ${callers} APPEND PROPERTY COMPILE_OPTIONS -O1)
  endif()
  target_link_libraries(aft_test_harness PUBLIC aft::aft doctest::doctest PRIVATE aft_warnings)
  # Threads on small sizes too: what depends on their number must show in every test. Longer sequences go by parts,
  # shorter ones at once.
  set(AFT_TEST_HOOKS AFT_PARALLEL_GRAIN=1 AFT_SEQUENCE_KEYS=24)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    # Blocks of weights that the tests' sizes exceed, and slabs.
    list(APPEND AFT_TEST_HOOKS ${AFT_TEST_SMALL_BLOCKS})
  endif()
  if("device" IN_LIST AFT_TEST_SUITES)
    aft_need_device_emulator()
    list(APPEND AFT_TEST_HOOKS AFT_TEST_DEVICE)
    target_link_libraries(aft_test_harness PUBLIC aft_device_emulator)
  endif()
  if(AFT_TEST_FULL)
    target_compile_definitions(aft_test_harness PUBLIC AFT_TEST_FULL)
  endif()
  # PUBLIC, since all files of a program have to agree on them.
  target_compile_definitions(aft_test_harness PUBLIC ${AFT_TEST_HOOKS})
  target_include_directories(aft_test_harness PUBLIC "${aft_SOURCE_DIR}/tests" "${support}")

  aft_add_test_engines()
  get_property(engines GLOBAL PROPERTY AFT_TEST_ENGINES)
  get_property(targets GLOBAL PROPERTY AFT_TEST_ENGINE_TARGETS)
  set_property(SOURCE "${support}/engines/engines.cpp" APPEND PROPERTY COMPILE_DEFINITIONS "AFT_TEST_ENGINES=${engines}")
  # Loaded engines take the harness's functions from the program.
  target_link_libraries(aft_test_harness PUBLIC ${CMAKE_DL_LIBS})
  if(targets)
    target_link_options(aft_test_harness INTERFACE -rdynamic)
    add_dependencies(aft_test_harness ${targets})
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    # Watched, it took most of the tests' time, and under ThreadSanitizer nobody asks it. Last of all, so that every
    # function that another file has as well is taken from there, where it is watched.
    add_library(aft_test_oracle STATIC "${support}/harness/oracle.cpp")
    target_compile_options(aft_test_oracle PRIVATE -fno-sanitize=all)
    if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread" AND NOT AFT_TEST_FULL)
      target_compile_definitions(aft_test_oracle PRIVATE AFT_TEST_WITHOUT_ORACLE)
    elseif(NOT AFT_TEST_FULL)
      # Asked for few calls (AFT_TEST_WATCHED).
      target_compile_options(aft_test_oracle PRIVATE -O0)
    endif()
    _aft_leave_uncounted("${support}/harness/oracle.cpp")
    foreach(property COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
      set_property(TARGET aft_test_oracle APPEND PROPERTY ${property} "$<TARGET_PROPERTY:aft_test_harness,${property}>")
    endforeach()
    target_link_libraries(aft_test_oracle PRIVATE aft::aft aft_warnings)
    target_link_libraries(aft_test_harness PRIVATE aft_test_oracle)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=(address|thread)" AND NOT AFT_TEST_FULL)
    target_compile_definitions(aft_test_harness PUBLIC AFT_TEST_WATCHED)
  endif()
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    # The engine, which is in the harness too, keeps the build's own flags: it takes long to compile.
    file(GLOB sources "${support}/harness/harness*.cpp")
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS $<IF:$<BOOL:${AFT_TEST_FULL}>,-O2,-O1>)
    _aft_leave_uncounted(${sources})
  endif()
endfunction()

# aft_need_device_emulator(): the target aft_device_emulator, the CUDA backend compiled for the host. Programs call it
# as a .cpp file calls the kernels that a .cu file of its program holds.
function(aft_need_device_emulator)
  if(TARGET aft_device_emulator)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS "${aft_SOURCE_DIR}/tests/support/emulator/*.cpp")
  add_library(aft_device_emulator STATIC ${sources})
  target_compile_definitions(aft_device_emulator PRIVATE AFT_DEVICE_EMULATOR)
  target_link_libraries(aft_device_emulator PUBLIC aft::aft PRIVATE aft_warnings)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
    # What moves between stacks, what counts every stop of every thread, and the arithmetic of tensor cores.
    foreach(name fiber block_runner device_emulator tensor_unit)
      set_source_files_properties("${aft_SOURCE_DIR}/tests/support/emulator/${name}.cpp"
                                  PROPERTIES COMPILE_OPTIONS "-fno-sanitize=all" COMPILE_DEFINITIONS AFT_ASAN_FIBERS)
    endforeach()
  endif()
  # The Python extension on the emulated device is a shared library. What threads have of their own stays as near as in a program.
  set_target_properties(aft_device_emulator PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                       VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(aft_device_emulator PRIVATE -ftls-model=initial-exec)
  # Kernels are slow enough on a host; where a build asks for less, their checks still see everything.
  target_compile_options(aft_device_emulator PRIVATE -O2)
  # Loops of a few steps that only -O3 unrolls, and little code.
  set_property(SOURCE "${aft_SOURCE_DIR}/tests/support/emulator/tensor_unit.cpp" APPEND PROPERTY COMPILE_OPTIONS -O3)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=(address|thread)" AND NOT AFT_TEST_FULL)
    target_compile_definitions(aft_device_emulator INTERFACE AFT_TEST_WATCHED)
  endif()
  target_include_directories(aft_device_emulator PUBLIC "${aft_SOURCE_DIR}/backends/cuda/include"
                                                        "${aft_SOURCE_DIR}/tests/support/emulator")
endfunction()
