// SPDX-License-Identifier: Apache-2.0
// Views of other libraries' tensors: whatever has the shape of std::mdspan, and DLPack.
#include "expect_error.hpp"

#include <dlpack/dlpack.h>

#include <cmath>

namespace {

using aft::index_t;
using aft::test::check_parts;
using aft::test::error_of;

/// What of std::mdspan a view needs, with strides of any kind and the unsigned counting that std::mdspan has.
template <class T, std::size_t Rank>
struct span_of {
  using element_type = T;
  using size_type = std::size_t;
  T* first = nullptr;
  std::array<unsigned, Rank> extents{};
  std::array<unsigned, Rank> strides{};
  bool strided = true;

  static constexpr std::size_t rank() noexcept { return Rank; }
  constexpr unsigned extent(std::size_t axis) const { return extents[axis]; }
  constexpr unsigned stride(std::size_t axis) const { return strides[axis]; }
  constexpr bool is_strided() const { return strided; }
  constexpr T* data_handle() const { return first; }
};

/// What std::linalg::scaled makes of one: elements that are computed, and a pointer to those that they come from.
struct scaled_span : span_of<const float, 1> {
  using reference = float;
};

/// A tensor as a framework hands it out.
struct exported {
  std::array<std::int64_t, 3> shape{2, 3, 4}, strides{12, 4, 1};
  DLTensor tensor{};

  template <class T>
  exported(std::vector<T>& memory, int code, int bits) {
    tensor.data = memory.data();
    tensor.device.device_type = kDLCPU;
    tensor.ndim = 3;
    tensor.dtype.code = static_cast<std::uint8_t>(code);
    tensor.dtype.bits = static_cast<std::uint8_t>(bits);
    tensor.dtype.lanes = 1;
    tensor.shape = shape.data();
    tensor.strides = strides.data();
  }
};

/// DLManagedTensorVersioned of DLPack 1.0, which this header may be too old to have.
struct versioned {
  struct {
    std::uint32_t major = 1, minor = 0;
  } version;
  void* manager_ctx = nullptr;
  void (*deleter)(versioned*) = nullptr;
  std::uint64_t flags = 0;
  DLTensor dl_tensor{};
};

template <class T>
void check_type(int code) {
  std::vector<T> memory(24);
  const exported x(memory, code, static_cast<int>(8 * sizeof(T)));
  const auto v = aft::from_dlpack<T, 3>(x.tensor);
  static_assert(std::is_same_v<decltype(v), const aft::tensor_view<T, 3>>);
  CHECK(&v(1, 2, 3) == &memory[23]);
}

}  // namespace

TEST_CASE("mdspan: extents and strides are taken over, also transposed ones and those of a part") {
  std::vector<float> memory(60);
  const auto v = aft::as_view(span_of<float, 3>{memory.data(), {2, 3, 4}, {30, 1, 5}});
  static_assert(std::is_same_v<decltype(v), const aft::tensor_view<float, 3>>);
  CHECK(v.extents() == std::array<index_t, 3>{2, 3, 4});
  CHECK(&v(1, 2, 3) == &memory[30 + 2 + 15]);

  const auto c = aft::as_view(span_of<const double, 1>{nullptr, {0}, {1}});
  static_assert(std::is_same_v<decltype(c), const aft::tensor_view<const double, 1>>);
  CHECK(c.size() == 0);
  const auto device = aft::as_view<aft::device_space>(span_of<float, 2>{memory.data(), {2, 3}, {3, 1}});
  static_assert(std::is_same_v<decltype(device), const aft::tensor_view<float, 2, aft::device_space>>);
  CHECK(device.data() == memory.data());
}

// Their memory holds other numbers.
static_assert(aft::detail::mdspan_like<span_of<const float, 1>> && !aft::detail::mdspan_like<scaled_span>);

TEST_CASE("mdspan: a layout without strides is refused") {
  const span_of<float, 2> tiled{nullptr, {2, 3}, {3, 1}, false};
  check_parts(error_of([&] { (void)aft::as_view(tiled); }), {"aft::as_view", "strides", "layout"});
}

TEST_CASE("dlpack: every element type, const or not") {
  check_type<float>(kDLFloat);
  check_type<double>(kDLFloat);
  check_type<aft::half>(kDLFloat);
  check_type<aft::bfloat16>(kDLBfloat);
  check_type<std::uint8_t>(kDLUInt);
  check_type<std::int64_t>(kDLInt);
  check_type<std::uint8_t>(6);  // kDLBool: a mask as PyTorch hands it out
  std::vector<float> memory(24);
  const exported x(memory, kDLFloat, 32);
  static_assert(std::is_same_v<decltype(aft::from_dlpack<const float, 3>(x.tensor)), aft::tensor_view<const float, 3>>);
}

