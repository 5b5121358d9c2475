// SPDX-License-Identifier: Apache-2.0

#include "common/training/run_settings.hpp"

#include "common/support/simd.hpp"
#include "common/support/user_error.hpp"

namespace examples {

optimizer_settings optimizer_settings_of(const run_settings& s) {
  optimizer_settings o;
  o.learning_rate = s.learning_rate;
  o.bias_scale = s.bias_scale;
  o.steps = s.steps;
  return o;
}

void read_settings(const metadata_reader& from, run_settings& s) {
  s.batch = from.integer<index_t>("batch");
  s.steps = from.integer<std::int64_t>("steps");
  s.learning_rate = from.real("lr");
  s.bias_scale = from.real("bias_lr_scale");
  s.seed = from.integer<std::uint64_t>("seed");
}

void write_settings(safetensors::metadata& to, const run_settings& s) {
  to["batch"] = std::to_string(s.batch);
  to["steps"] = std::to_string(s.steps);
  to["lr"] = exact(s.learning_rate);
  to["bias_lr_scale"] = exact(s.bias_scale);
  to["seed"] = std::to_string(s.seed);
}

void require(bool holds, const std::string& message) {
  if (!holds) throw user_error(message);
}

void check_run(const run_settings& s) {
  require(s.batch >= 1 && s.batch <= 65536, "--batch " + std::to_string(s.batch) + ": out of range");
  require(s.steps >= 1 && s.steps <= std::int64_t{1} << 40, "--steps " + std::to_string(s.steps) + ": out of range");
}

void check_blocks(index_t channels, index_t heads, index_t layers) {
  require(channels >= 1 && channels <= 65536 && channels % row_multiple == 0,
          "--dim " + std::to_string(channels) + ": expected a multiple of " + std::to_string(row_multiple));
  require(heads >= 1 && heads <= channels && channels % heads == 0,
          "--heads " + std::to_string(heads) + ": expected a divisor of --dim, " + std::to_string(channels));
  require(layers >= 1 && layers <= 1024, "--layers " + std::to_string(layers) + ": out of range");
}

void check_bias_rank(mixer_kind mixer, index_t rank) {
  require(rank >= 0 && rank <= 65536, "--bias-rank " + std::to_string(rank) + ": out of range");
  require(rank == bias_rank_of(mixer, rank), "a bias of factors is for full and local");
}

index_t bias_rank_of(mixer_kind mixer, index_t asked) {
  return mixer == mixer_kind::full || mixer == mixer_kind::local ? asked : 0;
}

}  // namespace examples
