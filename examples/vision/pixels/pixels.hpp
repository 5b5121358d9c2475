// SPDX-License-Identifier: Apache-2.0
//
// `vision pixels`: models learn to say the next pixel, and continue images.
#pragma once

#include "vision/pixels/settings.hpp"

namespace examples::vision {

/// Trains and tests each mixer, and lets it continue one image of every class. The exit status of the program. Throws
/// user_error.
int run_pixels(pixels_line line);

}  // namespace examples::vision
