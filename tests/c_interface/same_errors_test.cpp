// SPDX-License-Identifier: Apache-2.0
// What C++ refuses when it runs, C refuses with the same text, and writes nothing.
#include "support/expect_error.hpp"

#include "dlpack_tensor.hpp"

#include <limits>
#include <cstdint>

namespace {

using aft::index_t;
using aft::test::c_options;
using aft::test::c_tensor;
using aft::test::canary;
using aft::test::error_of;
template <std::size_t Rank>
using in = aft::tensor_view<const float, Rank>;
template <std::size_t Rank>
using out = aft::tensor_view<float, Rank>;

constexpr index_t B = 2, T = 6, d = 4, hk = 2, H = 2, n = 3;

/// Valid calls, of which each case spoils one part; then both languages are asked.
struct calls {
  std::vector<float> memory = std::vector<float>(2000, 0.5F);
  canary<float> written{2000};
  int threads = 0;

  /// Memory of its own for each output.
  float* place(int i) { return written.data() + 150 * i; }

  in<3> q{memory.data(), {B, T, d}}, k{memory.data(), {B, T, hk}}, v{memory.data(), {B, T, d}};
  in<3> w{memory.data(), {H, T, T}}, band{memory.data(), {H, T, 3}}, u{memory.data(), {H, T, n}};
  in<3> factor{memory.data(), {H, T, n}}, dy{memory.data(), {B, T, d}};
  in<4> grid{memory.data(), {B, 2, 3, d}}, grid_k{memory.data(), {B, 2, 3, hk}};
  in<2> taps{memory.data(), {H, 3}};
  std::vector<std::int32_t> offsets{0, 1, -1, 0};
  aft::tensor_view<const std::int32_t, 2> sparse_taps{offsets.data(), {H, 2}};
  in<2> values{memory.data(), {H, 2}};
  in<3> plane{memory.data(), {H, 3, 3}};
  in<1> gain{memory.data(), {H}}, shift{memory.data(), {H}};
  out<3> y{place(0), {B, T, d}}, dq{place(1), {B, T, d}}, dk{place(2), {B, T, hk}}, dv{place(3), {B, T, d}};
  out<3> dw{place(4), {H, T, T}}, dband{place(5), {H, T, 3}}, du{place(6), {H, T, n}}, dfactor{place(7), {H, T, n}};
  out<2> dtaps{place(8), {H, 3}}, dvalues{place(8), {H, 2}};
  out<4> grid_y{place(9), {B, 2, 3, d}}, map{place(4), {1, T, T, d}};
  out<3> dplane{place(10), {H, 3, 3}};
  out<1> dgain{place(11), {H}}, dshift{place(12), {H}};
  aft::window win{1, 1};
  aft::options opt{};
  std::string spoken;  // what C++ said

  template <class InCpp, class InC>
  void same(const InCpp& in_cpp, const InC& in_c) {
    spoken = error_of(in_cpp);
    CHECK(written.untouched());
    const c_options o(opt, threads);
    const int code = in_c(&o.value);
    CHECK(spoken != "no shape_error");
    CHECK(code == AFT_SHAPE_ERROR);
    CHECK(spoken == aft_last_error());
    CHECK(written.untouched());
  }
  aft::cpu exec() const { return {.threads = threads}; }

