# SPDX-License-Identifier: Apache-2.0
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
  set_target_properties(aft_c_engine aft_c_interface PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                                VISIBILITY_INLINES_HIDDEN ON)
  # Debug information is what the test of the binary interface reads.
  target_compile_options(aft_c_interface PRIVATE -O0 -g)
  # One compilation, as most of each file is the library's headers.
  set_target_properties(aft_c_interface PROPERTIES UNITY_BUILD_BATCH_SIZE 0 UNITY_BUILD_CODE_BEFORE_INCLUDE
                                                   "#include \"${support}/engine.hpp\"")
  if(NOT AFT_TEST_FULL)
    set_target_properties(aft_c_interface PROPERTIES UNITY_BUILD ON)
  else()
    set_property(SOURCE ${AFT_C_INTERFACE_SOURCES} APPEND PROPERTY COMPILE_OPTIONS -include "${support}/engine.hpp")
  endif()
  set_property(SOURCE ${AFT_C_INTERFACE_SOURCES} APPEND PROPERTY OBJECT_DEPENDS "${support}/engine.hpp")
  target_include_directories(aft_c_interface INTERFACE "${aft_SOURCE_DIR}/include")
  target_link_libraries(aft_c_interface PRIVATE aft_c_engine aft_warnings)
  # Templates of the standard library are visible whatever the flags say.
  if(CMAKE_EXECUTABLE_FORMAT STREQUAL "ELF")
    target_link_options(aft_c_interface PRIVATE "LINKER:--version-script=${folder}/exports.map")
    set_target_properties(aft_c_interface PROPERTIES LINK_DEPENDS "${folder}/exports.map")
  endif()
endfunction()
