// SPDX-License-Identifier: Apache-2.0
/// @file device/runtime.cuh  What launch code asks of CUDA: launches, scratch and errors, all on the caller's stream.
#pragma once

#include <aft/core/errors.hpp>
#include <aft/core/executors.hpp>

#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "device.cuh"

#if defined(AFT_DEVICE_EMULATOR)
#include <warpgroup.hpp>
#endif

namespace aft::inline AFT_ISA::cuda_impl {

#if defined(AFT_DEVICE_EMULATOR)

/// Empty where all went well.
inline std::string device_allocate(void** p, std::size_t bytes, void*) {
  *p = emulator::allocate(bytes);
  return *p == nullptr ? "cudaErrorMemoryAllocation (out of memory)" : "";
}
inline void device_release(void* p, std::size_t bytes, void*) {
  emulator::release(p, bytes);
}
inline std::string device_clear(void* p, std::size_t bytes, void*) {
  const emulator::opened open;
  std::memset(p, 0, bytes);
  return {};
}
/// To the host, once everything before on the stream is done.
inline std::string device_read(void* to, const void* from, std::size_t bytes, void*) {
  const emulator::opened open;
  std::memcpy(to, from, bytes);
  return {};
}
inline std::string device_write(void* to, const void* from, std::size_t bytes, void*) {
  const emulator::opened open;
  std::memcpy(to, from, bytes);
  return {};
}
inline std::string device_wait(void*) {
  emulator::wait();
  return {};
}
inline bool is_capturing(void*) {
  return emulator::capturing();
}
/// `bytes` of dynamic shared memory.
template <class... P, class... A>
std::string device_launch(void (*kernel)(P...), index_t blocks, int threads, int bytes, void* stream,
                          const A&... arguments) {
  if (emulator::launch_fails(stream)) return "cudaErrorLaunchFailure (unspecified launch failure)";
  const std::size_t shared = bytes == 0 ? emulator::ordinary_shared_bytes : static_cast<std::size_t>(bytes);
  const emulator::opened open;
  emulator::run(
      blocks, threads, [&] { kernel(arguments...); }, shared);
  return {};
}
/// Tests put every size that can on the tensor cores.
inline bool product_forced() {
  return emulator::product_forced();
}
/// Whether this device has the kernel in an image compiled for as many threads as it is written for.
template <class... P>
bool runs_with(void (*)(P...), int) {
  return emulator::has_warpgroups();
}
/// Few, so that blocks which take more than one tile are seen to.
inline index_t multiprocessors() {
  return 3;
}
/// The device of the stream is the current one while this lives.
struct device_guard {
  explicit device_guard(void*, const char*) {}
};
/// Memory of the host, where tests keep it apart.
inline std::string pointer_error(const void* p) {
  return emulator::is_of_host(p) ? "cudaErrorInvalidValue (a pointer to memory of the host)" : "";
}

#else

constexpr bool product_forced() {
  return false;
}

inline std::string error_text(cudaError_t status) {
  if (status == cudaSuccess) return {};
  // An error that is not sticky stays behind until it is read; the next call of the program is not to find it.
  (void)cudaGetLastError();
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}
inline cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

inline std::string device_allocate(void** p, std::size_t bytes, void* stream) {
  return error_text(cudaMallocAsync(p, bytes, stream_of(stream)));
}
inline void device_release(void* p, std::size_t, void* stream) {
  (void)error_text(cudaFreeAsync(p, stream_of(stream)));
}
inline std::string device_clear(void* p, std::size_t bytes, void* stream) {
  return error_text(cudaMemsetAsync(p, 0, bytes, stream_of(stream)));
}
inline std::string device_read(void* to, const void* from, std::size_t bytes, void* stream) {
  const std::string error = error_text(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream)));
  return error.empty() ? error_text(cudaStreamSynchronize(stream_of(stream))) : error;
}
/// From the host, which leaves the memory as it is until it has waited for the stream.
inline std::string device_write(void* to, const void* from, std::size_t bytes, void* stream) {
  return error_text(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(stream)));
}
inline std::string device_wait(void* stream) {
  return error_text(cudaStreamSynchronize(stream_of(stream)));
}
template <class... P, class... A>
std::string device_launch(void (*kernel)(P...), index_t blocks, int threads, int bytes, void* stream,
                          const A&... arguments) {
  constexpr int ordinary = 48 << 10;  // beyond it a kernel has to be allowed to have so much
  if (bytes > ordinary) {
    const std::string error = error_text(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    if (!error.empty()) return error;
  }
  std::tuple<P...> values(arguments...);
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {&value...};
        return error_text(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                                           dim3(static_cast<unsigned>(threads)), pointers,
                                           static_cast<std::size_t>(bytes), stream_of(stream)));
      },
      values);
}

