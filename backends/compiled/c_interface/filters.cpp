// SPDX-License-Identifier: Apache-2.0
#include <aft/aft.h>

#include <aft/aft.hpp>

#include "errors.hpp"
#include "arguments/options.hpp"
#include "arguments/tensors.hpp"

namespace aft::c_interface {

namespace {

using checks::argument;

/// The ranks of r and of what has its shape.
rank_range ranks_of(const argument& r) {
  return {r.view.rank(), r.view.rank()};
}
constexpr rank_range whole_filter_ranks{2, 4};
constexpr rank_range head_ranks{1, 1};

/// Element types may be mixed here: each is widened to double.
void set_of(const char* op, argument& a, const aft_tensor* tensor, const rank_range& ranks) {
  set_tensor(op, a, tensor);
  require_ranks(op, a, ranks);
  require_element(op, a);
}

void require_of(const char* op, argument& a, const aft_tensor* tensor, const rank_range& ranks) {
  require_tensor(op, a, tensor);
  set_of(op, a, tensor, ranks);
}

void set_inputs(checks::filter_call& c, const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift) {
  require_of(c.op, c.r, r, whole_filter_ranks);
  require_of(c.op, c.gain, gain, head_ranks);
  require_of(c.op, c.shift, shift, head_ranks);
}

}  // namespace

}  // namespace aft::c_interface

using namespace aft::c_interface;

int aft_reparameterize(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift, const aft_tensor* out,
                       const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::reparameterize";
    const aft::cpu exec = read_executor(c.op, o);
    set_inputs(c, r, gain, shift);
    require_of(c.op, c.out, out, ranks_of(c.r));
    aft::checks::run_reparameterize(c, exec);
  });
}

int aft_reparameterize_backward(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift,
                                const aft_tensor* dout, const aft_tensor* dr, const aft_tensor* dgain,
                                const aft_tensor* dshift, const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::reparameterize_backward";
    const aft::cpu exec = read_executor(c.op, o);
    set_inputs(c, r, gain, shift);
    require_of(c.op, c.dout, dout, ranks_of(c.r));
    set_of(c.op, c.dr, dr, ranks_of(c.r));
    set_of(c.op, c.dgain, dgain, head_ranks);
    set_of(c.op, c.dshift, dshift, head_ranks);
    aft::checks::run_reparameterize(c, exec);
  });
}

int aft_filter_entropy(const aft_tensor* r, const aft_tensor* out, const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::filter_entropy";
    const aft::cpu exec = read_executor(c.op, o);
    require_of(c.op, c.r, r, whole_filter_ranks);
    require_of(c.op, c.out, out, head_ranks);
    aft::checks::run_filter_entropy(c, exec);
  });
}

int aft_filter_entropy_backward(const aft_tensor* r, const aft_tensor* dout, const aft_tensor* dr,
                                const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::filter_entropy_backward";
    const aft::cpu exec = read_executor(c.op, o);
    require_of(c.op, c.r, r, whole_filter_ranks);
    require_of(c.op, c.dout, dout, head_ranks);
    set_of(c.op, c.dr, dr, ranks_of(c.r));
    aft::checks::run_filter_entropy(c, exec);
  });
}

int aft_gumbel_filter(const aft_tensor* r, const aft_tensor* noise, double tau, const aft_tensor* out,
                      const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::gumbel_filter";
    c.tau = tau;
    const aft::cpu exec = read_executor(c.op, o);
    require_of(c.op, c.r, r, whole_filter_ranks);
    require_of(c.op, c.noise, noise, ranks_of(c.r));
    require_of(c.op, c.out, out, ranks_of(c.r));
    aft::checks::run_gumbel_filter(c, exec);
  });
}

int aft_gumbel_filter_backward(const aft_tensor* r, const aft_tensor* noise, double tau, const aft_tensor* dout,
                               const aft_tensor* dr, const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::gumbel_filter_backward";
    c.tau = tau;
    const aft::cpu exec = read_executor(c.op, o);
    require_of(c.op, c.r, r, whole_filter_ranks);
    require_of(c.op, c.noise, noise, ranks_of(c.r));
    require_of(c.op, c.dout, dout, ranks_of(c.r));
    set_of(c.op, c.dr, dr, ranks_of(c.r));
    aft::checks::run_gumbel_filter(c, exec);
  });
}

int aft_gumbel_filter_hard(const aft_tensor* r, const aft_tensor* out, const aft_options* o) {
  return guarded([&] {
    aft::checks::filter_call c;
    c.op = "aft::gumbel_filter_hard";
    const aft::cpu exec = read_executor(c.op, o);
    require_of(c.op, c.r, r, whole_filter_ranks);
    require_of(c.op, c.out, out, ranks_of(c.r));
    aft::checks::run_gumbel_filter(c, exec);
  });
}
