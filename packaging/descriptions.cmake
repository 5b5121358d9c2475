# SPDX-License-Identifier: Apache-2.0
# What the installed package says of itself to tools other than CMake: aft.pc and aft-compiled.pc for pkg-config and all
# that reads it (Meson), and, on demand, aft.cps.
# Off, since CMake prefers it to the package's config from 4.3 on, and 4.4 does not read the flags of a CPS file: headers
# found by it run on one thread (docs/adr/0020-packages.md).
option(AFT_INSTALL_CPS "Install a CPS file beside the package's config" OFF)

# Found from where the file itself lies, so that the package works wherever it is moved to; an absolute folder stays.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR _aft_fixed_libdir)
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_INCLUDEDIR _aft_fixed_includedir)
set(AFT_PREFIX "${CMAKE_INSTALL_PREFIX}")
set(AFT_CPS_PATH "${CMAKE_INSTALL_LIBDIR}/cps/aft")
if(NOT _aft_fixed_libdir)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig"
             OUTPUT_VARIABLE _aft_up)
  set(AFT_PREFIX "\${pcfiledir}/${_aft_up}")
  set(AFT_CPS_PATH "@prefix@/${CMAKE_INSTALL_LIBDIR}/cps/aft")
endif()
set(AFT_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
set(AFT_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
set(AFT_CPS_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
set(AFT_CPS_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
if(NOT _aft_fixed_libdir)
  set(AFT_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(AFT_CPS_LIBDIR "@prefix@/${CMAKE_INSTALL_LIBDIR}")
endif()
if(NOT _aft_fixed_includedir)
  set(AFT_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  set(AFT_CPS_INCLUDEDIR "@prefix@/${CMAKE_INSTALL_INCLUDEDIR}")
endif()

# Flags, since the program's compiler turns them into its own runtime library. A program that loses them runs on one
# thread, and nothing says so.
set(AFT_OPENMP_FLAGS "")
set(AFT_CPS_OPENMP_FLAGS "")
if(AFT_OPENMP AND TARGET OpenMP::OpenMP_CXX)
  set(AFT_OPENMP_FLAGS " ${OpenMP_CXX_FLAGS}")
  separate_arguments(_aft_flags NATIVE_COMMAND "${OpenMP_CXX_FLAGS}")
  list(TRANSFORM _aft_flags REPLACE "(.+)" "\"\\1\"")
  list(JOIN _aft_flags ", " AFT_CPS_OPENMP_FLAGS)
endif()
configure_file(packaging/pkgconfig/aft.pc.in "${CMAKE_CURRENT_BINARY_DIR}/aft.pc" @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aft.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT Devel)

set(AFT_CPS_COMPILED "")
if(AFT_BUILD_COMPILED)
  # A shared library holds its runtime libraries; a static one leaves them to the program, which C links without C++'s.
  set(AFT_STATIC_FLAGS "")
  set(AFT_STATIC_LIBRARIES "")
  set(AFT_CUDA_DEFINITION "")
  set(_aft_cps_definitions "\"AFT_COMPILED\": \"1\"")
  if(AFT_ENABLE_CUDA)
    set(AFT_CUDA_DEFINITION " -DAFT_COMPILED_CUDA=1")
    string(APPEND _aft_cps_definitions ", \"AFT_COMPILED_CUDA\": \"1\"")
  endif()
  set(_aft_kind dylib)
  set(_aft_link_flags "")
  set(_aft_location "${CMAKE_SHARED_LIBRARY_PREFIX}aft_compiled${CMAKE_SHARED_LIBRARY_SUFFIX}")
  if(NOT BUILD_SHARED_LIBS)
    set(AFT_STATIC_FLAGS "${AFT_OPENMP_FLAGS}")
    set(_aft_cps_flags "${AFT_CPS_OPENMP_FLAGS}")
    if(AFT_ENABLE_CUDA)
      # The toolkit that the kernels were compiled by: a static library needs its runtime, and no pkg-config file names it.
      string(APPEND AFT_STATIC_FLAGS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart")
      string(JOIN ", " _aft_cps_flags ${_aft_cps_flags} "\"-L${CUDAToolkit_LIBRARY_DIR}\"" "\"-lcudart\"")
    endif()
    set(AFT_STATIC_LIBRARIES "-lstdc++ -lm")
    if(APPLE)
      set(AFT_STATIC_LIBRARIES "-lc++")
    endif()
    set(_aft_kind archive)
    set(_aft_link_flags "${_aft_cps_flags}")
    set(_aft_location "${CMAKE_STATIC_LIBRARY_PREFIX}aft_compiled${CMAKE_STATIC_LIBRARY_SUFFIX}")
  endif()
  configure_file(packaging/pkgconfig/aft-compiled.pc.in "${CMAKE_CURRENT_BINARY_DIR}/aft-compiled.pc" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aft-compiled.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
          COMPONENT Devel)
  set(AFT_CPS_COMPILED ",
    \"compiled\": {
      \"type\": \"${_aft_kind}\",
      \"location\": \"${AFT_CPS_LIBDIR}/${_aft_location}\",
      \"includes\": [\"${AFT_CPS_INCLUDEDIR}\"],
      \"compile_features\": [\"c++20\"],
      \"definitions\": {\"*\": {${_aft_cps_definitions}}},
      \"link_flags\": [${_aft_link_flags}]
    }")
endif()

if(AFT_INSTALL_CPS)
  set(AFT_COMPATIBLE_VERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  configure_file(packaging/cps/aft.cps.in "${CMAKE_CURRENT_BINARY_DIR}/aft.cps" @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aft.cps" DESTINATION "${CMAKE_INSTALL_LIBDIR}/cps/aft" COMPONENT Devel)
endif()