/// Whether this device has the kernel in an image compiled for as many threads as it is written for: code for one
/// architecture alone is left out of the others' images.
template <class... P>
bool runs_with(void (*kernel)(P...), int threads) {
  cudaFuncAttributes attributes{};
  return error_text(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel))).empty() &&
         attributes.maxThreadsPerBlock >= threads;
}

/// Of the current device; 1 where it will not say.
inline index_t multiprocessors() {
  int device = 0, count = 1;
  if (!error_text(cudaGetDevice(&device)).empty() ||
      !error_text(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device)).empty())
    return 1;
  return count;
}

inline bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return error_text(cudaStreamIsCapturing(stream_of(stream), &status)).empty() && status != cudaStreamCaptureStatusNone;
}

/// The device of the stream is the current one while this lives. The default stream belongs to the device that is
/// current anyway. A stream that is being captured into a graph must not be asked, which would end the capture (seen on
/// an H200, CUDA 13.0): whoever captures has made its device the current one.
class device_guard {
 public:
  device_guard(void* stream, const char* op) {
    std::string error = error_text(cudaGetDevice(&before_));
    // Older runtimes, and older drivers under a new runtime, cannot tell: there the stream must be of this device.
    int wanted = before_;
#if CUDART_VERSION >= 12080
    if (error.empty() && stream != nullptr && !is_capturing(stream)) {
      const cudaError_t status = cudaStreamGetDevice(stream_of(stream), &wanted);
      const std::string text = error_text(status);
      if (status == cudaErrorCallRequiresNewerDriver) {
        wanted = before_;
      } else {
        error = text;
      }
    }
#endif
    if (error.empty() && wanted != before_) {
      error = error_text(cudaSetDevice(wanted));
      changed_ = error.empty();
    }
    if (!error.empty()) throw device_error(std::string(op) + ": " + error);
  }
  device_guard(const device_guard&) = delete;
  device_guard& operator=(const device_guard&) = delete;
  ~device_guard() {
    if (changed_) (void)error_text(cudaSetDevice(before_));
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// What CUDA has against a pointer: memory that it does not know cannot be device memory.
inline std::string pointer_error(const void* p) {
  cudaPointerAttributes attributes{};
  std::string error = error_text(cudaPointerGetAttributes(&attributes, p));
  if (error.empty() && attributes.type == cudaMemoryTypeUnregistered)
    error = "cudaErrorInvalidValue (a pointer to host memory that CUDA does not know)";
  return error;
}

#endif

/// The stream of one call, and its name for error messages.
class call_stream {
 public:
  call_stream(const char* op, void* stream) : op_(op), stream_(stream) {}

  void* get() const { return stream_; }
  void throw_on(const std::string& error, const char* what) const {
    if (!error.empty()) throw device_error(std::string(op_) + ": " + what + ": " + error);
  }

  template <class... P, class... A>
  void launch(void (*kernel)(P...), index_t blocks, int threads, const A&... arguments) const {
    launch_with(0, kernel, blocks, threads, arguments...);
  }
  /// With so many bytes of dynamic shared memory.
  template <class... P, class... A>
  void launch_with(int bytes, void (*kernel)(P...), index_t blocks, int threads, const A&... arguments) const {
    constexpr index_t most = 0x7fffffff;
    if (blocks == 0) return;
    if (blocks > most) {
      throw_on("cudaErrorInvalidConfiguration (" + std::to_string(blocks) + " blocks; a grid holds " +
                   std::to_string(most) + ")",
               "too large a grid");
    }
    throw_on(device_launch(kernel, blocks, threads, bytes, stream_, arguments...), "launching a kernel");
  }
  /// One thread for each of n items.
  template <class... P, class... A>
  void launch_each(void (*kernel)(P...), index_t n, int threads, const A&... arguments) const {
    launch(kernel, ceil_div(n, threads), threads, arguments...);
  }
  template <class T>
  void clear(T* p, index_t n) const {
    if (n > 0) throw_on(device_clear(p, static_cast<std::size_t>(n) * sizeof(T), stream_), "clearing scratch");
  }

 private:
  const char* op_;
  void* stream_;
};

/// Memory that the calls on the sequences of a packed call use one after the other, as much as the one that takes most.
/// At first it counts what each of them would take, and they launch nothing.
class device_room {
 public:
  explicit device_room(const call_stream& stream) : stream_(&stream) {}
  device_room(const device_room&) = delete;
  device_room& operator=(const device_room&) = delete;
  ~device_room() {
    if (base_ != nullptr) device_release(base_, most_, stream_->get());
  }

  bool counts() const { return counts_; }
  void count(std::size_t bytes) { most_ = max_of(most_, bytes); }
  void allocate() {
    counts_ = false;
    if (most_ > 0) stream_->throw_on(device_allocate(&base_, most_, stream_->get()), "allocating scratch");
  }
  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  const call_stream* stream_;
  std::size_t most_ = 0;
  void* base_ = nullptr;
  bool counts_ = true;
};

/// Working memory of one call: everything is reserved first and then comes in one allocation, so that a call that runs
/// out of memory has launched nothing. It goes back to the stream's pool in stream order, also when the call throws.
class device_scratch {
 public:
  /// From `room` where there is one.
  explicit device_scratch(const call_stream& stream, device_room* room = nullptr) : stream_(&stream), room_(room) {}
  device_scratch(const device_scratch&) = delete;
  device_scratch& operator=(const device_scratch&) = delete;
  ~device_scratch() {
    if (base_ != nullptr) device_release(base_, bytes_, stream_->get());
  }

  /// `pointer` will point at n elements from allocate() on.
  template <class T>
  void reserve(T*& pointer, index_t n) {
    wanted_.push_back({&set_pointer<T>, &pointer, bytes_, false});
    bytes_ += round_up(static_cast<std::size_t>(n) * sizeof(T), alignment);
  }
  /// The same, at the place of all others that were reserved like this: for parts of a call that come one after the
  /// other.
  template <class T>
  void reserve_shared(T*& pointer, index_t n) {
    wanted_.push_back({&set_pointer<T>, &pointer, 0, true});
    shared_bytes_ = max_of(shared_bytes_, round_up(static_cast<std::size_t>(n) * sizeof(T), alignment));
  }
  /// False where the room only counts: the call then ends here.
  bool allocate() {
    const std::size_t shared_at = bytes_;
    bytes_ += shared_bytes_;
    if (room_ != nullptr && room_->counts()) {
      room_->count(bytes_);
      return false;
    }
    if (bytes_ == 0) return true;
    if (room_ == nullptr) stream_->throw_on(device_allocate(&base_, bytes_, stream_->get()), "allocating scratch");
    std::byte* const first = room_ != nullptr ? room_->base() : static_cast<std::byte*>(base_);
    for (const request& r : wanted_) r.set(r.where, first + (r.shared ? shared_at : r.offset));
    return true;
  }

 private:
  struct request {
    void (*set)(void*, std::byte*);
    void* where;
    std::size_t offset;
    bool shared;
  };
  static constexpr std::size_t alignment = 256;
  template <class T>
  static void set_pointer(void* where, std::byte* p) {
    *static_cast<T**>(where) = reinterpret_cast<T*>(p);
  }

  const call_stream* stream_;
  device_room* room_;
  std::vector<request> wanted_;
  std::size_t bytes_ = 0, shared_bytes_ = 0;
  void* base_ = nullptr;
};

}  // namespace aft::inline AFT_ISA::cuda_impl
