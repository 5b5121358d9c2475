// SPDX-License-Identifier: Apache-2.0
// expect: a cv::Mat does not know its element type: write aft::as_view(m.ptr<float>()
#include "image.hpp"
#include "tensors.hpp"

void call() {
#if defined(AFT_CONTROL)
  static_cast<void>(aft::as_view(mat.ptr<const float>(), {mat.rows, mat.cols}, {mat.step1(), 1}));
#else
  static_cast<void>(aft::as_view(mat));
#endif
}
