// SPDX-License-Identifier: Apache-2.0
/// @file mpi.hpp  Ranks of an MPI communicator, for aft::split. The one header that includes mpi.h.
#pragma once

#if !__has_include(<mpi.h>)
#error \
    "aft: mpi.h is not in the include path: link aft::mpi of find_package(aft COMPONENTS mpi), or compile with mpicxx"
#else
#include <mpi.h>

#include "split.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace aft {

namespace mpi_detail {
/// A type of so many bytes, more than an int may count: pieces of `piece` bytes, and the rest. To be freed.
inline MPI_Datatype bytes_as_one(std::size_t bytes, std::size_t piece) {
  MPI_Datatype large{}, pieces[2]{}, all{};
  MPI_Type_contiguous(static_cast<int>(piece), MPI_BYTE, &large);
  MPI_Type_contiguous(static_cast<int>(bytes / piece), large, &pieces[0]);
  MPI_Type_contiguous(static_cast<int>(bytes % piece), MPI_BYTE, &pieces[1]);
  const int lengths[] = {1, 1};
  const MPI_Aint places[] = {0, static_cast<MPI_Aint>(bytes / piece * piece)};
  MPI_Type_create_struct(2, lengths, places, pieces, &all);
  MPI_Type_commit(&all);
  for (MPI_Datatype* part : {&large, &pieces[0], &pieces[1]}) MPI_Type_free(part);
  return all;
}
}  // namespace mpi_detail

/// A communicator (aft::communicator) over any MPI: `aft::split{aft::cpu{}, aft::mpi_ref{MPI_COMM_WORLD}}`. A handle;
/// MPI is initialised before and finalised after its last call, by the caller.
///
/// Messages carry `tag`. Where the program sends messages of its own with that tag on the same communicator while a
/// call runs, give the calls a duplicate (MPI_Comm_dup). With the communicator's error handler set to MPI_ERRORS_RETURN
/// a failure is a communication_error, by default it ends the program.
struct mpi_ref {
  MPI_Comm comm = MPI_COMM_WORLD;  ///< not owned
  int tag = 4105;                  ///< of all messages

  /// Of this process.
  int rank() const {
    int r = 0;
    require_success(MPI_Comm_rank(comm, &r), "MPI_Comm_rank");
    return r;
  }
  /// How many ranks there are.
  int size() const {
    int n = 0;
    require_success(MPI_Comm_size(comm, &n), "MPI_Comm_size");
    return n;
  }

  /// `part` of every rank into `gathered`, in rank order.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> gathered) const {
    const bool many = part.size() > largest;
    const int n = many ? 1 : static_cast<int>(part.size());
    MPI_Datatype type = many ? mpi_detail::bytes_as_one(part.size(), largest) : MPI_BYTE;
    const int code = MPI_Allgather(part.data(), n, type, gathered.data(), n, type, comm);
    if (many) MPI_Type_free(&type);
    require_success(code, "MPI_Allgather");
  }

  /// Longer messages than an int can count go in pieces of 1 GiB.
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    while (!out.empty() || !in.empty()) {
      const std::size_t sent = (std::min)(out.size(), largest), received = (std::min)(in.size(), largest);
      require_success(MPI_Sendrecv(out.data(), static_cast<int>(sent), MPI_BYTE, sent > 0 ? to : MPI_PROC_NULL, tag,
                                   in.data(), static_cast<int>(received), MPI_BYTE, received > 0 ? from : MPI_PROC_NULL,
                                   tag, comm, MPI_STATUS_IGNORE),
                      "MPI_Sendrecv");
      out = out.subspan(sent);
      in = in.subspan(received);
    }
  }

  /// Messages of one start_send_recv.
  class started {
   public:
    /// Until all have come and gone.
    void wait() {
      require_success(MPI_Waitall(static_cast<int>(all_.size()), all_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    }

   private:
    friend struct mpi_ref;
    std::vector<MPI_Request> all_;
  };

  /// As send_recv, without waiting. Whether bytes move before the wait() is the MPI's: many move long messages only
  /// while some call of theirs runs, or with a thread of their own for it.
  started start_send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    started s;
    while (!out.empty() || !in.empty()) {
      const std::size_t sent = (std::min)(out.size(), largest), received = (std::min)(in.size(), largest);
      MPI_Request request{};
      if (received > 0) {
        require_success(MPI_Irecv(in.data(), static_cast<int>(received), MPI_BYTE, from, tag, comm, &request),
                        "MPI_Irecv");
        s.all_.push_back(request);
      }
      if (sent > 0) {
        require_success(MPI_Isend(out.data(), static_cast<int>(sent), MPI_BYTE, to, tag, comm, &request), "MPI_Isend");
        s.all_.push_back(request);
      }
      out = out.subspan(sent);
      in = in.subspan(received);
    }
    return s;
  }

  /// Ends the program on all ranks, as whoever waits for this one would wait for ever.
  void abort() const { MPI_Abort(comm, 1); }

 private:
  static constexpr std::size_t largest = std::size_t{1} << 30;

  static void require_success(int code, const char* name) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw communication_error(std::string(name) + ": " + std::string(text, static_cast<std::size_t>(length)));
  }
};

}  // namespace aft
#endif
