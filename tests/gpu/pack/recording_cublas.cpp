// SPDX-License-Identifier: Apache-2.0
// In place of cuBLAS: writes the arguments of a product to where its result would go.
#include <cstdint>
#include <cstdio>

extern "C" {
int cublasCreate_v2(void** handle);
int cublasSetStream_v2(void* handle, void* stream);
int cublasGemmEx(void*, int, int, int, int, int, const float*, const void*, int, int, const void*, int, int,
                 const float*, void*, int, int, int, int);

int cublasCreate_v2(void** handle) {
  static int one = 0;
  *handle = &one;
  return 0;
}
int cublasSetStream_v2(void* handle, void*) {
  return handle == nullptr ? 1 : 0;
}
int cublasGemmEx(void*, int op_a, int op_b, int m, int n, int k, const float* alpha, const void* a, int type_a,
                 int stride_a, const void*, int type_b, int stride_b, const float* beta, void* c, int type_c,
                 int stride_c, int sums, int) {
  constexpr int invalid_value = 7;
  if (m < 0) return invalid_value;
  std::snprintf(static_cast<char*>(c), 160,
                "ops %d %d, sizes %d %d %d, types %d %d %d, strides %d %d %d, one %g, zero %g, sums %d, b first: %ju",
                op_a, op_b, m, n, k, type_a, type_b, type_c, stride_a, stride_b, stride_c, static_cast<double>(*alpha),
                static_cast<double>(*beta), sums, reinterpret_cast<std::uintmax_t>(a));
  return 0;
}
}
