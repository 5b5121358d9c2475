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
  explicit random_classifier(mixer_kind kind, int threads = 2) : random_classifier(shape_with(kind), threads) {}
  explicit random_classifier(const classifier_shape& shape, int threads = 2) : classifier<Real>(shape, 7, threads) {
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

TEST_CASE("classifier: key weights are exp(k) of the first block, as the equations have it") {
  const image_set data = small_images();
  const image_set::batch batch = data.training_batch(1, 0, 7);
  random_classifier<double> m(mixer_kind::conv2d);
  m.loss(7, batch.pixels.data(), batch.labels.data());
  const auto named = [&](const std::string& name) -> const buffer<double>& {
    for (parameter<double>* p : m.parameters())
      if (p->name == name) return p->value;
    throw std::logic_error(name);
  };
  const index_t d = 16, heads = 4, side = 2, columns = image_columns / side, positions = 24, width = 2 * d + heads;
  const auto& patches = named("embedding.patches");
  const auto& project = named("block.0.mixer.project");
  const index_t image = 3;
  std::vector<double> keys;
  for (index_t t = 0; t < positions; ++t) {
    std::vector<double> x(static_cast<std::size_t>(d));
    double mean = 0, square = 0;
    for (index_t c = 0; c < d; ++c) {
      double sum = named("embedding.bias")[c];
      for (index_t i = 0; i < side * side; ++i) {
        const index_t y = t / columns * side + i / side, z = t % columns * side + i % side;
        sum +=
            batch.pixels[static_cast<std::size_t>((image * image_rows + y) * image_columns + z)] * patches[i * d + c];
      }
      x[static_cast<std::size_t>(c)] = sum;
      mean += sum / static_cast<double>(d);
    }
    for (const double e : x) square += (e - mean) * (e - mean) / static_cast<double>(d);
    for (index_t h = 0; h < heads; ++h) {
      double k = 0;
      for (index_t c = 0; c < d; ++c)
        k += ((x[static_cast<std::size_t>(c)] - mean) / std::sqrt(square + 1e-5) * named("block.0.mixer.norm.gain")[c] +
              named("block.0.mixer.norm.bias")[c]) *
             project[c * width + d + h];
      keys.push_back(k);
    }
  }
  const std::vector<float> weights = m.key_weights(0, image);
  REQUIRE(weights.size() == static_cast<std::size_t>(heads * positions));
  for (index_t h = 0; h < heads; ++h) {
    double most = -1e300;
    for (index_t t = 0; t < positions; ++t) most = std::max(most, keys[static_cast<std::size_t>(t * heads + h)]);
    // Rounded to float at the end; all before is in double, a few hundred operations long.
    for (index_t t = 0; t < positions; ++t)
      CHECK(weights[static_cast<std::size_t>(h * positions + t)] ==
            doctest::Approx(std::exp(keys[static_cast<std::size_t>(t * heads + h)] - most)).epsilon(0x1p-23));
  }
  CHECK(random_classifier<double>(mixer_kind::attention).key_weights(0, 0).empty());
}

TEST_CASE("classifier: gradient of every parameter, for every change of AFT-conv") {
  const image_set data = small_images();
  const image_set::batch batch = data.training_batch(1, 0, 7);
  for (const filter_choices& choices : {filter_choices{.naive = true},
                                        {.gated = false},
                                        {.connected = false},
                                        {.naive = true, .entropy = 0.3},
                                        {.entropy = 0.3},
                                        {.one_tap = true},
                                        {.naive = true, .one_tap = true}}) {
    classifier_shape shape = shape_with(mixer_kind::conv2d);
    shape.filter = choices;
    random_classifier<double> m(shape);
    m.draw(3, 14);
    // Of the filters' entropy there is no trace in the loss that is shown, only in the gradient.
    const auto entropy = [&] {
      double sum = 0;
      for (index_t layer = 0; layer < shape.layers; ++layer) {
        std::vector<double> each(static_cast<std::size_t>(shape.heads));
        aft::filter_entropy(aft::tensor_view<const double, 3>{m.mixer_of(layer).operator_bias(),
                                                              {shape.heads, shape.window, shape.window}},
                            aft::tensor_view<double, 1>{each.data(), {shape.heads}});
        for (const double one : each) sum += choices.entropy * one;
      }
      return sum;
    };
    const auto value = [&] { return m.loss(7, batch.pixels.data(), batch.labels.data()) / 7 + entropy(); };
    m.loss_and_gradient(7, batch.pixels.data(), batch.labels.data());
    for (parameter<double>* p : m.parameters())
      check_gradient(p->name, p->value.data(), p->grad.data(), p->count(), value, p->kind == role::vector ? 3 : 6);
  }
}

TEST_CASE(
    "classifier: a filter that is learned as it is has no gain and no shift, a model without query less to learn") {
  const auto count = [](const filter_choices& choices) {
    classifier_shape shape = shape_with(mixer_kind::conv2d);
    shape.filter = choices;
    return classifier<float>(shape, 1, 1).parameter_count();
  };
  const classifier_shape shape = shape_with(mixer_kind::conv2d);
  CHECK(count({}) - count({.naive = true}) == 2 * shape.heads * shape.layers);
  CHECK(count({}) - count({.gated = false}) == shape.channels * shape.channels * shape.layers);
  CHECK(count({}) == count({.connected = false}));
}

TEST_CASE("classifier: filters of one tap are drawn for each step, and settle for the largest") {
  classifier_shape shape = shape_with(mixer_kind::conv2d);
  shape.filter.one_tap = true;
  random_classifier<float> m(shape);
  const index_t taps = shape.window * shape.window;
  const auto filters = [&] {
    const float* const values = m.mixer_of(1).operator_bias();
    return std::vector<float>(values, values + shape.heads * taps);
  };
  const std::vector<float> settled = filters();
  for (index_t h = 0; h < shape.heads; ++h) {
    const auto from = settled.begin() + h * taps;
    CHECK(std::count_if(from, from + taps, [](float x) { return x != 0; }) == 1);
  }
  m.draw(1, 0);
  const std::vector<float> first = filters();
  CHECK(first == filters());
  m.draw(1, 1);
  CHECK(first != filters());
  m.draw(1, 0);
  CHECK(first == filters());
  m.settle();
  CHECK(settled == filters());
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
  training_settings changed = small_settings(mixer_kind::conv2d);
  for (const bool one_tap : {false, true}) {
    changed.shape.filter = {
        .naive = true, .gated = false, .connected = false, .entropy = one_tap ? 0 : 0.01, .one_tap = one_tap};
    check_resumes<training>(changed, data, directory / "changed.safetensors", read_checkpoint,
                            [](training& a, training& b) { CHECK(a.test().confusion == b.test().confusion); });
  }
}

TEST_CASE("classifier: settings come back exactly, and other images are refused") {
  const scratch_directory directory;
  const image_set data = small_images();
  training_settings s = of_many_digits(small_settings(mixer_kind::conv2d));
  s.shape.filter.gain = 17.0 / 3;
  training run(s, data, 1);
  run.step();
  run.save(directory / "a");
  const checkpoint read = read_checkpoint(directory / "a");
  check_same_settings(read.settings, s);
  CHECK(read.settings.shape.filter.gain == s.shape.filter.gain);
  // Plain numbers without padding between them.
  CHECK(std::memcmp(&read.settings.shape.rows, &s.shape.rows, 8 * sizeof(index_t)) == 0);
  check_written_again<training>(read, data, directory / "a", directory / "b");

  labelled_images other = data.test();
  other.pixels.back() ^= 1;
  const image_set changed(data.training(), other);
  CHECK_THROWS_WITH_AS(training(read, changed, 1), doctest::Contains("other images"), user_error);
}

TEST_CASE("classifier: images with as many pixels as before are the same, with more they are between their own") {
  std::vector<float> pixels;
  for (int i = 0; i < 2 * 12; ++i) pixels.push_back(static_cast<float>(i * i % 17));
  CHECK(resized(pixels, {3, 4}, {3, 4}) == pixels);
  // Twice the pixels: a quarter of the way between the centres, and their own values at the edge.
  CHECK(resized({0, 4}, {1, 2}, {1, 4}) == std::vector<float>{0, 1, 3, 4});
  CHECK(resized({0, 4}, {2, 1}, {4, 1}) == std::vector<float>{0, 1, 3, 4});
  CHECK(resized({0, 4, 8, 12}, {2, 2}, {1, 1}) == std::vector<float>{6});
  CHECK(resized(std::vector<float>(8, 5), {2, 2}, {7, 5}) == std::vector<float>(70, 5));
}

TEST_CASE("classifier: on its own grid AFT-conv's test is the one it has, on others it has one too") {
  const image_set data = small_images();
  training run(small_settings(mixer_kind::conv2d), data, 2);
  run.step();
  const evaluation own = run.test(), same = run.test_on_grid(image_rows / 2, image_columns / 2);
  CHECK(same.bits == own.bits);
  CHECK(same.confusion == own.confusion);
  const evaluation other = run.test_on_grid(7, 5);
  index_t all = 0;
  for (const index_t n : other.confusion) all += n;
  CHECK(all == 20);
  CHECK(other.bits != own.bits);
  CHECK(run.test().bits == own.bits);
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
