// SPDX-License-Identifier: Apache-2.0
// Catches by type what a library with hidden symbols throws.
#include <aft/core/errors.hpp>

#include <cstdio>
#include <exception>

void wrong_shape();
void wrong_tensor();
void lost_device();

template <class Error>
static int caught(void (*call)()) {
  try {
    call();
  } catch (const Error& error) {
    std::puts(error.what());
    return 0;
  } catch (const std::exception& error) {
    std::printf("only as std::exception: %s\n", error.what());
    return 1;
  }
  std::puts("nothing was thrown");
  return 1;
}

int main() {
  return caught<aft::shape_error>(wrong_shape) + caught<aft::shape_error>(wrong_tensor) +
         caught<aft::device_error>(lost_device) + caught<std::invalid_argument>(wrong_shape);
}
