// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

namespace aft {
template void cpu_forward<double, family::full>(const problem&, const cpu&);
template void cpu_forward<double, family::local>(const problem&, const cpu&);
template void cpu_forward<double, family::simple>(const problem&, const cpu&);
template void cpu_forward<double, family::conv>(const problem&, const cpu&);
template void cpu_forward<double, family::sparse>(const problem&, const cpu&);
template void cpu_forward<double, family::simple_wide>(const problem&, const cpu&);
template void cpu_backward<double, family::full>(const backward_problem&, const cpu&);
template void cpu_backward<double, family::local>(const backward_problem&, const cpu&);
template void cpu_backward<double, family::simple>(const backward_problem&, const cpu&);
template void cpu_backward<double, family::conv>(const backward_problem&, const cpu&);
template void cpu_backward<double, family::sparse>(const backward_problem&, const cpu&);
template void cpu_backward<double, family::simple_wide>(const backward_problem&, const cpu&);
template stream_engine find_stream_engine<double>();
}  // namespace aft