  void full() {
    c_tensor cq(q), ck(k), cv(v), cw(w), cy(y);
    const aft_bias bias{AFT_DENSE, cw.get(), nullptr, nullptr};
    same([&] { aft::full(exec(), q, k, v, aft::dense_bias{w}, y, opt); },
         [&](const aft_options* o) { return aft_full(cq.get(), ck.get(), cv.get(), &bias, cy.get(), o); });
  }
  void factorized() {
    c_tensor cq(q), ck(k), cv(v), cu(u), cf(factor), cy(y);
    const aft_bias bias{AFT_FACTORIZED, nullptr, cu.get(), cf.get()};
    same(
        [&] {
          aft::full(q, k, v, aft::factorized_bias{u, factor}, y, opt);
        },
        [&](const aft_options* o) { return aft_full(cq.get(), ck.get(), cv.get(), &bias, cy.get(), o); });
  }
  void banded() {
    c_tensor cq(q), ck(k), cv(v), cw(band), cy(y);
    const aft_bias bias{AFT_BANDED, cw.get(), nullptr, nullptr};
    same([&] { aft::local(q, k, v, aft::banded_bias{band}, win, y, opt); },
         [&](const aft_options* o) {
           return aft_local(cq.get(), ck.get(), cv.get(), &bias, win.before, win.after, cy.get(), o);
         });
  }
  void simple() {
    c_tensor cq(q), ck(k), cv(v), cy(y);
    same([&] { aft::simple(exec(), q, k, v, y, opt); },
         [&](const aft_options* o) { return aft_simple(cq.get(), ck.get(), cv.get(), cy.get(), o); });
  }
  void conv() {
    c_tensor cq(q), ck(k), cv(v), cf(taps), cy(y);
    same([&] { aft::conv(q, k, v, taps, y, opt); },
         [&](const aft_options* o) { return aft_conv(cq.get(), ck.get(), cv.get(), cf.get(), cy.get(), o); });
  }
  void sparse_conv() {
    c_tensor cq(q), ck(k), cv(v), ct(sparse_taps), cw(values), cy(y);
    same(
        [&] {
          aft::conv(q, k, v, aft::sparse_filter{sparse_taps, values}, y, opt);
        },
        [&](const aft_options* o) {
          return aft_conv_sparse(cq.get(), ck.get(), cv.get(), ct.get(), cw.get(), cy.get(), o);
        });
  }
  void sparse_conv_backward() {
    c_tensor cq(q), ck(k), cv(v), ct(sparse_taps), cw(values), cdy(dy), cdq(dq), cdk(dk), cdv(dv), cdw(dvalues);
    same(
        [&] {
          aft::conv_backward(q, k, v, aft::sparse_filter{sparse_taps, values}, dy, dq, dk, dv, dvalues, opt);
        },
        [&](const aft_options* o) {
          return aft_conv_sparse_backward(cq.get(), ck.get(), cv.get(), ct.get(), cw.get(), cdy.get(), cdq.get(),
                                          cdk.get(), cdv.get(), cdw.get(), o);
        });
  }
  void conv_on_grid() {
    c_tensor cq(grid), ck(grid_k), cf(plane), cy(grid_y);
    same([&] { aft::conv(grid, grid_k, grid, plane, grid_y, opt); },
         [&](const aft_options* o) { return aft_conv(cq.get(), ck.get(), cq.get(), cf.get(), cy.get(), o); });
  }
  void full_backward() {
    c_tensor cq(q), ck(k), cv(v), cw(w), cdy(dy), cdq(dq), cdk(dk), cdv(dv), cdw(dw);
    const aft_bias bias{AFT_DENSE, cw.get(), nullptr, nullptr}, dbias{AFT_DENSE, cdw.get(), nullptr, nullptr};
    same([&] { aft::full_backward(q, k, v, aft::dense_bias{w}, dy, dq, dk, dv, aft::dense_bias{dw}, opt); },
         [&](const aft_options* o) {
           return aft_full_backward(cq.get(), ck.get(), cv.get(), &bias, cdy.get(), cdq.get(), cdk.get(), cdv.get(),
                                    &dbias, o);
         });
  }
  void local_backward() {
    c_tensor cq(q), ck(k), cv(v), cu(u), cf(factor), cdy(dy), cdq(dq), cdk(dk), cdv(dv), cdu(du), cdf(dfactor);
    const aft_bias bias{AFT_FACTORIZED, nullptr, cu.get(), cf.get()};
    const aft_bias dbias{AFT_FACTORIZED, nullptr, cdu.get(), cdf.get()};
    same(
        [&] {
          aft::local_backward(q, k, v, aft::factorized_bias{u, factor}, win, dy, dq, dk, dv,
                              aft::factorized_bias{du, dfactor}, opt);
        },
        [&](const aft_options* o) {
          return aft_local_backward(cq.get(), ck.get(), cv.get(), &bias, win.before, win.after, cdy.get(), cdq.get(),
                                    cdk.get(), cdv.get(), &dbias, o);
        });
  }
  void simple_backward() {
    c_tensor cq(q), ck(k), cv(v), cdy(dy), cdq(dq), cdk(dk), cdv(dv);
    same([&] { aft::simple_backward(q, k, v, dy, dq, dk, dv, opt); },
         [&](const aft_options* o) {
           return aft_simple_backward(cq.get(), ck.get(), cv.get(), cdy.get(), cdq.get(), cdk.get(), cdv.get(), o);
         });
  }
  void conv_backward() {
    c_tensor cq(q), ck(k), cv(v), cf(taps), cdy(dy), cdq(dq), cdk(dk), cdv(dv), cdf(dtaps);
    same([&] { aft::conv_backward(q, k, v, taps, dy, dq, dk, dv, dtaps, opt); },
         [&](const aft_options* o) {
           return aft_conv_backward(cq.get(), ck.get(), cv.get(), cf.get(), cdy.get(), cdq.get(), cdk.get(), cdv.get(),
                                    cdf.get(), o);
         });
  }
  void reparameterize() {
    c_tensor cr(plane), cg(gain), cs(shift), co(dplane);
    same([&] { aft::reparameterize(exec(), plane, gain, shift, dplane); },
         [&](const aft_options* o) { return aft_reparameterize(cr.get(), cg.get(), cs.get(), co.get(), o); });
  }
  void sparsity(double tau = 0.5) {
    c_tensor cr(plane), cg(gain), cdr(dplane), cdg(dgain);
    same([&] { aft::filter_entropy(exec(), plane, dgain); },
         [&](const aft_options* o) { return aft_filter_entropy(cr.get(), cdg.get(), o); });
    same([&] { aft::filter_entropy_backward(exec(), plane, gain, dplane); },
         [&](const aft_options* o) { return aft_filter_entropy_backward(cr.get(), cg.get(), cdr.get(), o); });
    same([&] { aft::gumbel_filter(exec(), plane, plane, tau, dplane); },
         [&](const aft_options* o) { return aft_gumbel_filter(cr.get(), cr.get(), tau, cdr.get(), o); });
    same([&] { aft::gumbel_filter_backward(exec(), plane, plane, tau, plane, dplane); },
         [&](const aft_options* o) {
           return aft_gumbel_filter_backward(cr.get(), cr.get(), tau, cr.get(), cdr.get(), o);
         });
    same([&] { aft::gumbel_filter_hard(exec(), plane, dplane); },
         [&](const aft_options* o) { return aft_gumbel_filter_hard(cr.get(), cdr.get(), o); });
  }
  void reparameterize_backward() {
    c_tensor cr(plane), cg(gain), cs(shift), cdr(dplane), cdg(dgain), cds(dshift);
    same([&] { aft::reparameterize_backward(exec(), plane, gain, shift, plane, dplane, dgain, dshift); },
         [&](const aft_options* o) {
           return aft_reparameterize_backward(cr.get(), cg.get(), cs.get(), cr.get(), cdr.get(), cdg.get(), cds.get(),
                                              o);
         });
  }
  void attention_map() {
    c_tensor ck(k), cw(w), co(map);
    const aft_bias bias{AFT_DENSE, cw.get(), nullptr, nullptr};
    same([&] { aft::attention_map(exec(), k, aft::dense_bias{w}, map, opt); },
         [&](const aft_options* o) { return aft_attention_map(ck.get(), &bias, co.get(), o); });
  }
};

}  // namespace

