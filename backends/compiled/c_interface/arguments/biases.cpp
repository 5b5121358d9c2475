// SPDX-License-Identifier: Apache-2.0
#include "biases.hpp"

#include <aft/core/checks/validation.hpp>

#include "tensors.hpp"

namespace aft::c_interface {

using checks::argument;
using checks::bias_arguments;
using checks::call;
using checks::fail;

namespace {

constexpr rank_range dense_ranks{2, 4};
constexpr rank_range other_ranks{2, 3};  // factors and bands are shared by the batch
constexpr rank_range filter_ranks{2, 4};
constexpr rank_range value_ranks{2, 2};

bias_kind kind_of(const call& c, const char* name, const aft_bias& bias) {
  switch (bias.kind) {
    case AFT_DENSE: return bias_kind::dense;
    case AFT_FACTORIZED: return bias_kind::factorized;
    case AFT_BANDED: return bias_kind::banded;
    default: fail(c.op, {name}, "kind AFT_DENSE, AFT_FACTORIZED or AFT_BANDED, 0 to 2", index_t{bias.kind});
  }
}

const char* name_of_kind(bias_kind kind) {
  return kind == bias_kind::dense ? "AFT_DENSE" : (kind == bias_kind::factorized ? "AFT_FACTORIZED" : "AFT_BANDED");
}

void set_bias_tensor(const call& c, argument& a, const aft_tensor* tensor, const rank_range& ranks) {
  require_tensor(c.op, a, tensor, c.on_device);
  require_ranks(c.op, a, ranks);
  require_bias_type(c.op, a, c.type);
}

void set_tensors(const call& c, bias_arguments& b, const aft_bias& bias) {
  if (b.kind == bias_kind::factorized) {
    set_bias_tensor(c, b.u, bias.u, other_ranks);
    set_bias_tensor(c, b.v, bias.v, other_ranks);
  } else {
    set_bias_tensor(c, b.w, bias.w, b.kind == bias_kind::dense ? dense_ranks : other_ranks);
  }
}

}  // namespace

void set_bias(call& c, const aft_bias* bias, band_use bands) {
  if (bias == nullptr) fail(c.op, {"bias"}, "an aft_bias", "a null pointer");
  c.bias.kind = kind_of(c, "bias", *bias);
  if (c.bias.kind == bias_kind::banded && bands == band_use::refused) {
    fail(c.op, {"bias"}, "kind AFT_DENSE or AFT_FACTORIZED, as a call without a window has no band", "AFT_BANDED");
  }
  set_tensors(c, c.bias, *bias);
}

void set_bias_gradient(call& c, const aft_bias* dbias) {
  if (dbias == nullptr) return;
  c.dbias.kind = kind_of(c, "dbias", *dbias);
  if (c.dbias.kind != c.bias.kind) {
    fail(c.op, {"dbias"}, checks::text("kind ") << name_of_kind(c.bias.kind) << " as 'bias' has",
         name_of_kind(c.dbias.kind));
  }
  set_tensors(c, c.dbias, *dbias);
}

void set_filter(call& c, const aft_tensor* filter) {
  c.bias.kind = bias_kind::filter;
  set_bias_tensor(c, c.bias.r, filter, filter_ranks);
  c.cross_lengths = c.bias.r.view.rank() == 2;
}

void set_filter_gradient(call& c, const aft_tensor* dfilter) {
  if (dfilter == nullptr) return;
  c.dbias.kind = bias_kind::filter;
  set_bias_tensor(c, c.dbias.r, dfilter, filter_ranks);
}

void set_sparse_filter(call& c, const aft_tensor* taps, const aft_tensor* values) {
  c.bias.kind = bias_kind::sparse;
  checks::sparse_arguments& filter = c.sparse.emplace();
  require_tensor(c.op, filter.taps, taps, c.on_device);
  const dtype type = filter.taps.view.type();
  if (type != dtype::i32 && type != dtype::i64) fail(c.op, filter.taps, "elements of int32 or int64", name_of(type));
  set_bias_tensor(c, filter.values, values, value_ranks);
  c.cross_lengths = c.v.view.rank() <= 3;
}

void set_value_gradient(call& c, const aft_tensor* dvalues) {
  if (dvalues == nullptr) return;
  c.dbias.kind = bias_kind::sparse;
  set_bias_tensor(c, c.dbias.r, dvalues, value_ranks);
}

}  // namespace aft::c_interface
