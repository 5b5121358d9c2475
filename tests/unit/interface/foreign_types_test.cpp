// SPDX-License-Identifier: Apache-2.0
// 16-bit types of other libraries are read and written where they lie. aft.hpp comes first on purpose: it must know the
// types before their headers say anything about them.
#include "engines/engine.hpp"

#include <Eigen/Core>
#include <unsupported/Eigen/CXX11/Tensor>

#if __has_include(<cuda_fp16.h>)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
// What of CUDA's types the library relies on: their names and their size.
struct __half {  // NOLINT(bugprone-reserved-identifier)
  std::uint16_t x;
};
struct __nv_bfloat16 {  // NOLINT(bugprone-reserved-identifier)
  std::uint16_t x;
};
#endif
#if __has_include(<stdfloat>)
#include <stdfloat>
#endif

#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace mine {

/// PyTorch's c10::Half and c10::BFloat16 in shape, told apart by their limits alone.
struct alignas(2) Half {
  unsigned short x;
};
struct alignas(2) BFloat16 {
  unsigned short x;
};
/// A type that only its user knows, and one that nobody says anything of.
struct named {
  std::uint16_t bits;
};
struct unknown {
  std::uint16_t bits;
};

}  // namespace mine

template <>
class std::numeric_limits<mine::Half> {
 public:
  static constexpr bool is_specialized = true, is_integer = false;
  static constexpr int digits = 11, max_exponent = 16;
};
template <>
class std::numeric_limits<mine::BFloat16> {
 public:
  static constexpr bool is_specialized = true, is_integer = false;
  static constexpr int digits = 8, max_exponent = 128;
};
template <>
struct aft::storage_of<mine::named> {
  using type = aft::bfloat16;
};

namespace {

using aft::index_t;

template <class Theirs>
using ours = typename aft::storage_of<Theirs>::type;

template <class T, class Expected>
inline constexpr bool read_as = std::is_same_v<ours<T>, Expected>;

static_assert(read_as<float, float> && read_as<double, double> && read_as<bool, bool>);
static_assert(read_as<aft::half, aft::half> && read_as<aft::bfloat16, aft::bfloat16>);
static_assert(read_as<short, short> && read_as<unsigned short, unsigned short> && read_as<char16_t, char16_t>);
enum class small_enum : short {};
static_assert(read_as<small_enum, small_enum> && read_as<mine::unknown, mine::unknown>);
static_assert(read_as<Eigen::half, aft::half> && read_as<Eigen::bfloat16, aft::bfloat16>);
static_assert(read_as<__half, aft::half> && read_as<__nv_bfloat16, aft::bfloat16>);
static_assert(read_as<mine::Half, aft::half> && read_as<mine::BFloat16, aft::bfloat16>);
static_assert(read_as<mine::named, aft::bfloat16>);
#if defined(__FLT16_MANT_DIG__)
static_assert(read_as<_Float16, aft::half>);
#define AFT_COMPILERS_HALF , _Float16
#else
#define AFT_COMPILERS_HALF
#endif
#if defined(__clang__) && __clang_major__ >= 15 && defined(__SSE2__)
static_assert(read_as<__bf16, aft::bfloat16>);
#define AFT_COMPILERS_BFLOAT16 , __bf16
#elif defined(__BFLT16_MANT_DIG__)
static_assert(read_as<decltype(0.0bf16), aft::bfloat16>);
#define AFT_COMPILERS_BFLOAT16 , decltype(0.0bf16)
#else
#define AFT_COMPILERS_BFLOAT16
#endif
#if defined(__STDCPP_FLOAT16_T__)
static_assert(read_as<std::float16_t, aft::half>);
#endif
#if defined(__STDCPP_BFLOAT16_T__)
static_assert(read_as<std::bfloat16_t, aft::bfloat16>);
#endif

#define AFT_FOREIGN_TYPES                                                          \
  Eigen::half, Eigen::bfloat16, __half, __nv_bfloat16, mine::Half, mine::BFloat16, \
      mine::named AFT_COMPILERS_HALF AFT_COMPILERS_BFLOAT16

/// Memory of T that holds the numbers of a seed, whatever T can convert from.
template <class T>
struct numbers {
  std::vector<T> memory;

