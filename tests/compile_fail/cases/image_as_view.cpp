// SPDX-License-Identifier: Apache-2.0
// expect: a cv::Mat does not know its element type: write aft::as_view(m.ptr<float>()
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
  static_cast<void>(aft::as_view(mat.ptr<const float>(), {mat.rows, mat.cols}, {mat.step1(), 1}));
#else
  static_cast<void>(aft::as_view(mat));
#endif
}
