// SPDX-License-Identifier: Apache-2.0
/// @file device_emulator.hpp  Runs kernels on the host: every thread of a block is a fiber, one block at a time.
///
/// Between two barriers the fibers of a block run in random order, each to its next barrier or shuffle: warp by warp,
/// so that what a warp works on stays in the cache, but some turns end before all lanes have had theirs. Shared memory
/// and device memory start as NaN patterns. So a missing barrier, a read of what nobody wrote and a lane that never
/// got its value turn up as NaN in a result, a barrier that not every thread reaches is an error, and what is read or
/// written beyond an allocation is AddressSanitizer's to find.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>

namespace aft::emulator {

/// A kernel did what no device would forgive: threads that wait at different barriers, or a lane that left its warp.
class kernel_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Where a kernel stops. (clang++ 14 has no std::source_location.)
struct place {
  const char* file;
  int line;
  static constexpr place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

constexpr std::size_t ordinary_shared_bytes = 48 * 1024;  ///< what every device gives without being asked for more

/// Runs body() as every thread of `blocks` blocks of `threads` threads, which may have so much shared memory.
void run(std::int64_t blocks, int threads, const std::function<void()>& body,
         std::size_t shared_bytes = ordinary_shared_bytes);

/// Barriers that blocks have passed on this host thread: a measure of the tiles that kernels work through.
std::int64_t barriers_passed();

/// Chooses the order of the fibers from here on.
void seed(std::uint64_t s);

/// What a kernel sees.
extern constinit thread_local int running_thread;
inline int thread_index() {
  return running_thread;
}
std::int64_t block_index();
void* shared(std::size_t bytes);
const void* shared_begin();
void sync(const place& at);
bool sync_any(bool x, const place& at);
std::uint32_t ballot(bool x, const place& at);

inline constexpr int warp = 32;
inline constexpr std::size_t slot_bytes = 64;  ///< holds a lane's fragments of a matrix product

/// What every lane of the warp handed in at one call; valid until the next call of the kind.
struct warp_slots {
  unsigned char* first_lane;
  int lanes;   ///< that there are
  bool first;  ///< the caller is the first that goes on after all have handed in, and the others wait for it

  unsigned char* operator[](int lane) const { return first_lane + static_cast<std::size_t>(lane) * slot_bytes; }
};
/// Where this lane puts in what it hands in.
unsigned char* own_slot();
/// Waits for all lanes.
warp_slots meet(const place& at);

[[noreturn]] void fail(const char* what);
inline void require_whole(const warp_slots& all) {
  if (all.lanes < warp) fail("an instruction for whole warps in a warp with fewer lanes");
}

/// The value that `lane` of the same warp handed in at the same call.
template <class T>
T shuffle(T x, int lane, const place& at) {
  static_assert(sizeof(T) <= 16);
  std::memcpy(own_slot(), &x, sizeof(T));
  const warp_slots all = meet(at);
  if (lane < 0 || lane >= all.lanes) fail("a shuffle from a lane that is not there");
  T result;
  std::memcpy(&result, all[lane], sizeof(T));
  return result;
}

/// The byte pattern of memory that nobody wrote: a NaN in every floating type, as in strided.hpp.
void fill_poison(void* p, std::size_t bytes);

// std::fma is a call where the target need not have the instruction, and a call empties the registers: a quarter of a
// kernel's time. The machine that runs the tests has it as a rule.
#if defined(__x86_64__) && !defined(__FMA__)
inline const bool has_fma = __builtin_cpu_supports("fma");

inline float fused(float a, float b, float c) {
  if (!has_fma) return std::fma(a, b, c);
  asm("vfmadd231ss %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  return c;
}
inline double fused(double a, double b, double c) {
  if (!has_fma) return std::fma(a, b, c);
  asm("vfmadd231sd %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  return c;
}
#else
template <class T>
T fused(T a, T b, T c) {
  return std::fma(a, b, c);
}
#endif

/// Twins of the functions in aft/cuda/device/mma.cuh. This one says where in the block's shared memory.
unsigned shared_address(const void* p);
std::uint32_t to_tf32(float x);
void load_matrices(std::uint32_t (&words)[4], const void* row, const place& at);
void multiply_tf32(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at);
void multiply_half(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at);
void multiply_bfloat16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const place& at);
/// The 16 bytes arrive when their group is waited for, and not before: until then NaN is in their place.
void copy_async(void* to, const void* from);
void commit_copies();
void wait_copies(int pending);

/// Which calls matrix products serve: those for which the backend chooses them; every size that they can; that, and on
/// the kernel for warpgroups.
enum class products { chosen, forced, by_warpgroups };
/// From the start what the environment says: AFT_TEST_ON_DEVICE=tensor_cores or warpgroups.
products& current_products();
bool product_forced();

/// Device memory, and a device that can fail. Counts like aft::test::counting_resource.
struct memory_statistics {
  std::size_t in_use = 0, peak = 0;
  long allocations = 0, launches = 0, waits = 0;
  void* stream = nullptr;  ///< of the last launch
};
memory_statistics& memory();
void* allocate(std::size_t bytes);  ///< null when this allocation is to fail
void release(void* p, std::size_t bytes);
/// From here on the allocation, or the launch, of this number fails (counted from 0); -1: none.
void fail_allocation(long nth);
void fail_launch(long nth);
bool launch_fails(void* stream);
/// Whether calls find their stream being captured into a graph, from here on.
void capture(bool on);
bool capturing();
/// Waits for a stream are counted; there is nothing to wait for.
void wait();

/// While device memory is apart, all of it that is allocated lies in pages that only kernels and copies can touch: what
/// the host reads or writes there ends the program, and a kernel that is given memory of the host is a device_error. Of
/// all host threads; while one of them runs a kernel the pages are open to the others too.
void keep_apart(bool on);
/// Such memory for a caller's tensors, taken and given back while it is not apart.
void* take_apart(std::size_t bytes);
void give_apart();
/// Whether it is, and p is not of it.
bool is_of_host(const void* p);
/// The pages are open while this lives.
struct opened {
  opened();
  opened(const opened&) = delete;
  opened& operator=(const opened&) = delete;
  ~opened();
};

}  // namespace aft::emulator
