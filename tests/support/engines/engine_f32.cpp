// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

namespace aft {
template void cpu_forward<float, family::full>(const problem&, const cpu&);
template void cpu_forward<float, family::local>(const problem&, const cpu&);
template void cpu_forward<float, family::simple>(const problem&, const cpu&);
template void cpu_forward<float, family::conv>(const problem&, const cpu&);
template void cpu_forward<float, family::sparse>(const problem&, const cpu&);
template void cpu_forward<float, family::simple_wide>(const problem&, const cpu&);
template void cpu_backward<float, family::full>(const backward_problem&, const cpu&);
template void cpu_backward<float, family::local>(const backward_problem&, const cpu&);
template void cpu_backward<float, family::simple>(const backward_problem&, const cpu&);
template void cpu_backward<float, family::conv>(const backward_problem&, const cpu&);
template void cpu_backward<float, family::sparse>(const backward_problem&, const cpu&);
template void cpu_backward<float, family::simple_wide>(const backward_problem&, const cpu&);
template stream_engine find_stream_engine<float>();
}  // namespace aft
