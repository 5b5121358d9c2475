// SPDX-License-Identifier: Apache-2.0
/// @file ranks/communicator.hpp  What a call over several ranks asks of whatever connects them.
#pragma once

#include <aft/core/config.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

namespace aft {

/// The connection failed, or another rank gave up: nothing is known of the results.
class [[gnu::visibility("default")]] communication_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Ranks 0 to size() - 1 that move bytes between them. Every rank makes the same calls in the same order:
///
///   all_gather(part, all)            `part` of every rank into `all`, in rank order; parts are equally long
///   send_recv(out, to, in, from)     `out` to rank `to` while `in` comes from rank `from`
///
/// An empty span in send_recv sends or receives nothing, and whoever it names makes no call for it that is not empty
/// on its side. Both return when the spans may be used again. A failure is an exception, communication_error unless the
/// library below has its own. Two more are optional:
///
///   start_send_recv(out, to, in, from)   begins the same and returns something whose wait() ends it
///   abort()                              lets the waiting calls of all ranks fail; called when one rank cannot go on
///
/// The spans of a message that has begun belong to it until its wait() is over. Between the two a rank works, begins
/// other messages, and makes all_gather and send_recv, which count in the order: messages of one rank to another arrive
/// in the order in which they began. After a failure what has begun is destroyed without a wait(), and its spans are
/// freed as soon as abort() has returned: whoever has start_send_recv and lets others read or write them then, ends
/// that there. Without start_send_recv calls wait for each message.
template <class X>
concept communicator = requires(X& x, std::span<const std::byte> out, std::span<std::byte> in, int rank) {
  { x.rank() } -> std::convertible_to<int>;
  { x.size() } -> std::convertible_to<int>;
  x.all_gather(out, in);
  x.send_recv(out, rank, in, rank);
};

/// A communicator whose messages go on while its ranks work.
template <class X>
concept starting_communicator = communicator<X> &&
    requires(X& x, std::span<const std::byte> out, std::span<std::byte> in, int rank) {
  x.start_send_recv(out, rank, in, rank).wait();
};

inline namespace AFT_ISA {
namespace distributed {

/// A send_recv that has begun; of a communicator that cannot begin one, it is made by wait(). One that is given up is
/// not waited for: its rank calls abort().
class transfer {
 public:
  transfer() = default;

  template <communicator X>
  static transfer start(X& x, std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
    transfer t;
    t.pending_ = std::make_unique<of<X>>(x, out, to, in, from);
    return t;
  }

  void wait() {
    if (pending_ != nullptr) std::exchange(pending_, nullptr)->wait();
  }

 private:
  struct pending {
    virtual ~pending() = default;
    virtual void wait() = 0;
  };
  template <class X>
  struct of final : pending {
    of(X& x, std::span<const std::byte> out, int to, std::span<std::byte> in, int from)
        : x_(&x), out_(out), in_(in), to_(to), from_(from) {}
    void wait() override { x_->send_recv(out_, to_, in_, from_); }
    X* x_;
    std::span<const std::byte> out_;
    std::span<std::byte> in_;
    int to_, from_;
  };
  template <starting_communicator X>
  struct of<X> final : pending {
    of(X& x, std::span<const std::byte> out, int to, std::span<std::byte> in, int from)
        : begun(x.start_send_recv(out, to, in, from)) {}
    void wait() override { begun.wait(); }
    decltype(std::declval<X&>().start_send_recv(std::declval<std::span<const std::byte>>(), 0,
                                                std::declval<std::span<std::byte>>(), 0)) begun;
  };

  std::unique_ptr<pending> pending_;
};

/// A communicator without its type, so that what moves bytes is compiled once for all of them. Lives no longer than it.
class communicator_ref {
 public:
  template <communicator X>
  explicit communicator_ref(X& x)
      : of_(std::addressof(x)),
        rank_(static_cast<int>(x.rank())),
        size_(static_cast<int>(x.size())),
        all_gather_([](void* c, std::span<const std::byte> out, std::span<std::byte> in) {
          static_cast<X*>(c)->all_gather(out, in);
        }),
        send_recv_([](void* c, std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
          static_cast<X*>(c)->send_recv(out, to, in, from);
        }),
        start_([](void* c, std::span<const std::byte> out, int to, std::span<std::byte> in, int from) {
          return transfer::start(*static_cast<X*>(c), out, to, in, from);
        }),
        abort_([](void* c) {
          if constexpr (requires(X & some) { some.abort(); }) static_cast<X*>(c)->abort();
        }) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  void all_gather(std::span<const std::byte> part, std::span<std::byte> all) const { all_gather_(of_, part, all); }
  /// Makes no call where there is nothing to move either way.
  void send_recv(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    if (!out.empty() || !in.empty()) send_recv_(of_, out, to, in, from);
  }
  /// The same, which its wait() ends.
  transfer start(std::span<const std::byte> out, int to, std::span<std::byte> in, int from) const {
    return out.empty() && in.empty() ? transfer{} : start_(of_, out, to, in, from);
  }
  void abort() const { abort_(of_); }

 private:
  void* of_;
  int rank_, size_;
  void (*all_gather_)(void*, std::span<const std::byte>, std::span<std::byte>);
  void (*send_recv_)(void*, std::span<const std::byte>, int, std::span<std::byte>, int);
  transfer (*start_)(void*, std::span<const std::byte>, int, std::span<std::byte>, int);
  void (*abort_)(void*);
};

}  // namespace distributed
}  // namespace AFT_ISA
}  // namespace aft
