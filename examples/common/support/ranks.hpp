// SPDX-License-Identifier: Apache-2.0
//
// Sequences that are cut over ranks, processes or threads: each has a consecutive part of every sequence.
#pragma once

#include "common/support/buffer.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace examples {

/// Positions [first, first + count) of a sequence.
struct positions {
  index_t first;
  index_t count;
};

/// All ranks of a run as one of them sees them: a communicator of the library (aft::communicator) without its type, and
/// what a model needs besides. Every rank makes the same calls in the same order; a call returns when it has its part.
class ranks {
 public:
  virtual ~ranks() = default;
  ranks(const ranks&) = delete;
  ranks& operator=(const ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// `part` of every rank, all equally long, into `all` in rank order.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> all) const {
    received_ += static_cast<index_t>(all.size() - part.size());
    gather(part, all);
  }
  /// `out` to rank `to` while `in` comes from rank `from`; an empty span is no message.
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    received_ += static_cast<index_t>(in.size());
    exchange(out, to, in, from);
  }
  /// Ends the calls that other ranks wait in, which this one will not make.
  virtual void abort() const = 0;
  /// Bytes that came from other ranks since the start.
  index_t received() const { return received_; }

  /// What a rank has of a sequence; parts differ by one position at most.
  positions part_of(index_t length, int rank) const {
    const index_t first = length * rank / size_;
    return {first, length * (rank + 1) / size_ - first};
  }
  positions own_part(index_t length) const { return part_of(length, rank_); }

  /// Every rank's value, in rank order.
  template <class T>
  std::vector<T> values(const T& own) const {
    std::vector<T> all(static_cast<std::size_t>(size_));
    all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  /// Replaces numbers by their sums over the ranks. Added in rank order, so that all ranks get the same bits, and
  /// rounded once. Received: the numbers of every other rank.
  template <class Real>
  void add_up(std::span<Real> x) const {
    if (size_ == 1) return;
    // By slices, whose memory does not grow with the model.
    constexpr std::size_t slice = 1 << 18;
    std::vector<Real> all;
    for (std::size_t first = 0; first < x.size(); first += slice) {
      const std::span<Real> own = x.subspan(first, std::min(slice, x.size() - first));
      all.resize(own.size() * static_cast<std::size_t>(size_));
      all_gather(std::as_bytes(own), std::as_writable_bytes(std::span(all)));
      for (std::size_t i = 0; i < own.size(); ++i) {
        double sum = 0;
        for (std::size_t j = i; j < all.size(); j += own.size()) sum += static_cast<double>(all[j]);
        own[i] = static_cast<Real>(sum);
      }
    }
  }
  /// Of an array with a row of `width` numbers for each of `length` positions every rank has the rows of its own part.
  /// All get all of them. Received: the other ranks' rows.
  template <class Real>
  void share_rows(Real* rows, index_t length, index_t width) const {
    const auto bytes_of = [&](int rank) {
      const positions part = part_of(length, rank);
      return std::as_writable_bytes(std::span(rows + part.first * width, static_cast<std::size_t>(part.count * width)));
    };
    for (int shift = 1; shift < size_; ++shift) {
      const int to = (rank_ + shift) % size_;
      const int from = (rank_ + size_ - shift) % size_;
      send_recv(bytes_of(rank_), to, bytes_of(from), from);
    }
  }

 protected:
  ranks(int rank, int size) : rank_(rank), size_(size) {}

 private:
  virtual void gather(std::span<const std::byte> part, std::span<std::byte> all) const = 0;
  virtual void exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const = 0;

  int rank_;
  int size_;
  mutable index_t received_ = 0;
};

/// Over a communicator of the library, such as aft::mpi_ref.
template <class Communicator>
class ranks_over final : public ranks {
 public:
  explicit ranks_over(const Communicator& of) : ranks(of.rank(), of.size()), of_(of) {}
  void abort() const override { of_.abort(); }

 private:
  void gather(std::span<const std::byte> part, std::span<std::byte> all) const override { of_.all_gather(part, all); }
  void exchange(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const override {
    of_.send_recv(out, to, in, from);
  }

  Communicator of_;
};

/// A handle, as aft::split takes it.
struct ranks_ref {
  const ranks* of;

  int rank() const { return of->rank(); }
  int size() const { return of->size(); }
  void all_gather(std::span<const std::byte> part, std::span<std::byte> all) const { of->all_gather(part, all); }
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    of->send_recv(out, to, in, from);
  }
  void abort() const { of->abort(); }
};

}  // namespace examples
