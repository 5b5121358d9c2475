// SPDX-License-Identifier: Apache-2.0
#define AFT_MIX_NAME high
#include "calls.hpp"
