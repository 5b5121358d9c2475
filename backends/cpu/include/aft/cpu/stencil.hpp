// SPDX-License-Identifier: Apache-2.0
/// @file stencil.hpp  Convolutions: a stencil over channels for the filter's box, constant blocks for what lies
/// outside.
#pragma once

#include "stencil_backward.hpp"
#include "stencil_forward.hpp"
