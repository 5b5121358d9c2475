# SPDX-License-Identifier: Apache-2.0
# Installs aft::compiled as a static and as a shared library and builds a program with each.
# Needs AFT_SOURCE, BINARY, GENERATOR, CXX, LEVEL. One level, not optimised: what is tested is the package.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

foreach(shared OFF ON)
  # One tree for both: the objects are the same.
  run("${CMAKE_COMMAND}" -S "${AFT_SOURCE}" -B "${BINARY}/library" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}"
      -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O0 -DNDEBUG -D_FILE_OFFSET_BITS=64" -DAFT_BUILD_TESTS=OFF -DAFT_BUILD_EXAMPLES=OFF
      -DAFT_BUILD_COMPILED=ON "-DAFT_COMPILED_ISAS=${LEVEL}" "-DBUILD_SHARED_LIBS=${shared}")
  run("${CMAKE_COMMAND}" --build "${BINARY}/library" -j 2)
  file(REMOVE_RECURSE "${BINARY}/prefix-${shared}")
  run("${CMAKE_COMMAND}" --install "${BINARY}/library" --prefix "${BINARY}/prefix-${shared}")
  run("${CMAKE_COMMAND}" --fresh -S "${AFT_SOURCE}/tests/consumers/compiled" -B "${BINARY}/consumer-${shared}" -G
      "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_PREFIX_PATH=${BINARY}/prefix-${shared}")
  run("${CMAKE_COMMAND}" --build "${BINARY}/consumer-${shared}")
  run("${BINARY}/consumer-${shared}/consumer")
  message(STATUS "shared ${shared}: ${output}")
  if(NOT output MATCHES "of the compiled library")
    message(FATAL_ERROR "the program has kernels of its own: ${output}")
  endif()
endforeach()
