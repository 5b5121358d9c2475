// SPDX-License-Identifier: Apache-2.0
// expect: this member takes an aft::tensor_view, not a container, pointer or matrix
#include "tensors.hpp"

// What of OpenCV's matrix a call could see.
struct image {
  int flags = 0, dims = 2, rows = 5, cols = 4;
  unsigned char* data = nullptr;
  struct {
    unsigned long p[2];
  } step{};
  template <class T>
  T* ptr() const {
    return nullptr;
  }
  unsigned long step1() const { return 4; }
};
inline const image mat;

void call() {
#if defined(AFT_CONTROL)
  aft::simple(q, k, v, y, {});
#else
  aft::simple(q, k, v, y, {.mask = mat});
#endif
}
