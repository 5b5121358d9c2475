# SPDX-License-Identifier: Apache-2.0
# Where nobody is going to time or keep them, programs are optimised little, or not at all: scripts/test compiles examples and
# what pages show to run them once, and kernels that a test has for itself.
option(AFT_TRY_PROGRAMS "Examples, benchmark, some tests, programs of pages and of the CUDA part with little optimisation: to be run once"
       OFF)
mark_as_advanced(AFT_TRY_PROGRAMS)

# The project's own builds take less time by what follows, and nothing of what they make changes.
if(PROJECT_IS_TOP_LEVEL)
  # GCC looks for memory to give back whenever it holds a third more than before: a tenth of the time that kernels of one
  # type take (34.9 s, not 39.4, and 1.1 GB, not 0.6; g++ 12, Zen 4). Up to a gibibyte it need not look.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1048576>")

  # Each program under AddressSanitizer is 35 MB and takes the GNU linker 0.7 s of a core, LLVM's 0.25.
  find_program(AFT_LLD NAMES ld.lld)
  mark_as_advanced(AFT_LLD)
  if(AFT_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# aft_share_engine(<target> <flag> <source>...): these sources of a target of this directory take the kernels from one
# object per flag instead of compiling them each. The kernels are most of what a call costs to compile; code that uses
# them stays written as a user would write it.
function(aft_share_engine target flag)
  string(MAKE_C_IDENTIFIER "aft_engine${flag}" engine)
  set(support "${aft_SOURCE_DIR}/tests/support/engines")
  if(NOT TARGET ${engine})
    add_library(${engine} STATIC EXCLUDE_FROM_ALL "${support}/engine_f32.cpp" "${support}/engine_f64.cpp")
    target_compile_options(${engine} PRIVATE ${flag} $<$<BOOL:${AFT_TRY_PROGRAMS}>:-O1>)
    target_link_libraries(${engine} PUBLIC aft::aft)
  endif()
  get_target_property(joined ${target} UNITY_BUILD)
  if(joined)
    set_target_properties(${target} PROPERTIES UNITY_BUILD_CODE_BEFORE_INCLUDE "#include \"${support}/engine.hpp\"")
  else()
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -include "${support}/engine.hpp")
  endif()
  set_property(SOURCE ${ARGN} APPEND PROPERTY OBJECT_DEPENDS "${support}/engine.hpp")
  target_link_libraries(${target} PUBLIC ${engine})
endfunction()

# aft_try_only(<target>...): programs that share an engine, not optimised themselves where they are only tried.
function(aft_try_only)
  foreach(target IN LISTS ARGN)
    if(AFT_TRY_PROGRAMS)
      target_compile_options(${target} PRIVATE -O0)
    endif()
  endforeach()
endfunction()

# aft_join_sources(<target>...): where programs are only tried, several sources of a target are one compilation, which reads
# their headers once. Whoever builds the examples alone, as scripts/demo does, compiles each by itself. Comes before
# aft_share_engine.
function(aft_join_sources)
  if(AFT_TRY_PROGRAMS AND NOT AFT_TEST_FULL)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# aft_share_native_engine(<target> <source>...): the same with kernels for this machine, which the benchmark and char_lm
# have compiled already where they are built; builds that name an instruction set or a sanitizer keep to theirs.
include(CheckCXXCompilerFlag)
function(aft_share_native_engine target)
  check_cxx_compiler_flag(-march=native AFT_HAVE_MARCH_NATIVE)
  set(flag "")
  if(AFT_HAVE_MARCH_NATIVE AND NOT CMAKE_CXX_FLAGS MATCHES "-march=|-mavx|-msse|-fsanitize")
    set(flag -march=native)
    target_compile_options(${target} PRIVATE ${flag})
  endif()
  aft_share_engine(${target} "${flag}" ${ARGN})
endfunction()
