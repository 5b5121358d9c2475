// SPDX-License-Identifier: Apache-2.0
/// @file version.hpp  The library's version; the build files read it from here, so there is one place to change.
#pragma once

#define AFT_VERSION_MAJOR 0
#define AFT_VERSION_MINOR 1
#define AFT_VERSION_PATCH 0
