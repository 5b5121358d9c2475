// SPDX-License-Identifier: Apache-2.0
// as_view of Eigen objects. aft.hpp comes first on purpose: the order of includes must not matter.
#include "engines/engine.hpp"

#include <Eigen/Core>
#include <unsupported/Eigen/CXX11/Tensor>

#include <doctest/doctest.h>

#include <cmath>
#include <type_traits>
#include <vector>

namespace {

using aft::index_t;

// A view shows the same elements as the matrix that it was made from.
template <class View, class Matrix>
void check_same(const View& v, const Matrix& m) {
  REQUIRE(v.extent(0) == m.rows());
  REQUIRE(v.extent(1) == m.cols());
  for (index_t i = 0; i < v.extent(0); ++i) {
    for (index_t j = 0; j < v.extent(1); ++j) CHECK(&v(i, j) == &m.coeffRef(i, j));
  }
}

template <class View>
inline constexpr bool shows_const = std::is_const_v<typename View::element_type>;

}  // namespace

TEST_CASE("matrices and arrays in either storage order") {
  Eigen::MatrixXf columns = Eigen::MatrixXf::Random(3, 4);
  Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows(3, 4);
  Eigen::Array<float, 2, 5> fixed;
  check_same(aft::as_view(columns), columns);
  check_same(aft::as_view(rows), rows);
  check_same(aft::as_view(fixed), fixed);
  CHECK(aft::as_view(columns).stride(0) == 1);
  CHECK(aft::as_view(rows).stride(1) == 1);
  static_assert(std::is_same_v<decltype(aft::as_view(columns)), aft::tensor_view<float, 2>>);
  static_assert(std::is_same_v<decltype(aft::as_view(std::as_const(rows))), aft::tensor_view<const double, 2>>);
}

TEST_CASE("blocks, transposes and references keep strides and constness") {
  Eigen::MatrixXf m = Eigen::MatrixXf::Random(6, 5);
  const Eigen::MatrixXf& read_only = m;
  auto block = m.block(1, 2, 3, 2);
  check_same(aft::as_view(block), block);
  CHECK(aft::as_view(m.block(1, 2, 3, 2)).data() == &m(1, 2));
  auto transposed = m.transpose();
  check_same(aft::as_view(transposed), transposed);
  Eigen::Ref<Eigen::MatrixXf> ref(m);
  check_same(aft::as_view(ref), ref);
  static_assert(shows_const<decltype(aft::as_view(read_only.block(0, 0, 2, 2)))>);
  static_assert(!shows_const<decltype(aft::as_view(m.block(0, 0, 2, 2)))>);
}

TEST_CASE("maps with any strides") {
  std::vector<float> memory(100);
  using strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  Eigen::Map<Eigen::MatrixXf, 0, strides> padded(memory.data(), 3, 4, strides(20, 2));
  check_same(aft::as_view(padded), padded);
  CHECK(aft::as_view(padded).strides() == std::array<index_t, 2>{2, 20});
  using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Eigen::Map<row_major, 0, Eigen::OuterStride<>> pitched(memory.data(), 4, 3, Eigen::OuterStride<>(10));
  check_same(aft::as_view(pitched), pitched);
  static_assert(shows_const<decltype(aft::as_view(Eigen::Map<const Eigen::MatrixXf>(memory.data(), 3, 4)))>);
}

TEST_CASE("vectors have rank 1") {
  Eigen::VectorXf column(5);
  Eigen::MatrixXf m(4, 3);
  CHECK(aft::as_view(column).extents() == std::array<index_t, 1>{5});
  const auto row = aft::as_view(m.row(2));
  CHECK(row.extents() == std::array<index_t, 1>{3});
  CHECK(row.strides() == std::array<index_t, 1>{4});
  CHECK(&row(1) == &m(2, 1));
}

TEST_CASE("tensors in either storage order, maps of tensors") {
  Eigen::Tensor<float, 3> columns(2, 3, 4);
  Eigen::Tensor<double, 3, Eigen::RowMajor> rows(2, 3, 4);
  std::vector<float> memory(24);
  Eigen::TensorMap<Eigen::Tensor<float, 4>> map(memory.data(), 2, 3, 2, 2);
  using fixed = Eigen::TensorFixedSize<float, Eigen::Sizes<2, 3>>;
  static_assert(aft::detail::eigen_owner<fixed> && aft::detail::eigen_owner<Eigen::Tensor<float, 4>&>);
  static_assert(!aft::detail::eigen_owner<decltype(map)> && !aft::detail::eigen_owner<Eigen::TensorMap<const fixed>>);
  const auto a = aft::as_view(columns);
  const auto b = aft::as_view(rows);
  const auto c = aft::as_view(map);
  CHECK(a.strides() == std::array<index_t, 3>{1, 2, 6});
  CHECK(b.strides() == std::array<index_t, 3>{12, 4, 1});
  CHECK(c.extents() == std::array<index_t, 4>{2, 3, 2, 2});
  CHECK(&a(1, 2, 3) == &columns(1, 2, 3));
  CHECK(&b(1, 2, 3) == &rows(1, 2, 3));
  CHECK(&c(1, 2, 1, 1) == &map(1, 2, 1, 1));
  static_assert(shows_const<decltype(aft::as_view(std::as_const(columns)))>);
  static_assert(!shows_const<decltype(aft::as_view(map))>);
  static_assert(
      shows_const<decltype(aft::as_view(Eigen::TensorMap<Eigen::Tensor<const float, 2>>(memory.data(), 2, 3)))>);
}

TEST_CASE("a view is its own view") {
  float x = 1;
  const aft::tensor_view<float, 1> v{&x, {1}};
  CHECK(aft::as_view(v).data() == &x);
}

TEST_CASE("a call on Eigen objects gives what the same call on plain memory gives") {
  const index_t T = 9, d = 6;
  const Eigen::MatrixXf q = Eigen::MatrixXf::Random(T, d), k = Eigen::MatrixXf::Random(T, d),
                        v = Eigen::MatrixXf::Random(T, d);
  const Eigen::Matrix<float, -1, -1, Eigen::RowMajor> w = Eigen::MatrixXf::Random(T, T);
  Eigen::MatrixXf y(T, d);
  aft::full(aft::cpu{}, aft::as_view(q), aft::as_view(k), aft::as_view(v), aft::dense_bias{aft::as_view(w)},
            aft::as_view(y));
  for (index_t t = 0; t < T; ++t) {
    for (index_t c = 0; c < d; ++c) {
      double num = 0, den = 0;
      for (index_t s = 0; s < T; ++s) {
        const double e = std::exp(static_cast<double>(k(s, c)) + static_cast<double>(w(t, s)));
        num += e * static_cast<double>(v(s, c));
        den += e;
      }
      const double expected = num / den / (1 + std::exp(-static_cast<double>(q(t, c))));
      CHECK(static_cast<double>(y(t, c)) == doctest::Approx(expected).epsilon(1e-5));
    }
  }
}
