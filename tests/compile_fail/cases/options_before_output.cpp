// SPDX-License-Identifier: Apache-2.0
// expect: the executor is the first argument and the options are the last
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  aft::full(q, k, v, aft::dense_bias{w}, y, aft::options{.causal = true});
#else
  aft::full(q, k, v, aft::dense_bias{w}, aft::options{.causal = true}, y);
#endif
}
