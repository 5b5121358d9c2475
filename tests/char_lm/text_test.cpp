// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include "common/support/user_error.hpp"

#include <doctest/doctest.h>

using namespace examples;
using namespace examples::char_lm;
using namespace examples::char_lm::test;

TEST_CASE("text: entropies of counts that can be done by hand") {
  const std::vector<std::uint8_t> same(100, 'a');
  CHECK(entropy(same, 0) == 0);
  CHECK(entropy(same, 1) == 0);
  std::vector<std::uint8_t> alternating(100, 'a');
  for (std::size_t i = 1; i < alternating.size(); i += 2) alternating[i] = 'b';
  // One bit a byte alone; nothing is left when the byte before is known.
  CHECK(entropy(alternating, 0) == doctest::Approx(1));
  CHECK(entropy(alternating, 1) == 0);
  // After 'a': three 'a' and one 'b'.
  const std::vector<std::uint8_t> mixed = {'a', 'a', 'a', 'a', 'b'};
  CHECK(entropy(mixed, 1) == doctest::Approx(0.8112781244591328));
  CHECK(entropy({}, 0) == 0);
  CHECK(entropy({}, 1) == 0);
}

TEST_CASE("text: batches are sequences with the byte that follows each") {
  const text data = small_text();
  const index_t context = 50;
  const text::batch batch = data.training_batch(1, 7, 4, context);
  REQUIRE(batch.bytes.size() == 200);
  REQUIRE(batch.next.size() == 200);
  for (std::size_t b = 0; b < 4; ++b)
    CHECK(std::equal(batch.bytes.begin() + static_cast<std::ptrdiff_t>(b * 50 + 1),
                     batch.bytes.begin() + static_cast<std::ptrdiff_t>(b * 50 + 50),
                     batch.next.begin() + static_cast<std::ptrdiff_t>(b * 50)));
  CHECK(data.training_batch(1, 7, 4, context).bytes == batch.bytes);
  CHECK(data.training_batch(1, 8, 4, context).bytes != batch.bytes);
  CHECK(data.training_batch(2, 7, 4, context).bytes != batch.bytes);
}

TEST_CASE("text: the held-out tenth is never trained on") {
  std::vector<std::uint8_t> bytes(1000, 'a');
  std::fill(bytes.begin() + 900, bytes.end(), 'z');
  const text data(std::move(bytes));
  for (std::uint64_t step = 0; step < 200; ++step) {
    const text::batch batch = data.training_batch(1, step, 8, 30);
    CHECK(std::count(batch.bytes.begin(), batch.bytes.end(), 'z') == 0);
    CHECK(std::count(batch.next.begin(), batch.next.end(), 'z') == 0);
  }
  CHECK(data.held_out_sequences(30) == 3);
  const text::batch held_out = data.held_out_batch(0, 3, 30);
  CHECK(std::count(held_out.bytes.begin(), held_out.bytes.end(), 'z') == 90);
}

TEST_CASE("text: what cannot be learned is refused") {
  const scratch_directory directory;
  CHECK_THROWS_WITH_AS(text::read(directory / "none"), doctest::Contains("not found"), user_error);
  CHECK_THROWS_WITH_AS(text::read(directory.path()), doctest::Contains("directory"), user_error);
  write_file(directory / "empty", "");
  CHECK_THROWS_WITH_AS(text::read(directory / "empty"), doctest::Contains("empty"), user_error);
  write_file(directory / "short", std::string(500, 'x'));
  CHECK_THROWS_WITH_AS(text::read(directory / "short").require(50), doctest::Contains("needs at least 501"),
                       user_error);
  write_file(directory / "enough", std::string(501, 'x'));
  CHECK_NOTHROW(text::read(directory / "enough").require(50));
}
