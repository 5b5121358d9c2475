// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/settings.hpp"

namespace examples::byte_lm {

void check(const training_settings& s) {
  const model_shape& m = s.shape;
  const auto in = [](index_t x, index_t low, index_t high) { return x >= low && x <= high; };
  check_blocks(m.channels, m.heads, m.layers);
  require(in(m.context, 1, index_t{1} << 20), "--context " + std::to_string(m.context) + ": out of range");
  require(in(m.window, 1, m.context),
          "--window " + std::to_string(m.window) + ": expected at most --context, " + std::to_string(m.context));
  check_bias_rank(m.mixer, m.bias_rank);
  check_run(s);
}

}  // namespace examples::byte_lm
