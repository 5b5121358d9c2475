// SPDX-License-Identifier: Apache-2.0
// Calls behind <windows.h>, without NOMINMAX: on every result they have to agree with calls in a file that has never
// seen it, which is what the reference in smoke.cpp sees to.
#if defined(_WIN32)
#include <windows.h>
#endif

// libstdc++ does not work behind the two macros, and MinGW's header leaves them out for C++. The SDK's has them always,
// and its own C++ library is written for it. So the standard headers come first here.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cmath>
#include <complex>
#include <concepts>
#include <functional>
#include <iterator>
#include <limits>
#include <memory_resource>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#if !defined(min)
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#endif

#include <aft/aft.hpp>
#include <aft/reference/reference.hpp>

// The program's macros are its own again. The tests' headers are not written for them.
static_assert(min(1, 2) == 1 && max(1, 2) == 2);
#undef min
#undef max

#include "../xsimd/smoke.cpp"  // NOLINT(bugprone-suspicious-include): the same calls, behind another beginning
