// SPDX-License-Identifier: Apache-2.0
#include "cublas.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <type_traits>

// A toolkit may come without cuBLAS; where its header is there, it says whether what is written here is right.
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#endif

namespace aft::gpu {

namespace {

// Numbers of cuBLAS's binary interface, the same from version 11 on.
constexpr int success = 0, no_transpose = 0, type_float = 0, type_bfloat16 = 14, sums_in_float = 68, chosen_by_it = -1;

#if __has_include(<cublas_v2.h>)
static_assert(CUBLAS_STATUS_SUCCESS == success && CUBLAS_OP_N == no_transpose && CUDA_R_32F == type_float &&
              CUDA_R_16BF == type_bfloat16 && CUBLAS_COMPUTE_32F == sums_in_float &&
              CUBLAS_GEMM_DEFAULT == chosen_by_it);
static_assert(sizeof(cublasOperation_t) == sizeof(int) && sizeof(cudaDataType) == sizeof(int) &&
              sizeof(cublasComputeType_t) == sizeof(int) && sizeof(cublasGemmAlgo_t) == sizeof(int));
// Arguments in this order and of these kinds. Never evaluated, so that nothing asks the linker for it.
static_assert(std::is_same_v<cublasStatus_t, decltype(cublasGemmEx(
                                                 cublasHandle_t{}, CUBLAS_OP_N, CUBLAS_OP_N, int{}, int{}, int{},
                                                 static_cast<const void*>(nullptr), static_cast<const void*>(nullptr),
                                                 CUDA_R_32F, int{}, static_cast<const void*>(nullptr), CUDA_R_32F,
                                                 int{}, static_cast<const void*>(nullptr), static_cast<void*>(nullptr),
                                                 CUDA_R_32F, int{}, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT))>);
#endif

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

bool cublas::open(const char* name, std::string& why) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
    return false;
  }
  int (*create)(void**) = nullptr;
  if (!find(library, "cublasCreate_v2", create) || !find(library, "cublasSetStream_v2", set_stream_) ||
      !find(library, "cublasGemmEx", gemm_)) {
    why += (why.empty() ? "" : "; ") + std::string(name) + " lacks a function";
  } else if (const int status = create(&handle_); status != success) {
    why += (why.empty() ? "" : "; ") + std::string(name) + " does not start: status " + std::to_string(status);
  } else {
    return true;
  }
  dlclose(library);
  return false;
}

const cublas* cublas::loaded(std::string& why) {
  // Kept until the program ends, as what it takes of the device is the same for every product.
  static std::string reasons;
  static const std::unique_ptr<const cublas> one = [] {
    std::unique_ptr<cublas> made(new cublas);
    if (const char* const path = std::getenv("AFT_CUBLAS"))
      return made->open(path, reasons) ? std::move(made) : nullptr;
    for (const char* const name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"})
      if (made->open(name, reasons)) return made;
    return std::unique_ptr<cublas>();
  }();
  why = reasons;
  return one.get();
}

void cublas::multiply(bool bfloat16, std::int64_t T, std::int64_t columns, const void* a, const void* b, void* c,
                      void* stream) const {
  const float one = 1, zero = 0;
  const int type = bfloat16 ? type_bfloat16 : type_float, rows = static_cast<int>(T), wide = static_cast<int>(columns);
  int status = set_stream_(handle_, stream);
  // Row-major C = A B is column-major C^T = B^T A^T.
  if (status == success)
    status = gemm_(handle_, no_transpose, no_transpose, wide, rows, rows, &one, b, type, wide, a, type, rows, &zero, c,
                   type, wide, sums_in_float, chosen_by_it);
  if (status != success) throw std::runtime_error("a product of cuBLAS: status " + std::to_string(status));
}

}  // namespace aft::gpu
