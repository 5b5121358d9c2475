// SPDX-License-Identifier: Apache-2.0
/// @file device/mma.cuh  Tensor cores and asynchronous copies (sm_80 and up): all PTX of the mainloop.
///
/// Fragments are as the PTX manual lays them out. With lane = 4 g + j of a warp:
///   A, 16 rows:  word 0 is row g, word 1 row g + 8, words 2 and 3 the same rows in the second half of the depth
///   B, 8 columns: word 0 is column g, word 1 the same column in the second half of the depth
///   a word is depth j of its half (TF32), or depths 2j and 2j + 1 (half and bfloat16, the first in the low bits)
///   D: elements 0, 1 are row g, columns 2j and 2j + 1; elements 2, 3 the same of row g + 8
/// tests/cuda/kernels/mma_test.cpp holds the emulated twins to that.
#pragma once

#include "device.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

#if defined(AFT_DEVICE_EMULATOR)

inline unsigned shared_address(const void* p) {
  return emulator::shared_address(p);
}
inline std::uint32_t to_tf32(float x) {
  return emulator::to_tf32(x);
}
inline void load_matrices(std::uint32_t (&words)[4], const void* row,
                          emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  emulator::load_matrices(words, row, at);
}
inline void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                     emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  emulator::multiply_tf32(d, a, b, at);
}
inline void mma_half(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                     emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  emulator::multiply_half(d, a, b, at);
}
inline void mma_bfloat16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                         emulator::place at = emulator::place::here(__builtin_FILE(), __builtin_LINE())) {
  emulator::multiply_bfloat16(d, a, b, at);
}
inline void copy_async(void* to, const void* from) {
  emulator::copy_async(to, from);
}
inline void commit_copies() {
  emulator::commit_copies();
}
template <int pending>
void wait_copies() {
  emulator::wait_copies(pending);
}

#else

// What a whole warp does is volatile: the compiler may not move it to where only some lanes use its result.

/// x to the nearest number of 11 significant bits.
__device__ __forceinline__ std::uint32_t to_tf32(float x) {
  std::uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

/// Four 8 x 16-byte matrices of shared memory: lane 8 i + r names row r of matrix i, and word i of lane 4 g + j is the
/// j-th 4 bytes of its row g. All lanes of the warp take part.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}

/// d += a b, 16 x 8 x 8.
__device__ __forceinline__ void mma_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// d += a b, 16 x 8 x 16.
__device__ __forceinline__ void mma_half(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/// d += a b, 16 x 8 x 16.
__device__ __forceinline__ void mma_bfloat16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// 16 bytes from global to shared memory, past the registers and the first cache. Both aligned to 16.
__device__ __forceinline__ void copy_async(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
/// Ends a group of this thread's copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until all of this thread's groups but the last `pending` have arrived. A barrier then shows them to the others.
template <int pending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#endif

}  // namespace aft::inline AFT_ISA::cuda_impl
