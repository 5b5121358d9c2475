// SPDX-License-Identifier: Apache-2.0
// Single instructions of opcodes.ptx, held to what the PTX manual says of them, and the adders of tensor cores to what
// tells the published models apart.
#include <doctest/doctest.h>

#include <aft/core/numeric.hpp>

#include <device_emulator.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <launch.hpp>
#include <spaces.hpp>
#include <tensor_cores.hpp>

namespace ptx = aft::ptx;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

/// Memory that kernels may reach.
template <class T>
struct reached {
  std::vector<T> data;

  explicit reached(std::vector<T> x) : data(std::move(x)) {
    ptx::global_memory::add(data.data(), data.size() * sizeof(T));
  }
  reached(const reached&) = delete;
  reached& operator=(const reached&) = delete;
  ~reached() { (void)ptx::global_memory::remove(data.data()); }
};

/// An element of bytes that a kernel has written.
template <class T>
T at(const std::vector<std::uint64_t>& bytes, std::size_t place) {
  T x;
  std::memcpy(&x, reinterpret_cast<const char*>(bytes.data()) + place, sizeof x);
  return x;
}

template <class T>
std::vector<std::uint64_t> run(const char* name, std::vector<T> in, int threads = 1, std::size_t words = 16) {
  ptx::use_architecture("sm_90a");
  const ptx::kernel_entry* const kernel = ptx::find_kernel(name);
  REQUIRE(kernel != nullptr);
  reached<T> from(std::move(in));
  reached<std::uint64_t> to(std::vector<std::uint64_t>(words, 0x5555555555555555u));
  const void* first = from.data.data();
  void* second = to.data.data();
  void* arguments[] = {&first, &second};
  if (kernel->parameters.size() == 1) arguments[0] = &second;
  ptx::launch(*kernel, 1, threads, arguments, 0);
  return to.data;
}

}  // namespace

TEST_CASE("ptx: integers wrap, shifts stop at the width, and halves are where the manual has them") {
  const std::int32_t numbers[] = {0, 1, -1, 7, -7, 31, 32, 33, 0x12345678, -0x12345678, 0x7fffffff, -0x7fffffff - 1};
  for (std::int32_t a : numbers)
    for (std::int32_t b : numbers) {
      CAPTURE(a);
      CAPTURE(b);
      const auto got = run<std::int32_t>("integers", {a, b});
      const auto ua = static_cast<std::uint32_t>(a), ub = static_cast<std::uint32_t>(b);
      const std::int64_t product = std::int64_t{a} * b;
      CHECK(at<std::uint32_t>(got, 0) == ua - ub);
      CHECK(at<std::uint32_t>(got, 4) == ua * ub);
      CHECK(at<std::int32_t>(got, 8) == static_cast<std::int32_t>(product >> 32));
      CHECK(at<std::int64_t>(got, 16) == product);
      CHECK(at<std::uint64_t>(got, 24) == std::uint64_t{ua} * ub);
      CHECK(at<std::uint32_t>(got, 32) == ua * ub + 5);
      CHECK(at<std::uint32_t>(got, 36) == (ub > 31 ? 0 : ua << ub));
      CHECK(at<std::int32_t>(got, 40) == (ub > 31 ? (a < 0 ? -1 : 0) : a >> ub));
      CHECK(at<std::uint32_t>(got, 44) == (ub > 31 ? 0 : ua >> ub));
      std::uint32_t mirrored = 0;
      for (int i = 0; i < 32; ++i) mirrored |= (ua >> i & 1) << (31 - i);
      CHECK(at<std::uint32_t>(got, 48) == mirrored);
      CHECK(at<std::uint32_t>(got, 52) == (a == 0 ? 0xffffffffu : static_cast<std::uint32_t>(std::countl_zero(ua))));
      // The first of a pair is in the low bits.
      const std::uint64_t both = std::uint64_t{ub} << 32 | ua;
      CHECK(at<std::uint32_t>(got, 56) == static_cast<std::uint32_t>(std::countl_zero(both)));
      CHECK(at<std::uint32_t>(got, 64) == ub);
      CHECK(at<std::uint32_t>(got, 68) == ua);
      CHECK(at<std::uint64_t>(got, 72) == both << 60);
      CHECK(at<std::int32_t>(got, 80) == a >> 24);
      CHECK(at<std::uint32_t>(got, 84) == ua >> 24);
      CHECK(at<std::uint32_t>(got, 88) == (a < b ? 1 : 0));
      CHECK(at<std::uint32_t>(got, 92) == (ua < ub ? 1 : 0));
      CHECK(at<std::int32_t>(got, 96) == (a < b ? a : 0x55555555));
      CHECK(at<std::uint32_t>(got, 100) == (a < 0 ? 0 - ua : ua));
    }
}

