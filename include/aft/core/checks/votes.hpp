// SPDX-License-Identifier: Apache-2.0
/// @file checks/votes.hpp  Finds which of several tensors has the wrong extent on an axis that they share.
#pragma once

#include "validation.hpp"

namespace aft {
inline namespace AFT_ISA {
namespace checks {

/// The tensors that share an axis, such as the key positions of k, v and w. The extent that most of them have is the
/// extent of the call and the first that disagrees is the one at fault: with a fixed witness, a wrong witness would
/// put the blame on a tensor that is right. Of equally many, the likely extent wins, then the earlier tensor.
class votes {
 public:
  votes(const char* op, const char* axis_name) : op_(op), axis_name_(axis_name) {}

  void add(const argument& who, std::size_t axis) { cast({&who, axis, who.view.extent(axis), true}); }
  /// A tensor without a batch axis counts as a batch of one.
  void add_absent(const argument& who) { cast({&who, 0, 1, false}); }

  /// Decides a tie, without being an extent that anyone must have.
  void expect(index_t likely) { likely_ = likely; }

  index_t settle() const {
    std::size_t best = 0;
    std::size_t most = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      std::size_t agreeing = ballots_[i].extent == likely_ ? 1 : 0;
      for (std::size_t j = 0; j < size_; ++j) agreeing += ballots_[j].extent == ballots_[i].extent ? 2u : 0u;
      if (agreeing > most) {
        most = agreeing;
        best = i;
      }
    }
    const ballot& witness = ballots_[best];
    for (std::size_t i = 0; i < size_; ++i) {
      if (ballots_[i].extent != witness.extent) refuse(ballots_[i], witness);
    }
    return witness.extent;
  }

 private:
  struct ballot {
    const argument* who = nullptr;
    std::size_t axis = 0;
    index_t extent = 0;
    bool present = true;
  };

  void cast(const ballot& b) { ballots_[size_++] = b; }

  [[gnu::__noreturn__, gnu::cold]] void refuse(const ballot& wrong, const ballot& witness) const {
    const text what = wrong.present ? axis_text(wrong.axis, axis_name_) : text("a batch axis (B)");
    fail(op_, *wrong.who, text() << what << " to be " << witness.extent << " as in '" << witness.who->name << "'",
         text(wrong.extent) << (wrong.present ? "" : " (a view without that axis is a batch of one)"));
  }

  const char* op_;
  const char* axis_name_;
  std::size_t size_ = 0;
  index_t likely_ = -1;
  std::array<ballot, 8> ballots_{};
};

}  // namespace checks
}  // namespace AFT_ISA
}  // namespace aft
