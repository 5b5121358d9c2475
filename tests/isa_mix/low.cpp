// SPDX-License-Identifier: Apache-2.0
#define AFT_MIX_NAME low
#include "calls.hpp"
