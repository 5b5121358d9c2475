# SPDX-License-Identifier: Apache-2.0
# The installed package: both include trees under one prefix, exported targets, and a config with components.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_aft_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/aft")
install(TARGETS aft EXPORT aftTargets)
install(
  DIRECTORY include/aft backends/cpu/include/aft
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.hpp")
install(EXPORT aftTargets NAMESPACE aft:: DESTINATION "${_aft_cmake_dir}")
configure_package_config_file(cmake/aftConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/aftConfig.cmake"
                              INSTALL_DESTINATION "${_aft_cmake_dir}")
# Before 1.0 a minor version may break callers. Headers have no word size, so a package serves every one.
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/aftConfigVersion.cmake" COMPATIBILITY SameMinorVersion
                                 ARCH_INDEPENDENT)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aftConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/aftConfigVersion.cmake"
              cmake/aft_link_dependencies.cmake
        DESTINATION "${_aft_cmake_dir}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/aft")
