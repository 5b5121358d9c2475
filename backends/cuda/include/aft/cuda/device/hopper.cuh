// SPDX-License-Identifier: Apache-2.0
/// @file device/hopper.cuh  Products of warpgroups, bulk copies and their barriers (sm_90a): PTX, one function each.
///
/// A product of a warpgroup reads both operands from shared memory while the threads go on: rows of 64 keys in 128
/// bytes, in the order of chunk_at(), as swizzled_matrix() describes them. D, 64 x 256, has its elements where mma.sync
/// has them: with lane = 4 g + j of warp i, d[4 n], d[4 n + 1] are row 16 i + g, columns 8 n + 2 j and 8 n + 2 j + 1,
/// and d[4 n + 2], d[4 n + 3] the same of row 16 i + g + 8. tests/cuda/kernels/hopper_test.cpp holds the emulated twins
/// to that.
#pragma once

#include "mma.cuh"

#if defined(AFT_DEVICE_EMULATOR)
#include <warpgroup.hpp>
#endif

namespace aft::inline AFT_ISA::cuda_impl {

inline constexpr int warpgroup_size = 128;

/// Of shared memory: threads arrive at it and bytes of copies do, and a phase is over when all that it waits for have.
struct alignas(8) arrival_barrier {
  std::uint64_t state;
};

/// Each thread's part of the 64 x 256 sums of a warpgroup.
using wgmma_sums = float[128];

#if defined(AFT_DEVICE_EMULATOR)

inline void init_barrier(arrival_barrier& barrier, int arrivals) {
  emulator::init_barrier(&barrier, arrivals);
}
inline void show_barriers() {
  emulator::show_barriers();
}
inline void arrive(arrival_barrier& barrier) {
  emulator::arrive(&barrier, 0);
}
inline void arrive_expecting(arrival_barrier& barrier, int bytes) {
  emulator::arrive(&barrier, bytes);
}
inline void wait_phase(const arrival_barrier& barrier, unsigned parity) {
  emulator::wait_phase(&barrier, parity);
}
inline void copy_bulk(void* to, const void* from, int bytes, arrival_barrier& barrier) {
  emulator::copy_bulk(to, from, static_cast<std::size_t>(bytes), &barrier);
}
inline void begin_products(wgmma_sums&) {
  emulator::begin_products();
}
inline void multiply_group(wgmma_sums& d, std::uint64_t a, std::uint64_t b) {
  emulator::multiply_group(d, a, b);
}
inline void commit_products() {
  emulator::commit_products();
}
template <int pending>
void wait_products() {
  emulator::wait_products(pending);
}
inline void settle_products(wgmma_sums&) {
  emulator::wait_products(0);
}
template <int registers>
void keep_registers() {}
template <int registers>
void take_registers() {}

#else

/// For so many arrivals a phase. show_barriers() and a block's barrier then show it to the others and to the copies.
__device__ __forceinline__ void init_barrier(arrival_barrier& barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void arrive(arrival_barrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// The phase is not over before so many bytes more have been copied.
__device__ __forceinline__ void arrive_expecting(arrival_barrier& barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}
/// Until the phase of this parity is over. The phase before the first counts as over, and has parity 1.
__device__ __forceinline__ void wait_phase(const arrival_barrier& barrier, unsigned parity) {
  unsigned over;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(over)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  } while (over == 0);
}
/// From global to shared memory, by one thread, both aligned to 16 bytes. The bytes arrive at the barrier.
__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, arrival_barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}

/// The compiler may not move what it does with d to the other side of it.
__device__ __forceinline__ void hold(wgmma_sums& d) {
  AFT_DEVICE_UNROLL
  for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
/// Before products use sums that the threads have touched.
__device__ __forceinline__ void begin_products(wgmma_sums& d) {
  hold(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until all of this warp's groups of products but the last `pending` are done with what they read. Sums that later
/// groups add to are not to be touched.
template <int pending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Until the sums are there.
__device__ __forceinline__ void settle_products(wgmma_sums& d) {
  wait_products<0>();
  hold(d);
}

/// Registers of each thread of this warpgroup from here on: fewer than the kernel was launched with, or more, as soon
/// as others have given theirs up.
template <int registers>
__device__ __forceinline__ void keep_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void take_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// clang-format off
#define AFT_EIGHT_SUMS(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                             "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
// clang-format on
/// d += a b, 64 x 256 x 16, both by rows of the depth, for the warpgroup. Starts only.
__device__ __forceinline__ void multiply_group(wgmma_sums& d, std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127 "
      "}, %128, %129, add, 1, 1, 0, 0;\n"
      "}"
      : AFT_EIGHT_SUMS(d, 0), AFT_EIGHT_SUMS(d, 8), AFT_EIGHT_SUMS(d, 16), AFT_EIGHT_SUMS(d, 24), AFT_EIGHT_SUMS(d, 32),
        AFT_EIGHT_SUMS(d, 40), AFT_EIGHT_SUMS(d, 48), AFT_EIGHT_SUMS(d, 56), AFT_EIGHT_SUMS(d, 64),
        AFT_EIGHT_SUMS(d, 72), AFT_EIGHT_SUMS(d, 80), AFT_EIGHT_SUMS(d, 88), AFT_EIGHT_SUMS(d, 96),
        AFT_EIGHT_SUMS(d, 104), AFT_EIGHT_SUMS(d, 112), AFT_EIGHT_SUMS(d, 120)
      : "l"(a), "l"(b), "r"(1));
}
#undef AFT_EIGHT_SUMS

#endif

/// Rows of 128 bytes from here on, which is a multiple of 1024: 128-byte swizzle (1, bits 62 and 63), 8 rows are 1024
/// bytes on (bits 32 to 45), and what would tell where the next 16 bytes are is not looked at (1, bits 16 to 29). All
/// in units of 16 bytes, as is the address (bits 0 to 13).
AFT_DEVICE std::uint64_t swizzled_matrix(const void* rows) {
  constexpr std::uint64_t swizzle = 1, eight_rows = 1024 / 16, unused = 1;
  return swizzle << 62 | eight_rows << 32 | unused << 16 | (shared_address(rows) >> 4 & 0x3fff);
}
/// The same rows `bytes` further along, within their 128.
AFT_DEVICE std::uint64_t further(std::uint64_t matrix, int bytes) {
  return matrix + static_cast<std::uint64_t>(bytes >> 4);
}

}  // namespace aft::inline AFT_ISA::cuda_impl
