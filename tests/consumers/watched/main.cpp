// SPDX-License-Identifier: Apache-2.0
// The array that the first argument names is one row shorter than its view says: AddressSanitizer has to stop the call.
// The rows are whole vectors side by side, which the kernels read where they lie.
#include <cstdio>
#include <vector>

#include <aft/aft.hpp>

int main(int count, char** arguments) {
  constexpr aft::index_t T = 40, d = 64;
  const char short_one = count > 1 ? arguments[1][0] : '-';
  const auto array = [&](char name) {
    std::vector<float> numbers(static_cast<std::size_t>((name == short_one ? T - 1 : T) * d), 1.0F);
    numbers.shrink_to_fit();
    return numbers;
  };
  const std::vector<float> q = array('q'), k = array('k'), v = array('v');
  std::vector<float> y = array('y');
  using in = aft::tensor_view<const float, 2>;
  aft::simple(aft::cpu{.threads = 1}, in{q.data(), {T, d}}, in{k.data(), {T, d}}, in{v.data(), {T, d}},
              aft::tensor_view<float, 2>{y.data(), {T, d}});
  std::printf("y %g\n", static_cast<double>(y[0]));
  return 0;
}
