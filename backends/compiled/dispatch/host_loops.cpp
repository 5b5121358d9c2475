// SPDX-License-Identifier: Apache-2.0
// Loops that are nobody's kernels, once for all levels.
#include <aft/ops/fill_map.hpp>

namespace aft::AFT_COMPILED_ENTRIES {

// As aft/ops/attention_map.hpp declares it.
[[gnu::visibility("default")]] void compiled_fill_map(const problem& p, const any_view& out, const cpu& exec);
void compiled_fill_map(const problem& p, const any_view& out, const cpu& exec) {
  fill_map(p, out, exec);
}

}  // namespace aft::AFT_COMPILED_ENTRIES