TEST_CASE("ptx: quotients go towards 0, and one by 0 is an error") {
  for (std::int64_t a : {std::int64_t{7}, std::int64_t{-7}, std::int64_t{1} << 40})
    for (std::int64_t b : {std::int64_t{3}, std::int64_t{-3}, std::int64_t{-1}, std::int64_t{1} << 33}) {
      const auto got = run<std::int64_t>("quotients", {a, b});
      CHECK(at<std::int64_t>(got, 0) == a / b);
      CHECK(at<std::int64_t>(got, 8) == a % b);
    }
  CHECK_THROWS_AS(run<std::int64_t>("quotients", {1, 0}), aft::emulator::kernel_error);
}

TEST_CASE("ptx: floats compare, convert and round as the manual says, NaN included") {
  const float numbers[] = {0,          -0.0f,        1,         -1,         1.5f,       2.5f,  -2.5f,
                           1e10f,      -1e10f,       0x1p-130f, 0x1.802p0f, 0x1.008p0f, 65519, 65520.0f,
                           0x1.001p0f, 0x1.fffp127f, infinity,  -infinity,  no_number};
  for (float a : numbers)
    for (float b : {1.0f, -1.0f, 3.0f, no_number, -0.0f, infinity, a}) {
      CAPTURE(a);
      CAPTURE(b);
      const auto got = run<float>("floats", {a, b});
      const bool nan = std::isnan(a) || std::isnan(b);
      const bool ordered[] = {a == b, !nan && a != b, a<b, a <= b, a> b, a >= b};
      unsigned bits = 0;
      for (unsigned i = 0; i < 6; ++i) bits |= (ordered[i] ? 1u : 0u) << i | (nan || ordered[i] ? 1u : 0u) << (6 + i);
      CHECK(at<std::uint32_t>(got, 0) == (bits | (nan ? 8192u : 4096u)));
      const auto same = [](float x, float y) {
        return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
      };
      const float larger = at<float>(got, 4), smaller = at<float>(got, 8);
      if (std::isnan(a) && std::isnan(b)) {
        CHECK((std::isnan(larger) && std::isnan(smaller)));
      } else if (nan) {
        CHECK(same(larger, std::isnan(a) ? b : a));
        CHECK(same(smaller, std::isnan(a) ? b : a));
      } else {
        CHECK((larger >= a && larger >= b && smaller <= a && smaller <= b));
        if (a == 0 && b == 0) CHECK(std::signbit(larger) == (std::signbit(a) && std::signbit(b)));
      }
      const double whole = std::trunc(static_cast<double>(a));
      const double most = 2147483647, least = -2147483648.0;
      const double kept = std::isnan(a) ? 0 : std::fmax(least, std::fmin(most, whole));
      CHECK(at<std::int32_t>(got, 12) == static_cast<std::int32_t>(kept));
      if (std::isnan(a)) {
        CHECK(at<std::uint16_t>(got, 16) == 0x7fff);
        CHECK(at<std::uint16_t>(got, 18) == 0x7fff);
      } else {
        CHECK(at<std::uint16_t>(got, 16) == aft::half(a).bits);
        CHECK(at<std::uint16_t>(got, 18) == aft::bfloat16(a).bits);
      }
      if (!nan) {
        const double exact = std::fma(static_cast<double>(a), static_cast<double>(a), static_cast<double>(b));
        if (std::isfinite(exact) && a != 0x1.802p0f) CHECK(at<float>(got, 24) == std::fma(a, a, b));
      }
      CHECK(same(at<float>(got, 40), std::isnan(a) ? at<float>(got, 40) : std::fabs(a)));
      if (!std::isnan(a)) CHECK(at<float>(got, 44) == a + 1);
    }
  // Ties away from 0, of 11 bits.
  CHECK(at<std::uint32_t>(run<float>("floats", {1 + 0x1p-11f, 1}), 20) == std::bit_cast<std::uint32_t>(1 + 0x1p-10f));
  CHECK(at<std::uint32_t>(run<float>("floats", {-1 - 0x1p-11f, 1}), 20) == std::bit_cast<std::uint32_t>(-1 - 0x1p-10f));
  CHECK(at<std::uint32_t>(run<float>("floats", {1 + 0x1.fcp-12f, 1}), 20) == std::bit_cast<std::uint32_t>(1.0f));
}

