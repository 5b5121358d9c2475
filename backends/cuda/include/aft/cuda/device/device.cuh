// SPDX-License-Identifier: Apache-2.0
/// @file device/device.cuh  The only words of CUDA that kernels use, so that a host compiler can compile them too.
///
/// Grids and blocks have one axis. A kernel has one block of shared memory, a struct that `shared<S>()` gives, which
/// starts uninitialised. Under AFT_DEVICE_EMULATOR the same words mean the emulator of the tests.
#pragma once

#include <aft/core/config.hpp>
#include <aft/math/integers.hpp>

#include <bit>
#include <cmath>

#if defined(AFT_DEVICE_EMULATOR)
#include <device_emulator.hpp>
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#error "aft/cuda/*.cuh is compiled by nvcc; a host file includes <aft/aft.hpp> and links aft::cuda"
#endif

#if defined(AFT_DEVICE_EMULATOR)
#define AFT_DEVICE inline
#define AFT_HOST_DEVICE inline
#define AFT_KERNEL(threads, blocks) inline void
#define AFT_PARAMETER
#define AFT_DEVICE_UNROLL
#define AFT_DEVICE_UNROLL_BY(n)
#else
#define AFT_DEVICE __device__ __forceinline__
#define AFT_HOST_DEVICE __host__ __device__ __forceinline__
// `blocks` of `threads` are to fit a multiprocessor, which bounds the registers; left to itself ptxas spills some of
// them for a block more. Hidden: a shared library does not offer its kernels to a program that was compiled for other
// devices.
#define AFT_KERNEL(threads, blocks) \
  __global__ __attribute__((visibility("hidden"))) void __launch_bounds__(threads, blocks)
#define AFT_PARAMETER __grid_constant__
#define AFT_DEVICE_UNROLL _Pragma("unroll")
#define AFT_PRAGMA_(text) _Pragma(#text)
#define AFT_DEVICE_UNROLL_BY(n) AFT_PRAGMA_(unroll n)
#endif

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int warp_size = 32;

/// a / b for numbers that are not negative. A device divides 64 bits in about a hundred instructions and 32 in a tenth
/// of that, which is what most sizes need.
AFT_HOST_DEVICE index_t quotient(index_t a, index_t b) {
  if (((a | b) >> 32) == 0) return static_cast<index_t>(static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b));
  return a / b;
}

/// A number of which the compiler knows nothing at this place: what follows from it is worked out here and not kept in
/// registers from before a loop, of which there would be one for each position of a burst.
AFT_DEVICE index_t unknown(index_t x) {
#if !defined(AFT_DEVICE_EMULATOR)
  asm volatile("" : "+l"(x));
#endif
  return x;
}

/// What a launch asks for, so that dynamic_shared<S>() finds room.
template <class S>
inline constexpr int dynamic_bytes = static_cast<int>(sizeof(S) + alignof(S));

#if defined(AFT_DEVICE_EMULATOR)

inline int thread_index() {
  return emulator::thread_index();
}
inline index_t block_index() {
  return emulator::block_index();
}
template <class S>
S& shared() {
  return *static_cast<S*>(emulator::shared(sizeof(S)));
}
/// The same for a kernel that is launched with `dynamic_bytes<S>` of shared memory, more than every device gives
/// unasked.
template <class S>
S& dynamic_shared() {
  return shared<S>();
}
inline void sync(emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  emulator::sync(at);
}
/// Whether `x` holds in any thread of the block; a barrier as well.
inline bool sync_any(bool x, emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  return emulator::sync_any(x, at);
}
/// `x` of the lane `lane ^ mask`. All lanes of the warp take part.
template <class T>
T shuffle_xor(T x, int mask, emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  return emulator::shuffle(x, (thread_index() % warp_size) ^ mask, at);
}
/// `x` of lane `from`.
template <class T>
T shuffle(T x, int from, emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  return emulator::shuffle(x, from, at);
}
/// A barrier of the lanes of a warp.
inline void sync_warp(emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  (void)emulator::meet(at);
}
/// *at becomes the smaller of itself and x, or the larger, for all threads of all blocks. The order cannot be seen in
/// the result.
inline void lower_to(int* at, int x) {
  if (x < *at) *at = x;
}
inline void raise_to(int* at, int x) {
  if (x > *at) *at = x;
}
/// Bit l is `x` of lane l.
inline std::uint32_t ballot(bool x, emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  return emulator::ballot(x, at);
}
/// Of x, which is not 0.
inline int lowest_bit(std::uint32_t x) {
  return std::countr_zero(x);
}
inline float fused(float a, float b, float c) {
  return emulator::fused(a, b, c);
}
inline double fused(double a, double b, double c) {
  return emulator::fused(a, b, c);
}
/// For results of 8 bits: a / b within 2 units in the last place, for b from 2^-126 to 2^126, and e^x within
/// 2 + 1.2 |x| of them; 0 for e^-inf, NaN for NaN.
inline float quick_quotient(float a, float b) {
  return a / b;
}
inline float quick_exp(float x) {
  return std::exp(x);
}
/// log2 x within 2^-21 for x from 2^-126 on, or 2 units in the last place of a larger result.
inline float quick_log2(float x) {
  return std::log2(x);
}

#else

__device__ __forceinline__ int thread_index() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ index_t block_index() {
  return static_cast<index_t>(blockIdx.x);
}
template <class S>
__device__ __forceinline__ S& shared() {
  __shared__ alignas(16) unsigned char raw[sizeof(S)];
  return *reinterpret_cast<S*>(raw);
}
extern __shared__ unsigned char aft_dynamic_shared[];
template <class S>
__device__ __forceinline__ S& dynamic_shared() {
  // The language promises 16 bytes of alignment, so the launch asks for as many more as S may need.
  const auto begin = static_cast<unsigned>(__cvta_generic_to_shared(aft_dynamic_shared));
  return *reinterpret_cast<S*>(aft_dynamic_shared + (0u - begin) % static_cast<unsigned>(alignof(S)));
}
__device__ __forceinline__ void sync() {
  __syncthreads();
}
__device__ __forceinline__ bool sync_any(bool x) {
  return __syncthreads_or(x ? 1 : 0) != 0;
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <class T>
__device__ __forceinline__ T shuffle(T x, int from) {
  return __shfl_sync(0xffffffffu, x, from);
}
__device__ __forceinline__ void sync_warp() {
  __syncwarp();
}
__device__ __forceinline__ void lower_to(int* at, int x) {
  atomicMin(at, x);
}
__device__ __forceinline__ void raise_to(int* at, int x) {
  atomicMax(at, x);
}
__device__ __forceinline__ std::uint32_t ballot(bool x) {
  return __ballot_sync(0xffffffffu, x);
}
__device__ __forceinline__ int lowest_bit(std::uint32_t x) {
  return __ffs(static_cast<int>(x)) - 1;
}
__device__ __forceinline__ float fused(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ double fused(double a, double b, double c) {
  return __fma_rn(a, b, c);
}
__device__ __forceinline__ float quick_quotient(float a, float b) {
  return __fdividef(a, b);
}
__device__ __forceinline__ float quick_exp(float x) {
  return __expf(x);
}
__device__ __forceinline__ float quick_log2(float x) {
  return __log2f(x);
}

#endif

}  // namespace aft::inline AFT_ISA::cuda_impl
