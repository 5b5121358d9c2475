// SPDX-License-Identifier: Apache-2.0
/// @file config.hpp  The name of the namespace that depends on the instruction set, and what all headers share.
#pragma once

#include "requirements.hpp"

#include <cstddef>
#include <cstdint>

#include "instruction_set.hpp"
#include "test_hooks.hpp"
#include "version.hpp"

// Two files of one program may be compiled with different -m flags. Without distinct names the linker would keep one
// definition of every template and hand AVX-512 code to the file that was built for an older machine. So each function
// whose code depends on the flags lives in an inline namespace that is named from them. Views, options and numeric
// types are the same in every file and stay outside it; their members are always inlined, which leaves no symbol to
// share.

// The compiled library (aft::compiled) holds the kernels once for each level, and files that call it hold none. Both
// have names of their own, so that neither a header-only file of the program nor a library of another version can
// stand in for them: such a program does not link. Callers' checks depend on their flags as everything does.
#define AFT_JOIN_VERSION_(major, minor, patch) compiled_v##major##_##minor##_##patch
#define AFT_JOIN_VERSION(...) AFT_JOIN_VERSION_(__VA_ARGS__)
#define AFT_JOIN_NAMES_(version, name) version##_##name
#define AFT_JOIN_NAMES(...) AFT_JOIN_NAMES_(__VA_ARGS__)
/// The compiled library of this version, as a name.
#define AFT_COMPILED_VERSION AFT_JOIN_VERSION(AFT_VERSION_MAJOR, AFT_VERSION_MINOR, AFT_VERSION_PATCH)
/// The namespace of what that library exports to C++, the same for callers of any flags.
#define AFT_COMPILED_ENTRIES AFT_WITH_HOOKS(AFT_COMPILED_VERSION)
/// What the functions of this file are named from.
#if defined(AFT_COMPILED_LEVEL)
#define AFT_CODE_NAME AFT_JOIN_NAMES(AFT_COMPILED_VERSION, AFT_COMPILED_LEVEL)
#elif defined(AFT_COMPILED)
#define AFT_CODE_NAME AFT_JOIN_NAMES(AFT_COMPILED_VERSION, AFT_HOST_ISA)
#else
#define AFT_CODE_NAME AFT_HOST_ISA
#endif

// Under nvcc the name carries the list of architectures too: the device code of a template is that of the file whose
// host code the linker keeps, and another file may have been compiled for other GPUs.
#if defined(__CUDACC__) && defined(__CUDA_ARCH_LIST__)
// As many as CUDA 13 knows. 90 and 90a are one word in the list, and so are 100 and 100a: docs/cuda.md forbids the mix.
#define AFT_JOIN_ARCHS_(isa, a, b, c, d, e, f, g, h, i, j, k, l, ...) \
  isa##_sm##a##x##b##x##c##x##d##x##e##x##f##x##g##x##h##x##i##x##j##x##k##x##l
#define AFT_JOIN_ARCHS(isa, ...) AFT_JOIN_ARCHS_(isa, __VA_ARGS__, , , , , , , , , , , , )
#define AFT_ISA AFT_JOIN_ARCHS(AFT_WITH_HOOKS(AFT_CODE_NAME), __CUDA_ARCH_LIST__)
#else
#define AFT_ISA AFT_WITH_HOOKS(AFT_CODE_NAME)
#endif

/// Compiled once, whatever constants its callers pass. GCC would write such a function out again for each of them,
/// which was a tenth of the time that a gradient takes to compile, and it drops calls of functions that only prefetch.
#if defined(__clang__)
#define AFT_COMPILE_ONCE [[gnu::noinline]]
#else
#define AFT_COMPILE_ONCE [[gnu::noipa]]
#endif

/// Inlined wherever it is called. A function that gets accumulators by reference has to be: called, it takes their
/// addresses, and clang, which weighs a body of fourteen unrolled rows before it decides, then keeps them on the stack.
#define AFT_INLINE [[gnu::always_inline]] inline

// More of GCC's words that another compiler has under other names or not at all.
/// Before a loop: so many of its turns at a time.
#define AFT_UNROLL(turns) AFT_PRAGMA(GCC unroll turns)
#define AFT_PRAGMA(words) _Pragma(#words)
/// Asks for the line at an address. Further arguments: 1 if it is to be written, and how near it is to come, from 0
/// to 3.
#define AFT_PREFETCH(...) __builtin_prefetch(__VA_ARGS__)

/// A function of plain numbers that kernels call too.
#if defined(__CUDACC__)
#define AFT_ALSO_ON_DEVICE __host__ __device__
#else
#define AFT_ALSO_ON_DEVICE
#endif

namespace aft {

/// Sizes, offsets and strides. Signed, so that strides may be negative, and 64-bit on every platform.
using index_t = std::int64_t;

/// Memory that the host can read. Part of a view's type, so a host view cannot reach a device kernel.
struct host_space {};
/// Memory of a CUDA device.
struct device_space {};

}  // namespace aft
