// SPDX-License-Identifier: Apache-2.0
// aft::cuda in a file that compiles no kernels and includes nothing of CUDA's.
#include <aft/aft.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>

extern "C" int failures_in_cpp(int has_gpu);

namespace {

/// Whether `call` throws CUDA's error under the name of the operator.
template <class Call>
int fails(const char* op, const Call& call) {
  try {
    call();
  } catch (const aft::device_error& e) {
    if (std::strstr(e.what(), op) != nullptr && std::strstr(e.what(), "cudaError") != nullptr) return 0;
    std::printf("wrong: %s\n", e.what());
    return 1;
  }
  std::printf("wrong: %s on no device threw nothing\n", op);
  return 1;
}

template <class T>
int failures_of() {
  T x{}, y = static_cast<T>(7.0F);
  alignas(64) static std::byte slots[4096];
  const aft::tensor_view<const T, 3, aft::device_space> in{&x, {1, 1, 1}};
  const aft::tensor_view<T, 3, aft::device_space> out{&y, {1, 1, 1}};
  const aft::stream_view<aft::device_space> st{aft::stream_spec::simple<T>(1, 1), slots, 1};
  const int failed =
      fails("aft::simple", [&] { aft::simple(in, in, in, out); }) +
      fails("aft::simple_backward",
            [&] { aft::simple_backward(aft::cuda{}, in, in, in, in, out, aft::no_grad, aft::no_grad); }) +
      fails("aft::reset", [&] { aft::reset(aft::cuda{}, st); });
  return failed + (static_cast<float>(y) == 7 ? 0 : 1);
}

}  // namespace

int failures_in_cpp(int has_gpu) {
  const float k = 0, v = 3;
  float y = 0;
  const aft::tensor_view<const float, 3> keys{&k, {1, 1, 1}}, values{&v, {1, 1, 1}};
  aft::simple(keys, keys, values, aft::tensor_view<float, 3>{&y, {1, 1, 1}});
  int failed = std::fabs(y - 1.5F) < 1e-6F ? 0 : 1;
  // Where there is a GPU such a call would compute, on memory that is none of its own.
  if (has_gpu == 0) {
    failed += failures_of<float>() + failures_of<double>() + failures_of<aft::half>() + failures_of<aft::bfloat16>();
  }
  return failed;
}
