// SPDX-License-Identifier: Apache-2.0
// What no C++ program could ask: wrong types, ranks and devices, missing tensors, options of other versions.
#include <doctest/doctest.h>

#include "dlpack_tensor.hpp"

#include <cstddef>
#include <new>
#include <string>
#include <thread>

#include <dlpack/dlpack.h>

namespace {

using aft::test::c_options;
using aft::test::c_tensor;

// A pointer to DLPack's own struct can be cast.
static_assert(sizeof(aft_tensor) == sizeof(DLTensor) && alignof(aft_tensor) == alignof(DLTensor));
static_assert(offsetof(aft_tensor, data) == offsetof(DLTensor, data));
static_assert(offsetof(aft_tensor, device) == offsetof(DLTensor, device));
static_assert(offsetof(aft_tensor, ndim) == offsetof(DLTensor, ndim));
static_assert(offsetof(aft_tensor, dtype) == offsetof(DLTensor, dtype));
static_assert(offsetof(aft_tensor, shape) == offsetof(DLTensor, shape));
static_assert(offsetof(aft_tensor, strides) == offsetof(DLTensor, strides));
static_assert(offsetof(aft_tensor, byte_offset) == offsetof(DLTensor, byte_offset));

// Numbers that programs have compiled in, and that no description of functions and structs holds.
static_assert(AFT_OK == 0 && AFT_SHAPE_ERROR == 1 && AFT_DEVICE_ERROR == 2 && AFT_OUT_OF_MEMORY == 3);
static_assert(AFT_INTERNAL_ERROR == 4 && AFT_GATE_SIGMOID == 0 && AFT_GATE_NONE == 1 && AFT_GATE_IDENTITY == 2);
static_assert(AFT_GATE_RELU == 3 && AFT_GATE_TANH == 4 && AFT_GATE_SILU == 5 && AFT_ZERO_BIAS == 0);
static_assert(AFT_EXCLUDED == 1 && AFT_ARITHMETIC_AUTOMATIC == 0 && AFT_ARITHMETIC_FULL == 1 && AFT_DENSE == 0);
static_assert(AFT_FACTORIZED == 1 && AFT_BANDED == 2 && AFT_FULL == 0 && AFT_LOCAL == 1 && AFT_SIMPLE == 2);
static_assert(AFT_CONV == 3);

constexpr std::int64_t B = 2, T = 6, d = 4;

/// aft_full, as valid as it is before a test spoils it.
struct call {
  std::vector<float> memory = std::vector<float>(1000, 0.5F), written = std::vector<float>(1000, 42.0F);
  c_tensor q = tensor({B, T, d}), k = tensor({B, T, d}), v = tensor({B, T, d}), w = tensor({T, T});
  c_tensor y = tensor({B, T, d}, true);
  aft_bias bias{AFT_DENSE, nullptr, nullptr, nullptr};
  aft_options o = aft::test::sized_options();

  c_tensor tensor(const std::vector<std::int64_t>& shape, bool output = false) {
    c_tensor t(aft::tensor_view<float, 1>{output ? written.data() : memory.data(), {0}});
    t.shape = shape;
    t.strides = shape;
    std::int64_t step = 1;
    for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) t.strides[i] = step;
    t.value.ndim = static_cast<std::int32_t>(shape.size());
    return t;
  }
  int code() {
    if (bias.w == nullptr) bias.w = w.get();
    return aft_full(q.get(), k.get(), v.get(), &bias, y.get(), &o);
  }
  bool untouched() const {
    for (const float x : written) {
      if (x != 42.0F) return false;
    }
    return true;
  }
  /// The text of a call that has to be refused, after the operator's name.
  std::string refusal(int expected = AFT_SHAPE_ERROR) {
    const int came = code();
    CHECK(came == expected);
    return after_name();
  }
  std::string after_name() const {
    CHECK(untouched());
    const std::string text = aft_last_error(), name = "aft::full: argument ";
    CHECK(text.substr(0, name.size()) == name);
    return text.substr(name.size());
  }
};

}  // namespace

