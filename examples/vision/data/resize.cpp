// SPDX-License-Identifier: Apache-2.0

#include "vision/data/resize.hpp"

#include <algorithm>
#include <cmath>

namespace examples::vision {

namespace {

/// Where along an axis a pixel reads, and how much of the second one.
struct tap {
  index_t first, second;
  float share;
};

std::vector<tap> taps_along(index_t from, index_t to) {
  std::vector<tap> taps;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (index_t i = 0; i < to; ++i) {
    const double at = std::clamp((static_cast<double>(i) + 0.5) * scale - 0.5, 0.0, static_cast<double>(from - 1));
    const auto first = static_cast<index_t>(std::floor(at));
    taps.push_back({first, std::min(first + 1, from - 1), static_cast<float>(at - std::floor(at))});
  }
  return taps;
}

}  // namespace

std::vector<float> resized(const std::vector<float>& pixels, pixel_grid from, pixel_grid to) {
  const std::vector<tap> rows = taps_along(from.rows, to.rows), columns = taps_along(from.columns, to.columns);
  const index_t images = static_cast<index_t>(pixels.size()) / from.count();
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(images * to.count()));
  for (index_t n = 0; n < images; ++n) {
    const float* const image = pixels.data() + n * from.count();
    for (const tap& r : rows) {
      const float *const upper = image + r.first * from.columns, *const lower = image + r.second * from.columns;
      for (const tap& c : columns) {
        const float above = upper[c.first] + c.share * (upper[c.second] - upper[c.first]);
        const float below = lower[c.first] + c.share * (lower[c.second] - lower[c.first]);
        out.push_back(above + r.share * (below - above));
      }
    }
  }
  return out;
}

}  // namespace examples::vision