  numbers(index_t count, std::uint32_t seed) : memory(static_cast<std::size_t>(count)) {
    for (T& x : memory) {
      seed = seed * 1664525u + 1013904223u;
      const ours<T> number(static_cast<float>(static_cast<std::int32_t>(seed >> 8) - (1 << 23)) * 0x1p-22F);
      std::memcpy(static_cast<void*>(&x), &number, 2);
    }
  }
  T* data() { return memory.data(); }
  const T* data() const { return memory.data(); }
};

template <class T, class U>
void check_bits(const numbers<T>& a, const numbers<U>& b) {
  REQUIRE(a.memory.size() == b.memory.size());
  CHECK(std::memcmp(a.data(), b.data(), 2 * a.memory.size()) == 0);
}

constexpr index_t B = 2, T = 7, d = 6, H = 3;

/// What every kind of call writes into memory of Element, made from the same numbers whatever it is.
template <class Element>
struct results {
  numbers<Element> y{B * T * d, 9}, average{B * T * d, 9}, dq{B * T * d, 9}, dk{B * T * d, 9}, dv{B * T * d, 9},
      dw{H * T * T, 9}, dr{H * 3, 9}, filter{H * 3, 9}, map{B * T * T * d, 9};

  results() {
    const numbers<Element> q(B * T * d, 1), k(B * T * d, 2), v(B * T * d, 3), dy(B * T * d, 4), w(H * T * T, 5),
        r(H * 3, 6), gain(H, 7), shift(H, 8);
    const auto in = [](const auto& x) { return aft::as_view(x.data(), {B, T, d}); };
    const auto out = [](auto& x) { return aft::as_view(x.data(), {B, T, d}); };
    const auto bias = aft::dense_bias{aft::as_view(w.data(), {H, T, T})};
    // The last axis first: strides of their elements are strides of ours.
    const auto transposed = aft::as_view(y.data(), {B, T, d}, {T * d, 1, T});
    const aft::cpu exec{};
    aft::full(exec, in(q), in(k), in(v), bias, transposed,
              aft::options{.average = aft::tensor_view<Element, 3>{average.data(), {B, T, d}}});
    aft::full_backward(exec, in(q), in(k), in(v), bias, in(dy), out(dq), out(dk), out(dv),
                       aft::dense_bias{aft::as_view(dw.data(), {H, T, T})});
    const auto taps = aft::as_view(r.data(), {H, 3});
    aft::reparameterize(exec, taps, aft::as_view(gain.data(), {H}), aft::as_view(shift.data(), {H}),
                        aft::as_view(filter.data(), {H, 3}));
    aft::conv_backward(exec, in(q), in(k), in(v), taps, in(dy), aft::no_grad, aft::no_grad, aft::no_grad,
                       aft::as_view(dr.data(), {H, 3}));
    aft::attention_map(exec, in(k), bias, aft::as_view(map.data(), {B, T, T, d}));
  }
};

/// What of std::mdspan a view needs.
template <class E>
struct span_of {
  using element_type = E;
  E* first = nullptr;
  static constexpr std::size_t rank() noexcept { return 2; }
  constexpr std::size_t extent(std::size_t axis) const { return axis + 2; }
  constexpr std::size_t stride(std::size_t axis) const { return axis == 0 ? 5 : 1; }
  constexpr E* data_handle() const { return first; }
};

template <class View, class Expected>
inline constexpr bool is_view = std::is_same_v<std::remove_cvref_t<View>, Expected>;

/// Writes theirs, lets the view copy, reads theirs: with nothing between them that a compiler could not see through.
/// What is read must not be the number that stood there before the copy.
template <class Theirs>
[[gnu::noinline]] float copied_by_view(Theirs* from, Theirs* to) {
  *from = Theirs(5.0F);
  *to = Theirs(7.0F);
  aft::as_view(to, {1})(0) = aft::as_view(from, {1})(0);
  return static_cast<float>(*to);
}

template <class Theirs>
[[gnu::noinline]] float copied_by_element(Theirs* from, Theirs* to) {
  constexpr aft::dtype type = aft::dtype_of<ours<Theirs>>;
  *from = Theirs(5.0F);
  *to = Theirs(7.0F);
  aft::store_element(to, type, 0, aft::load_element(from, type, 0));
  return static_cast<float>(*to);
}

}  // namespace

