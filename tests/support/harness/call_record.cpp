// SPDX-License-Identifier: Apache-2.0
#include "call_record.hpp"

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

namespace aft::test {

namespace {

using names = std::vector<std::string>;

void add_bias(names& out, const setup& s) {
  if (s.call == op::conv) {
    out.push_back("axes " + std::to_string(s.grid.size()));
    return;
  }
  if (s.call == op::simple) return;
  if (s.generates()) {
    out.emplace_back("generated");
    return;
  }
  switch (s.bias) {
    case bias_form::dense_tt:
    case bias_form::dense_htt: out.push_back("dense"); break;
    case bias_form::dense_bhtt:
    case bias_form::dense_1htt: out.push_back("dense batch"); break;
    case bias_form::factorized_tn:
    case bias_form::factorized_htn:
    case bias_form::factorized_mixed: out.push_back("factorized"); break;
    case bias_form::banded_tj:
    case bias_form::banded_htj: out.push_back("banded"); break;
  }
}

void add_gate(names& out, gate g) {
  switch (g) {
    case gate::sigmoid: break;
    case gate::none: out.push_back("gate none"); break;
    case gate::identity: out.push_back("gate identity"); break;
    case gate::relu: out.push_back("gate relu"); break;
    case gate::tanh: out.push_back("gate tanh"); break;
    case gate::silu: out.push_back("gate silu"); break;
  }
}

/// What the call asks for that a call without options does not. A test that sets an option beside another counts for
/// both: single options are what the page lists.
names options_of(const setup& s, bool backward) {
  names out{"call"};
  const auto add = [&](bool holds, const char* name) {
    if (holds) out.emplace_back(name);
  };
  add_bias(out, s);
  add_gate(out, s.gate_fn);
  add(s.call != op::simple && s.heads() > 1, "heads");
  add(s.key_channels() < s.d, "shared keys");
  add(s.packed.empty() ? s.Tq != s.Tk : !s.packed_keys.empty(), "cross");
  add(s.causal, "causal");
  add((s.call == op::local || s.call == op::conv) && s.outside == outside::excluded, "excluded");
  add(s.mask != mask_form::none && !s.pair_mask(), "mask keys");
  add(s.pair_mask(), "mask pairs");
  add(s.lengths, "key_lengths");
  add(s.query_lengths, "query_lengths");
  add((s.lengths || s.query_lengths || s.mask != mask_form::none) && s.narrow_integers, "narrow integers");
  add(s.first_query != 0, "first_query");
  add(!s.packed.empty(), "packed");
  add(!s.packed.empty() && s.generates(), "packed generated");
  add(!s.cuts.empty() && !backward, "stream");
  add(!s.cuts.empty() && !backward && s.generates(), "stream generated");
  // A backward call takes both or neither.
  add(s.save && s.has_lse(), "lse");
  add(s.save && (s.has_lse() || !backward), s.narrow_average ? "average narrow" : "average");
  add(s.arithmetic == arithmetic::full, "arithmetic full");
  add(s.in_place && !backward, "in place");
  add(s.inputs == layout::broadcast, "broadcast");
  const auto strided = [](layout l) { return l != layout::row_major && l != layout::broadcast; };
  add(strided(s.inputs) || strided(s.outputs), "strides");
  return out;
}

const char* name_of(op call) {
  switch (call) {
    case op::full: return "full";
    case op::local: return "local";
    case op::simple: return "simple";
    default: return "conv";
  }
}

const char* name_of(ran_on backend) {
  switch (backend) {
    case ran_on::cpu: return "cpu";
    case ran_on::emulated_device: return "emulated";
    default: return "gpu";
  }
}

}  // namespace

void record_call(dtype type, const setup& raw, ran_on backend, bool backward) {
  static const char* const file = std::getenv("AFT_TEST_RECORD");
  if (file == nullptr) return;
  static std::set<std::string> written;
  const setup s = completed(raw);
  const std::string call = std::string(name_of(s.call)) + ' ' + aft::name_of(type) + ' ' + name_of(backend) +
                           (backward ? " backward " : " forward ");
  for (const std::string& option : options_of(s, backward)) {
    if (!written.insert(call + option).second) continue;
    // One write a line, at the end of the file: programs that run side by side may share it.
    std::ofstream(file, std::ios::app) << call + option + '\n' << std::flush;
  }
}

}  // namespace aft::test
