// SPDX-License-Identifier: Apache-2.0
//
// The IDX format of MNIST and its relatives: two zeros, a byte for the type, one for the rank, the extents as
// big-endian 32-bit numbers, then the values.
#pragma once

#include "common/support/buffer.hpp"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace examples::vision {

struct idx_array {
  std::vector<index_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads a file of bytes of that rank, plain or compressed by gzip. Throws user_error, with the file's name, if it
/// cannot be opened, is of another type or rank, is empty, ends early or goes on behind its values.
idx_array read_idx(const std::filesystem::path& file, std::size_t rank);

}  // namespace examples::vision
