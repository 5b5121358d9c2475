// SPDX-License-Identifier: Apache-2.0
/// @file exchange/messages.hpp  Messages between every two ranks, some of which are on their way while the ranks work.
#pragma once

#include "../memory/buffer.hpp"
#include "../ranks/communicator.hpp"

#include <array>

namespace aft {
inline namespace AFT_ISA {
namespace distributed {

/// Writes or reads the pieces of a message one behind the other.
class message {
 public:
  explicit message(std::byte* at) : at_(at), begin_(at) {}
  std::byte* take(index_t bytes) {
    std::byte* const piece = at_;
    at_ += bytes;
    return piece;
  }
  /// Numbers whose place in the message is aligned for them.
  template <class T>
  T* numbers(index_t count) {
    return static_cast<T*>(static_cast<void*>(take(count * static_cast<index_t>(sizeof(T)))));
  }
  std::span<std::byte> all() const { return {begin_, static_cast<std::size_t>(at_ - begin_)}; }

 private:
  std::byte *at_, *begin_;
};

/// One message from each rank to each other. Those with the ranks next to this one, which is where windows and filters
/// reach, begin first, all before the caller works on; the others follow, each while the one before it is taken.
///
/// What they are say `Ends`: pack(to, message), inbox(from, slot), a span of the message's length in memory that is its
/// own while the slot, 0 or 1, is in use, and take(from, message) once it is there.
class rank_messages {
 public:
  rank_messages() = default;
  /// Of at most `bytes` each.
  rank_messages(std::pmr::memory_resource* from, index_t bytes) {
    for (buffer<std::byte>& b : outbox_) b = {from, bytes};
  }

  template <class Ends>
  void begin(const communicator_ref& ranks, const Ends& ends) {
    const int n = ranks.size();
    if (n > 1) start(ranks, ends, 1, 0);
    if (n > 2) start(ranks, ends, n - 1, 1);
  }

  template <class Ends>
  void finish(const communicator_ref& ranks, const Ends& ends) {
    const int n = ranks.size();
    if (n > 1) finish(ranks, ends, 1, 0);
    if (n > 2) finish(ranks, ends, n - 1, 1);
    if (n > 3) start(ranks, ends, 2, 0);
    for (int shift = 2; shift < n - 1; ++shift) {
      if (shift + 1 < n - 1) start(ranks, ends, shift + 1, (shift + 1) % 2);
      finish(ranks, ends, shift, shift % 2);
    }
  }

 private:
  /// Every rank sends to that `shift` behind it, and so receives from that before it.
  static int receiver(const communicator_ref& ranks, int shift) { return (ranks.rank() + shift) % ranks.size(); }
  static int sender(const communicator_ref& ranks, int shift) {
    return (ranks.rank() + ranks.size() - shift) % ranks.size();
  }

  template <class Ends>
  void start(const communicator_ref& ranks, const Ends& ends, int shift, int slot) {
    const auto i = static_cast<std::size_t>(slot);
    const int to = receiver(ranks, shift), from = sender(ranks, shift);
    message out(outbox_[i].data());
    ends.pack(to, out);
    begun_[i] = ranks.start(out.all(), to, ends.inbox(from, slot), from);
  }
  template <class Ends>
  void finish(const communicator_ref& ranks, const Ends& ends, int shift, int slot) {
    begun_[static_cast<std::size_t>(slot)].wait();
    const int from = sender(ranks, shift);
    ends.take(from, message(ends.inbox(from, slot).data()));
  }

  std::array<buffer<std::byte>, 2> outbox_{};
  std::array<transfer, 2> begun_{};
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
