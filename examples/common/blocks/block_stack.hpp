// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a model, one after the other: x + mix(norm(x)), then x + mlp(norm(x)).
#pragma once

#include "common/blocks/mixing.hpp"

#include <deque>

namespace examples {

template <class Real>
class block_stack {
 public:
  /// `widest`: columns that a caller needs in the workspace, which it shares with the blocks.
  block_stack(mixer_kind kind, const mixer_shape& shape, index_t layers, index_t widest, int threads);

  /// Adds every parameter in the order of the layers.
  void collect(parameter_list<Real>& all);
  /// The same seed gives the same start, whatever the mixer is, up to the mixer's own parameters. `place`: of the
  /// first parameter among the model's.
  void initialize(std::uint64_t seed, std::uint64_t place);

  /// What mixers draw for a training step, a function of both; settle() for calls after it.
  void draw(std::uint64_t seed, std::uint64_t step);
  void settle();

  /// The last block's output. `streams` hold one for each layer, or nothing; the rows are then the next of theirs.
  const Real* forward(sequences s, const Real* x, const aft::cpu& exec,
                      const std::vector<std::unique_ptr<mixer_stream<Real>>>* streams = nullptr);
  /// x as it was in the forward call. `d` is the gradient of the last output; it becomes that of x.
  void backward(sequences s, const Real* x, Real* d, const aft::cpu& exec);

  mixer<Real>& mixer_of(index_t layer) { return *blocks_[static_cast<std::size_t>(layer)].mix.mix; }
  const Real* projected_of(index_t layer) const { return blocks_[static_cast<std::size_t>(layer)].mix.projected(); }
  index_t layers() const { return static_cast<index_t>(blocks_.size()); }
  workspace<Real>& work() { return work_; }
  /// Seconds spent in the mixers' operators since the last call.
  double take_mixer_seconds();

 private:
  struct block {
    mixing<Real> mix;
    mlp<Real> feed_forward;
    buffer<Real> middle;
    buffer<Real> out;
  };

  index_t channels_;
  std::deque<block> blocks_;
  workspace<Real> work_;
};

extern template class block_stack<float>;
extern template class block_stack<double>;

}  // namespace examples
