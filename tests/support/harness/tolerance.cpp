// SPDX-License-Identifier: Apache-2.0
#include "tolerance.hpp"

#include <sstream>

namespace aft::test {

std::string first_mismatch(const comparison& c) {
  std::ostringstream out;
  out.precision(20);
  if (c.got->size() != c.oracle->size()) {
    out << "has " << c.got->size() << " elements, not " << c.oracle->size();
    return out.str();
  }
  constexpr long double infinity = std::numeric_limits<long double>::infinity();
  const long double relative = 3 * naive_error(c) + c.given_error;
  const long double largest = precision_of(c.storage).max;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < c.oracle->size(); ++i) {
    const long double want = (*c.oracle)[i];
    const long double got = (*c.got)[i];
    long double bound = 0;
    bool right = false;
    const bool nothing_added = c.terms->empty() ? c.scale[i] == 0 : (*c.terms)[i] == 0;
    if (nothing_added && !std::isnan(want)) {
      right = got == 0 && want == 0;
    } else if (want == -infinity) {
      right = got == want;
    } else if (!std::isfinite(want)) {
      right = !std::isfinite(got);
    } else if ((std::abs)(got - want) <= relative * c.scale[i]) {
      right = true;  // without the units of the rest, which took as long as the reference's exponentials
    } else {
      bound = relative * c.scale[i] + 8 * ulp(c.arithmetic, c.scale[i]) + 8 * c.count * ulp(c.arithmetic, 0) +
              c.given_absolute;
      if (c.storage != c.arithmetic) bound += ulp(c.storage, std::abs(want) + bound) / 2;
      right = std::abs(got - want) <= bound;
      // A value beyond the type's range is rounded to infinity, as storing it anywhere would.
      if (std::isinf(got)) right = (got > 0 ? want : -want) + bound > largest;
    }
    if (right) continue;
    if (wrong++ == 0) {
      out << "element " << i << ": got " << got << ", want " << want << ", off by " << got - want << ", bound " << bound
          << " (naive loop " << (*c.naive)[i] << ", its worst error " << naive_error(c) << " of scale " << c.scale[i]
          << ')';
    }
  }
  if (wrong > 1) out << "; " << wrong << " of " << c.oracle->size() << " elements are wrong";
  return wrong == 0 ? std::string{} : out.str();
}

}  // namespace aft::test
