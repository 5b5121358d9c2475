// SPDX-License-Identifier: Apache-2.0
/// @file cublas.hpp  cuBLAS, if the machine has it: found when the program runs, so that nothing else waits for it.
#pragma once

#include <cstdint>
#include <string>

namespace aft::gpu {

class cublas {
 public:
  /// Loads the library, by the path in AFT_CUBLAS if that is set. Null where there is none or it does not start;
  /// `why` then says what was tried.
  static const cublas* loaded(std::string& why);

  /// Row-major C (T, columns) = A (T, T) B (T, columns), in bfloat16 with float sums, or in float. An error is a
  /// std::runtime_error with cuBLAS's number.
  void multiply(bool bfloat16, std::int64_t T, std::int64_t columns, const void* a, const void* b, void* c,
                void* stream) const;

 private:
  cublas() = default;
  bool open(const char* name, std::string& why);

  void* handle_ = nullptr;
  int (*set_stream_)(void*, void*) = nullptr;
  int (*gemm_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
               void*, int, int, int, int) = nullptr;
};

}  // namespace aft::gpu
