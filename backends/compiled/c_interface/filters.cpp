// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

#include "arguments/options.hpp"
#include "arguments/tensors.hpp"
#include "device.hpp"
#include "errors.hpp"

namespace aft::c_interface {

namespace {

using checks::argument;

/// The ranks of r and of what has its shape.
rank_range ranks_of(const argument& r) {
  return {r.view.rank(), r.view.rank()};
}
constexpr rank_range whole_filter_ranks{2, 4};
constexpr rank_range head_ranks{1, 1};

/// One of these calls, and where it runs.
struct filter_run {
  checks::filter_call record{};
  settings given;

  filter_run(const char* op, const aft_options* o, std::initializer_list<named> tensors)
      : given(read_executor(op, o, tensors)) {
    record.op = op;
  }

  /// Element types may be mixed here: each is widened to double.
  void set(argument& a, const aft_tensor* tensor, const rank_range& ranks) const {
    set_tensor(record.op, a, tensor, given.where.on_device);
    require_ranks(record.op, a, ranks);
    require_element(record.op, a);
  }
  void require(argument& a, const aft_tensor* tensor, const rank_range& ranks) const {
    require_tensor(record.op, a, tensor, given.where.on_device);
    set(a, tensor, ranks);
  }
  void set_inputs(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift) {
    require(record.r, r, whole_filter_ranks);
    require(record.gain, gain, head_ranks);
    require(record.shift, shift, head_ranks);
  }

  /// `on_host` is the call's run on the host, with its checks.
  void run(filter_form form, void (*on_host)(const checks::filter_call&, const cpu&)) const {
    if (!given.where.on_device) return on_host(record, given.exec);
    checks::require_filter_call(record);
    static_cast<void>(done_on_device<float>(record.op, given.where, [&](const auto& exec) {
      run_filter<float>(checks::to_filter_problem(record, form), exec);
    }));
  }
};

}  // namespace

}  // namespace aft::c_interface

using namespace aft::c_interface;

int aft_reparameterize(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift, const aft_tensor* out,
                       const aft_options* o) {
  return guarded([&] {
    filter_run c("aft::reparameterize", o, {{"r", r}, {"gain", gain}, {"shift", shift}, {"out", out}});
    c.set_inputs(r, gain, shift);
    c.require(c.record.out, out, ranks_of(c.record.r));
    c.run(aft::filter_form::normalised, aft::checks::run_reparameterize);
  });
}

int aft_reparameterize_backward(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift,
                                const aft_tensor* dout, const aft_tensor* dr, const aft_tensor* dgain,
                                const aft_tensor* dshift, const aft_options* o) {
  return guarded([&] {
    filter_run c(
        "aft::reparameterize_backward", o,
        {{"r", r}, {"gain", gain}, {"shift", shift}, {"dout", dout}, {"dr", dr}, {"dgain", dgain}, {"dshift", dshift}});
    c.set_inputs(r, gain, shift);
    c.require(c.record.dout, dout, ranks_of(c.record.r));
    c.set(c.record.dr, dr, ranks_of(c.record.r));
    c.set(c.record.dgain, dgain, head_ranks);
    c.set(c.record.dshift, dshift, head_ranks);
    c.run(aft::filter_form::normalised, aft::checks::run_reparameterize);
  });
}

int aft_filter_entropy(const aft_tensor* r, const aft_tensor* out, const aft_options* o) {
  return guarded([&] {
    filter_run c("aft::filter_entropy", o, {{"r", r}, {"out", out}});
    c.require(c.record.r, r, whole_filter_ranks);
    c.require(c.record.out, out, head_ranks);
    c.run(aft::filter_form::entropy, aft::checks::run_filter_entropy);
  });
}

int aft_filter_entropy_backward(const aft_tensor* r, const aft_tensor* dout, const aft_tensor* dr,
                                const aft_options* o) {
  return guarded([&] {
    filter_run c("aft::filter_entropy_backward", o, {{"r", r}, {"dout", dout}, {"dr", dr}});
    c.require(c.record.r, r, whole_filter_ranks);
    c.require(c.record.dout, dout, head_ranks);
    c.set(c.record.dr, dr, ranks_of(c.record.r));
    c.run(aft::filter_form::entropy, aft::checks::run_filter_entropy);
  });
}

int aft_gumbel_filter(const aft_tensor* r, const aft_tensor* noise, double tau, const aft_tensor* out,
                      const aft_options* o) {
  return guarded([&] {
    filter_run c("aft::gumbel_filter", o, {{"r", r}, {"noise", noise}, {"out", out}});
    c.record.tau = tau;
    c.require(c.record.r, r, whole_filter_ranks);
    c.require(c.record.noise, noise, ranks_of(c.record.r));
    c.require(c.record.out, out, ranks_of(c.record.r));
    c.run(aft::filter_form::gumbel, aft::checks::run_gumbel_filter);
  });
}

int aft_gumbel_filter_backward(const aft_tensor* r, const aft_tensor* noise, double tau, const aft_tensor* dout,
                               const aft_tensor* dr, const aft_options* o) {
  return guarded([&] {
    filter_run c("aft::gumbel_filter_backward", o, {{"r", r}, {"noise", noise}, {"dout", dout}, {"dr", dr}});
    c.record.tau = tau;
    c.require(c.record.r, r, whole_filter_ranks);
    c.require(c.record.noise, noise, ranks_of(c.record.r));
    c.require(c.record.dout, dout, ranks_of(c.record.r));
    c.set(c.record.dr, dr, ranks_of(c.record.r));
    c.run(aft::filter_form::gumbel, aft::checks::run_gumbel_filter);
  });
}

int aft_gumbel_filter_hard(const aft_tensor* r, const aft_tensor* out, const aft_options* o) {
  return guarded([&] {
    filter_run c("aft::gumbel_filter_hard", o, {{"r", r}, {"out", out}});
    c.require(c.record.r, r, whole_filter_ranks);
    c.require(c.record.out, out, ranks_of(c.record.r));
    c.run(aft::filter_form::largest, aft::checks::run_gumbel_filter);
  });
}
