/* SPDX-License-Identifier: Apache-2.0 */
/* What aft.simple on one position of 8 channels takes from C, for overhead.py: microseconds, the least of many. */
#include <aft/aft.h>
#include <stdio.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int main(void) {
  enum { repetitions = 50, calls = 2000 };
  float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8];
  const int64_t shape[] = {1, 1, 8}, strides[] = {8, 8, 1};
  const aft_tensor in = {x, {1, 0}, 3, {2, 32, 1}, shape, strides, 0},
                   out = {y, {1, 0}, 3, {2, 32, 1}, shape, strides, 0};
  aft_options o = {0};
  o.size = sizeof o;
  o.threads = 1;
  double least = 1e9;
  for (int r = 0; r < repetitions; ++r) {
    const double begin = now();
    for (int i = 0; i < calls; ++i) {
      if (aft_simple(&in, &in, &in, &out, &o) != AFT_OK) return 1;
    }
    const double took = (now() - begin) / calls;
    if (took < least) least = took;
  }
  printf("%f\n", least);
  return 0;
}
