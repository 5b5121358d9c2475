// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/examples/programs.hpp"

#include "char_lm/data/text.hpp"
#include "char_lm/training/settings.hpp"
#include "common/byte_lm/training.hpp"

namespace examples::char_lm::test {

using namespace examples::test;

/// English enough to be learned: words in random order, the same on every machine.
inline text small_text() {
  static constexpr const char* words[] = {"and ", "the ", "earth ", "was ", "without ", "form ", "void; ", "light "};
  std::vector<std::uint8_t> bytes;
  random_stream random(2, 2);
  while (bytes.size() < 20000)
    for (const char* c = words[random.below(8)]; *c != '\0'; ++c) bytes.push_back(static_cast<std::uint8_t>(*c));
  return text(std::move(bytes));
}

inline training_settings small_settings(mixer_kind mixer) {
  training_settings s;
  s.shape = {.mixer = mixer, .context = 48, .channels = 32, .layers = 2, .heads = 4, .window = 8};
  s.batch = 3;
  s.steps = 12;
  return s;
}

inline checkpoint read_text_checkpoint(const std::filesystem::path& path) {
  return read_checkpoint(path, text::checkpoints);
}

}  // namespace examples::char_lm::test
