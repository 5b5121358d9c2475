// SPDX-License-Identifier: Apache-2.0
//
// What a finished run says: the table on the terminal, the JSON that the plots are made from.
#pragma once

#include "char_lm/training/settings.hpp"
#include "common/byte_lm/training.hpp"

#include <cstdio>

namespace examples::char_lm {

struct result : byte_lm::finished_run {
  std::string written;
  double characters_per_second = 0;  // of `written`; 0 if nothing was
  struct bias {
    std::vector<index_t> shape;
    std::vector<float> values;
  };
  std::vector<training::traffic> received;  // by rank, in a step; empty where no other rank has a part
  std::vector<bias> biases;                 // one a layer; none for attention and simple
};

void print_table(std::FILE* out, const std::vector<result>& results);

/// Throws user_error.
void write_json(const std::filesystem::path& file, const std::vector<result>& results, const std::string& text_name,
                int threads, double order1_bits);

}  // namespace examples::char_lm
