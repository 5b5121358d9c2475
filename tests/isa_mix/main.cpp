// SPDX-License-Identifier: Apache-2.0
// Runs the calls compiled for each instruction set that this machine has, in both orders of first use. The argument
// `low` says that it lacks that of the high file, which then has to show. A machine without that of the low file runs
// nothing, which ctest counts as left out.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace mix {
std::vector<float> low();
std::vector<float> high();
const char* low_namespace();
const char* high_namespace();
}  // namespace mix

int main(int count, char** words) {
  std::printf("%s and %s\n", mix::low_namespace(), mix::high_namespace());
  if (std::strcmp(mix::low_namespace(), mix::high_namespace()) == 0) return std::puts("files share their code"), 1;
#if defined(AFT_LOW_FEATURE)
  if (!__builtin_cpu_supports(AFT_LOW_FEATURE)) {
    std::puts("not run: " AFT_MIX_TEST ": this machine has no " AFT_LOW_FEATURE);
    return 77;
  }
#endif
  const std::vector<float> first = mix::low();
  if (first.empty()) return std::puts("low: a wrong shape was accepted"), 1;
  if (!__builtin_cpu_supports(AFT_HIGH_FEATURE)) {
    std::puts("only the low file ran: this machine has no " AFT_HIGH_FEATURE);
    return 0;
  }
  if (count > 1 && std::strcmp(words[1], "low") == 0) return std::puts("this machine has " AFT_HIGH_FEATURE), 1;
  const std::vector<float> high = mix::high();
  const std::vector<float> again = mix::low();
  if (high.size() != first.size() || again != first) return std::puts("the high file changed the low one"), 1;
  double worst = 0;
  double scale = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    scale = std::fmax(scale, std::fabs(static_cast<double>(first[i])));
    worst = std::fmax(worst, std::fabs(static_cast<double>(first[i]) - static_cast<double>(high[i])));
    if (!std::isfinite(high[i])) return std::printf("high[%zu] is not finite\n", i), 1;
  }
  std::printf("largest difference %.3g on a scale of %.3g\n", worst, scale);
  return scale > 0.1 && worst <= 1e-5 * scale ? 0 : 1;
}