TEST_CASE_TEMPLATE("foreign types: views and pointers become views of ours over the same memory", Theirs,
                   AFT_FOREIGN_TYPES) {
  using own = ours<Theirs>;
  numbers<Theirs> x(60, 1);
  const numbers<Theirs>& read_only = x;
  const aft::tensor_view<Theirs, 3> by_hand{x.data(), {2, 3, 4}, {30, -1, 5}};
  const auto v = aft::as_view(by_hand);
  static_assert(is_view<decltype(v), aft::tensor_view<own, 3>>);
  CHECK(static_cast<void*>(v.data()) == x.data());
  CHECK(v.extents() == by_hand.extents());
  CHECK(v.strides() == by_hand.strides());
  const aft::tensor_view<const Theirs, 2, aft::device_space> device{x.data(), {2, 3}};
  static_assert(is_view<decltype(aft::as_view(device)), aft::tensor_view<const own, 2, aft::device_space>>);

  const int rows = 3;
  const std::size_t columns = 4;
  const auto p = aft::as_view(x.data(), {rows, columns});
  static_assert(is_view<decltype(p), aft::tensor_view<own, 2>>);
  CHECK(p.strides() == std::array<index_t, 2>{4, 1});
  const auto c = aft::as_view(read_only.data(), {rows, columns}, {1, 3});
  static_assert(is_view<decltype(c), aft::tensor_view<const own, 2>>);
  CHECK(static_cast<const void*>(&c(1, 2)) == read_only.data() + 7);
  static_assert(is_view<decltype(aft::as_view<aft::device_space>(x.data(), {rows, columns})),
                        aft::tensor_view<own, 2, aft::device_space>>);
  const auto like = aft::as_view(x.data(), v.extents(), v.strides());
  CHECK(like.strides() == v.strides());
  CHECK(aft::as_view(x.data(), v.extents()).strides() == std::array<index_t, 3>{12, 4, 1});
}

TEST_CASE_TEMPLATE("foreign types: pointers to our own types", Own, float, double, aft::half, aft::bfloat16,
                   std::uint8_t) {
  Own x[6] = {};
  static_assert(is_view<decltype(aft::as_view(x, {2, 3})), aft::tensor_view<Own, 2>>);
  CHECK(&aft::as_view(x, {2, 3})(1, 2) == x + 5);
  CHECK(&aft::as_view(static_cast<const Own*>(x), {2, 3}, {1, 2})(1, 2) == x + 5);
}

TEST_CASE_TEMPLATE("foreign types: mdspan and DLPack", Theirs, AFT_FOREIGN_TYPES) {
  using own = ours<Theirs>;
  numbers<Theirs> x(24, 1);
  const auto m = aft::as_view(span_of<const Theirs>{x.data()});
  static_assert(is_view<decltype(m), aft::tensor_view<const own, 2>>);
  CHECK(static_cast<const void*>(&m(1, 2)) == x.data() + 7);

  std::int64_t shape[] = {4, 6};
  DLTensor tensor{};
  tensor.data = x.data();
  tensor.device.device_type = kDLCPU;
  tensor.ndim = 2;
  tensor.dtype.code = std::is_same_v<own, aft::half> ? kDLFloat : kDLBfloat;
  tensor.dtype.bits = 16;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  const auto v = aft::from_dlpack<const Theirs, 2>(tensor);
  static_assert(is_view<decltype(v), aft::tensor_view<const own, 2>>);
  CHECK(static_cast<const void*>(v.data()) == x.data());
  CHECK_THROWS_AS((aft::from_dlpack<Theirs, 1>(tensor)), aft::shape_error);
}