TEST_CASE("tensors that do not fit together") {
  calls c;
  SUBCASE("key channels") {
    c.k = {c.memory.data(), {B, T, 3}};
    c.full();
    c.simple();
    c.conv();
    c.simple_backward();
  }
  SUBCASE("batch") {
    c.q = {c.memory.data(), {3, T, d}};
    c.factorized();
    c.banded();
    c.conv_backward();
  }
  SUBCASE("length") {
    c.v = {c.memory.data(), {B, 5, d}};
    c.full_backward();
    c.local_backward();
  }
  SUBCASE("a grid") {
    c.grid_y = {c.written.data(), {B, 2, 2, d}};
    c.conv_on_grid();
  }
  SUBCASE("heads") {
    c.w = {c.memory.data(), {3, T, T}};
    c.full();
    c.attention_map();
    c.taps = {c.memory.data(), {3, 3}};
    c.conv();
  }
  SUBCASE("factors") {
    c.factor = {c.memory.data(), {H, T, 2}};
    c.factorized();
    c.local_backward();
  }
  SUBCASE("a band") {
    c.win = {2, 1};
    c.banded();
  }
  SUBCASE("a window without sense") {
    c.win = {-3, 1};
    c.banded();
    CHECK(c.spoken.find("window{-3, 1}") != std::string::npos);
  }
  SUBCASE("gradients") {
    c.dw = {c.place(4), {1, T, T}};
    c.full_backward();
    c.dfactor = {c.place(7), {H, T, 2}};
    c.local_backward();
    c.dtaps = {c.place(8), {H, 2}};
    c.conv_backward();
    c.dk = {c.place(2), {B, T, d}};
    c.simple_backward();
  }
  SUBCASE("a sparse filter") {
    c.offsets[1] = 0;
    c.sparse_conv();
    CHECK(c.spoken.find("0 twice in head 0") != std::string::npos);
    c.sparse_conv_backward();
    c.offsets[1] = 1;
    c.opt.causal = true;
    c.sparse_conv();
    c.opt.causal = false;
    c.dvalues = {c.place(8), {H, 1}};
    c.sparse_conv_backward();
    c.values = {c.memory.data(), {1, 2}};
    c.sparse_conv();
    c.k = {c.memory.data(), {B, T, 3}};
    c.sparse_conv();
    c.sparse_conv_backward();
  }
  SUBCASE("a filter by itself") {
    c.gain = {c.memory.data(), {3}};
    c.reparameterize();
    c.reparameterize_backward();
  }
  SUBCASE("a map") {
    c.map = {c.place(4), {1, T, T, 3}};
    c.attention_map();
  }
}

