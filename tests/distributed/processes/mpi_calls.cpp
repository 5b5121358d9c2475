// SPDX-License-Identifier: Apache-2.0
// Started by mpiexec: what processes give has the bits of what threads give for the same cut, which other tests compare
// with the reference.
#include <aft/distributed/mpi.hpp>

#include <doctest/doctest.h>

#include <cmath>

#include "call/cases.hpp"
#include "engines/own_engine.hpp"
#include "distributed/typed_split.hpp"

using namespace aft::test;
using aft::index_t;

static_assert(aft::starting_communicator<const aft::mpi_ref>);

namespace {

/// MPI for as long as the program lives.
const struct mpi_session {
  mpi_session() { MPI_Init(nullptr, nullptr); }
  ~mpi_session() { MPI_Finalize(); }
} session;

std::size_t own_rank() {
  return static_cast<std::size_t>(aft::mpi_ref{MPI_COMM_WORLD}.rank());
}
int rank_count() {
  return aft::mpi_ref{MPI_COMM_WORLD}.size();
}

/// Of all ranks this process is one.
struct process_ranks {
  explicit process_ranks(std::size_t) {}
  static aft::mpi_ref communicator(std::size_t, traffic&) { return {MPI_COMM_WORLD}; }
  template <class F>
  void run(const F& f) const {
    f(own_rank());
  }
};

/// Every rank's values, which hold the tests' values exactly.
std::vector<std::vector<double>> of_all_ranks(const std::vector<long double>& own) {
  const std::vector<double> mine(own.begin(), own.end());
  std::vector<double> all(mine.size() * static_cast<std::size_t>(rank_count()));
  const int n = static_cast<int>(mine.size());
  MPI_Allgather(mine.data(), n, MPI_DOUBLE, all.data(), n, MPI_DOUBLE, MPI_COMM_WORLD);
  std::vector<std::vector<double>> result;
  for (std::size_t r = 0; r < static_cast<std::size_t>(rank_count()); ++r)
    result.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(r * mine.size()),
                        all.begin() + static_cast<std::ptrdiff_t>((r + 1) * mine.size()));
  return result;
}

/// Every element is written by one rank, what nobody wrote is NaN, and all have the bits of `expected`.
void expect_parts(const char* name, strided<float>& own, const std::vector<long double>& expected) {
  if (own.extents().empty()) return;
  const auto all = of_all_ranks(own.read());
  index_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    int writers = 0;
    for (const auto& values : all) {
      if (std::isnan(values[i])) continue;
      ++writers;
      if (values[i] != static_cast<double>(expected[i])) ++wrong;
    }
    if (writers != 1) ++wrong;
  }
  CAPTURE(name);
  CHECK(wrong == 0);
}

/// Every rank has all of it.
void expect_whole(const char* name, strided<float>& own, const std::vector<long double>& expected) {
  if (own.extents().empty()) return;
  CAPTURE(name);
  CHECK(own.read() == expected);
}

void compare(const setup& s) {
  const numbers x = random_numbers(s);
  const split_lengths cut = random_lengths(s, rank_count(), 17);
  CAPTURE(describe(completed(s), aft::dtype::f32));

  const results forward = split_forward(aft::dtype::f32, s, x, cut).joint;
  typed_split<float, process_ranks> forward_run(s, x, cut);
  CHECK(forward_run.forward().thrown[own_rank()] == "");
  expect_parts("y", forward_run.call().y, forward.y);

  const results backward = split_backward(aft::dtype::f32, s, x, cut).joint;
  typed_split<float, process_ranks> run(s, x, cut);
  CHECK(run.backward_alone().thrown[own_rank()] == "");
  typed_call<float>& tensors = run.call();
  expect_parts("dq", tensors.dq, backward.dq);
  expect_parts("dk", tensors.dk, backward.dk);
  expect_parts("dv", tensors.dv, backward.dv);
  expect_parts("dw", tensors.dw, backward.dw);
  expect_whole("du", run.du(own_rank()), backward.du);
  expect_whole("dv_factor", run.df(own_rank()), backward.df);
  expect_whole("dr", run.dr(own_rank()), backward.dr);
}

}  // namespace

TEST_CASE("processes give the bits of threads") {
  for (const bool causal : {false, true}) {
    for (setup s : every_operator(causal)) {
      s.save = false;
      compare(s);
    }
  }
}

TEST_CASE("records of more bytes than an int counts are gathered in one") {
  // Thirteen bytes as three pieces of four and a rest.
  MPI_Datatype type = aft::mpi_detail::bytes_as_one(13, 4);
  std::vector<char> own(13), all(13 * static_cast<std::size_t>(rank_count()));
  for (std::size_t i = 0; i < own.size(); ++i) own[i] = static_cast<char>(100 * own_rank() / 7 + i);
  MPI_Allgather(own.data(), 1, type, all.data(), 1, type, MPI_COMM_WORLD);
  MPI_Type_free(&type);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<char>(100 * (i / 13) / 7 + i % 13));
}

TEST_CASE("an error of one process is thrown by all") {
  std::vector<float> numbers(12, 1);
  const auto view = [&](index_t T) { return aft::tensor_view<float, 2>{numbers.data(), {T, 2}}; };
  std::vector<float> out(12, 7);
  const index_t keys = own_rank() == 1 ? 5 : 6;
  std::string thrown;
  try {
    aft::simple(aft::split{aft::cpu{.threads = 1}, aft::mpi_ref{MPI_COMM_WORLD}}, view(6), view(keys), view(6),
                aft::tensor_view<float, 2>{out.data(), {6, 2}});
  } catch (const aft::shape_error& e) {
    thrown = e.what();
  }
  CHECK(thrown.find("rank 1: aft::simple: argument 'k'") == 0);
  CHECK(out == std::vector<float>(12, 7));
}