TEST_CASE_TEMPLATE("foreign types: Eigen's matrices, blocks, maps and tensors", Theirs, Eigen::half, Eigen::bfloat16) {
  using own = ours<Theirs>;
  Eigen::Matrix<Theirs, Eigen::Dynamic, Eigen::Dynamic> m(5, 4);
  static_assert(is_view<decltype(aft::as_view(m)), aft::tensor_view<own, 2>>);
  static_assert(is_view<decltype(aft::as_view(std::as_const(m))), aft::tensor_view<const own, 2>>);
  const auto block = aft::as_view(m.block(1, 2, 3, 2));
  CHECK(static_cast<void*>(&block(2, 1)) == &m(3, 3));
  const auto row = aft::as_view(m.row(2));
  static_assert(is_view<decltype(row), aft::tensor_view<own, 1>>);
  CHECK(static_cast<void*>(&row(3)) == &m(2, 3));
  using fixed = Eigen::Matrix<Theirs, 2, 3>;
  const auto map = aft::as_view(Eigen::Map<const fixed>(m.data()));
  static_assert(is_view<decltype(map), aft::tensor_view<const own, 2>>);
  CHECK(static_cast<const void*>(&map(1, 2)) == m.data() + 5);

  Eigen::Tensor<Theirs, 3, Eigen::RowMajor> tensor(2, 3, 4);
  static_assert(is_view<decltype(aft::as_view(tensor)), aft::tensor_view<own, 3>>);
  CHECK(static_cast<void*>(&aft::as_view(tensor)(1, 2, 3)) == &tensor(1, 2, 3));
  Eigen::TensorMap<Eigen::Tensor<const Theirs, 2>> tensor_map(m.data(), 4, 5);
  static_assert(is_view<decltype(aft::as_view(tensor_map)), aft::tensor_view<const own, 2>>);
  CHECK(static_cast<const void*>(&aft::as_view(tensor_map)(3, 1)) == &tensor_map(3, 1));
}

TEST_CASE_TEMPLATE("foreign types: every call writes the bits that it writes for ours", Theirs, AFT_FOREIGN_TYPES) {
  const results<Theirs> theirs;
  const results<ours<Theirs>> own;
  const numbers<Theirs> untouched(B * T * d, 9);
  CHECK(std::memcmp(theirs.y.data(), untouched.data(), 2 * theirs.y.memory.size()) != 0);
  check_bits(theirs.y, own.y);
  check_bits(theirs.average, own.average);
  check_bits(theirs.dq, own.dq);
  check_bits(theirs.dk, own.dk);
  check_bits(theirs.dv, own.dv);
  check_bits(theirs.dw, own.dw);
  check_bits(theirs.dr, own.dr);
  check_bits(theirs.filter, own.filter);
  check_bits(theirs.map, own.map);
}

// Their objects are not of our type. A compiler that were allowed to conclude that the two never share memory would
// keep the old number in a register.
TEST_CASE("foreign types: a compiler knows that our views reach their objects") {
  const auto check = []<class Theirs>(Theirs from, Theirs to) {
    CHECK(copied_by_view(&from, &to) == 5.0F);
    CHECK(copied_by_element(&from, &to) == 5.0F);
  };
  check(Eigen::half(0.0F), Eigen::half(0.0F));
  check(Eigen::bfloat16(0.0F), Eigen::bfloat16(0.0F));
#if defined(__FLT16_MANT_DIG__)
  check(static_cast<_Float16>(0.0F), static_cast<_Float16>(0.0F));
#endif
}
