// SPDX-License-Identifier: Apache-2.0
/// @file peers.hpp  Contestants that live in another process, on a copy of the same data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operands.hpp"
#include "race.hpp"

namespace aft_bench {

/// One race's data in the peers' process, which is started by the first of them. See peers.py for what it can do.
class peers {
 public:
  /// False if the command line names no process: races then go without peers.
  static bool present();
  /// What the process calls itself.
  static std::string version();

  explicit peers(std::string dtype);
  ~peers();
  peers(const peers&) = delete;
  peers& operator=(const peers&) = delete;

  /// Adds a tensor; all of them before the first call is made.
  template <class T>
  peers& share(const char* name, const buffer<T>& x, const std::vector<index_t>& extents) {
    return share(name, x.data(), x.bytes(), extents);
  }

  struct call {
    std::string kind;
    bool causal = false, training = false;
    bool compiled = false;  ///< by torch.compile
    index_t window = 0;
    index_t context = 0;  ///< positions in the cache that one more query attends to
  };
  /// Enters a call into the race under a name of the race's choice.
  void enter(race& r, const std::string& name, const call& what);

  /// The largest difference of what a call returned from y, as a part of the largest y.
  template <class T>
  double difference(const std::string& name, const buffer<T>& y) {
    const std::vector<float> theirs = result(name, y.size());
    double most = 0, scale = 0;
    for (index_t i = 0; i < y.size(); ++i) {
      const auto mine = static_cast<double>(y.data()[i]);
      // Written so that a NaN on either side becomes the result.
      const double apart = std::abs(mine - static_cast<double>(theirs[static_cast<std::size_t>(i)]));
      most = apart <= most ? most : apart;
      scale = std::max(scale, std::abs(mine));
    }
    return most / scale;
  }

 private:
  peers& share(const char* name, const void* data, std::size_t bytes, const std::vector<index_t>& extents);
  void open();
  std::vector<float> result(const std::string& name, index_t count);

  std::string dtype_, tensors_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  bool open_ = false;
};

/// The tensors of calls on sequences, those that have been made.
template <class T>
std::shared_ptr<peers> share(const sequences<T>& x) {
  auto shared = std::make_shared<peers>(type_name<T>());
  const std::vector<index_t> whole = {x.s.B, x.s.T, x.s.d};
  shared->share("q", x.q, whole).share("k", x.k, whole).share("v", x.v, whole);
  if (x.w.size() > 0) shared->share("w", x.w, {x.s.T, x.s.T});
  if (x.dy.size() > 0) shared->share("dy", x.dy, whole);
  return shared;
}

}  // namespace aft_bench