TEST_CASE("ptx: what hardware approximates is within the manual's bounds, and not exact") {
  long double worst[3]{};
  for (int i = 1; i <= 400; ++i) {
    const float a = 0.017f * static_cast<float>(i), b = 3.7f / static_cast<float>(i);
    const auto got = run<float>("floats", {a, b});
    const auto off = [](long double x, long double exact) { return std::abs(x - exact); };
    const long double quotient = static_cast<long double>(a) / b, power = std::exp2(static_cast<long double>(a));
    worst[0] = std::max(worst[0], off(at<float>(got, 28), quotient) / quotient);
    worst[1] = std::max(worst[1], off(at<float>(got, 32), power) / power);
    const long double log = std::log2(static_cast<long double>(a));
    worst[2] = std::max(worst[2], off(at<float>(got, 36), log) / (a >= 0.5f && a <= 2 ? 1 : std::abs(log)));
    const double inverse = at<double>(got, 48);
    CHECK(std::abs(inverse * static_cast<double>(a) - 1) <= 0x1p-19);
    CHECK((std::bit_cast<std::uint64_t>(inverse) & 0xffffffffu) == 0);
  }
  for (long double each : worst) CHECK((each <= 0x1p-22L && each > 0x1p-24L));
  CHECK(at<float>(run<float>("floats", {0, 1}), 32) == 1);
  CHECK(at<float>(run<float>("floats", {-infinity, 1}), 32) == 0);
  CHECK(at<float>(run<float>("floats", {0, 1}), 36) == -infinity);
  // Divisors beyond 2^126 give 0, as the manual warns.
  CHECK(at<float>(run<float>("floats", {1, 0x1p127f}), 28) == 0);
}

TEST_CASE("ptx: lanes exchange what the manual says") {
  constexpr int threads = 64;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    aft::emulator::seed(seed);
    const auto got = run<int>("exchanges", {0}, threads, threads * 4);
    for (std::uint32_t i = 0; i < threads; ++i) {
      const auto number = [&](std::size_t place) { return at<std::uint32_t>(got, 32 * i + place); };
      const std::uint32_t lane = i % 32, first = i - lane;
      CHECK(number(0) == (i ^ 5));
      CHECK(number(4) == first + 7);
      CHECK(number(8) == (lane + 3 <= 31 ? i + 3 : i));
      CHECK(number(12) == (lane + 3 <= 31 ? 1 : 0));
      CHECK(number(16) == (lane >= 3 ? i - 3 : i));
      CHECK(number(20) == (i < 32 ? 0u : 0xfffffe00u));
      CHECK(number(24) == 1);
      CHECK(number(28) == 1);
    }
  }
}