TEST_CASE("dlpack: strides, none of them, an offset, and pointers to managed tensors") {
  std::vector<float> memory(60);
  exported x(memory, kDLFloat, 32);
  x.strides = {1, 20, 4};
  x.tensor.byte_offset = 8;
  CHECK(&aft::from_dlpack<float, 3>(x.tensor)(1, 2, 3) == &memory[2 + 1 + 40 + 12]);
  x.strides = {-12, 4, 1};
  x.tensor.byte_offset = 12 * sizeof(float);
  CHECK(&aft::from_dlpack<float, 3>(x.tensor)(1, 0, 0) == memory.data());
  x.tensor.strides = nullptr;
  CHECK(aft::from_dlpack<float, 3>(&x.tensor).strides() == std::array<index_t, 3>{12, 4, 1});

  DLManagedTensor managed{};
  managed.dl_tensor = x.tensor;
  CHECK(aft::from_dlpack<float, 3>(managed).data() == memory.data() + 12);
  const DLManagedTensor* const shown = &managed;
  CHECK(aft::from_dlpack<float, 3>(shown).data() == memory.data() + 12);
  versioned later;
  later.dl_tensor = x.tensor;
  CHECK(aft::from_dlpack<float, 3>(&later).data() == memory.data() + 12);
  later.flags = 1;
  CHECK(aft::from_dlpack<const float, 3>(later).data() == memory.data() + 12);
  check_parts(error_of([&] { (void)aft::from_dlpack<float, 3>(later); }), {"aft::from_dlpack", "written", "read-only"});
  later.version.major = 2;
  check_parts(error_of([&] { (void)aft::from_dlpack<const float, 3>(later); }), {"version 1", "2"});

  x.tensor.data = nullptr;
  CHECK(aft::from_dlpack<float, 3>(x.tensor).data() == nullptr);
}

TEST_CASE("dlpack: host and device memory are told apart") {
  std::vector<float> memory(24);
  exported x(memory, kDLFloat, 32);
  const auto takes = [&]<class Space>(int device, Space) {
    x.tensor.device.device_type = static_cast<DLDeviceType>(device);
    return error_of([&] { (void)aft::from_dlpack<float, 3, Space>(x.tensor); });
  };
  constexpr int managed = 13;
  for (int device : {int{kDLCPU}, 3, managed}) CHECK(takes(device, aft::host_space{}) == "no shape_error");
  for (int device : {2, managed}) CHECK(takes(device, aft::device_space{}) == "no shape_error");
  check_parts(takes(2, aft::host_space{}), {"host", "device_type 2"});
  check_parts(takes(kDLCPU, aft::device_space{}), {"CUDA", "device_type 1"});
  check_parts(takes(kDLOpenCL, aft::device_space{}), {"CUDA", "device_type 4"});
}

TEST_CASE("dlpack: another type, rank or alignment is refused with its numbers") {
  std::vector<float> memory(24);
  exported x(memory, kDLFloat, 32);
  check_parts(error_of([&] { (void)aft::from_dlpack<double, 3>(x.tensor); }), {"elements of double", "got float"});
  check_parts(error_of([&] { (void)aft::from_dlpack<aft::bfloat16, 3>(x.tensor); }),
              {"elements of bfloat16", "got float"});
  check_parts(error_of([&] { (void)aft::from_dlpack<double, 3>(x.tensor, "q"); }),
              {"aft::from_dlpack: argument 'q': expected elements of double, got float"});
  x.tensor.dtype.code = kDLUInt;
  check_parts(error_of([&] { (void)aft::from_dlpack<std::int32_t, 3>(x.tensor); }), {"of int32", "got uint32"});
  x.tensor.dtype.code = kDLFloat;
  check_parts(error_of([&] { (void)aft::from_dlpack<float, 2>(x.tensor); }), {"2 axes", "got 3"});
  x.tensor.byte_offset = 2;
  check_parts(error_of([&] { (void)aft::from_dlpack<float, 3>(x.tensor); }),
              {"a multiple of 4 bytes", "an address 2 bytes after one"});
  x.tensor.byte_offset = 0;
  x.tensor.dtype.lanes = 4;
  check_parts(error_of([&] { (void)aft::from_dlpack<float, 3>(x.tensor); }),
              {"elements of float", "got vectors of 4 lanes of float"});
  const DLTensor* const none = nullptr;
  check_parts(error_of([&] { (void)aft::from_dlpack<float, 3>(none); }), {"a tensor", "null"});
}

TEST_CASE("a call on an mdspan and DLPack tensors is the call on their memory") {
  const index_t B = 2, T = 3, d = 4;
  std::vector<float> q(24), y(24), expected(24);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<float>(i));
  exported x(q, kDLFloat, 32), out(y, kDLFloat, 32);
  const auto k = aft::as_view(span_of<const float, 3>{q.data(), {2, 3, 4}, {12, 4, 1}});
  aft::simple(aft::from_dlpack<const float, 3>(x.tensor), k, k, aft::from_dlpack<float, 3>(out.tensor));
  const aft::tensor_view<const float, 3> plain{q.data(), {B, T, d}};
  aft::simple(plain, plain, plain, aft::tensor_view<float, 3>{expected.data(), {B, T, d}});
  CHECK(y == expected);
}
