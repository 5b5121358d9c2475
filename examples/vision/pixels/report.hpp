// SPDX-License-Identifier: Apache-2.0
//
// What a finished run on pixels says: the table on the terminal, the JSON that the pictures are made from.
#pragma once

#include "common/byte_lm/training.hpp"
#include "vision/data/image_set.hpp"

#include <cstdio>

namespace examples::vision {

struct pixels_result : byte_lm::finished_run {
  std::vector<std::vector<std::uint8_t>> continued;  // images, whole
  double pixels_per_second = 0;                      // of those that were drawn
};

/// What all runs of a call have in common.
struct pixels_setting {
  std::string data_name;
  int threads = 0;
  index_t given = 0;                                 // rows of the continued images
  std::vector<std::vector<std::uint8_t>> originals;  // of those, whole
};

void print_table(std::FILE* out, const std::vector<pixels_result>& results);

/// Throws user_error.
void write_json(const std::filesystem::path& file, const std::vector<pixels_result>& results,
                const pixels_setting& setting, const image_set& data);

}  // namespace examples::vision