TEST_CASE("ptx: what is outside of memory, or not aligned, is an error that names the line") {
  ptx::use_architecture("sm_90a");
  const ptx::kernel_entry* const kernel = ptx::find_kernel("reaches");
  REQUIRE(kernel != nullptr);
  const auto reach = [&](std::uint32_t place, std::size_t words) {
    reached<std::uint64_t> to(std::vector<std::uint64_t>(words, 0));
    void* out = to.data.data();
    void* arguments[] = {&place, &out};
    ptx::launch(*kernel, 1, 1, arguments, 0);
    return to.data[place / 8] == 77;
  };
  CHECK(reach(0, 8));
  CHECK(reach(56, 8));
  CHECK_THROWS_WITH_AS(reach(64, 16), doctest::Contains("line 210 of the PTX: an access outside of the block's"),
                       aft::emulator::kernel_error);
  CHECK_THROWS_WITH_AS(reach(56, 7), doctest::Contains("outside of all device memory"), aft::emulator::kernel_error);
  CHECK_THROWS_WITH_AS(reach(4, 8), doctest::Contains("not aligned to 8 bytes"), aft::emulator::kernel_error);
}

TEST_CASE("ptx: a product of a warpgroup sees what threads have written behind a fence, and adds where it is told to") {
  ptx::use_architecture("sm_90a");
  const ptx::kernel_entry* const kernel = ptx::find_kernel("proxies");
  REQUIRE(kernel != nullptr);
  const auto sums = [&](std::uint32_t fenced) {
    reached<float> to(std::vector<float>(128, no_number));
    void* out = to.data.data();
    void* arguments[] = {&fenced, &out};
    ptx::launch(*kernel, 1, 128, arguments, 0);
    return to.data;
  };
  // Sixteen ones, taken from 5 or from nothing.
  CHECK(sums(1) == std::vector<float>(128, 5 - 16));
  CHECK(sums(2) == std::vector<float>(128, -16));
  CHECK_THROWS_WITH_AS(sums(0), doctest::Contains("what threads have written"), aft::emulator::kernel_error);
}

TEST_CASE("ptx: the adders of tensor cores cut where the published models do") {
  const auto sum = [](const ptx::adder& how, std::vector<float> a, float c) {
    std::vector<ptx::factor> left, right;
    for (float x : a) left.emplace_back(x);
    right.assign(left.size(), ptx::factor(1));
    return ptx::add_products(how, left.data(), right.data(), static_cast<int>(left.size()), c);
  };
  ptx::use_architecture("sm_80");
  const ptx::adder first = ptx::adder_of(ptx::operand_kind::bfloat16);
  CHECK(ptx::adder_of(ptx::operand_kind::tf32).block == 4);
  ptx::use_architecture("sm_90a");
  const ptx::adder second = ptx::adder_of(ptx::operand_kind::bfloat16);
  CHECK(ptx::adder_of(ptx::operand_kind::tf32).block == 8);
  // One bit more than a float has, and two.
  CHECK(sum(first, {0x1p-24f, 0x1p-24f}, 1) == 1 + 0x1p-23f);
  CHECK(sum(first, {0x1p-25f, 0x1p-25f, 0x1p-25f, 0x1p-25f}, 1) == 1);
  CHECK(sum(second, {0x1p-25f, 0x1p-25f, 0x1p-25f, 0x1p-25f}, 1) == 1 + 0x1p-23f);
  CHECK(sum(second, std::vector<float>(8, 0x1p-26f), 1) == 1);
  // Between its two blocks of eight the first cuts a sum to float, which the other does not have to.
  std::vector<float> apart(16, 0.0f);
  apart[0] = 0x1p24f;
  apart[8] = -0x1p24f;
  CHECK(sum(first, apart, 1) == 0);
  CHECK(sum(second, apart, 1) == 1);
  // Towards 0 for either sign; and what no float can hold.
  CHECK(sum(second, {-0x1.8p-24f}, -1) == -1);
  CHECK(sum(first, {0x1p127f, 0x1p127f}, 0) == infinity);
  CHECK(std::isnan(sum(first, {infinity}, -infinity)));
  CHECK(sum(first, {-infinity}, 1) == -infinity);
  CHECK(sum(first, {0x1p-149f}, 0x1p-149f) == 0x1p-148f);
}
