// SPDX-License-Identifier: Apache-2.0
//
// Calls that are refused, and the texts of what they throw. The pages show what this prints.

#include <aft/aft.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

// 2 sequences of 6 positions and 8 channels; the data do not matter, as nothing is computed.
constexpr aft::index_t B = 2, T = 6, d = 8;
std::vector<float> memory(1 << 16);
using view = aft::tensor_view<float, 3>;

/// Tensors that lie apart from each other.
float* at(int place) {
  return memory.data() + 1024 * place;
}

template <class Call>
void refuse(const char* what, Call&& call) {
  try {
    call();
    std::printf("%s\n  is accepted\n\n", what);
  } catch (const aft::shape_error& e) {
    std::printf("%s\n  %s\n\n", what, e.what());
  }
}

}  // namespace

int main() {
  const view q{at(0), {B, T, d}}, k{at(1), {B, T, d}}, v{at(2), {B, T, d}}, y{at(3), {B, T, d}};
  const auto w = [](aft::index_t rows, aft::index_t columns) {
    return aft::dense_bias{aft::tensor_view<float, 2>{at(4), {rows, columns}}};
  };
  const auto heads = [](aft::index_t h) { return aft::dense_bias{aft::tensor_view<float, 3>{at(4), {h, T, T}}}; };

  std::printf("# full\n\n");
  refuse("w has too few keys", [&] { aft::full(q, k, v, w(T, T - 1), y); });
  refuse("3 heads for 8 channels", [&] { aft::full(q, k, v, heads(3), y); });
  refuse("v has another batch", [&] { aft::full(q, k, view{at(2), {B + 1, T, d}}, w(T, T), y); });
  refuse("factors of different rank", [&] {
    const aft::tensor_view<float, 2> u{at(4), {T, 3}}, other{at(5), {T, 4}};
    aft::full(q, k, v, aft::factorized_bias{u, other}, y);
  });
  refuse("y begins inside v", [&] { aft::full(q, k, v, w(T, T), view{at(2) + 4, {B, T, d}}); });
  refuse("y is broadcast", [&] { aft::full(q, k, v, w(T, T), view{at(3), {B, T, d}, {0, d, 1}}); });
  refuse("outside means nothing here",
         [&] { aft::full(q, k, v, w(T, T), y, aft::options{.outside = aft::outside::excluded}); });
  refuse("a negative number of threads", [&] { aft::full(aft::cpu{.threads = -1}, q, k, v, w(T, T), y); });

  std::printf("# local\n\n");
  const auto band = [](aft::index_t width) { return aft::banded_bias{aft::tensor_view<float, 2>{at(4), {T, width}}}; };
  refuse("5 columns for a window of 3", [&] { aft::local(q, k, v, band(5), aft::window::inclusive(1), y); });
  refuse("a window that ends before it begins",
         [&] { aft::local(q, k, v, w(T, T), aft::window{.before = 1, .after = -3}, y); });

  std::printf("# simple\n\n");
  refuse("3 key channels for 8 channels", [&] { aft::simple(q, view{at(1), {B, T, 3}}, v, y); });
  refuse("no data", [&] { aft::simple(q, view{nullptr, {B, T, d}}, v, y); });

  std::printf("# conv\n\n");
  const auto taps = [](aft::index_t h) { return aft::tensor_view<float, 2>{at(4), {h, 3}}; };
  const aft::tensor_view<float, 4> grid{at(0), {B, 2, 3, d}}, out{at(3), {B, 2, 3, d}};
  const aft::tensor_view<float, 3> square{at(4), {2, 3, 3}};
  refuse("3 heads for 8 channels", [&] { aft::conv(q, k, v, taps(3), y); });
  refuse("causal on a grid", [&] { aft::conv(grid, grid, grid, square, out, aft::options{.causal = true}); });
  refuse("first_query on a grid", [&] { aft::conv(grid, grid, grid, square, out, aft::options{.first_query = 1}); });

  std::printf("# options\n\n");
  const std::vector<std::int64_t> lengths(3);
  const std::vector<std::uint8_t> mask(T * T);
  refuse("a mask of the wrong size", [&] {
    aft::simple(q, k, v, y, aft::options{.mask = aft::as_view(mask.data(), {T, T - 1})});
  });
  refuse("lengths for 3 sequences",
         [&] { aft::simple(q, k, v, y, aft::options{.key_lengths = aft::as_view(lengths.data(), {3})}); });
  refuse("lse with a head that a key channel would have to share", [&] {
    const view lse{at(5), {B, T, 1}};
    aft::full(q, view{at(1), {B, T, 1}}, v, heads(2), y, aft::options{.lse = lse});
  });
  refuse("lse without average in a backward call", [&] {
    aft::simple_backward(q, k, v, y, aft::no_grad, aft::no_grad, view{at(6), {B, T, d}},
                         aft::options{.lse = view{at(5), {B, T, d}}});
  });
  refuse("slots without a stream",
         [&] { aft::simple(q, k, v, y, aft::options{.slot_ids = aft::as_view(lengths.data(), {3})}); });
  refuse("offsets that end too early", [&] {
    const view rows{at(0), {1, B * T, d}}, to{at(3), {1, B * T, d}};
    const std::vector<std::int64_t> offsets{0, 2, 5};
    aft::simple(rows, rows, rows, to, aft::options{.query_offsets = aft::as_view(offsets.data(), {3})});
  });

  std::printf("# tools\n\n");
  refuse("gain for another number of heads", [&] {
    const aft::tensor_view<float, 1> gain{at(5), {3}}, shift{at(6), {2}};
    aft::reparameterize(aft::tensor_view<float, 2>{at(4), {2, 3}}, gain, shift,
                        aft::tensor_view<float, 2>{at(7), {2, 3}});
  });
  refuse("a map of too few keys", [&] {
    aft::attention_map(k, w(T, T), aft::tensor_view<float, 4>{at(8), {B, T, T - 1, d}});
  });
  return 0;
}
