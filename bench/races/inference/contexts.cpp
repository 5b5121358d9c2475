// SPDX-License-Identifier: Apache-2.0
// One more position of each sequence after longer and longer contexts, against PyTorch's attention with a cache.
#include "../../harness/peers.hpp"
#include "../races.hpp"
#include "stream_call.hpp"

namespace aft_bench {
namespace {

constexpr index_t d = 512;
/// What full keeps of 32 sequences of 65,536 positions would be 13 GB, beside 9 GB of the peer.
constexpr double most_kept = 4e9;
/// Where a context is longer than any window, slots look the same however long it was.
constexpr index_t settled = 300;

race context(index_t positions, index_t sequences_of) {
  const aft::cpu exec{.threads = run_settings().threads};
  const shape s{sequences_of, 1, d};
  race r;
  for (const char* what : {"simple", "local32", "conv32", "full"}) {
    const std::string name = what;
    const bool keeps_all = name == "full";
    if (keeps_all && 12.0 * static_cast<double>(positions * d * s.B) > most_kept) continue;
    const auto x = std::make_shared<stream_call>(name, s, positions, stream_call::bias_rows::alike);
    x->fill(exec, keeps_all ? positions - 1 : std::min(settled, positions - 1));
    r.enter("aft_" + name, [=] { x->advance(exec); });
    r.note("bytes.aft_" + name, x->slot_bytes());
  }
  r.note("bytes.sdpa", 2.0 * static_cast<double>(sizeof(float)) * static_cast<double>(positions * d));
  if (!peers::present()) return r;
  const sequences<float> x(s);
  const std::shared_ptr<peers> others = share(x);
  r.hold(others);
  others->enter(r, "sdpa", {.kind = "cached", .context = positions});
  others->enter(r, "eager", {.kind = "cached_products", .context = positions});
  return r;
}

}  // namespace

void add_contexts() {
  for (const index_t sequences_of : {1, 32}) {
    for (const auto& [T, rounds] : {std::pair{256, 11}, {1024, 11}, {4096, 11}, {16384, 7}, {65536, 5}}) {
      const index_t positions = T;
      std::string name = "contexts/T";
      name.append(std::to_string(T)).append("_B").append(std::to_string(sequences_of)).append("_d512/float");
      add_race(name, rounds, [=] { return context(positions, sequences_of); });
    }
  }
}

}  // namespace aft_bench
