// SPDX-License-Identifier: Apache-2.0
//
// The same images with more or fewer pixels.
#pragma once

#include "common/support/buffer.hpp"

#include <vector>

namespace examples::vision {

struct pixel_grid {
  index_t rows;
  index_t columns;
  index_t count() const { return rows * columns; }
};

/// Images (n, from.rows, from.columns) as (n, to.rows, to.columns): bilinear between the centres of pixels, and beyond
/// the outermost ones their own value. The same grid gives the same numbers.
std::vector<float> resized(const std::vector<float>& pixels, pixel_grid from, pixel_grid to);

}  // namespace examples::vision
