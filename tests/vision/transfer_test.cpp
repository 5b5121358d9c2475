// SPDX-License-Identifier: Apache-2.0
//
// A Transformer's weights in another model: which are taken, under which names, and what is refused.
#include "images.hpp"

#include "common/support/user_error.hpp"
#include "vision/model/classifier.hpp"
#include "vision/training/transfer.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace examples;
using namespace examples::vision;
using namespace examples::vision::test;

namespace {

constexpr index_t channels = 16;

struct drawn : classifier<float> {
  drawn(mixer_kind kind, std::uint64_t seed)
      : classifier<float>({.mixer = kind,
                           .rows = image_rows,
                           .columns = image_columns,
                           .channels = channels,
                           .layers = 2,
                           .heads = 4,
                           .window = 3,
                           .classes = image_classes},
                          7, 1) {
    initialize(seed);
    // Half of the matrices start at 0.
    std::uint64_t stream = 0;
    for (parameter<float>* p : parameters()) {
      random_stream random(seed, ++stream);
      for (float& x : p->value) x += static_cast<float>(random.normal());
    }
  }
};

std::vector<std::vector<float>> values_of(const classifier<float>& m) {
  std::vector<std::vector<float>> all;
  for (const parameter<float>* p : m.parameters()) all.emplace_back(p->value.begin(), p->value.end());
  return all;
}

const parameter<float>* named(const classifier<float>& m, const std::string& name) {
  for (const parameter<float>* p : m.parameters())
    if (p->name == name) return p;
  return nullptr;
}

/// The weights as another program has them: names by `rename`, matrices (out, in) where it ends them with ^T.
template <class Rename>
safetensors::file written(const scratch_directory& directory, const classifier<float>& m, const Rename& rename) {
  std::vector<std::vector<float>> turned;
  turned.reserve(m.parameters().size());
  std::vector<safetensors::source> sources;
  for (const parameter<float>* p : m.parameters()) {
    std::string name = rename(p->name);
    std::vector<index_t> shape = p->shape;
    turned.emplace_back(p->value.begin(), p->value.end());
    if (name.ends_with("^T") && shape.size() == 2) {
      for (index_t i = 0; i < shape[0]; ++i)
        for (index_t j = 0; j < shape[1]; ++j)
          turned.back()[static_cast<std::size_t>(j * shape[0] + i)] =
              p->value[static_cast<std::size_t>(i * shape[1] + j)];
      std::swap(shape[0], shape[1]);
    }
    if (name.ends_with("^T")) name.resize(name.size() - 2);
    sources.push_back({name, safetensors::dtype::f32, shape, turned.back().data()});
  }
  safetensors::write(directory / "weights.safetensors", {}, sources);
  return safetensors::file::read(directory / "weights.safetensors");
}

/// All that attention and AFT-conv share came over, and nothing else changed.
void check_taken(const classifier<float>& after, const classifier<float>& before, const classifier<float>& from) {
  std::size_t kept = 0;
  for (const parameter<float>* p : after.parameters()) {
    CAPTURE(p->name);
    const parameter<float>& start = *named(before, p->name);
    const parameter<float>* source = named(from, p->name);
    if (source == nullptr) {
      CHECK(std::equal(p->value.begin(), p->value.end(), start.value.begin()));
      ++kept;
    } else if (p->name.ends_with(".project")) {
      const index_t own = p->shape[1], theirs = source->shape[1];
      for (index_t r = 0; r < channels; ++r)
        for (index_t c = 0; c < own; ++c) {
          const bool value_column = c >= own - channels;
          const float want = value_column ? source->value[static_cast<std::size_t>(r * theirs + theirs - own + c)]
                                          : start.value[static_cast<std::size_t>(r * own + c)];
          CHECK(p->value[static_cast<std::size_t>(r * own + c)] == want);
        }
    } else {
      CHECK(std::equal(p->value.begin(), p->value.end(), source->value.begin()));
    }
  }
  // Filters, with gain and shift, are what a Transformer does not have.
  CHECK(kept == 2 * 3);
}

}  // namespace

TEST_CASE("transfer: an AFT-conv begins with all that a Transformer has but positions, queries and keys") {
  const scratch_directory directory;
  const drawn transformer(mixer_kind::attention, 1);
  const safetensors::file file = written(directory, transformer, [](const std::string& name) { return name; });
  const drawn before(mixer_kind::conv2d, 2);
  drawn after(mixer_kind::conv2d, 2);
  const index_t taken = begin_with(file, {}, after.parameters());
  CHECK(taken == static_cast<index_t>(after.parameters().size()) - 6);
  check_taken(after, before, transformer);
}

TEST_CASE("transfer: a table maps another program's names, numbers of blocks and transposed matrices") {
  const scratch_directory directory;
  const drawn transformer(mixer_kind::attention, 1);
  const auto theirs = [](const std::string& name) {
    const bool matrix = name.ends_with(".project") || name.ends_with(".up") || name.ends_with(".down");
    return "vit." + name + (matrix ? ".weight^T" : "");
  };
  const safetensors::file file = written(directory, transformer, theirs);
  std::string table = "{";
  for (const parameter<float>* p : transformer.parameters()) {
    std::string general = p->name;
    const bool in_block = general.starts_with("block.");
    if (in_block && general[6] != '0') continue;
    if (in_block) general.replace(6, 1, "{}");
    if (p->name.find("position") != std::string::npos) continue;
    table += std::string(table.size() > 1 ? "," : "") + "\"" + general + "\": \"" + theirs(general) + "\"";
  }
  write_file(directory / "names.json", table + "}");
  const drawn before(mixer_kind::conv2d, 2);
  drawn after(mixer_kind::conv2d, 2);
  begin_with(file, name_table::read(directory / "names.json"), after.parameters());
  check_taken(after, before, transformer);
}

TEST_CASE("transfer: what does not fit is refused, and nothing is changed") {
  const scratch_directory directory;
  const drawn transformer(mixer_kind::attention, 1);
  const safetensors::file file = written(directory, transformer, [](const std::string& name) { return name; });
  const auto refused = [&](const std::string& table) -> std::string {
    drawn after(mixer_kind::conv2d, 2);
    try {
      write_file(directory / "names.json", table);
      begin_with(file, name_table::read(directory / "names.json"), after.parameters());
    } catch (const user_error& e) {
      CHECK(values_of(after) == values_of(drawn(mixer_kind::conv2d, 2)));
      return e.what();
    }
    return "taken";
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(refused(R"({"block.{}.mlp.up": "nowhere.{}"})"), "\"nowhere.0\" for \"block.0.mlp.up\" is missing"));
  CHECK(has(refused(R"({"block.0.mlp.up": "block.0.mlp.up^T"})"), "has shape (64, 16), expected (16, 64)"));
  CHECK(has(refused(R"({"block.0.mixer.project": "block.0.mlp.down"})"), "has shape (64, 16), expected (16, "));
  CHECK(has(refused(R"({"none": "none"})"), "no tensor of this model"));
  CHECK(has(refused("[1, 2]"), "expected a JSON object of names"));
  CHECK(has(refused("{"), "expected a JSON object of names"));
  CHECK(refused(R"({"block.1.mlp.up": "block.0.mlp.up"})") == "taken");
  CHECK_THROWS_AS(name_table::read(directory / "no.json"), user_error);
  safetensors::write(directory / "wide.safetensors", {}, {});
  drawn after(mixer_kind::conv2d, 2);
  CHECK_THROWS_AS(begin_with(safetensors::file::read(directory / "wide.safetensors"), {}, after.parameters()),
                  user_error);
}
