// SPDX-License-Identifier: Apache-2.0
//
// The ranks that this program was started as, which have parts of every sequence. What is behind it is chosen by the
// build: alone.cpp, or mpi.cpp for mpirun.
#pragma once

#include "common/support/ranks.hpp"

#include <memory>

namespace examples::char_lm {

/// Ranks for as long as it lives. Of several the first alone has a standard output.
class started {
 public:
  started(int* argc, char*** argv);
  started(const started&) = delete;
  started& operator=(const started&) = delete;
  /// Waits for the others.
  ~started();

  /// Null in a program that is never more than one.
  const ranks* all() const { return all_.get(); }

 private:
  std::unique_ptr<const ranks> all_;
};

}  // namespace examples::char_lm
