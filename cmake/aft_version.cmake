# SPDX-License-Identifier: Apache-2.0
# The version stands in one place, the public header; sets AFT_VERSION from it.
set(_aft_version_header "${CMAKE_CURRENT_LIST_DIR}/../include/aft/core/version.hpp")
file(STRINGS "${_aft_version_header}" _aft_version_lines REGEX "^#define AFT_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
foreach(_aft_part MAJOR MINOR PATCH)
  if(NOT "${_aft_version_lines}" MATCHES "AFT_VERSION_${_aft_part} +([0-9]+)")
    message(FATAL_ERROR "aft: AFT_VERSION_${_aft_part} is not defined in ${_aft_version_header}")
  endif()
  set(_aft_version_${_aft_part} "${CMAKE_MATCH_1}")
endforeach()
set(AFT_VERSION "${_aft_version_MAJOR}.${_aft_version_MINOR}.${_aft_version_PATCH}")
# A reconfigure follows an edit of the header.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_aft_version_header}")
