// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/training.hpp"

#include "common/report/program.hpp"
#include "common/support/fingerprint.hpp"
#include "common/support/user_error.hpp"
#include "common/training/step_times.hpp"

#include <algorithm>
#include <numbers>

namespace examples::byte_lm {

namespace {

// Before the model is built: a context that is too long for the data may be too large for the memory as well.
const source& fitting(const source& data, index_t context, const ranks* cut) {
  data.require(context);
  if (cut != nullptr)
    require(context >= cut->size(), "--context " + std::to_string(context) + ": fewer bytes than the " +
                                        std::to_string(cut->size()) + " ranks");
  return data;
}

double bits(double nats, index_t bytes) {
  return nats / static_cast<double>(bytes) / std::numbers::ln2;
}

}  // namespace

training::training(const training_settings& settings, const source& data, int threads, const ranks* cut)
    : settings_(settings),
      data_(fitting(data, settings.shape.context, cut)),
      cut_(cut),
      model_(settings.shape, settings.batch, threads, cut),
      optimizer_(model_.parameters(), optimizer_settings_of(settings)) {
  model_.initialize(settings.seed);
}

training::training(const checkpoint& from, const source& data, int threads, const ranks* cut)
    : training(from.settings, data, threads, cut) {
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
  const index_t before = cut_ == nullptr ? 0 : cut_->received();
  const double loss = bits(model_.loss_and_gradient(s, now.bytes.data(), now.next.data()), s.rows());
  if (cut_ != nullptr) received_ = {cut_->received() - before - model_.received_sums(), model_.received_sums()};
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
  together(cut_, [&] {
    if (is_first(cut_)) save_checkpoint(path, settings_, data_, optimizer_, history_);
  });
}

model<float>& training::whole_network() {
  if (cut_ == nullptr || cut_->size() == 1) return model_;
  if (whole_ == nullptr) whole_ = std::make_unique<model<float>>(settings_.shape, 1, model_.threads());
  for (std::size_t i = 0; i < model_.parameters().size(); ++i) {
    const buffer<float>& from = model_.parameters()[i]->value;
    std::copy(from.begin(), from.end(), whole_->parameters()[i]->value.begin());
  }
  return *whole_;
}

std::uint64_t training::fingerprint() const {
  std::uint64_t hash = data_.fingerprint();
  for (const parameter<float>* p : model_.parameters())
    hash = fold_bytes(hash, p->value.data(), static_cast<std::size_t>(p->count()) * sizeof(float));
  return hash;
}

writer<float> training::start_writing(const std::string& prompt, double temperature, bool restart) {
  return {whole_network(), prompt, {.temperature = temperature, .seed = settings_.seed, .restart = restart}};
}

double training::step_milliseconds() const {
  return median_milliseconds(step_seconds_);
}
double training::mixer_milliseconds() const {
  return median_milliseconds(mixer_seconds_);
}

finished_run finish(training& run) {
  finished_run r;
  r.settings = run.settings();
  r.parameters = run.network().parameter_count();
  r.peak_bytes = memory_meter::peak();
  r.mixer_milliseconds = run.mixer_milliseconds();
  r.step_milliseconds = run.step_milliseconds();
  r.past = run.past();
  r.held_out_bits = run.held_out_bits();
  return r;
}

}  // namespace examples::byte_lm
