// SPDX-License-Identifier: Apache-2.0
#include "timings.hpp"

#include <cstdio>
#include <iomanip>
#include <set>
#include <sstream>

#include "ceilings.hpp"
#include "json_lines.hpp"
#include "timed_calls.hpp"

namespace aft::gpu {

namespace {

void visit_all(const std::string& only, const call_visitor& visit) {
  whole_calls(only, visit);
  stream_steps(only, visit);
  packed_calls(only, visit);
}

void time_call(const timed_call& call, double copy_rate) {
  const timing t = median_milliseconds(call.run);
  const double copy_ms = call.bytes / copy_rate * 1e3;
  const timed_product& p = call.product;
  const double gemm_ms = p.times > 0 ? p.times * gemm_milliseconds(p.half_width, p.rows, p.columns) : 0;
  std::ostringstream line;
  line << "\"case\": " << quoted(call.name) << ", \"type\": \"" << call.type << "\", \"pass\": \"" << call.pass
       << "\", \"ms\": " << t.ms << ", \"copy_ms\": " << copy_ms << ", \"of_copy\": " << copy_ms / t.ms;
  if (gemm_ms > 0) line << ", \"cublas_ms\": " << gemm_ms << ", \"of_cublas\": " << gemm_ms / t.ms;
  line << ", \"calls\": " << t.calls << ", \"samples\": " << t.samples << ", \"late\": " << t.late;
  write_line(line.str());
  std::printf("%-40s %-5s %-17s %9.3f ms, copy %9.3f, cuBLAS %9.3f\n", call.name, call.type, call.pass, t.ms, copy_ms,
              gemm_ms);
  std::fflush(stdout);
}

}  // namespace

void list_shapes() {
  const auto print = [](const char* name) { std::printf("%s\n", name); };
  whole_calls(print);
  stream_steps(print);
  packed_calls(print);
}

void call_each(const std::string& only, const call_listener& listener) {
  visit_all(only, [&](const timed_call& call) {
    if (listener) listener(&call);
    call.run(0, nullptr);
    finish_device();
    if (listener) listener(nullptr);
  });
}

int write_timings(const std::string& only) {
  const double copy_rate = copy_bytes_per_second();
  std::ostringstream line;
  line << "\"device\": " << quoted(device_name()) << ", \"copy_bytes_per_second\": " << std::setprecision(9)
       << copy_rate;
  write_line(line.str());
  std::set<std::string> timed;
  visit_all(only, [&](const timed_call& call) {
    timed.insert(call.name);
    time_call(call, copy_rate);
  });
  return static_cast<int>(timed.size());
}

}  // namespace aft::gpu
