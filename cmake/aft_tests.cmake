# SPDX-License-Identifier: Apache-2.0
# Helpers of the test tree.

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

# aft_add_unit_tests(<label> <source>...): one program a file, its cases discovered as single tests.
function(aft_add_unit_tests label)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source STEM name)
    add_executable(${name} "${source}")
    target_link_libraries(${name} PRIVATE aft_test_main aft_warnings)
    doctest_discover_tests(${name} TEST_PREFIX "${name}: " PROPERTIES LABELS "${label}")
  endforeach()
endfunction()
