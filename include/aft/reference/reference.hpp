// SPDX-License-Identifier: Apache-2.0
/// @file reference.hpp  Scalar loops for every operator, forward and backward, in any floating type: the oracle of the
/// tests. O(B Tq Tk d) time, O(B H Tq Tk) memory for gradients. Not for production use.
#pragma once

#include "conv.hpp"
#include "full.hpp"
#include "local.hpp"
#include "simple.hpp"
#include "sparse_conv.hpp"
