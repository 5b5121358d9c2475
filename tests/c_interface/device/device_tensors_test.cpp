// SPDX-License-Identifier: Apache-2.0
// Tensors on a device by the C interface of a library with CUDA: which place a call has, what it refuses, that it does
// what C++ does with aft::cuda. The kernels run on the emulator; a GPU has the same calls in tests/gpu.
#include <doctest/doctest.h>

#include "../call_memory.h"
#include "../dlpack_tensor.hpp"
#include "emulated_device.hpp"

#include <device_emulator.hpp>
#include <dlpack/dlpack.h>

#include <string>

namespace {

using aft::test::c_tensor;
using aft::test::state_of_devices;

constexpr std::int64_t B = 2, T = 6, d = 4;

/// aft_full on tensors of device 0, in memory that the emulator reads.
struct call {
  std::vector<float> memory = std::vector<float>(1000, 0.5F), written = std::vector<float>(1000, 42.0F);
  c_tensor q = tensor(memory, {B, T, d}), k = q, v = q, w = tensor(memory, {T, T}), y = tensor(written, {B, T, d});
  c_tensor lse = tensor(written, {B, T, d}, 200);
  aft_bias bias{AFT_DENSE, nullptr, nullptr, nullptr};
  aft_options o = aft::test::sized_options();
  int stream = 0;

  static c_tensor tensor(std::vector<float>& of, const std::vector<std::int64_t>& shape, std::ptrdiff_t at = 0) {
    c_tensor t(aft::tensor_view<float, 1, aft::device_space>{of.data() + at, {0}});
    t.shape = t.strides = shape;
    std::int64_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) t.strides[i] = step;
    t.value.ndim = static_cast<std::int32_t>(shape.size());
    return t;
  }
  void set_all(DLDeviceType type, int id = 0) {
    for (c_tensor* t : {&q, &k, &v, &w, &y}) t->value.device = {type, id};
  }
  int code() {
    state_of_devices() = {};
    bias.w = w.get();
    o.cuda_stream = &stream;
    return aft_full(q.get(), k.get(), v.get(), &bias, y.get(), &o);
  }
  /// The text of a call that has to be refused before any device is asked for.
  std::string refusal(int expected = AFT_SHAPE_ERROR) {
    CHECK(code() == expected);
    CHECK(state_of_devices().asked == -2);
    CHECK(written == std::vector<float>(1000, 42.0F));
    const std::string text = aft_last_error(), name = "aft::full: argument ";
    CHECK(text.substr(0, name.size()) == name);
    return text.substr(name.size());
  }
};

}  // namespace

TEST_CASE("every call on a device has the bits of C++") {
  CHECK(failed_calls() == 0);
  CHECK(state_of_devices().asked == DEVICE_ID);
  CHECK(state_of_devices().stream == stream_of_calls());
  CHECK(state_of_devices().current == aft::test::emulated_devices{}.current);
}

TEST_CASE("where a call runs") {
  call c;
  SUBCASE("on the tensors' device and the caller's stream; afterwards the device is what it was") {
    for (const int device : {0, 1}) {
      c.set_all(kDLCUDA, device);
      CHECK(c.code() == AFT_OK);
      CHECK(state_of_devices().asked == device);
      CHECK(state_of_devices().stream == &c.stream);
      CHECK(aft::emulator::memory().stream == &c.stream);
      CHECK(state_of_devices().current == 1);
    }
    CHECK(c.written[0] != 42.0F);
  }
  SUBCASE("memory that both reach goes along with a device") {
    c.k.value.device.type = kDLCUDAManaged;
    c.y.value.device.type = kDLCUDAManaged;
    CHECK(c.code() == AFT_OK);
    CHECK(state_of_devices().asked == 0);
  }
  SUBCASE("and with the host") {
    c.set_all(kDLCPU);
    c.k.value.device.type = kDLCUDAManaged;
    c.v.value.device.type = kDLCUDAHost;
    CHECK(c.code() == AFT_OK);
    CHECK(state_of_devices().asked == -2);
    CHECK(c.written[0] != 42.0F);
  }
  SUBCASE("alone it is left to the stream") {
    c.set_all(kDLCUDAManaged);
    CHECK(c.code() == AFT_OK);
    CHECK(state_of_devices().asked == -1);
  }
  SUBCASE("no such device") {
    c.set_all(kDLCUDA, 2);
    CHECK(c.code() == AFT_DEVICE_ERROR);
    CHECK(std::string(aft_last_error()) == "aft::full: cudaErrorInvalidDevice (invalid device ordinal)");
    CHECK(c.written == std::vector<float>(1000, 42.0F));
  }
  SUBCASE("a q that no gate looks at may lie anywhere") {
    c.q.value.device.type = kDLCPU;
    c.o.gate = AFT_GATE_NONE;
    CHECK(c.code() == AFT_OK);
  }
}

