// SPDX-License-Identifier: Apache-2.0

#include "vision/training/training.hpp"

#include "common/support/user_error.hpp"
#include "common/training/step_times.hpp"
#include "vision/training/transfer.hpp"

#include <algorithm>
#include <chrono>
#include <numbers>

namespace examples::vision {

namespace {

double bits(double nats, index_t images) {
  return nats / static_cast<double>(images) / std::numbers::ln2;
}

// Before the model is built, which may not fit the memory for images of another size.
const training_settings& fitting(const checkpoint& from, const image_set& data) {
  if (from.data_fingerprint != data.fingerprint())
    throw user_error("checkpoint: it was made from other images than --data, --images and --test-images name");
  const classifier_shape& m = from.settings.shape;
  if (m.rows != data.training().rows || m.columns != data.training().columns || m.classes != data.classes())
    throw user_error("checkpoint: its images are of another size, or of other classes");
  return from.settings;
}

optimizer_settings choices_of(const training_settings& s) {
  optimizer_settings o = optimizer_settings_of(s);
  o.matrix_rate = s.matrix_rate;
  return o;
}

}  // namespace

training::training(const training_settings& settings, const image_set& data, int threads)
    : settings_(settings),
      data_(data),
      fingerprint_(data.fingerprint()),
      model_(settings.shape, settings.batch, threads),
      optimizer_(model_.parameters(), choices_of(settings)) {
  model_.initialize(settings.seed);
}

training::training(const checkpoint& from, const image_set& data, int threads)
    : training(fitting(from, data), data, threads) {
  restore(from.tensors, from.steps_done, optimizer_, history_);
}

index_t training::begin_with(const std::filesystem::path& weights, const std::filesystem::path& names) {
  const safetensors::file file = safetensors::file::read(weights);
  return vision::begin_with(file, names.empty() ? name_table{} : name_table::read(names), model_.parameters());
}

double training::step() {
  using clock = std::chrono::steady_clock;
  const auto start = clock::now();
  const image_set::batch batch =
      data_.training_batch(settings_.seed, static_cast<std::uint64_t>(steps_done()), settings_.batch);
  model_.draw(settings_.seed, static_cast<std::uint64_t>(steps_done()));
  const double loss =
      bits(model_.loss_and_gradient(batch.count(), batch.pixels.data(), batch.labels.data()), batch.count());
  optimizer_.step(model_.threads());
  step_seconds_.push_back(std::chrono::duration<double>(clock::now() - start).count());
  mixer_seconds_.push_back(model_.take_mixer_seconds());
  history_.bits.push_back(loss);
  history_.seconds.push_back((history_.seconds.empty() ? 0.0 : history_.seconds.back()) + step_seconds_.back());
  return loss;
}

evaluation training::test() {
  const evaluation result = evaluate(model_, {settings_.shape.rows, settings_.shape.columns});
  model_.take_mixer_seconds();
  return result;
}

evaluation training::test_on_grid(index_t rows, index_t columns) {
  classifier_shape shape = settings_.shape;
  shape.rows = rows * shape.patch;
  shape.columns = columns * shape.patch;
  classifier<float> larger(shape, settings_.batch, model_.threads());
  for (std::size_t i = 0; i < larger.parameters().size(); ++i) {
    const buffer<float>& learned = model_.parameters()[i]->value;
    std::copy(learned.begin(), learned.end(), larger.parameters()[i]->value.begin());
  }
  return evaluate(larger, {shape.rows, shape.columns});
}

evaluation training::evaluate(classifier<float>& model, pixel_grid size) const {
  model.settle();
  const index_t count = data_.test().count;
  const index_t classes = settings_.shape.classes;
  evaluation result;
  result.confusion.resize(static_cast<std::size_t>(classes * classes));
  double nats = 0;
  for (index_t first = 0; first < count; first += settings_.batch) {
    const image_set::batch batch = data_.test_batch(first, std::min(settings_.batch, count - first));
    const std::vector<float> pixels = resized(batch.pixels, {data_.test().rows, data_.test().columns}, size);
    nats += model.loss(batch.count(), pixels.data(), batch.labels.data());
    for (index_t b = 0; b < batch.count(); ++b) {
      const float* row = model.logits() + b * classes;
      const index_t predicted = std::max_element(row, row + classes) - row;
      const index_t label = batch.labels[static_cast<std::size_t>(b)];
      ++result.confusion[static_cast<std::size_t>(label * classes + predicted)];
      result.right += predicted == label ? 1 : 0;
    }
  }
  result.bits = bits(nats, count);
  return result;
}

std::vector<looked_at> training::look(index_t count) {
  std::vector<looked_at> all;
  std::vector<bool> shown(static_cast<std::size_t>(settings_.shape.classes));
  const auto size = static_cast<std::size_t>(settings_.shape.rows * settings_.shape.columns);
  model_.settle();
  for (index_t i = 0; i < data_.test().count && static_cast<index_t>(all.size()) < count; ++i) {
    const image_set::batch batch = data_.test_batch(i, 1);
    const std::size_t label = batch.labels[0];
    if (shown[label]) continue;
    shown[label] = true;
    model_.loss(1, batch.pixels.data(), batch.labels.data());
    looked_at one{.label = batch.labels[0], .pixels = {}, .layers = {}};
    for (index_t layer = 0; layer < settings_.shape.layers; ++layer) one.layers.push_back(model_.key_weights(layer, 0));
    if (one.layers[0].empty()) return {};
    const std::uint8_t* pixels = data_.test().pixels.data() + static_cast<std::size_t>(i) * size;
    one.pixels.assign(pixels, pixels + size);
    all.push_back(std::move(one));
  }
  model_.take_mixer_seconds();
  return all;
}

void training::save(const std::filesystem::path& path) {
  save_checkpoint(path, settings_, fingerprint_, optimizer_, history_);
}

double training::step_milliseconds() const {
  return median_milliseconds(step_seconds_);
}
double training::mixer_milliseconds() const {
  return median_milliseconds(mixer_seconds_);
}

}  // namespace examples::vision
