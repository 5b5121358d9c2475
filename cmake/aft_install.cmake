# SPDX-License-Identifier: Apache-2.0
# The installed package: both include trees in one folder, exported targets, and a config with components. All of it is
# the install component `Devel`, so that a parent project with packages of its own can leave it out or put it into one.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_aft_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/aft")
# INCLUDES names where the headers really go: packagers choose the folder, and may choose an absolute one.
install(TARGETS aft EXPORT aftTargets COMPONENT Devel INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(
  DIRECTORY include/aft backends/cpu/include/aft backends/compiled/include/aft
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT Devel
  FILES_MATCHING
  PATTERN "*.hpp"
  PATTERN "*.h")
install(EXPORT aftTargets NAMESPACE aft:: DESTINATION "${_aft_cmake_dir}" COMPONENT Devel)
configure_package_config_file(cmake/aftConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/aftConfig.cmake"
                              INSTALL_DESTINATION "${_aft_cmake_dir}")
# Before 1.0 a minor version may break callers. Headers have no word size, so a package of them serves every one.
set(_aft_every_architecture ARCH_INDEPENDENT)
if(AFT_BUILD_COMPILED)
  set(_aft_every_architecture "")
endif()
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/aftVersionRule.cmake" COMPATIBILITY SameMinorVersion
                                 ${_aft_every_architecture})
# find_package prints the version of what it passes over, and nothing else of it: the reason stands there.
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/aftConfigVersion.cmake" @ONLY CONTENT
[[# SPDX-License-Identifier: Apache-2.0
include("${CMAKE_CURRENT_LIST_DIR}/aftVersionRule.cmake")
if(PACKAGE_FIND_VERSION AND NOT PACKAGE_VERSION_COMPATIBLE)
  set(PACKAGE_VERSION "@PROJECT_VERSION@, which does not serve what asks for ${PACKAGE_FIND_VERSION_COMPLETE}: before 1.0 only versions @PROJECT_VERSION_MAJOR@.@PROJECT_VERSION_MINOR@.x serve for each other")
endif()
]])
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/aftConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/aftConfigVersion.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/aftVersionRule.cmake" cmake/aft_link_dependencies.cmake
        DESTINATION "${_aft_cmake_dir}" COMPONENT Devel)
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/aft" COMPONENT Devel)

# A parent project's target of that name is its own affair, and its manifest lists its own files too.
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(
    uninstall
    COMMAND "${CMAKE_COMMAND}" "-DAFT_BINARY_DIR=${CMAKE_CURRENT_BINARY_DIR}" -P
            "${CMAKE_CURRENT_SOURCE_DIR}/cmake/aft_uninstall.cmake"
    COMMENT "Remove what the last installation from this folder wrote"
    VERBATIM)
endif()
