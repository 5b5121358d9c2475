// SPDX-License-Identifier: Apache-2.0
// A prompt in chunks, each of which goes on from the slot, against one causal call without a stream.
#include "../races.hpp"
#include "stream_call.hpp"

namespace aft_bench {
namespace {

race prefill(const char* what) {
  constexpr index_t chunk = 512;
  const shape& s = shapes[3];
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = std::make_shared<stream_call>(what, s, s.T, stream_call::bias_rows::own);
  race r;
  r.enter("aft_uncut", [=] { x->uncut(exec); });
  r.enter("aft_chunks", [=] { x->chunks(exec, chunk); });
  // What the stream costs by itself, without cuts.
  r.enter("aft_whole", [=] { x->chunks(exec, s.T); });
  return r;
}

}  // namespace

void add_prefill() {
  for (const char* what : {"simple", "local32", "conv32", "full"}) {
    std::string name = "prefill_";
    add_race(name.append(what).append("/").append(shapes[3].text()).append("/float"), 11,
             [=] { return prefill(what); });
  }
}

}  // namespace aft_bench
