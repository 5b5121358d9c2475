// SPDX-License-Identifier: Apache-2.0
/// @file in_process.hpp  Threads of one process as ranks: for tests, and for programs that keep a thread for each part.
#pragma once

#include "split.hpp"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace aft {

/// A communicator over threads (aft::communicator). `aft::in_process::group(n)` makes n of them, one for each thread;
/// they are handles that may be copied. A thread uses one rank, a rank one thread at a time.
///
/// all_gather and send_recv throw communication_error where lengths do not match, or after abort(). Cost: two copies of
/// every byte, and a lock for each message.
class in_process {
 public:
  /// Ranks 0 to `size` - 1 of a new group. std::invalid_argument unless size is at least 1.
  static std::vector<in_process> group(int size) {
    if (size < 1) throw std::invalid_argument("aft::in_process::group: size must be at least 1");
    const auto shared = std::make_shared<state>();
    shared->size = size;
    std::vector<in_process> ranks;
    for (int r = 0; r < size; ++r) ranks.push_back(in_process(shared, r));
    return ranks;
  }

  /// Of this handle.
  int rank() const { return rank_; }
  /// How many ranks there are.
  int size() const { return shared_->size; }

  /// `part` of every rank into `gathered`, which has size() times its length.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> gathered) const {
    const auto n = static_cast<std::size_t>(size());
    if (gathered.size() != n * part.size()) throw communication_error("aft::in_process: all_gather of another length");
    for (int r = 0; r < size(); ++r) post(r, part);
    for (int r = 0; r < size(); ++r) take(r, gathered.subspan(static_cast<std::size_t>(r) * part.size(), part.size()));
  }

  /// `out` to rank `to`, `in` from rank `from`; an empty span is no message.
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    if (!out.empty()) post(to, out);
    if (!in.empty()) take(from, in);
  }

  /// Every call of the group that waits, or is made from now on, throws communication_error.
  void abort() const {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->aborted = true;
    shared_->changed.notify_all();
  }

 private:
  using message = std::vector<std::byte>;
  struct state {
    int size = 0;
    bool aborted = false;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<int, int>, std::deque<message>> sent;  // by sender and receiver
  };

  in_process(std::shared_ptr<state> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  void post(int to, std::span<const std::byte> bytes) const {
    message copy(bytes.begin(), bytes.end());
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->sent[{rank_, to}].push_back(std::move(copy));
    shared_->changed.notify_all();
  }

  void take(int from, std::span<std::byte> bytes) const {
    std::unique_lock<std::mutex> lock(shared_->mutex);
    std::deque<message>& queue = shared_->sent[{from, rank_}];
    shared_->changed.wait(lock, [&] { return shared_->aborted || !queue.empty(); });
    if (shared_->aborted) throw communication_error("aft::in_process: another rank gave up");
    const message got = std::move(queue.front());
    queue.pop_front();
    if (got.size() != bytes.size())
      throw communication_error("aft::in_process: " + std::to_string(bytes.size()) + " bytes expected, " +
                                std::to_string(got.size()) + " came");
    if (!bytes.empty()) std::memcpy(bytes.data(), got.data(), bytes.size());
  }

  std::shared_ptr<state> shared_;
  int rank_;
};

}  // namespace aft