TEST_CASE("tensors that contradict each other are named") {
  call c;
  SUBCASE("one on the host") {
    c.k.value.device.type = kDLCPU;
    CHECK(c.refusal() == "'k': expected memory of CUDA device 0 as 'q' has, got memory of the host, device_type 1");
  }
  SUBCASE("locked memory is the host's") {
    c.y.value.device.type = kDLCUDAHost;
    CHECK(c.refusal() == "'y': expected memory of CUDA device 0 as 'q' has, got memory of the host, device_type 3");
  }
  SUBCASE("one on another device") {
    c.v.value.device.id = 1;
    CHECK(c.refusal() ==
          "'v': expected memory of CUDA device 0 as 'q' has, got memory of CUDA device 1, device_type 2");
  }
  SUBCASE("one on a device among those of the host") {
    c.set_all(kDLCPU);
    c.w.value.device.type = kDLCUDA;
    CHECK(c.refusal() ==
          "'w' of bias: expected memory of the host as 'q' has, got memory of CUDA device 0, device_type 2");
  }
  SUBCASE("an option") {
    c.lse.value.device.type = kDLCPU;
    c.o.lse = c.lse.get();
    CHECK(c.refusal().substr(0, 40) == "'lse': expected memory of CUDA device 0 ");
  }
  SUBCASE("a device that is none of CUDA's") {
    c.y.value.device.type = kDLMetal;
    CHECK(c.refusal() ==
          "'y': expected memory of the host or of a CUDA device, device_type 1, 2, 3 or 13, got "
          "device_type 8");
  }
  SUBCASE("offsets of packed sequences are the host's") {
    std::int32_t numbers[] = {0, B * T};
    c_tensor offsets(aft::tensor_view<std::int32_t, 1, aft::device_space>{numbers, {2}});
    c.o.query_offsets = offsets.get();
    for (c_tensor* t : {&c.q, &c.k, &c.v, &c.y}) t->shape = {1, B * T, d};
    c.w = call::tensor(c.memory, {B * T, B * T});
    CHECK(c.refusal() == "'query_offsets': expected a host view, got a device view");
    offsets.value.device.type = kDLCPU;
    CHECK(c.code() == AFT_OK);
  }
  SUBCASE("what is wrong in itself is said before a device is asked for") {
    c.set_all(kDLCUDA, 2);
    c.k.value.dtype.bits = 64;
    CHECK(c.refusal() == "'k': expected elements of float as 'v' has, got double");
  }
}

TEST_CASE("streams and filters are held to one place as well") {
  call c;
  state_of_devices() = {};
  std::int64_t bytes = 0, position = -7;
  aft_stream_spec spec{};
  spec.op = AFT_SIMPLE;
  spec.dtype = {2, 32, 1};
  spec.d = spec.hk = d;
  REQUIRE(aft_stream_bytes(&spec, &bytes) == AFT_OK);
  c_tensor state(aft::tensor_view<std::uint8_t, 2, aft::device_space>{
      static_cast<std::uint8_t*>(take_memory(static_cast<std::size_t>(bytes))), {1, bytes}});
  const aft_stream stream{&spec, state.get()};
  state.value.device.id = 2;
  CHECK(aft_stream_reset(&stream, 1, nullptr) == AFT_SHAPE_ERROR);
  CHECK(state_of_devices().asked == -2);
  CHECK(aft_stream_reset(&stream, 0, nullptr) == AFT_DEVICE_ERROR);
  CHECK(aft_stream_position(&stream, 0, &position, nullptr) == AFT_DEVICE_ERROR);
  CHECK(position == -7);
  state.value.device.id = 0;
  CHECK(aft_stream_reset(&stream, 0, nullptr) == AFT_OK);
  CHECK(aft_stream_position(&stream, 0, &position, nullptr) == AFT_OK);
  CHECK(position == 0);
  std::int64_t none = 0;
  c_tensor from(aft::tensor_view<std::int64_t, 1>{&none, {0}});
  CHECK(aft_stream_copy(&stream, from.get(), from.get(), nullptr) == AFT_SHAPE_ERROR);
  CHECK(std::string(aft_last_error()) ==
        "aft::copy: argument 'from': expected memory of CUDA device 0 as 'state' has, got memory of the host, "
        "device_type 1");

  // Slots on the host, rows on a device.
  state.value.device.type = kDLCPU;
  c.o.stream = &stream;
  c.o.causal = 1;
  CHECK(c.refusal().substr(0, 8) == "'state':");

  c_tensor r = call::tensor(c.memory, {1, 3}), number = call::tensor(c.memory, {1}),
           out = call::tensor(c.written, {1, 3});
  number.value.device.type = kDLCPU;
  CHECK(aft_reparameterize(r.get(), r.get(), number.get(), out.get(), nullptr) == AFT_SHAPE_ERROR);
  CHECK(std::string(aft_last_error()).substr(0, 46) == "aft::reparameterize: argument 'shift': expecte");
}
