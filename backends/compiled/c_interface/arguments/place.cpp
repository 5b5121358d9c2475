// SPDX-License-Identifier: Apache-2.0
#include "place.hpp"

#include <aft/core/checks/validation.hpp>

namespace aft::c_interface {

using checks::argument;
using checks::fail;
using checks::text;

namespace {

/// DLPack's numbers: kDLCUDA, kDLCUDAManaged.
constexpr std::int32_t cuda_memory = 2, managed_memory = 13;

text words_for(const aft_tensor& tensor) {
  if (is_device_memory(tensor)) return text("memory of CUDA device ") << index_t{tensor.device.id};
  return text("memory of the host");
}

/// Looks at one tensor after the other. The first that can only be in one place is what the others are held to.
class survey {
 public:
  explicit survey(const char* op) : op_(op) {}

  void add(const argument& a, const aft_tensor* tensor) {
    if (tensor == nullptr) return;
    const index_t type = tensor->device.type;
    const bool on_device = is_device_memory(*tensor);
    if (!on_device && !detail::dl_space<host_space>(type))
      fail(op_, a, "memory of the host or of a CUDA device, device_type 1, 2, 3 or 13", text("device_type ") << type);
    if (type == managed_memory) {
      managed_ = true;
      return;
    }
    if (first_ == nullptr) {
      first_ = tensor;
      first_name_ = a;
      return;
    }
    const bool differs = on_device != is_device_memory(*first_);
    if (differs || (on_device && tensor->device.id != first_->device.id)) {
      fail(op_, a, words_for(*first_) << " as '" << first_name_.name << "'" << first_name_.owner << " has",
           words_for(*tensor) << ", device_type " << type);
    }
  }

  /// Those of the members that its kind has.
  void add(const char* name, const aft_bias& bias) {
    const bool gradient = name[0] == 'd';
    const auto member = [&](const char* of_bias, const char* of_gradient, const aft_tensor* tensor) {
      add(gradient ? argument{of_gradient} : argument{of_bias, {}, " of bias"}, tensor);
    };
    if (bias.kind == AFT_FACTORIZED) {
      member("u", "dbias.u", bias.u);
      member("v", "dbias.v", bias.v);
    } else if (bias.kind == AFT_DENSE || bias.kind == AFT_BANDED) {
      member("w", "dbias.w", bias.w);
    }
  }

  place result(void* stream) const {
    place where;
    where.on_device = first_ == nullptr ? managed_ : is_device_memory(*first_);
    if (!where.on_device) return where;
    if (first_ != nullptr) where.device = first_->device.id;
    where.stream = stream;
    return where;
  }

 private:
  const char* op_;
  const aft_tensor* first_ = nullptr;
  argument first_name_{};
  bool managed_ = false;
};

/// All but the offsets of packed sequences, which the host reads wherever a call runs.
void add_options(survey& s, const aft_options& o) {
  s.add({"mask"}, o.mask);
  s.add({"key_lengths"}, o.key_lengths);
  s.add({"lse"}, o.lse);
  s.add({"average"}, o.average);
  s.add({"query_lengths"}, o.query_lengths);
  s.add({"slot_ids"}, o.slot_ids);
  if (o.stream != nullptr) s.add({"state"}, o.stream->state);
}

}  // namespace

bool is_device_memory(const aft_tensor& tensor) {
  return tensor.device.type == cuda_memory;
}

place find_place(const char* op, const aft_options& o, bool all_of_options, std::initializer_list<named> all) {
  if constexpr (!built_with_cuda<float>) return {};
  survey s(op);
  for (const named& n : all) {
    if (n.bias != nullptr) {
      s.add(n.name, *n.bias);
    } else if (!n.of_gate || o.gate != AFT_GATE_NONE) {
      s.add({n.name}, n.tensor);
    }
  }
  if (all_of_options) add_options(s, o);
  return s.result(o.cuda_stream);
}

}  // namespace aft::c_interface