TEST_CASE("the call that the cases below spoil is valid") {
  call c;
  CHECK(c.code() == AFT_OK);
  CHECK(!c.untouched());
}

TEST_CASE("element types") {
  call c;
  SUBCASE("of no operator") {
    c.v.value.dtype.code = 0;
    CHECK(c.refusal() == "'v': expected elements of float, double, half or bfloat16, got int32");
  }
  SUBCASE("of no library") {
    c.k.value.dtype.code = 5;
    c.k.value.dtype.bits = 64;
    CHECK(c.refusal() ==
          "'k': expected elements of float, double, half, bfloat16, bool or an integer type, one lane each, got "
          "complex64");
  }
  SUBCASE("vectors") {
    c.q.value.dtype.lanes = 4;
    CHECK(c.refusal().find("vectors of 4 lanes of float") != std::string::npos);
  }
  SUBCASE("mixed") {
    c.k.value.dtype.bits = 64;
    CHECK(c.refusal() == "'k': expected elements of float as 'v' has, got double");
  }
  SUBCASE("of the bias") {
    c.w.value.dtype.bits = 64;
    CHECK(c.refusal() == "'w' of bias: expected elements of float as the data has, got double");
    for (c_tensor* t : {&c.q, &c.k, &c.v, &c.y}) t->value.dtype.bits = 16;
    CHECK(c.refusal() == "'w' of bias: expected elements of half, as the data has, or float, got double");
  }
  SUBCASE("of options, in the words of C++") {
    c.o.mask = c.w.get();
    CHECK(c.refusal() == "'mask': expected uint8, int8 or bool, got float");
  }
}

