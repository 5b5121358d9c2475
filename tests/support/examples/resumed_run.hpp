// SPDX-License-Identifier: Apache-2.0
//
// That a training run of a program may be interrupted, for any program's own kind of run.
#pragma once

#include "programs.hpp"

#include "common/layers/parameter.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

namespace examples::test {

/// Weights bit for bit.
template <class Run>
void check_same_weights(Run& a, Run& b) {
  REQUIRE(a.network().parameters().size() == b.network().parameters().size());
  for (std::size_t i = 0; i < a.network().parameters().size(); ++i) {
    const parameter<float>& p = *a.network().parameters()[i];
    const parameter<float>& q = *b.network().parameters()[i];
    INFO(p.name);
    CHECK(std::equal(p.value.begin(), p.value.end(), q.value.begin()));
  }
}

/// A run of these settings that ends after its fifth step, and goes on from its file, has the losses and the weights of
/// one that did not end. read(file) gives what a run goes on from; same(a, b) compares what a program measures besides.
template <class Run, class Settings, class Data, class Read, class Same>
void check_resumes(const Settings& settings, const Data& data, const std::filesystem::path& file, const Read& read,
                   const Same& same) {
  Run whole(settings, data, 2);
  while (!whole.finished()) whole.step();
  {
    Run first(settings, data, 2);
    for (int i = 0; i < 5; ++i) first.step();
    first.save(file);
    // Work after the last checkpoint is lost with the process.
    first.step();
  }
  // Another number of threads is no other run.
  Run second(read(file), data, 3);
  CHECK(second.steps_done() == 5);
  while (!second.finished()) second.step();
  CHECK(second.past().bits == whole.past().bits);
  same(second, whole);
  check_same_weights(whole, second);
}

/// What every program's settings have in common, to the last bit.
template <class Settings>
void check_same_settings(const Settings& read, const Settings& written) {
  CHECK(read.learning_rate == written.learning_rate);
  CHECK(read.bias_scale == written.bias_scale);
  CHECK(read.seed == written.seed);
  CHECK(read.steps == written.steps);
  CHECK(read.batch == written.batch);
  CHECK(read.shape.mixer == written.shape.mixer);
}

/// Settings that no few digits give back.
template <class Settings>
Settings of_many_digits(Settings s) {
  s.learning_rate = 0.1 / 3;
  s.bias_scale = 1.0 / 7;
  s.seed = 0xFFFFFFFFFFFFFFFFULL;
  return s;
}

/// What was read from a file and is written again gives the same bytes.
template <class Run, class Checkpoint, class Data>
void check_written_again(const Checkpoint& read, const Data& data, const std::filesystem::path& first,
                         const std::filesystem::path& second) {
  Run again(read, data, 1);
  again.save(second);
  CHECK(read_file(first) == read_file(second));
}

}  // namespace examples::test
