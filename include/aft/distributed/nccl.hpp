// SPDX-License-Identifier: Apache-2.0
/// @file nccl.hpp  Ranks of an NCCL communicator, for aft::split. The one header that includes nccl.h.
#pragma once

#if !__has_include(<nccl.h>) || !__has_include(<cuda_runtime_api.h>)
#error \
    "aft: nccl.h or cuda_runtime_api.h is not in the include path: add NCCL's and the CUDA Toolkit's, and link nccl and cudart"
#else
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <aft/core/errors.hpp>

#include "split.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <thread>

namespace aft {

/// A communicator (aft::communicator) over NCCL, one rank a GPU: `aft::split{aft::cpu{}, aft::nccl_ref{comm, stream}}`.
/// A handle; ncclComm_t and stream are the caller's, as is the current device, which has to be the communicator's.
///
/// Bytes in device memory move from where they lie. Those in host memory go through memory of the device, taken from
/// the stream's pool for the time of the message. Every message ends by waiting for its stream, so that nothing of it
/// can be captured. Throws communication_error with NCCL's words when the communicator has failed, also by another
/// rank's end; device_error with the CUDA error's name.
struct nccl_ref {
  ncclComm_t comm = nullptr;      ///< not owned
  cudaStream_t stream = nullptr;  ///< of all messages, not owned

  /// Of this process.
  int rank() const {
    int r = 0;
    require_success(ncclCommUserRank(comm, &r), "ncclCommUserRank");
    return r;
  }
  /// How many ranks there are.
  int size() const {
    int n = 0;
    require_success(ncclCommCount(comm, &n), "ncclCommCount");
    return n;
  }

  /// `part` of every rank into `gathered`, in rank order.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> gathered) const {
    if (gathered.empty()) return;
    const on_device out(part, stream), in(gathered, stream);
    out.fill(part);
    require_success(ncclAllGather(out.data(), in.data(), part.size(), ncclUint8, comm, stream), "ncclAllGather");
    wait();
    in.empty_into(gathered);
  }

  /// `out` to rank `to`, `in` from rank `from`; an empty span is no message.
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const;

  class started;
  /// As send_recv, without waiting for it to end. Bytes of the host wait for the messages before them.
  started start_send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const;

  /// Ends what the other ranks wait for. The communicator is of no use after it.
  void abort() const { ncclCommAbort(comm); }

 private:
  /// A span, or as many bytes of the device for one in host memory.
  class on_device {
   public:
    on_device(std::span<const std::byte> bytes, cudaStream_t stream) : stream_(stream) {
      if (bytes.empty()) return;
      cudaPointerAttributes found{};
      require_cuda(cudaPointerGetAttributes(&found, bytes.data()), "cudaPointerGetAttributes");
      if (found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeManaged) {
        // The concept's spans of what is sent are const, and NCCL reads them.
        data_ = const_cast<std::byte*>(bytes.data());
      } else {
        require_cuda(cudaMallocAsync(&data_, bytes.size(), stream_), "cudaMallocAsync");
        owned_ = true;
      }
    }
    on_device(const on_device&) = delete;
    on_device& operator=(const on_device&) = delete;
    ~on_device() {
      if (owned_) cudaFreeAsync(data_, stream_);
    }

    void* data() const { return data_; }
    /// Whether it stands for bytes of the host.
    bool owned() const { return owned_; }
    void fill(std::span<const std::byte> from) const { copy(data_, from.data(), from.size(), cudaMemcpyHostToDevice); }
    /// After wait(), as a copy to memory that is not pinned keeps the caller until all before it is done.
    void empty_into(std::span<std::byte> to) const {
      copy(to.data(), data_, to.size(), cudaMemcpyDeviceToHost);
      if (owned_) require_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }

   private:
    void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind way) const {
      if (owned_) require_cuda(cudaMemcpyAsync(to, from, bytes, way, stream_), "cudaMemcpyAsync");
    }
    void* data_ = nullptr;
    cudaStream_t stream_;
    bool owned_ = false;
  };

  /// For the stream, or until the communicator has failed: a rank that is gone would be waited for without end.
  void wait() const {
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) require_cuda(state, "cudaStreamQuery");
      ncclResult_t failed = ncclSuccess;
      require_success(ncclCommGetAsyncError(comm, &failed), "ncclCommGetAsyncError");
      require_success(failed, "NCCL");
      std::this_thread::yield();
    }
  }

  static void require_success(ncclResult_t code, const char* name) {
    if (code == ncclSuccess || code == ncclInProgress) return;
    throw communication_error(std::string(name) + ": " + ncclGetErrorString(code));
  }
  static void require_cuda(cudaError_t code, const char* name) {
    if (code == cudaSuccess) return;
    throw device_error(std::string("aft::nccl_ref: ") + name + ": " + cudaGetErrorName(code) + ", " +
                       cudaGetErrorString(code));
  }
};

/// A message on its way: bytes of the host have their places on the device until it is over.
class nccl_ref::started {
 public:
  /// For the stream, and then for what came.
  void wait() {
    if (in_.empty() && sent_.data() == nullptr) return;
    of_.wait();
    received_.empty_into(in_);
  }

 private:
  friend struct nccl_ref;
  started(const nccl_ref& of, std::span<const std::byte> out, int to, std::span<std::byte> in, int from)
      : of_(of), in_(in), sent_(out, of.stream), received_(in, of.stream) {
    if (out.empty() && in.empty()) return;
    // Copies of memory that is not pinned keep the caller until the stream has come to them, and would not hear of a
    // rank that is gone.
    if (sent_.owned()) of.wait();
    sent_.fill(out);
    require_success(ncclGroupStart(), "ncclGroupStart");
    const ncclResult_t send =
        out.empty() ? ncclSuccess : ncclSend(sent_.data(), out.size(), ncclUint8, to, of.comm, of.stream);
    const ncclResult_t receive =
        in.empty() ? ncclSuccess : ncclRecv(received_.data(), in.size(), ncclUint8, from, of.comm, of.stream);
    const ncclResult_t ended = ncclGroupEnd();
    require_success(send, "ncclSend");
    require_success(receive, "ncclRecv");
    require_success(ended, "ncclGroupEnd");
  }

  nccl_ref of_;
  std::span<std::byte> in_;
  on_device sent_, received_;
};

inline nccl_ref::started nccl_ref::start_send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in,
                                                   int from) const {
  return started(*this, out, to, in, from);
}

inline void nccl_ref::send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
  start_send_recv(out, to, in, from).wait();
}

}  // namespace aft
#endif
