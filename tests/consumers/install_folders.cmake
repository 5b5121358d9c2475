# SPDX-License-Identifier: Apache-2.0
# Installs aft into the folders that packagers choose, and uses it from there as a stranger would:
#   cmake -DAFT_SOURCE= -DBINARY= -DGENERATOR= -DCXX= -DCUDA=ON|OFF -DEXPECT_OPENMP=ON|OFF -P <this file>
# CMake itself refuses a target that names a folder which does not exist, so configuring shows whether the package is
# right. One program is compiled: it calls no operator, which would take most of the time.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(text "${text}" PARENT_SCOPE)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${line}\n${text}")
  endif()
endfunction()

# configure(<option>...): aft as a packager configures it.
macro(configure)
  file(REMOVE_RECURSE "${BINARY}/aft" "${BINARY}/consumer")
  run("${CMAKE_COMMAND}" -S "${AFT_SOURCE}" -B "${BINARY}/aft" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}"
      -DAFT_BUILD_TESTS=OFF -DAFT_BUILD_EXAMPLES=OFF "-DAFT_ENABLE_CUDA=${CUDA}" ${ARGN})
endmacro()

# use(<folder with the package>): a consumer that is told nothing else.
macro(use folder)
  run("${CMAKE_COMMAND}" --fresh -S "${CMAKE_CURRENT_LIST_DIR}/build_info" -B "${BINARY}/consumer" -G "${GENERATOR}"
      "-DCMAKE_CXX_COMPILER=${CXX}" -DCMAKE_BUILD_TYPE=Debug "-Daft_DIR=${folder}" "-DCUDA=${CUDA}"
      "-DEXPECT_OPENMP=${EXPECT_OPENMP}")
endmacro()

# Nothing of the library may be left; folders above `aft` may.
macro(expect_nothing_in folder)
  file(GLOB_RECURSE left LIST_DIRECTORIES false "${folder}/*")
  if(left)
    message(FATAL_ERROR "uninstall left ${left}")
  endif()
  if(IS_DIRECTORY "${folder}/inc/special/aft")
    message(FATAL_ERROR "uninstall left the folder ${folder}/inc/special/aft")
  endif()
endmacro()

# Absolute folders inside the source tree are refused by CMake itself, and a build tree may lie there.
file(REMOVE_RECURSE "${BINARY}")
execute_process(COMMAND mktemp -d OUTPUT_VARIABLE BINARY OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(prefix "${BINARY}/a prefix")
set(odd_folders -DCMAKE_INSTALL_INCLUDEDIR=inc/special -DCMAKE_INSTALL_LIBDIR=lib64 "-DCMAKE_INSTALL_DATADIR=data files")

# Relative folders, a prefix with a space that only the installation names, and only the component.
configure(${odd_folders} "-DCMAKE_INSTALL_PREFIX=${BINARY}/elsewhere")
run("${CMAKE_COMMAND}" --install "${BINARY}/aft" --prefix "${prefix}" --component Nothing)
expect_nothing_in("${prefix}")
run("${CMAKE_COMMAND}" --install "${BINARY}/aft" --prefix "${prefix}" --component Devel)
if(NOT EXISTS "${prefix}/inc/special/aft/aft.hpp" OR NOT EXISTS "${prefix}/data files/licenses/aft/LICENSE")
  message(FATAL_ERROR "the component Devel lacks the headers or the license")
endif()
# Moved as a whole it must still be found, and work.
file(RENAME "${prefix}" "${BINARY}/moved there")
use("${BINARY}/moved there/lib64/cmake/aft")
run("${CMAKE_COMMAND}" --build "${BINARY}/consumer")
run("${BINARY}/consumer/consumer")
file(RENAME "${BINARY}/moved there" "${prefix}")
run("${CMAKE_COMMAND}" --build "${BINARY}/aft" --target uninstall)
expect_nothing_in("${prefix}")

# Staged for a package: the manifest does not mention DESTDIR.
set(ENV{DESTDIR} "${BINARY}/stage")
run("${CMAKE_COMMAND}" --install "${BINARY}/aft")
set(staged "${BINARY}/stage${BINARY}/elsewhere")
use("${staged}/lib64/cmake/aft")
run("${CMAKE_COMMAND}" --build "${BINARY}/aft" --target uninstall)
expect_nothing_in("${staged}")
unset(ENV{DESTDIR})

# Absolute folders: all of them outside the prefix.
configure("-DCMAKE_INSTALL_PREFIX=${BINARY}/elsewhere" "-DCMAKE_INSTALL_INCLUDEDIR=${BINARY}/headers"
          "-DCMAKE_INSTALL_LIBDIR=${BINARY}/libraries" "-DCMAKE_INSTALL_DATADIR=${BINARY}/data")
run("${CMAKE_COMMAND}" --install "${BINARY}/aft")
use("${BINARY}/libraries/cmake/aft")
run("${CMAKE_COMMAND}" --build "${BINARY}/aft" --target uninstall)
foreach(folder headers libraries data elsewhere)
  expect_nothing_in("${BINARY}/${folder}")
endforeach()

# A build that installs nothing says so by having neither the target nor the files.
configure(-DAFT_INSTALL=OFF "-DCMAKE_INSTALL_PREFIX=${prefix}")
run("${CMAKE_COMMAND}" --install "${BINARY}/aft")
expect_nothing_in("${prefix}")
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${BINARY}/aft" --target uninstall RESULT_VARIABLE status
                OUTPUT_QUIET ERROR_QUIET)
if(status EQUAL 0)
  message(FATAL_ERROR "there is a target uninstall without an installation")
endif()
file(REMOVE_RECURSE "${BINARY}")
