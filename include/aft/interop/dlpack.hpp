// SPDX-License-Identifier: Apache-2.0
/// @file dlpack.hpp  aft::from_dlpack: views of tensors that other frameworks hand out by the DLPack protocol.
///
/// DLPack's structs are recognised by the members that they have. dlpack.h is not included here, so that any copy of it
/// does: the protocol's own, or the one inside PyTorch's or CuPy's headers.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <aft/core/errors.hpp>
#include <aft/core/numeric.hpp>
#include <aft/core/views/storage_of.hpp>
#include <aft/core/views/tensor_view.hpp>

namespace aft {

namespace detail {

/// DLTensor.
template <class M>
concept dl_tensor = requires(const M& m) {
  { m.data } -> std::convertible_to<const void*>;
  m.device.device_type;
  { m.ndim } -> std::convertible_to<index_t>;
  m.dtype.code;
  m.dtype.bits;
  m.dtype.lanes;
  { m.shape[0] } -> std::convertible_to<index_t>;
  { m.strides[0] } -> std::convertible_to<index_t>;
  { m.byte_offset } -> std::convertible_to<std::uint64_t>;
};

/// DLManagedTensor and DLManagedTensorVersioned.
template <class M>
concept dl_managed = requires(const M& m) {
  m.deleter;
  requires dl_tensor<std::remove_cvref_t<decltype(m.dl_tensor)>>;
};

/// What DLPack calls an element type: kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6.
struct dl_type {
  index_t code = 0, bits = 0;
  friend bool operator==(const dl_type&, const dl_type&) = default;
};

template <class T>
inline constexpr dl_type dl_type_of{-1, 0};
template <>
inline constexpr dl_type dl_type_of<float>{2, 32};
template <>
inline constexpr dl_type dl_type_of<double>{2, 64};
template <>
inline constexpr dl_type dl_type_of<half>{2, 16};
template <>
inline constexpr dl_type dl_type_of<bfloat16>{4, 16};
template <>
inline constexpr dl_type dl_type_of<std::uint8_t>{1, 8};
template <>
inline constexpr dl_type dl_type_of<std::int8_t>{0, 8};
template <>
inline constexpr dl_type dl_type_of<std::int32_t>{0, 32};
template <>
inline constexpr dl_type dl_type_of<std::int64_t>{0, 64};

/// The element type in words: "double", "uint16", "3 lanes of float"; what has no name by its code.
inline std::string dl_name(const dl_type& type, index_t lanes) {
  static constexpr const char* kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex"};
  std::string name = type.code >= 0 && type.code < 6
                         ? kinds[type.code] + std::to_string(type.bits)
                         : "code " + std::to_string(type.code) + " of " + std::to_string(type.bits) + " bits";
  if (type == dl_type_of<float>) name = "float";
  if (type == dl_type_of<double>) name = "double";
  if (type == dl_type_of<half>) name = "half";
  if (type.code == 6) name = "bool";
  return lanes == 1 ? name : "vectors of " + std::to_string(lanes) + " lanes of " + name;
}

/// Whether a device's memory may be used as that of Space: kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3, kDLCUDAManaged 13.
template <class Space>
constexpr bool dl_space(index_t device) {
  if (std::is_same_v<Space, host_space>) return device == 1 || device == 3 || device == 13;
  return device == 2 || device == 13;
}

[[gnu::__noreturn__, gnu::cold, gnu::noinline]] inline void refuse_dlpack(const char* argument,
                                                                          const std::string& expected,
                                                                          const std::string& came) {
  const std::string named = *argument == '\0' ? "" : " argument '" + std::string(argument) + "':";
  throw shape_error("aft::from_dlpack:" + named + " expected " + expected + ", got " + came);
}

}  // namespace detail

/// The memory of a DLTensor as a view of rank Rank in Space. T is float, double, aft::half, aft::bfloat16, or for masks
/// std::uint8_t (tensors of bool too, whose elements are bytes) or std::int8_t, and for lengths std::int64_t or
/// std::int32_t; const T for what is only read. For T of another library's 16-bit type (storage_of) the view is of
/// aft::half or aft::bfloat16.
///
///     auto q = aft::from_dlpack<const float, 3>(managed->dl_tensor);
///
/// A second argument names the tensor in errors: from_dlpack<float, 3>(t, "q") says argument 'q'.
/// Strides are DLPack's, in elements; without any the tensor is row-major. Host views are of kDLCPU, kDLCUDAHost and
/// kDLCUDAManaged, device views (Space = aft::device_space) of kDLCUDA and kDLCUDAManaged. Nothing is copied or owned:
/// the view is valid until the tensor's deleter is called, which stays the caller's task.
/// Throws shape_error if the element type, its lanes, the number of axes or the device is another, or if data +
/// byte_offset is not aligned for T. Cost: O(Rank).
template <class T, std::size_t Rank, class Space = host_space, detail::dl_tensor Tensor>
inline tensor_view<detail::stored_t<T>, Rank, Space> from_dlpack(const Tensor& tensor, const char* argument = "") {
  using element = detail::stored_t<T>;
  using value = std::remove_cv_t<element>;
  constexpr detail::dl_type wanted = detail::dl_type_of<value>;
  static_assert(
      wanted.bits != 0,
      "aft::from_dlpack: T is float, double, aft::half, aft::bfloat16, std::uint8_t, std::int8_t, std::int64_t "
      "or std::int32_t");
  const detail::dl_type type{static_cast<index_t>(tensor.dtype.code), static_cast<index_t>(tensor.dtype.bits)};
  const auto lanes = static_cast<index_t>(tensor.dtype.lanes);
  const bool bytes_of_bool = std::is_same_v<value, std::uint8_t> && type == detail::dl_type{6, 8};
  if ((type != wanted && !bytes_of_bool) || lanes != 1) {
    detail::refuse_dlpack(argument, std::string("elements of ") + name_of(dtype_of<value>),
                          detail::dl_name(type, lanes));
  }
  if (const auto device = static_cast<index_t>(tensor.device.device_type); !detail::dl_space<Space>(device)) {
    detail::refuse_dlpack(argument,
                          std::is_same_v<Space, host_space> ? "memory of the host, device_type 1, 3 or 13"
                                                            : "memory of a CUDA device, device_type 2 or 13",
                          "device_type " + std::to_string(device));
  }
  if (const auto axes = static_cast<index_t>(tensor.ndim); axes != static_cast<index_t>(Rank))
    detail::refuse_dlpack(argument, std::to_string(Rank) + " axes", std::to_string(axes));
  element* data = nullptr;
  if (tensor.data != nullptr) {
    std::byte* const first = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
    if (const auto beyond = reinterpret_cast<std::uintptr_t>(first) % alignof(value); beyond != 0) {
      detail::refuse_dlpack(argument,
                            "data + byte_offset to be a multiple of " + std::to_string(alignof(value)) + " bytes",
                            "an address " + std::to_string(beyond) + " bytes after one");
    }
    data = reinterpret_cast<element*>(first);
  }
  std::array<index_t, Rank> extents{}, strides{};
  for (std::size_t axis = 0; axis < Rank; ++axis) extents[axis] = static_cast<index_t>(tensor.shape[axis]);
  if (tensor.strides == nullptr) return {data, extents};
  for (std::size_t axis = 0; axis < Rank; ++axis) strides[axis] = static_cast<index_t>(tensor.strides[axis]);
  return {data, extents, strides};
}

/// The same of a DLManagedTensor or a DLManagedTensorVersioned, whose deleter is not called. Throws shape_error as well
/// if a versioned tensor is read-only and T is not const, or if its major version is not 1, as its members may then be
/// others.
template <class T, std::size_t Rank, class Space = host_space, detail::dl_managed Managed>
inline tensor_view<detail::stored_t<T>, Rank, Space> from_dlpack(const Managed& managed, const char* argument = "") {
  if constexpr (requires { managed.version.major; }) {
    if (const auto major = static_cast<index_t>(managed.version.major); major != 1)
      detail::refuse_dlpack(argument, "version 1 of DLPack", std::to_string(major));
    constexpr std::uint64_t read_only = 1;  // DLPACK_FLAG_BITMASK_READ_ONLY
    if (!std::is_const_v<T> && (static_cast<std::uint64_t>(managed.flags) & read_only) != 0)
      detail::refuse_dlpack(argument, "a tensor that may be written",
                            "one that is read-only; a view of const may show it");
  }
  return from_dlpack<T, Rank, Space>(managed.dl_tensor, argument);
}

/// The same of what a pointer shows. Throws shape_error if it is null.
template <class T, std::size_t Rank, class Space = host_space, class Tensor>
requires(detail::dl_tensor<Tensor> ||
         detail::dl_managed<Tensor>) inline tensor_view<detail::stored_t<T>, Rank,
                                                        Space> from_dlpack(Tensor* tensor, const char* argument = "") {
  if (tensor == nullptr) detail::refuse_dlpack(argument, "a tensor", "null");
  return from_dlpack<T, Rank, Space>(*tensor, argument);
}

}  // namespace aft
