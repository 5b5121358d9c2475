// SPDX-License-Identifier: Apache-2.0
// A deliberate race, through the same parallel loop that the kernels use: ThreadSanitizer must report it.
#include <cstdio>

#include <aft/aft.hpp>

int main() {
  long sum = 0;
  aft::cpu_impl::parallel_for(100000, 2, [&sum](aft::index_t i, int) { sum += i; });
  std::printf("%ld\n", sum);
  return 0;
}
