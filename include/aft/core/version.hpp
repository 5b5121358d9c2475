// SPDX-License-Identifier: Apache-2.0
/// @file version.hpp  The library's version; the build files read it from here, so there is one place to change.
#pragma once

/// Incompatible changes; while it is 0, a minor version may bring them.
#define AFT_VERSION_MAJOR 0
/// Additions.
#define AFT_VERSION_MINOR 1
/// Corrections.
#define AFT_VERSION_PATCH 0