TEST_CASE("memory") {
  calls c;
  SUBCASE("none") {
    c.v = {nullptr, {B, T, d}};
    c.full();
    c.simple_backward();
    c.plane = {nullptr, {H, 3, 3}};
    c.reparameterize();
    c.sparsity();
  }
  SUBCASE("outputs that share it") {
    c.dv = {c.place(1) + 7, {B, T, d}};
    c.full_backward();
    c.local_backward();
    c.dshift = {c.place(11) + 1, {H}};
    c.reparameterize_backward();
  }
  SUBCASE("an output broadcast") {
    c.y = {c.place(0), {B, T, d}, {T * d, d, 0}};
    c.full();
    c.banded();
    c.conv();
  }
  SUBCASE("an output that overlaps itself") {
    c.y = {c.place(0), {B, T, d}, {4, 4, 1}};
    c.simple();
  }
  SUBCASE("extents and strides beyond 64 bits") {
    c.k = {c.memory.data(), {B, T, hk}, {index_t{1} << 62, hk, 1}};
    c.simple();
    c.k = {c.memory.data(), {B, -1, hk}};
    c.full();
  }
}

TEST_CASE("options") {
  calls c;
  const std::vector<std::int32_t> numbers(100);
  const std::vector<std::uint8_t> bytes(100);
  using ints = aft::tensor_view<const std::int32_t, 1>;
  SUBCASE("a mask of another type, rank or shape") {
    c.opt.mask = in<1>{c.memory.data(), {T}};
    c.full();
    c.opt.mask = aft::tensor_view<const std::uint8_t, 4>{bytes.data(), {1, 1, 1, T}};
    c.simple();
    c.opt.mask = aft::tensor_view<const std::uint8_t, 1>{bytes.data(), {5}};
    c.conv();
    c.attention_map();
  }
  SUBCASE("lengths") {
    c.opt.key_lengths = ints{numbers.data(), {3}};
    c.full_backward();
    c.opt.key_lengths = {};
    c.opt.query_lengths =
        aft::tensor_view<const std::int16_t, 1>{reinterpret_cast<const std::int16_t*>(bytes.data()), {B}};
    c.factorized();
  }
  SUBCASE("lse and average") {
    c.opt.lse = out<3>{c.place(3), {B, T, 4}};
    c.full();
    c.opt.lse = out<3>{c.place(3), {B, T, hk}};
    c.simple_backward();
    c.opt.lse = {};
    c.opt.average = aft::tensor_view<double, 3>{reinterpret_cast<double*>(c.place(4)), {B, T, d}};
    c.conv();
  }
  SUBCASE("numbers") {
    c.opt.first_query = -1;
    c.full();
    c.opt.first_query = 2;
    c.conv_on_grid();
    c.opt.first_query = 0;
    c.threads = -2;
    c.simple();
    c.reparameterize();
    c.reparameterize_backward();
    c.sparsity();
    c.attention_map();
  }
  SUBCASE("a temperature") {
    for (const double tau : {0.0, -2.5, std::numeric_limits<double>::infinity()}) {
      out<3> dplane = c.dplane;
      c_tensor cr(c.plane), co(dplane);
      c.same([&] { aft::gumbel_filter(c.exec(), c.plane, c.plane, tau, dplane); },
             [&](const aft_options* o) { return aft_gumbel_filter(cr.get(), cr.get(), tau, co.get(), o); });
    }
  }
  SUBCASE("what an operator does not have") {
    c.opt.outside = aft::outside::excluded;
    c.full();
    c.simple();
    c.attention_map();
    c.opt.outside = aft::outside::zero_bias;
    c.opt.causal = true;
    c.conv_on_grid();
  }
  SUBCASE("what no version has yet") {
    c.opt.slot_ids = ints{numbers.data(), {B}};
    c.full();
    c.local_backward();
  }
  SUBCASE("offsets") {
    c.opt.query_offsets = ints{numbers.data(), {B + 1}};
    c.simple();
    c.attention_map();
    c.conv_on_grid();
    c.opt.query_offsets = {};
    c.opt.key_offsets = ints{numbers.data(), {B + 1}};
    c.conv_backward();
  }
}
