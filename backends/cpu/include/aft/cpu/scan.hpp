// SPDX-License-Identifier: Apache-2.0
/// @file scan.hpp  AFT-simple on the CPU, forward and backward.
#pragma once

#include "scan_backward.hpp"
#include "scan_forward.hpp"
