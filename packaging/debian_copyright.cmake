# SPDX-License-Identifier: Apache-2.0
# Run by cpack before it packs.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(_aft_folder "${CPACK_TEMPORARY_INSTALL_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/share/doc/libaft-dev")
  file(MAKE_DIRECTORY "${_aft_folder}")
  file(COPY_FILE "${CPACK_RESOURCE_FILE_LICENSE}" "${_aft_folder}/copyright")
  file(CHMOD "${_aft_folder}/copyright" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endif()
