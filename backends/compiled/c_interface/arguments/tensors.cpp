// SPDX-License-Identifier: Apache-2.0
#include "tensors.hpp"

#include "place.hpp"

#include <aft/core/checks/validation.hpp>
#include <aft/interop/dlpack.hpp>

namespace aft::c_interface {

using checks::argument;
using checks::fail;
using checks::text;

namespace {

struct named_type {
  detail::dl_type code;
  dtype type;
};
/// Integers that no call takes are known as well: the errors of masks and lengths then say what came.
constexpr named_type types[] = {{detail::dl_type_of<float>, dtype::f32},
                                {detail::dl_type_of<double>, dtype::f64},
                                {detail::dl_type_of<half>, dtype::f16},
                                {detail::dl_type_of<bfloat16>, dtype::bf16},
                                {detail::dl_type_of<std::uint8_t>, dtype::u8},
                                {{6, 8}, dtype::u8},  // bool, a byte of 0 or 1
                                {detail::dl_type_of<std::int8_t>, dtype::i8},
                                {detail::dl_type_of<std::int32_t>, dtype::i32},
                                {detail::dl_type_of<std::int64_t>, dtype::i64},
                                {{0, 16}, dtype::i16},
                                {{1, 16}, dtype::u16},
                                {{1, 32}, dtype::u32},
                                {{1, 64}, dtype::u64}};

dtype type_of(const char* op, const argument& a, const aft_tensor& tensor) {
  const detail::dl_type came{tensor.dtype.code, tensor.dtype.bits};
  if (tensor.dtype.lanes == 1) {
    for (const named_type& known : types) {
      if (known.code == came) return known.type;
    }
  }
  fail(op, a, "elements of float, double, half, bfloat16, bool or an integer type, one lane each",
       detail::dl_name(came, tensor.dtype.lanes).c_str());
}

/// In a build without CUDA, before everything else: what a description of memory elsewhere says besides is not its to
/// judge.
[[maybe_unused]] void require_host(const char* op, const argument& a, const aft_tensor& tensor) {
  const index_t device = tensor.device.type;
  if (detail::dl_space<host_space>(device)) return;
  if (is_device_memory(tensor)) {
    text message(op);
    message << ": argument '" << a.name << "'" << a.owner
            << ": expected memory of the host, as this library was built without CUDA, got device_type " << device;
    throw device_error(message.str());
  }
  fail(op, a, "memory of the host or of a CUDA device, device_type 1, 2, 3 or 13", text("device_type ") << device);
}

/// data + byte_offset, at which an element may lie.
void* first_element(const char* op, const argument& a, const aft_tensor& tensor, dtype type) {
  if (tensor.data == nullptr) return nullptr;
  std::byte* const first = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const auto beyond =
      static_cast<index_t>(reinterpret_cast<std::uintptr_t>(first) % static_cast<std::uintptr_t>(size_of(type)));
  if (beyond != 0) {
    fail(op, a, text("data + byte_offset to be a multiple of ") << size_of(type) << " bytes",
         text("an address ") << beyond << " bytes after one");
  }
  return first;
}

/// "half" or the like, for the type that half and bfloat16 data may be mixed with.
dtype compute_type(dtype type) {
  return type == dtype::f64 ? dtype::f64 : dtype::f32;
}

}  // namespace

void set_tensor(const char* op, argument& a, const aft_tensor* tensor, bool on_device) {
  if (tensor == nullptr) return;
  if constexpr (!built_with_cuda<float>) require_host(op, a, *tensor);
  const dtype type = type_of(op, a, *tensor);
  const index_t axes = tensor->ndim;
  if (axes < 0 || axes > static_cast<index_t>(any_view::max_rank)) {
    fail(op, a, text("0 to ") << any_view::max_rank << " axes", axes);
  }
  if (axes > 0 && tensor->shape == nullptr) fail(op, a, text("a shape of ") << axes << " axes", "a null pointer");
  a.view = any_view(first_element(op, a, *tensor, type), type, static_cast<std::size_t>(axes), tensor->shape,
                    tensor->strides, on_device);
}

void require_tensor(const char* op, argument& a, const aft_tensor* tensor, bool on_device) {
  if (tensor == nullptr) fail(op, a, "a tensor", "a null pointer");
  set_tensor(op, a, tensor, on_device);
}

void require_ranks(const char* op, const argument& a, const rank_range& ranks) {
  if (!a.given()) return;
  const std::size_t rank = a.view.rank();
  if (rank >= ranks.low && rank <= ranks.high) return;
  text expected("rank ");
  expected << ranks.low;
  if (ranks.high != ranks.low) expected << (ranks.high == ranks.low + 1 ? " or " : " to ") << ranks.high;
  fail(op, a, expected, static_cast<index_t>(rank));
}

void require_element(const char* op, const argument& a) {
  if (!a.given() || a.view.type() <= dtype::bf16) return;
  fail(op, a, "elements of float, double, half or bfloat16", name_of(a.view.type()));
}

void require_type(const char* op, const argument& a, dtype type, const char* owner) {
  if (!a.given() || a.view.type() == type) return;
  fail(op, a, text("elements of ") << name_of(type) << " as '" << owner << "' has", name_of(a.view.type()));
}

void require_bias_type(const char* op, const argument& a, dtype type) {
  const dtype compute = compute_type(type);
  if (!a.given() || a.view.type() == type || a.view.type() == compute) return;
  text expected("elements of ");
  expected << name_of(type) << (type == compute ? " as the data has" : ", as the data has, or float");
  fail(op, a, expected, name_of(a.view.type()));
}

}  // namespace aft::c_interface
