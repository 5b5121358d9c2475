// SPDX-License-Identifier: Apache-2.0
// The same file once more, which here compiles no kernels: the other one has flags that bring them.
#include "calls_in_cpp.cpp"  // NOLINT(bugprone-suspicious-include)
