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
    for (int r = 0; r < size(); ++r)
      take(r, expect(r), gathered.subspan(static_cast<std::size_t>(r) * part.size(), part.size()));
  }

  /// `out` to rank `to`, `in` from rank `from`; an empty span is no message.
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    if (!out.empty()) post(to, out);
    if (!in.empty()) take(from, expect(from), in);
  }

  class started;
  /// As send_recv, without waiting for what comes.
  started start_send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const;

  /// Every call of the group that waits, or is made from now on, throws communication_error.
  void abort() const {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->aborted = true;
    shared_->changed.notify_all();
  }

 private:
  using message = std::vector<std::byte>;
  /// From one rank to another: messages are taken in any order, and each is that which was asked for in its turn.
  struct lane {
    std::deque<message> sent;
    std::deque<bool> taken;
    std::size_t first = 0, expected = 0;  // the number of sent[0], and how many were asked for
  };
  struct state {
    int size = 0;
    bool aborted = false;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<int, int>, lane> lanes;  // by sender and receiver
  };

  in_process(std::shared_ptr<state> shared, int rank) : shared_(std::move(shared)), rank_(rank) {}

  void post(int to, std::span<const std::byte> bytes) const {
    message copy(bytes.begin(), bytes.end());
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    lane& l = shared_->lanes[{rank_, to}];
    l.sent.push_back(std::move(copy));
    l.taken.push_back(false);
    shared_->changed.notify_all();
  }

  /// The number of the next message from a rank.
  std::size_t expect(int from) const {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    return shared_->lanes[{from, rank_}].expected++;
  }

  void take(int from, std::size_t number, std::span<std::byte> bytes) const {
    std::unique_lock<std::mutex> lock(shared_->mutex);
    lane& l = shared_->lanes[{from, rank_}];
    shared_->changed.wait(lock, [&] { return shared_->aborted || number - l.first < l.sent.size(); });
    if (shared_->aborted) throw communication_error("aft::in_process: another rank gave up");
    const std::size_t at = number - l.first;
    const message got = std::move(l.sent[at]);
    l.taken[at] = true;
    for (; !l.taken.empty() && l.taken.front(); ++l.first) {
      l.sent.pop_front();
      l.taken.pop_front();
    }
    if (got.size() != bytes.size())
      throw communication_error("aft::in_process: " + std::to_string(bytes.size()) + " bytes expected, " +
                                std::to_string(got.size()) + " came");
    if (!bytes.empty()) std::memcpy(bytes.data(), got.data(), bytes.size());
  }

  std::shared_ptr<state> shared_;
  int rank_;
};

/// A message on its way.
class in_process::started {
 public:
  /// Until it has come.
  void wait() {
    if (!in_.empty()) of_.take(from_, number_, std::exchange(in_, {}));
  }

 private:
  friend class in_process;
  started(const in_process& of, int from, std::size_t number, std::span<std::byte> in)
      : of_(of), from_(from), number_(number), in_(in) {}

  in_process of_;
  int from_;
  std::size_t number_;
  std::span<std::byte> in_;
};

inline in_process::started in_process::start_send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in,
                                                       int from) const {
  if (!out.empty()) post(to, out);
  return started(*this, from, in.empty() ? 0 : expect(from), in);
}

}  // namespace aft
