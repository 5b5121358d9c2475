// SPDX-License-Identifier: Apache-2.0
// A wrong call must be refused with the argument's name and the number that came, through every way of packaging.
#include <cstdio>
#include <string>
#include <vector>

#include <aft/aft.hpp>

int main() {
  const std::vector<float> in(60, 1.0F);
  std::vector<float> out(60, 7.0F);
  const aft::tensor_view<const float, 3> x{in.data(), {2, 5, 6}};
  const aft::tensor_view<const float, 3> short_v{in.data(), {2, 4, 6}};
  const aft::tensor_view<float, 3> y{out.data(), {2, 5, 6}};
  try {
    aft::simple(x, x, short_v, y);
  } catch (const aft::shape_error& error) {
    const std::string text = error.what();
    for (const float value : out) {
      if (value != 7.0F) return std::puts("y was written before the refusal"), 1;
    }
    if (text.find('v') == std::string::npos || text.find('4') == std::string::npos) {
      return std::printf("the message does not name v and 4: %s\n", text.c_str()), 1;
    }
    return std::puts("fetch_content: ok"), 0;
  }
  return std::puts("v with 4 keys beside k with 5 was accepted"), 1;
}
