// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.hpp>

#include <array>
#include <string>
#include <vector>

#include "call_table.hpp"
#include "device_numbers.hpp"

namespace aft::gpu {

namespace {

/// B sequences whose lengths go from T - spread to T + spread in even steps.
struct pack {
  const char* name;
  bool full;
  index_t B, T, spread, d;
};

constexpr pack packs[] = {
    {"packed full B16 T197 spread 97 d384", true, 16, 197, 97, 384},
    {"packed simple causal B16 T197 spread 97 d384", false, 16, 197, 97, 384},
};

template <class T>
class packed_call {
 public:
  static constexpr bool trains = true;
  explicit packed_call(const pack& p)
      : p_(p),
        offsets_(offsets_of(p)),
        q_(rows() * p.d),
        k_(rows() * p.d),
        v_(rows() * p.d),
        y_(rows() * p.d),
        dq_(rows() * p.d),
        dk_(rows() * p.d),
        dv_(rows() * p.d),
        average_(rows() * p.d),
        lse_(rows() * p.d),
        bias_(longest() * longest(), 0.3f),
        dbias_(longest() * longest()) {}

  double bytes(bool backward) const {
    const double one_way = static_cast<double>(4 * rows() * p_.d) * static_cast<double>(sizeof(T));
    return backward ? 3 * one_way : one_way;
  }

  static timed_product product(bool) { return {}; }

  void run(std::size_t, bool backward, void* stream) const {
    const std::array<index_t, 2> wide{rows(), p_.d};
    using in = tensor_view<const T, 2, device_space>;
    using out = tensor_view<T, 2, device_space>;
    const in q{q_.data(), wide}, k{k_.data(), wide}, v{v_.data(), wide}, dy{y_.data(), wide};
    const out y{y_.data(), wide}, dq{dq_.data(), wide}, dk{dk_.data(), wide}, dv{dv_.data(), wide};
    options o{.causal = !p_.full};
    o.query_offsets = tensor_view<const index_t, 1>{offsets_.data(), {p_.B + 1}};
    if (backward) {
      o.lse = tensor_view<float, 2, device_space>{lse_.data(), wide};
      o.average = tensor_view<float, 2, device_space>{average_.data(), wide};
    }
    const cuda exec{stream};
    if (!p_.full) {
      simple(exec, q, k, v, y, o);
      if (backward) simple_backward(exec, q, k, v, dy, dq, dk, dv, o);
      return;
    }
    const std::array<index_t, 2> square{longest(), longest()};
    const dense_bias w{in{bias_.data(), square}};
    full(exec, q, k, v, w, y, o);
    if (backward) full_backward(exec, q, k, v, w, dy, dq, dk, dv, dense_bias{out{dbias_.data(), square}}, o);
  }

 private:
  static std::vector<index_t> offsets_of(const pack& p) {
    std::vector<index_t> offsets{0};
    for (index_t n = 0; n < p.B; ++n) offsets.push_back(offsets.back() + p.T - p.spread + n * 2 * p.spread / (p.B - 1));
    return offsets;
  }
  index_t rows() const { return offsets_.back(); }
  index_t longest() const { return p_.T + p_.spread; }

  const pack& p_;
  std::vector<index_t> offsets_;
  device_numbers<T> q_, k_, v_, y_, dq_, dk_, dv_;
  device_numbers<float> average_, lse_;
  device_numbers<T> bias_, dbias_;
};

}  // namespace

void packed_calls(const std::string& only, const call_visitor& visit) {
  visit_table<packed_call>(packs, only, visit);
}
void packed_calls(const name_listener& name) {
  for (const pack& p : packs) name(p.name);
}

}  // namespace aft::gpu
