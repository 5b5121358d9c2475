// SPDX-License-Identifier: Apache-2.0
/// @file simd/arch.hpp  Which xsimd, and which of its vectors; refuses what the backend does not compile with.
#pragma once

#include <aft/core/config.hpp>

#if !__has_include(<xsimd/xsimd.hpp>)
#error "aft needs xsimd 8.1 or newer and finds no <xsimd/xsimd.hpp>: install it (Debian: libxsimd-dev) or add -I"
#include "nothing of aft is compiled, see the error above"
#endif
// Vectors of plain numbers where xsimd knows none: they have to be asked for, since a flag such as -march is a better
// way wherever it is one. What xsimd gives its types, and which, its configuration says before anything is compiled.
#if defined(AFT_EMULATED_SIMD)
#if defined(XSIMD_HPP) && !XSIMD_WITH_EMULATED
#error "aft: with AFT_EMULATED_SIMD include <aft/aft.hpp> before xsimd, or define XSIMD_WITH_EMULATED=1 for all files"
#include "nothing of aft is compiled, see the error above"
#elif !defined(XSIMD_WITH_EMULATED)
#define XSIMD_WITH_EMULATED 1
#endif
#endif
#include <xsimd/config/xsimd_config.hpp>
#if XSIMD_VERSION_MAJOR < 8 || (XSIMD_VERSION_MAJOR == 8 && XSIMD_VERSION_MINOR < 1)
#error "aft needs xsimd 8.1 or newer and finds an older one: install a newer one or add -I"
#include "nothing of aft is compiled, see the error above"
#elif defined(AFT_EMULATED_SIMD) && XSIMD_VERSION_MAJOR < 13
#error "aft: AFT_EMULATED_SIMD needs xsimd 13 or newer"
#include "nothing of aft is compiled, see the error above"
#elif defined(AFT_EMULATED_SIMD) && defined(__AVX__)
// Some kernels are written for it, and take its registers for what a vector is.
#error "aft: AFT_EMULATED_SIMD is for processors without vectors that xsimd knows; this file is compiled for AVX"
#include "nothing of aft is compiled, see the error above"
#elif !defined(AFT_EMULATED_SIMD) && \
    (defined(XSIMD_NO_SUPPORTED_ARCHITECTURE) || (XSIMD_WITH_NEON && !XSIMD_WITH_NEON64))
#error "aft finds no vectors of float and double that this xsimd knows: add -march, or define AFT_EMULATED_SIMD"
#include "nothing of aft is compiled, see the error above"
#endif
#if defined(AFT_EMULATED_SIMD) && defined(XSIMD_NO_SUPPORTED_ARCHITECTURE)
// Where xsimd knows no vectors of the processor it would leave out those of plain numbers with them.
#undef XSIMD_NO_SUPPORTED_ARCHITECTURE
#endif
#include <xsimd/xsimd.hpp>

// Whether vectors are NEON's of 64-bit ARM. A target with SVE has NEON too, but its vectors are not these.
#if defined(__aarch64__) && !defined(AFT_EMULATED_SIMD) && !(defined(XSIMD_WITH_SVE) && XSIMD_WITH_SVE)
#define AFT_NEON64
#endif

namespace aft::inline AFT_ISA::cpu_impl {

#if defined(AFT_EMULATED_SIMD)
using vector_arch = xsimd::emulated<128>;
#elif defined(XSIMD_DEFAULT_ARCH) && XSIMD_VERSION_MAJOR >= 12
// A program's choice for its own batches: kernels belong to the flags, from which the namespace is named.
using vector_arch = xsimd::best_arch;
#else
using vector_arch = xsimd::default_arch;
#endif

}  // namespace aft::inline AFT_ISA::cpu_impl
