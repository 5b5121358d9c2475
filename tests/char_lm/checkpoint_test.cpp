// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"
#include "support/examples/resumed_run.hpp"

#include "common/support/user_error.hpp"

#include <doctest/doctest.h>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

TEST_CASE("checkpoint: an interrupted run goes on to the same losses, bit for bit") {
  const scratch_directory directory;
  const text data = small_text();
  for (const mixer_kind kind : all_mixers) {
    INFO(name_of(kind));
    check_resumes<training>(small_settings(kind), data, directory / "run.safetensors", read_text_checkpoint,
                            [](training& a, training& b) { CHECK(a.held_out_bits() == b.held_out_bits()); });
  }
}

TEST_CASE("checkpoint: settings come back exactly") {
  const scratch_directory directory;
  const text data = small_text();
  training_settings s = of_many_digits(small_settings(mixer_kind::conv));
  s.shape.tied_keys = false;
  training run(s, data, 1);
  run.step();
  run.save(directory / "a");
  const checkpoint read = read_text_checkpoint(directory / "a");
  check_same_settings(read.settings, s);
  CHECK(read.settings.shape.context == s.shape.context);
  CHECK(read.settings.shape.channels == s.shape.channels);
  CHECK(read.settings.shape.layers == s.shape.layers);
  CHECK(read.settings.shape.heads == s.shape.heads);
  CHECK(read.settings.shape.window == s.shape.window);
  CHECK(read.settings.shape.tied_keys == s.shape.tied_keys);
  CHECK(read.steps_done == 1);
  CHECK(read.data_fingerprint == data.fingerprint());
  check_written_again<training>(read, data, directory / "a", directory / "b");
}

TEST_CASE("checkpoint: another text is refused") {
  const scratch_directory directory;
  const text data = small_text();
  training run(small_settings(mixer_kind::simple), data, 1);
  run.save(directory / "a");
  std::vector<std::uint8_t> other = data.bytes();
  other.back() ^= 1;
  const text changed(std::move(other));
  CHECK_THROWS_WITH_AS(training(read_text_checkpoint(directory / "a"), changed, 1), doctest::Contains("another text"),
                       user_error);
}

TEST_CASE("checkpoint: tensors that are missing, unknown or of another shape are refused before any change") {
  const scratch_directory directory;
  const text data = small_text();
  training run(small_settings(mixer_kind::local), data, 1);
  run.step();
  run.save(directory / "good");
  const auto file = safetensors::file::read(directory / "good");

  // The tensors of the good file, with one change, under its metadata.
  const auto altered = [&](auto&& change) {
    std::vector<safetensors::source> sources = sources_of(file);
    change(sources);
    safetensors::write(directory / "bad", file.header(), sources);
    const checkpoint bad = read_text_checkpoint(directory / "bad");
    model<float> network(bad.settings.shape, bad.settings.batch, 1);
    network.initialize(7);
    std::vector<std::vector<float>> before;
    for (const parameter<float>* p : network.parameters()) before.emplace_back(p->value.begin(), p->value.end());
    optimizer state(network.parameters(), {});
    history past;
    std::string message;
    try {
      restore(bad.tensors, bad.steps_done, state, past);
    } catch (const user_error& e) {
      message = e.what();
      CHECK(state.steps_done() == 0);
      CHECK(past.bits.empty());
      for (std::size_t i = 0; i < before.size(); ++i)
        CHECK(std::equal(before[i].begin(), before[i].end(), network.parameters()[i]->value.begin()));
    }
    return message;
  };
  CHECK(altered([](auto&) {}).empty());
  CHECK(altered([](auto& t) { t.erase(t.begin() + 3); }).find("is missing") != std::string::npos);
  CHECK(altered([](auto& t) {
          t.push_back({"extra", safetensors::dtype::f32, {1}, t[0].data});
        }).find("\"extra\" is unknown") != std::string::npos);
  const std::string transposed = altered([](auto& t) {
    for (auto& one : t)
      if (one.name == "block.0.mlp.up") std::swap(one.shape[0], one.shape[1]);
  });
  CHECK(transposed.find("has shape (128, 32), expected (32, 128)") != std::string::npos);
  const std::string retyped = altered([](auto& t) {
    for (auto& one : t)
      if (one.name == "block.0.mlp.up") {
        one.type = safetensors::dtype::f64;
        one.shape[0] /= 2;
      }
  });
  CHECK(retyped.find("has dtype F64, expected F32") != std::string::npos);
}

TEST_CASE("checkpoint: every flipped bit of the header is found") {
  const scratch_directory directory;
  const text data = small_text();
  training_settings s;
  s.shape = {.mixer = mixer_kind::conv, .context = 8, .channels = 16, .layers = 1, .heads = 4, .window = 4};
  s.batch = 1;
  training(s, data, 1).save(directory / "good");
  const std::string good = read_file(directory / "good");
  const std::size_t end = good.find("}}") + 2;
  REQUIRE(end < good.size());
  for (std::size_t i = 0; i < end; ++i) {
    std::string flipped = good;
    flipped[i] = static_cast<char>(flipped[i] ^ (1 << i % 7));
    write_file(directory / "bad", flipped);
    INFO("byte ", i, " of ", good.substr(0, end));
    CHECK_THROWS_AS(training(read_text_checkpoint(directory / "bad"), data, 1), user_error);
  }
}

TEST_CASE("checkpoint: a file that cannot be written leaves the old one") {
  const scratch_directory directory;
  const text data = small_text();
  training run(small_settings(mixer_kind::simple), data, 1);
  CHECK_THROWS_AS(run.save(directory / "none" / "a"), user_error);
  run.save(directory / "a");
  const std::string before = read_file(directory / "a");
  // A directory in the way of the file that is written aside fails like a full disk does.
  std::filesystem::create_directory((directory / "a").string() + ".part-" + std::to_string(getpid()));
  run.step();
  CHECK_THROWS_AS(run.save(directory / "a"), user_error);
  CHECK(read_file(directory / "a") == before);
}
