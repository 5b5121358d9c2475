// SPDX-License-Identifier: Apache-2.0
// With aft::cpu{.memory} a call takes nothing from the global operator new, which this program counts.
#include <aft/aft.hpp>
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "expect_error.hpp"

namespace {

long taken = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++taken;
  if (void* const p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++taken;
  const auto step = static_cast<std::size_t>(alignment);
  if (void* const p = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace {

using aft::index_t;
using aft::test::check_parts;
using aft::test::error_of;

/// How often `call` takes memory when its executor has a buffer of its own; one thread, as a team is the runtime's.
template <class F>
long taken_by(const F& call) {
  static std::array<std::byte, std::size_t{1} << 20> room;
  std::pmr::monotonic_buffer_resource memory(room.data(), room.size(), std::pmr::null_memory_resource());
  const aft::cpu exec{.threads = 1, .memory = &memory};
  const long before = taken;
  call(exec);
  return taken - before;
}

/// As much as is asked for, none of it from operator new.
class own_memory final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    return p != nullptr ? p : throw std::bad_alloc();
  }
  void do_deallocate(void* p, std::size_t, std::size_t) override { std::free(p); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

using in = aft::tensor_view<const float, 3>;
using out = aft::tensor_view<float, 3>;

/// Slots, which begin where 64 bytes do.
class slot_memory {
 public:
  slot_memory(const aft::stream_spec& spec, index_t slots)
      : spec_(spec), slots_(slots), lines_(static_cast<std::size_t>(slots * spec.bytes() / 64)) {}

  aft::stream_view<> view() { return {spec_, lines_.data(), slots_}; }

 private:
  struct alignas(64) line {
    std::byte bytes[64];
  };
  aft::stream_spec spec_;
  index_t slots_;
  std::vector<line> lines_;
};

}  // namespace

TEST_CASE("allocations: what the standard library takes is counted") {
  CHECK(taken_by([](const aft::cpu&) { std::vector<int>(3).front() = 1; }) == 1);
}

TEST_CASE("allocations: none for a sparse filter, with taps in any order") {
  std::vector<float> x(60, 0.5f), y(60), dx(180), values(12, 0.25f), dvalues(12);
  const std::vector<std::int32_t> taps{-1, 2, 0, -3, 4, 1, 5, -2, 3, -4, 6, -5};
  const in q{x.data(), {2, 5, 6}};
  const aft::sparse_filter filter{aft::tensor_view<const std::int32_t, 2>{taps.data(), {2, 6}},
                                  aft::tensor_view<const float, 2>{values.data(), {2, 6}}};
  CHECK(taken_by([&](const aft::cpu& exec) { aft::conv(exec, q, q, q, filter, out{y.data(), {2, 5, 6}}); }) == 0);
  const auto gradient = [&](index_t i) { return out{dx.data() + 60 * i, {2, 5, 6}}; };
  CHECK(taken_by([&](const aft::cpu& exec) {
          aft::conv_backward(exec, q, q, q, filter, q, gradient(0), gradient(1), gradient(2),
                             aft::tensor_view<float, 2>{dvalues.data(), {2, 6}});
        }) == 0);
  // Packed, each sequence has scratch of its own length, from what trials measured.
  const std::vector<std::int32_t> offsets{0, 1, 6, 6, 8, 10};
  const in rows{x.data(), {1, 10, 6}};
  const auto of_rows = [&](index_t i) { return out{dx.data() + 60 * i, {1, 10, 6}}; };
  CHECK(taken_by([&](const aft::cpu& exec) {
          aft::conv_backward(
              exec, rows, rows, rows, filter, rows, of_rows(0), of_rows(1), of_rows(2),
              aft::tensor_view<float, 2>{dvalues.data(), {2, 6}},
              aft::options{.query_offsets = aft::tensor_view<const std::int32_t, 1>{offsets.data(), {6}}});
        }) == 0);
}

TEST_CASE("allocations: none for slots in any order, nor for copies of them") {
  constexpr index_t slots = 4;
  slot_memory memory(aft::stream_spec::simple<float>(6, 6), slots);
  const aft::stream_view<> stream = memory.view();
  std::vector<float> x(36, 0.5f), y(36);
  const in q{x.data(), {3, 2, 6}};
  const std::vector<std::int32_t> ids{3, 0, 2}, from{2, 0}, to{3, 1};
  const auto numbers = [](const std::vector<std::int32_t>& of) {
    return aft::tensor_view<const std::int32_t, 1>{of.data(), {static_cast<index_t>(of.size())}};
  };
  CHECK(taken_by([&](const aft::cpu& exec) {
          aft::reset(exec, stream);
          aft::simple(exec, q, q, q, out{y.data(), {3, 2, 6}},
                      aft::options{.causal = true, .stream = stream, .slot_ids = numbers(ids)});
          aft::copy(exec, stream, numbers(from), numbers(to));
        }) == 0);
}

TEST_CASE("allocations: none for packed calls where the longest sequence, or its first rows, is not what takes most") {
  using rows = aft::tensor_view<const float, 2>;
  using result = aft::tensor_view<float, 2>;
  own_memory memory;
  const auto packed = [](const std::vector<std::int64_t>& offsets) {
    return aft::options{.query_offsets = aft::tensor_view<const std::int64_t, 1>{
                            offsets.data(), {static_cast<index_t>(offsets.size())}}};
  };
  {
    // A gradient of the bias that is summed a block of rows at a time.
    constexpr index_t T = 897, d = 22, H = 11, most = 868;
    const std::vector<std::int64_t> offsets{0, 868, 892, 897};
    const std::vector<float> x(T * d, 0.5f), w(H * most * most, 0.1f);
    std::vector<float> gradient(3 * T * d), dw(w.size());
    const rows q{x.data(), {T, d}};
    const auto to = [&](index_t i) { return result{gradient.data() + i * T * d, {T, d}}; };
    const aft::options packed_so = packed(offsets);
    for (const int threads : {1, 2}) {
      const long before = taken;
      aft::local_backward(aft::cpu{.threads = threads, .memory = &memory}, q, q, q,
                          aft::dense_bias{in{w.data(), {H, most, most}}}, aft::window{115, 2}, q, to(0), to(1), to(2),
                          aft::dense_bias{out{dw.data(), {H, most, most}}}, packed_so);
      CHECK(taken == before);
    }
  }
  {
    // The same gradient, given row by row: those of the first block reach half as many keys as those of the second.
    constexpr index_t T = 4305;
    const std::vector<std::int64_t> offsets{0, 4300, 4305};
    const std::vector<float> x(T, 0.5f);
    std::vector<float> gradient(3 * T);
    const rows q{x.data(), {T, 1}};
    const auto to = [&](index_t i) { return result{gradient.data() + i * T, {T, 1}}; };
    const aft::options packed_so = packed(offsets);
    index_t rows_given = 0;
    const auto w = [](index_t, index_t, index_t, index_t, std::span<float> row) noexcept {
      std::fill(row.begin(), row.end(), 0.1f);
    };
    const auto dw = [&](index_t, index_t, index_t, index_t, index_t, std::span<const float>) noexcept { ++rows_given; };
    const long before = taken;
    aft::local_backward(aft::cpu{.threads = 1, .memory = &memory}, q, q, q, aft::generated_bias{1, w},
                        aft::window{4000, 0}, q, to(0), to(1), to(2), aft::generated_bias_gradient{dw, 1}, packed_so);
    CHECK(taken == before);
    CHECK(rows_given > 0);
  }
  {
    // Terms of 512 keys are kept, those of more are not.
    constexpr index_t T = 890, d = 77;
    const std::vector<std::int64_t> offsets{0, 529, 890};
    const std::vector<float> x(T * d, 0.5f), value{0.1f};
    std::vector<float> y(x.size());
    const std::int64_t tap = -7;
    const rows q{x.data(), {T, d}};
    const aft::options packed_so = packed(offsets);
    const long before = taken;
    aft::conv(aft::cpu{.threads = 1, .memory = &memory}, q, q, q,
              aft::sparse_filter{aft::tensor_view<const std::int64_t, 2>{&tap, {1, 1}}, rows{value.data(), {1, 1}}},
              result{y.data(), {T, d}}, packed_so);
    CHECK(taken == before);
  }
}

TEST_CASE("many taps and many slots: one that is named twice is found however far apart the names are") {
  constexpr index_t m = 1500;
  std::vector<std::int32_t> taps(m);
  std::iota(taps.begin(), taps.end(), -700);
  std::swap(taps[3], taps[1300]);
  const std::vector<float> x(12, 0.5f), values(m, 0.25f);
  std::vector<float> y(12);
  const in q{x.data(), {1, 4, 3}};
  const auto conv = [&] {
    return error_of([&] {
      aft::conv(q, q, q,
                aft::sparse_filter{aft::tensor_view<const std::int32_t, 2>{taps.data(), {1, m}},
                                   aft::tensor_view<const float, 2>{values.data(), {1, m}}},
                out{y.data(), {1, 4, 3}});
    });
  };
  CHECK(conv() == "no shape_error");
  for (const auto& [one, other] :
       {std::pair<std::size_t, std::size_t>{0, 1499}, {511, 512}, {600, 1030}, {1025, 1498}}) {
    const std::int32_t kept = taps[other];
    taps[other] = taps[one];
    check_parts(conv(), {"'taps' of filter", "every offset once in a head", "twice in head 0"});
    taps[other] = kept;
  }

  constexpr index_t slots = 40000;
  slot_memory memory(aft::stream_spec::simple<float>(1, 1), slots);
  const aft::stream_view<> stream = memory.view();
  aft::reset(aft::cpu{}, stream);
  const auto stream_call = [&](const std::array<std::int32_t, 4>& ids) {
    const std::vector<float> one(4, 0.5f);
    std::vector<float> to(4);
    const in x1{one.data(), {4, 1, 1}};
    return error_of([&] {
      aft::simple(
          x1, x1, x1, out{to.data(), {4, 1, 1}},
          aft::options{
              .causal = true, .stream = stream, .slot_ids = aft::tensor_view<const std::int32_t, 1>{ids.data(), {4}}});
    });
  };
  CHECK(stream_call({39000, 5, 39001, 6}) == "no shape_error");
  CHECK(stream_call({32768, -1, 0, -1}) == "no shape_error");
  check_parts(stream_call({39000, 5, 6, 39000}), {"'slot_ids'", "slot 39000 twice"});
  check_parts(stream_call({32767, 39000, 6, 32767}), {"'slot_ids'", "slot 32767 twice"});
}