TEST_CASE("ranks") {
  call c;
  SUBCASE("too few") {
    c.q.value.ndim = 1;
    CHECK(c.refusal() == "'q': expected rank 2 or 3, got 1");
  }
  SUBCASE("too many") {
    c.w = c.tensor({1, 1, 1, T, T});
    CHECK(c.refusal() == "'w' of bias: expected rank 2 to 4, got 5");
  }
  SUBCASE("no number of axes") {
    c.v.value.ndim = -1;
    CHECK(c.refusal() == "'v': expected 0 to 8 axes, got -1");
    c.v.value.ndim = 9;
    CHECK(c.refusal() == "'v': expected 0 to 8 axes, got 9");
    c.v.value.ndim = 0;
    CHECK(c.refusal() == "'v': expected rank 2 or 3, got 0");
  }
  SUBCASE("of a grid") {
    c_tensor filter = c.tensor({1, 3, 3});
    CHECK(aft_conv(c.q.get(), c.k.get(), c.v.get(), filter.get(), c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(std::string(aft_last_error()) == "aft::conv: argument 'v': expected rank 4, got 3");
    filter = c.tensor({1});
    CHECK(aft_conv(c.q.get(), c.k.get(), c.v.get(), filter.get(), c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(std::string(aft_last_error()) == "aft::conv: argument 'filter': expected rank 2 to 4, got 1");
    CHECK(c.untouched());
  }
}

TEST_CASE("devices") {
  call c;
  SUBCASE("a GPU") {
    c.k.value.device.type = kDLCUDA;
    CHECK(c.refusal(AFT_DEVICE_ERROR) ==
          "'k': expected memory of the host, as this library was built without CUDA, got device_type 2");
  }
  SUBCASE("a GPU, in the options") {
    c.o.lse = c.w.get();
    c.w.value.device.type = kDLCUDA;
    CHECK(c.refusal(AFT_DEVICE_ERROR).substr(0, 5) == "'lse'");
  }
  SUBCASE("another") {
    c.y.value.device.type = kDLMetal;
    CHECK(c.refusal() ==
          "'y': expected memory of the host or of a CUDA device, device_type 1, 2, 3 or 13, got "
          "device_type 8");
  }
  SUBCASE("memory of the host that a GPU reads too") {
    c.q.value.device.type = kDLCUDAHost;
    c.v.value.device.type = kDLCUDAManaged;
    CHECK(c.code() == AFT_OK);
  }
}

TEST_CASE("pointers") {
  call c;
  SUBCASE("no tensor") {
    CHECK(aft_full(nullptr, c.k.get(), c.v.get(), &c.bias, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(c.after_name() == "'q': expected a tensor, got a null pointer");
    CHECK(aft_full(c.q.get(), c.k.get(), c.v.get(), nullptr, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(c.after_name() == "'bias': expected an aft_bias, got a null pointer");
    CHECK(aft_full(c.q.get(), c.k.get(), c.v.get(), &c.bias, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(c.after_name() == "'w' of bias: expected a tensor, got a null pointer");
    c.bias.w = c.w.get();
    CHECK(aft_full(c.q.get(), c.k.get(), c.v.get(), &c.bias, nullptr, nullptr) == AFT_SHAPE_ERROR);
    CHECK(c.after_name() == "'y': expected a tensor, got a null pointer");
    CHECK(aft_conv(c.q.get(), c.k.get(), c.v.get(), nullptr, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_reparameterize(c.w.get(), nullptr, c.w.get(), c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_filter_entropy(c.w.get(), nullptr, nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_filter_entropy_backward(c.w.get(), nullptr, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_gumbel_filter(c.w.get(), nullptr, 1, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_gumbel_filter_backward(c.w.get(), c.w.get(), 1, nullptr, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_gumbel_filter_hard(nullptr, c.y.get(), nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_attention_map(c.k.get(), &c.bias, nullptr, nullptr) == AFT_SHAPE_ERROR);
    CHECK(aft_simple_backward(c.q.get(), c.k.get(), c.v.get(), nullptr, nullptr, nullptr, nullptr, nullptr) ==
          AFT_SHAPE_ERROR);
  }
  SUBCASE("no q where the gate does not read it") {
    c.o.gate = AFT_GATE_NONE;
    c.bias.w = c.w.get();
    CHECK(aft_full(nullptr, c.k.get(), c.v.get(), &c.bias, c.y.get(), &c.o) == AFT_OK);
    CHECK(!c.untouched());
  }
  SUBCASE("no shape") {
    const aft_tensor* const q = c.q.get();
    c.q.value.shape = nullptr;
    c.bias.w = c.w.get();
    CHECK(aft_full(q, c.k.get(), c.v.get(), &c.bias, c.y.get(), &c.o) == AFT_SHAPE_ERROR);
    CHECK(c.after_name() == "'q': expected a shape of 3 axes, got a null pointer");
    // Every get() gives the tensor its shape again.
    CHECK(c.code() == AFT_OK);
  }
  SUBCASE("an odd address") {
    c.v.value.byte_offset = 2;
    CHECK(c.refusal() ==
          "'v': expected data + byte_offset to be a multiple of 4 bytes, got an address 2 bytes after one");
  }
  SUBCASE("no strides: row-major") {
    CHECK(c.code() == AFT_OK);
    const std::vector<float> with_strides = c.written;
    c.written.assign(c.written.size(), 42.0F);
    for (c_tensor* t : {&c.q, &c.k, &c.v, &c.y, &c.w}) {
      t->get();
      t->value.strides = nullptr;
    }
    CHECK(aft_full(&c.q.value, &c.k.value, &c.v.value, &c.bias, &c.y.value, nullptr) == AFT_OK);
    CHECK(c.written == with_strides);
  }
}

TEST_CASE("kinds and enumerators") {
  call c;
  SUBCASE("of bias") {
    c.bias.kind = 3;
    CHECK(c.refusal() == "'bias': expected kind AFT_DENSE, AFT_FACTORIZED or AFT_BANDED, 0 to 2, got 3");
    c.bias.kind = AFT_BANDED;
    CHECK(c.refusal() ==
          "'bias': expected kind AFT_DENSE or AFT_FACTORIZED, as a call without a window has no band, got AFT_BANDED");
    c.bias.kind = AFT_FACTORIZED;
    CHECK(c.refusal() == "'u' of bias: expected a tensor, got a null pointer");
  }
  SUBCASE("of the gradient") {
    c.bias.w = c.w.get();
    const aft_bias dbias{AFT_FACTORIZED, nullptr, c.w.get(), c.w.get()};
    CHECK(aft_full_backward(c.q.get(), c.k.get(), c.v.get(), &c.bias, c.q.get(), nullptr, nullptr, nullptr, &dbias,
                            nullptr) == AFT_SHAPE_ERROR);
    CHECK(std::string(aft_last_error()) ==
          "aft::full_backward: argument 'dbias': expected kind AFT_DENSE as 'bias' has, got AFT_FACTORIZED");
  }
  SUBCASE("of options") {
    c.o.gate = 6;
    CHECK(c.refusal() == "'gate': expected 0 to 5, got 6");
    c.o.gate = AFT_GATE_SIGMOID;
    c.o.outside = -1;
    CHECK(c.refusal() == "'outside': expected 0 to 1, got -1");
    c.o.outside = AFT_ZERO_BIAS;
    c.o.arithmetic = 2;
    CHECK(c.refusal() == "'arithmetic': expected 0 to 1, got 2");
  }
}

TEST_CASE("sizes of options") {
  call c;
  // As a later header would have it: the same members and more.
  struct later {
    aft_options known;
    std::int64_t more[4];
  };
  later o{};
  const auto code = [&](std::size_t size) {
    o.known.size = size;
    c.bias.w = c.w.get();
    return aft_full(c.q.get(), c.k.get(), c.v.get(), &c.bias, c.y.get(), &o.known);
  };
  SUBCASE("an earlier version's: members behind it are not read") {
    const aft_stream without_spec{};
    o.known.stream = &without_spec;
    o.known.gate = 77;
    CHECK(code(offsetof(aft_options, gate)) == AFT_OK);
    CHECK(code(offsetof(aft_options, outside)) == AFT_SHAPE_ERROR);
    o.known.gate = AFT_GATE_RELU;
    CHECK(code(offsetof(aft_options, first_query)) == AFT_OK);
    CHECK(code(offsetof(aft_options, stream)) == AFT_OK);
    CHECK(code(offsetof(aft_options, cuda_stream)) == AFT_SHAPE_ERROR);
    CHECK(std::string(aft_last_error()) == "aft::full: argument 'spec': expected a spec, got a null pointer");
  }
  SUBCASE("a later version's") {
    CHECK(code(sizeof o) == AFT_OK);
    c.written.assign(c.written.size(), 42.0F);
    o.more[2] = 1;
    CHECK(code(sizeof o) == AFT_SHAPE_ERROR);
    const std::string text = c.after_name();
    CHECK(text.find("'options': expected nothing but zeros behind the " + std::to_string(sizeof(aft_options))) == 0);
    CHECK(code(offsetof(later, more[2])) == AFT_OK);
  }
  SUBCASE("of no version") {
    for (const std::size_t size : {std::size_t{0}, std::size_t{4}, offsetof(aft_options, mask) + 4,
                                   offsetof(aft_options, gate) + 2, std::size_t{1} << 40}) {
      CAPTURE(size);
      CHECK(code(size) == AFT_SHAPE_ERROR);
      CHECK(c.after_name().find("'options': expected size = sizeof(aft_options)") == 0);
    }
  }
}

TEST_CASE("streams: specs, states and pointers") {
  std::int64_t number = 7;
  const auto refused = [&](int code, const std::string& text) {
    CHECK(code == AFT_SHAPE_ERROR);
    CHECK(aft_last_error() == text);
    CHECK(number == 7);
  };
  aft_stream_spec spec{};
  spec.op = AFT_FULL;
  spec.dtype = {2, 32, 1};
  spec.d = 4;
  spec.hk = 2;
  spec.capacity = 3;
  refused(aft_stream_bytes(nullptr, &number), "aft::stream_spec: argument 'spec': expected a spec, got a null pointer");
  refused(aft_stream_bytes(&spec, nullptr),
          "aft::stream_spec: argument 'bytes': expected a pointer, got a null pointer");
  spec.hk = 3;
  refused(aft_stream_bytes(&spec, &number), "aft::stream_spec: argument 'hk': expected a divisor of d = 4, got 3");
  spec.hk = 2;
  spec.op = 9;
  refused(aft_stream_bytes(&spec, &number),
          "aft::stream_spec: argument 'spec': expected an op of AFT_FULL, AFT_LOCAL, AFT_SIMPLE or AFT_CONV, got 9");
  spec.op = AFT_FULL;
  spec.dtype.bits = 8;
  refused(aft_stream_bytes(&spec, &number),
          "aft::stream_spec: argument 'spec': expected a dtype of float, double, half or bfloat16, got float8");
  spec.dtype.bits = 32;
  std::int64_t bytes = 0;
  REQUIRE(aft_stream_bytes(&spec, &bytes) == AFT_OK);
  CHECK(bytes == aft::stream_spec::full<float>(4, 2, 3).bytes());

  std::vector<std::uint8_t> memory(static_cast<std::size_t>(2 * bytes + 64));
  const std::int64_t shape[] = {2, bytes}, tight[] = {2, bytes - 64};
  const auto beyond = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  aft_tensor state{memory.data() + (beyond == 0 ? 0 : 64 - beyond), {1, 0}, 2, {1, 8, 1}, shape, nullptr, 0};
  const aft_stream stream{&spec, &state};
  refused(aft_stream_reset(nullptr, -1, nullptr),
          "aft::reset: argument 'stream': expected a stream, got a null pointer");
  refused(aft_stream_reset(&stream, 2, nullptr), "aft::reset: argument 'slot': expected slots from 0 to 1, got 2");
  refused(
      aft_stream_position(&stream, 1, &number, nullptr),
      "aft::position: argument 'stream': expected slot 1 to have the header that aft::reset writes, got other bytes");
  state.shape = tight;
  refused(aft_stream_reset(&stream, -1, nullptr), "aft::reset: argument 'state': expected extent 1 (bytes) to be " +
                                                      std::to_string(bytes) + ", got " + std::to_string(bytes - 64));
  state.shape = shape;
  refused(aft_stream_copy(&stream, nullptr, nullptr, nullptr),
          "aft::copy: argument 'from': expected a tensor, got a null pointer");
  CHECK(aft_stream_reset(&stream, -1, nullptr) == AFT_OK);
  CHECK(aft_stream_position(&stream, 1, &number, nullptr) == AFT_OK);
  CHECK(number == 0);
}

TEST_CASE("each thread has its own last error, which a call that succeeds leaves alone") {
  call here;
  here.q.value.ndim = 1;
  CHECK(here.code() == AFT_SHAPE_ERROR);
  const std::string text = aft_last_error();
  std::string before, after;
  std::thread other([&] {
    before = aft_last_error();
    call there;
    there.k.value.ndim = 1;
    there.code();
    after = aft_last_error();
  });
  other.join();
  CHECK(before.empty());
  CHECK(after == "aft::full: argument 'k': expected rank 2 or 3, got 1");
  CHECK(aft_last_error() == text);
  here.q.value.ndim = 3;
  CHECK(here.code() == AFT_OK);
  CHECK(aft_last_error() == text);
}

TEST_CASE("no memory for scratch") {
  // A map keeps two numbers for each key, here more than an address can name. Inputs show one key again and again, and
  // the output has none of the memory that it claims: nothing is touched before there is scratch.
  call c;
  constexpr std::int64_t keys = std::int64_t{1} << 45;
  c_tensor k = c.tensor({1, keys, 1}), w = c.tensor({1, keys}), out = c.tensor({1, keys, 1}, true);
  k.strides[1] = w.strides[1] = 0;
  const aft_bias bias{AFT_DENSE, w.get(), nullptr, nullptr};
  CHECK(aft_attention_map(k.get(), &bias, out.get(), nullptr) == AFT_OUT_OF_MEMORY);
  CHECK(std::string(aft_last_error()) == std::bad_alloc().what());
  CHECK(c.untouched());
}

TEST_CASE("the version and the instruction set") {
  CHECK(aft_version() == 10000 * AFT_VERSION_MAJOR + 100 * AFT_VERSION_MINOR + AFT_VERSION_PATCH);
  CHECK(std::string(aft_isa()).size() >= 2);
}
