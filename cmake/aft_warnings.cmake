# SPDX-License-Identifier: Apache-2.0
# aft_warnings: linked by the project's own programs only, never by aft itself, whose users choose their own.
add_library(aft_warnings INTERFACE)
target_compile_options(aft_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS MATCHES "-march=(native|x86-64-v4|.*avx512)|-mavx512")
  # GCC 12 takes the undefined pass-through operands inside its own AVX-512 intrinsics for uninitialised reads, and
  # reports them at the place of inlining, where no pragma of ours reaches.
  target_compile_options(aft_warnings INTERFACE -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
