// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

namespace aft {
template void cpu_forward<double>(const problem&, const cpu&);
template void cpu_backward<double>(const backward_problem&, const cpu&);
}  // namespace aft
