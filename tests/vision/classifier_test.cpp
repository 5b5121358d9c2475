// SPDX-License-Identifier: Apache-2.0
#include "images.hpp"
#include "support/examples/finite_difference.hpp"
#include "support/examples/resumed_run.hpp"

#include "common/support/user_error.hpp"
#include "vision/training/training.hpp"

#include <cstring>

using namespace examples;
using namespace examples::vision;
using namespace examples::vision::test;

namespace {

classifier_shape shape_with(mixer_kind kind) {
  return {.mixer = kind,
          .rows = image_rows,
          .columns = image_columns,
          .patch = 2,
          .channels = 16,
          .layers = 2,
          .heads = 4,
          .window = 3,
          .classes = image_classes};
}

template <class Real>
class random_classifier : public classifier<Real> {
 public:
  explicit random_classifier(mixer_kind kind, int threads = 2) : classifier<Real>(shape_with(kind), 7, threads) {
    this->initialize(5);
    // Away from the start, where half of the matrices are 0 and half of the gradients with them.
    std::uint64_t stream = 0;
    for (parameter<Real>* p : this->parameters()) {
      random_stream random(9, ++stream);
      for (Real& x : p->value) x += static_cast<Real>(0.2 * random.normal());
    }
  }
};

training_settings small_settings(mixer_kind kind) {
  training_settings s;
  s.shape = shape_with(kind);
  s.batch = 7;
  s.steps = 12;
  return s;
}

}  // namespace

TEST_CASE("classifier: gradient of every parameter, for every mixer") {
  const image_set data = small_images();
  const image_set::batch batch = data.training_batch(1, 0, 7);
  for (const mixer_kind kind : image_mixers) {
    random_classifier<double> m(kind);
    const auto value = [&] { return m.loss(7, batch.pixels.data(), batch.labels.data()) / 7; };
    CHECK(m.loss_and_gradient(7, batch.pixels.data(), batch.labels.data()) / 7 ==
          doctest::Approx(value()).epsilon(1e-12));
    for (parameter<double>* p : m.parameters())
      check_gradient(std::string(name_of(kind)) + " " + p->name, p->value.data(), p->grad.data(), p->count(), value,
                     p->kind == role::vector ? 3 : 6);
  }
}

TEST_CASE("classifier: AFT-conv has no position embedding, the others have one") {
  for (const mixer_kind kind : image_mixers) {
    const classifier<float> m(shape_with(kind), 1, 1);
    index_t found = 0;
    for (const parameter<float>* p : m.parameters()) found += p->name == "embedding.positions" ? 1 : 0;
    INFO(name_of(kind));
    CHECK(found == (kind == mixer_kind::conv2d ? 0 : 1));
  }
}

TEST_CASE("classifier: patches are read as they lie, and every class is as likely at the start") {
  const image_set data = small_images();
  const image_set::batch batch = data.training_batch(1, 0, 2);
  patch_embedding<double> embedding({image_rows / 2, image_columns / 2, 2}, 16, false, 2);
  // One column of the matrix a pixel of the patch.
  for (index_t i = 0; i < 4; ++i) embedding.weight.value[i * 16 + i] = 1;
  buffer<double> x(2 * 24 * 16);
  embedding.forward(2, batch.pixels.data(), x.data(), 1);
  for (index_t b = 0; b < 2; ++b)
    for (index_t row = 0; row < image_rows; ++row)
      for (index_t column = 0; column < image_columns; ++column) {
        const index_t patch = b * 24 + row / 2 * 4 + column / 2;
        const float pixel = batch.pixels[static_cast<std::size_t>((b * image_rows + row) * image_columns + column)];
        CHECK(x[patch * 16 + row % 2 * 2 + column % 2] == static_cast<double>(pixel));
      }
  classifier<double> m(shape_with(mixer_kind::conv2d), 2, 1);
  m.initialize(1);
  CHECK(m.loss(2, batch.pixels.data(), batch.labels.data()) == doctest::Approx(2 * std::log(3.0)));
}

TEST_CASE("classifier: the same loss and gradient, bit for bit, for any number of threads") {
  const image_set data = small_images();
  const image_set::batch batch = data.training_batch(1, 0, 7);
  for (const mixer_kind kind : image_mixers) {
    INFO(name_of(kind));
    random_classifier<float> one(kind, 1);
    random_classifier<float> three(kind, 3);
    CHECK(one.loss_and_gradient(7, batch.pixels.data(), batch.labels.data()) ==
          three.loss_and_gradient(7, batch.pixels.data(), batch.labels.data()));
    for (std::size_t i = 0; i < one.parameters().size(); ++i) {
      const parameter<float>& a = *one.parameters()[i];
      const parameter<float>& b = *three.parameters()[i];
      INFO(a.name);
      CHECK(std::equal(a.grad.begin(), a.grad.end(), b.grad.begin()));
    }
  }
}

TEST_CASE("classifier: an interrupted run goes on to the same losses, bit for bit") {
  const scratch_directory directory;
  const image_set data = small_images();
  for (const mixer_kind kind : image_mixers) {
    INFO(name_of(kind));
    check_resumes<training>(small_settings(kind), data, directory / "run.safetensors", read_checkpoint,
                            [](training& a, training& b) { CHECK(a.test().confusion == b.test().confusion); });
  }
}

TEST_CASE("classifier: settings come back exactly, and other images are refused") {
  const scratch_directory directory;
  const image_set data = small_images();
  training_settings s = small_settings(mixer_kind::conv2d);
  s.learning_rate = 0.1 / 3;
  s.bias_scale = 1.0 / 7;
  s.seed = 0xFFFFFFFFFFFFFFFFULL;
  training run(s, data, 1);
  run.step();
  run.save(directory / "a");
  const checkpoint read = read_checkpoint(directory / "a");
  CHECK(read.settings.learning_rate == s.learning_rate);
  CHECK(read.settings.bias_scale == s.bias_scale);
  CHECK(read.settings.seed == s.seed);
  CHECK(read.settings.steps == s.steps);
  CHECK(read.settings.batch == s.batch);
  // Plain numbers without padding between them.
  CHECK(std::memcmp(&read.settings.shape.rows, &s.shape.rows, 8 * sizeof(index_t)) == 0);
  CHECK(read.settings.shape.mixer == s.shape.mixer);
  // Written twice, the same file.
  training again(read, data, 1);
  again.save(directory / "b");
  CHECK(read_file(directory / "a") == read_file(directory / "b"));

  labelled_images other = data.test();
  other.pixels.back() ^= 1;
  const image_set changed(data.training(), other);
  CHECK_THROWS_WITH_AS(training(read, changed, 1), doctest::Contains("other images"), user_error);
}

TEST_CASE("classifier: what was learned of a simple set is right on its test images") {
  const image_set data = small_images();
  training_settings s = small_settings(mixer_kind::conv2d);
  s.batch = 15;
  s.steps = 60;
  training run(s, data, 2);
  while (!run.finished()) run.step();
  const evaluation tested = run.test();
  CHECK(tested.right >= 19);
  index_t all = 0;
  for (const index_t n : tested.confusion) all += n;
  CHECK(all == 20);
  CHECK(run.past().bits.back() < 0.5 * run.past().bits.front());
}
