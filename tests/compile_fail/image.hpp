// SPDX-License-Identifier: Apache-2.0
/// @file image.hpp  What of OpenCV's matrix a call could see, without OpenCV.
#pragma once

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
