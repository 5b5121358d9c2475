// SPDX-License-Identifier: Apache-2.0
/// @file aft.hpp  The Attention Free Transformer operators: the one header that users include.

/// @namespace aft
/// The whole interface. Calls are ([executor,] inputs, outputs [, options]) on views of the caller's memory; indices
/// are b (batch), h (head), t (query position), s (key position), c (channel). Every function that computes checks all
/// its arguments before it writes anything, and throws aft::shape_error.
#pragma once

// First of all: what follows does not compile where it refuses.
#include <aft/core/requirements.hpp>

// The Windows SDK's <windows.h> makes macros of both, and xsimd uses the names as they are. They come back at the end.
#pragma push_macro("min")
#pragma push_macro("max")
#undef min
#undef max

#if defined(__clang__)
// Parts of -ffast-math of which clang sets no macro: what is parsed from here on, xsimd too, keeps to the order of its
// operations, to signed zeros, NaN and infinities.
#pragma float_control(precise, on, push)
#endif

#include <aft/core/config.hpp>
#include <aft/core/errors.hpp>
#include <aft/core/executors.hpp>
#include <aft/core/numeric.hpp>
#include <aft/core/version.hpp>
#include <aft/core/checks/type_checks.hpp>
#include <aft/core/problem/dispatch.hpp>
#include <aft/core/problem/options.hpp>
#include <aft/core/views/any_view.hpp>
#include <aft/core/views/storage_of.hpp>
#include <aft/core/views/tensor_view.hpp>
#include <aft/interop/dlpack.hpp>
#include <aft/interop/eigen.hpp>
#include <aft/interop/mdspan.hpp>
#include <aft/interop/pointer.hpp>
#include <aft/math/bias.hpp>
#include <aft/math/window.hpp>
#include <aft/ops/attention_map.hpp>
#include <aft/ops/conv.hpp>
#include <aft/ops/filter_entropy.hpp>
#include <aft/ops/full.hpp>
#include <aft/ops/gumbel_filter.hpp>
#include <aft/ops/local.hpp>
#include <aft/ops/reparameterize.hpp>
#include <aft/ops/simple.hpp>
#include <aft/ops/streams.hpp>
#if !defined(__CUDACC__)
// The front end of nvcc 13 fails on it; .cu files get the compiler's own lists of candidates.
#include <aft/ops/misuse.hpp>
#endif

// The backends come last: operators know them only through core/problem/dispatch.hpp. Device code is a part of its own.
// One -I serves an installed tree and a checkout alike; a build system names the backends' folders itself.
#if defined(__CUDACC__)
// nvcc's front end names every pragma of GCC's that it does not know; GCC, which compiles the host code, knows them.
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif
#if defined(__GNUC__) && !defined(__clang__)
// In templates GCC takes the bounds of arrays, which index_t counts, for conversions, and storage that views gave as
// bytes for less aligned than their elements. Clang, which looks closer, finds nothing.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wcast-align"
#endif
#if (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_HWADDRESS__)) && !defined(__clang__)
// GCC marks the birth and the death of every temporary that an inlined vector operation leaves behind, which keeps all
// of them in memory: one call took 15 times as long to compile, and what it compiled to was not faster for it. Accesses
// are watched as they are elsewhere.
#pragma GCC push_options
#pragma GCC optimize("no-inline")
#endif
#if defined(AFT_COMPILED) && __has_include(<aft/compiled/backend.hpp>)
// The target aft::compiled says so: kernels are in its library.
#include <aft/compiled/backend.hpp>
#elif defined(AFT_COMPILED)
#include "../../backends/compiled/include/aft/compiled/backend.hpp"
#elif __has_include(<aft/cpu/backend.hpp>)
#include <aft/cpu/backend.hpp>
#elif __has_include("../../backends/cpu/include/aft/cpu/backend.hpp")
#include "../../backends/cpu/include/aft/cpu/backend.hpp"
#else
#error "aft: the CPU backend is not beside include/: copy backends/cpu/include too, or use an installed aft"
#include "nothing of aft is compiled, see the error above"
#endif
#if (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_HWADDRESS__)) && !defined(__clang__)
#pragma GCC pop_options
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
#if defined(AFT_COMPILED) && defined(AFT_COMPILED_CUDA) && __has_include(<aft/compiled/device_backend.hpp>)
// The target aft::compiled of a build with CUDA says so: the device's kernels are in its library too.
#include <aft/compiled/device_backend.hpp>
#elif defined(AFT_COMPILED) && defined(AFT_COMPILED_CUDA)
#include "../../backends/compiled/include/aft/compiled/device_backend.hpp"
#elif __has_include(<aft/cuda/backend.hpp>)
#include <aft/cuda/backend.hpp>
#elif defined(__CUDACC__) && __has_include("../../backends/cuda/include/aft/cuda/backend.hpp")
#include "../../backends/cuda/include/aft/cuda/backend.hpp"
#endif

#if defined(__clang__)
#pragma float_control(pop)
#endif

#pragma pop_macro("max")
#pragma pop_macro("min")
