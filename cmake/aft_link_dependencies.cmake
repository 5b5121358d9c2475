# SPDX-License-Identifier: Apache-2.0
# Installed too: the build tree and the package hang the same things on the target.

# aft_link_dependencies(<target> [BUILD_INTERFACE]): with BUILD_INTERFACE nothing of it reaches an export.
function(aft_link_dependencies target)
  set(before "")
  set(after "")
  if("BUILD_INTERFACE" IN_LIST ARGN)
    set(before "$<BUILD_INTERFACE:")
    set(after ">")
  endif()
  # xsimd's headers, not its link interface: Debian's target asks for a library `xtl` that its package does not bring.
  get_target_property(xsimd_includes xsimd INTERFACE_INCLUDE_DIRECTORIES)
  if(xsimd_includes)
    target_include_directories(${target} SYSTEM INTERFACE "${before}${xsimd_includes}${after}")
  endif()
  if((NOT DEFINED AFT_OPENMP OR AFT_OPENMP) AND TARGET OpenMP::OpenMP_CXX)
    target_link_libraries(${target} INTERFACE "${before}OpenMP::OpenMP_CXX${after}")
  endif()
endfunction()
