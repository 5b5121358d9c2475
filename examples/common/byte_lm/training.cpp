// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/training.hpp"

#include "common/support/user_error.hpp"
#include "common/training/step_times.hpp"

#include <algorithm>
#include <numbers>

namespace examples::byte_lm {

namespace {

// Before the model is built: a context that is too long for the data may be too large for the memory as well.
const source& fitting(const source& data, index_t context) {
  data.require(context);
  return data;
}

double bits(double nats, index_t bytes) {
  return nats / static_cast<double>(bytes) / std::numbers::ln2;
}

}  // namespace

training::training(const training_settings& settings, const source& data, int threads)
    : settings_(settings),
      data_(fitting(data, settings.shape.context)),
      model_(settings.shape, settings.batch, threads),
      optimizer_(model_.parameters(), optimizer_settings_of(settings)) {
  model_.initialize(settings.seed);
}

training::training(const checkpoint& from, const source& data, int threads) : training(from.settings, data, threads) {
  if (from.data_fingerprint != data.fingerprint())
    throw user_error(std::string("checkpoint: it was made from another ") + data.name());
  restore(from.tensors, from.steps_done, optimizer_, history_);
}

double training::step() {
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  const batch now = data_.training_batch(settings_.seed, static_cast<std::uint64_t>(steps_done()), settings_.batch,
                                         settings_.shape.context);
  const sequences s{settings_.batch, settings_.shape.context};
  const double loss = bits(model_.loss_and_gradient(s, now.bytes.data(), now.next.data()), s.rows());
  optimizer_.step(model_.threads());
  step_seconds_.push_back(std::chrono::duration<double>(clock::now() - start).count());
  mixer_seconds_.push_back(model_.take_mixer_seconds());
  history_.bits.push_back(loss);
  history_.seconds.push_back((history_.seconds.empty() ? 0.0 : history_.seconds.back()) + step_seconds_.back());
  return loss;
}

double training::held_out_bits() {
  const index_t count = data_.held_out_sequences(settings_.shape.context);
  double nats = 0;
  for (index_t first = 0; first < count; first += settings_.batch) {
    const index_t sequences_now = std::min(settings_.batch, count - first);
    const batch now = data_.held_out_batch(first, sequences_now, settings_.shape.context);
    nats += model_.loss({sequences_now, settings_.shape.context}, now.bytes.data(), now.next.data());
  }
  model_.take_mixer_seconds();
  return bits(nats, count * settings_.shape.context);
}

void training::save(const std::filesystem::path& path) {
  save_checkpoint(path, settings_, data_, optimizer_, history_);
}

writer<float> training::start_writing(const std::string& prompt, double temperature, bool restart) {
  return {model_, prompt, {.temperature = temperature, .seed = settings_.seed, .restart = restart}};
}

double training::step_milliseconds() const {
  return median_milliseconds(step_seconds_);
}
double training::mixer_milliseconds() const {
  return median_milliseconds(mixer_seconds_);
}

}  // namespace examples::byte_lm
