# SPDX-License-Identifier: Apache-2.0
# _aft_compile_c_interface(<target>): how its sources are compiled for tests.
function(_aft_compile_c_interface target)
  set(support "${aft_SOURCE_DIR}/tests/support/engines")
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
  # Debug information is what the test of the binary interface reads.
  target_compile_options(${target} PRIVATE -O0 -g)
  # One compilation, as most of each file is the library's headers.
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 0 UNITY_BUILD_CODE_BEFORE_INCLUDE
                                             "#include \"${support}/engine.hpp\"")
  if(NOT AFT_TEST_FULL)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON)
  else()
    set_property(SOURCE ${AFT_C_INTERFACE_SOURCES} APPEND PROPERTY COMPILE_OPTIONS -include "${support}/engine.hpp")
  endif()
  set_property(SOURCE ${AFT_C_INTERFACE_SOURCES} APPEND PROPERTY OBJECT_DEPENDS "${support}/engine.hpp")
  target_link_libraries(${target} PRIVATE aft_c_engine aft_warnings)
endfunction()

# aft_need_c_interface_on_emulator(): the object library aft_c_interface_device, as in a library that was built with CUDA, but
# for the emulated device. Comes after aft_need_c_interface.
function(aft_need_c_interface_on_emulator)
  include("${aft_SOURCE_DIR}/backends/compiled/c_interface/sources.cmake")
  aft_need_device_emulator()
  add_library(aft_c_interface_device OBJECT EXCLUDE_FROM_ALL ${AFT_C_INTERFACE_SOURCES})
  _aft_compile_c_interface(aft_c_interface_device)
  target_link_libraries(aft_c_interface_device PRIVATE aft_device_emulator)
endfunction()

# aft_need_c_interface(): the shared library aft_c_interface, for the programs and tests of this project that call it from
# C and from Python, and aft_c_engine, its kernels. Made at first call.
function(aft_need_c_interface)
  if(TARGET aft_c_interface)
    return()
  endif()
  set(folder "${aft_SOURCE_DIR}/backends/compiled/c_interface")
  set(support "${aft_SOURCE_DIR}/tests/support/engines")
  include("${folder}/sources.cmake")
  # Nobody waits for these kernels: optimising them takes longer than the tests run (19 s of a core for either file at
  # -O1 of an AMD Zen 3, 7 s without).
  add_library(aft_c_engine STATIC EXCLUDE_FROM_ALL "${support}/engine_f32.cpp" "${support}/engine_f64.cpp")
  target_compile_options(aft_c_engine PRIVATE -O0)
  target_link_libraries(aft_c_engine PUBLIC aft::aft)
  add_library(aft_c_interface SHARED EXCLUDE_FROM_ALL ${AFT_C_INTERFACE_SOURCES})
  set_target_properties(aft_c_engine PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                VISIBILITY_INLINES_HIDDEN ON)
  _aft_compile_c_interface(aft_c_interface)
  target_include_directories(aft_c_interface INTERFACE "${aft_SOURCE_DIR}/include")
  # Templates of the standard library are visible whatever the flags say.
  if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    target_link_options(aft_c_interface PRIVATE "LINKER:--version-script=${folder}/exports.map")
    set_target_properties(aft_c_interface PROPERTIES LINK_DEPENDS "${folder}/exports.map")
  endif()
endfunction()
