# SPDX-License-Identifier: Apache-2.0
# Stands in for vcpkg, which is not to be had everywhere: runs the port's portfile with the functions that it calls, as
# vcpkg documents them, for a triplet that builds releases alone.
#   cmake -DPORT_FOLDER= -DWORK= -DFEATURES=<;list> -DCXX= -DSETTINGS=<file of CMake> -P <this file>
# The package comes to be in <WORK>/packages.
cmake_minimum_required(VERSION 3.25)

set(PORT aft)
set(VCPKG_BUILD_TYPE release)
set(CURRENT_BUILDTREES_DIR "${WORK}/buildtrees")
set(CURRENT_PACKAGES_DIR "${WORK}/packages")
file(REMOVE_RECURSE "${CURRENT_BUILDTREES_DIR}" "${CURRENT_PACKAGES_DIR}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}\n${text}")
  endif()
endfunction()

# What a portfile does not expect to be taken silently would be taken for a function that works.
macro(refuse_unknown function)
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function} here does not know ${arg_UNPARSED_ARGUMENTS}")
  endif()
endmacro()

function(vcpkg_check_features)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES")
  refuse_unknown(vcpkg_check_features)
  set(options "")
  while(arg_FEATURES)
    list(POP_FRONT arg_FEATURES feature variable)
    set(value OFF)
    if(feature IN_LIST FEATURES)
      set(value ON)
    endif()
    list(APPEND options "-D${variable}=${value}")
  endwhile()
  set("${arg_OUT_FEATURE_OPTIONS}" "${options}" PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  refuse_unknown(vcpkg_cmake_configure)
  run("${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${CURRENT_BUILDTREES_DIR}/release" -G Ninja
      "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF
      "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" -C "${SETTINGS}" ${arg_OPTIONS})
endfunction()

function(vcpkg_cmake_install)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "")
  refuse_unknown(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --build "${CURRENT_BUILDTREES_DIR}/release" --target install)
endfunction()

# Moves the configuration to share/<port>, one folder nearer to the prefix, and tells its files.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH;PACKAGE_NAME" "")
  refuse_unknown(vcpkg_cmake_config_fixup)
  set(folder "${CURRENT_PACKAGES_DIR}/share/${PORT}")
  file(COPY "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/" DESTINATION "${folder}")
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}")
  file(GLOB configs "${folder}/*.cmake")
  foreach(config IN LISTS configs)
    file(READ "${config}" text)
    string(REGEX REPLACE "(get_filename_component\\(PACKAGE_PREFIX_DIR \"\\\${CMAKE_CURRENT_LIST_DIR}/)[./]+\"" "\\1../../\"" text "${text}")
    string(REGEX REPLACE "(get_filename_component\\(_IMPORT_PREFIX \"\\\${CMAKE_CURRENT_LIST_FILE}\" PATH\\))(\nget_filename_component\\(_IMPORT_PREFIX \"\\\${_IMPORT_PREFIX}\" PATH\\))+"
           "\\1\\2\\2" text "${text}")
    file(WRITE "${config}" "${text}")
  endforeach()
endfunction()

# Files for pkg-config may name the prefix by their own place alone.
function(vcpkg_fixup_pkgconfig)
  file(GLOB_RECURSE files "${CURRENT_PACKAGES_DIR}/*.pc")
  foreach(name IN LISTS files)
    file(READ "${name}" text)
    if(NOT text MATCHES "prefix=\\\${pcfiledir}/../..\n")
      message(FATAL_ERROR "${name} does not find its prefix by its own place")
    endif()
  endforeach()
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  refuse_unknown(vcpkg_install_copyright)
  file(COPY_FILE "${arg_FILE_LIST}" "${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright")
endfunction()

# As vcpkg includes it: CMAKE_CURRENT_LIST_DIR is the port's.
include("${PORT_FOLDER}/portfile.cmake")
