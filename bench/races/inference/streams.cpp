// SPDX-License-Identifier: Apache-2.0
// One more position of each sequence, which is what decoding asks for: against streams of the bytes that slots hold for
// it, what a call costs where they are next to none, and against PyTorch's attention with a cache as contexts grow. And
// prompts in chunks.
#include "../../harness/peers.hpp"
#include "../races.hpp"
#include "stream_call.hpp"

namespace aft_bench {
namespace {

/// Windows are full and several blocks of the fold are there: slots look the same however many positions more they have
/// seen.
constexpr index_t settled = 300;

std::shared_ptr<stream_call> at_position(const char* what, index_t slots, index_t d, index_t position,
                                         const aft::cpu& exec) {
  const auto x = std::make_shared<stream_call>(what, shape{slots, 1, d}, position, stream_call::bias_rows::alike);
  // The position that is measured comes on top.
  x->fill(exec, position - 1);
  return x;
}

/// Against a stream that reads e^k and v of the positions in reach, and nothing else that a slot or the call has.
race kept(const char* what, index_t slots, index_t position) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = at_position(what, slots, 512, position, exec);
  race r;
  r.enter("aft", [=] { x->advance(exec); });
  const double bytes = x->kept_bytes(position);
  r.enter("stream", reading_stream(static_cast<std::size_t>(bytes), exec.threads));
  return r.note("bytes.aft", bytes).note("bytes.stream", bytes);
}

/// A state of simple is 12 arrays, of which a position reads five (numerator and denominator, the same of former
/// blocks, and the reference) and writes two. q, k and v are read and y is written.
race states(index_t slots) {
  const aft::cpu exec{.threads = run_settings().threads};
  const auto x = at_position("simple", slots, 512, settled, exec);
  race r;
  r.enter("aft", [=] { x->advance(exec); });
  const std::size_t bytes = static_cast<std::size_t>(slots) * 512 * sizeof(float);
  r.enter("stream", stream(6, 2, 1, bytes, exec.threads, true));
  r.enter("stream_cached", stream(6, 2, 1, bytes, exec.threads, false));
  for (const char* name : {"bytes.aft", "bytes.stream", "bytes.stream_cached"})
    r.note(name, 11.0 * static_cast<double>(bytes));
  return r;
}

race one_slot(const char* what) {
  const aft::cpu exec{.threads = 1};
  const auto x = at_position(what, 1, 64, settled, exec);
  race r;
  r.enter("aft", [=] { x->advance(exec); });
  return r;
}

/// A prompt in chunks, each of which goes on from the slot, against one causal call without a stream.
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

/// What full keeps of 32 sequences of 65,536 positions would be 13 GB, beside 9 GB of the peer.
constexpr double most_kept = 4e9;

race context(index_t positions, index_t sequences_of) {
  const aft::cpu exec{.threads = run_settings().threads};
  const shape s{sequences_of, 1, 512};
  race r;
  for (const char* what : {"simple", "local32", "conv32", "full"}) {
    const std::string name = what;
    const bool keeps_all = name == "full";
    if (keeps_all && 12.0 * static_cast<double>(positions * s.d * s.B) > most_kept) continue;
    const auto x = std::make_shared<stream_call>(name, s, positions, stream_call::bias_rows::alike);
    x->fill(exec, keeps_all ? positions - 1 : std::min(settled, positions - 1));
    r.enter("aft_" + name, [=] { x->advance(exec); });
    r.note("bytes.aft_" + name, x->slot_bytes());
  }
  r.note("bytes.sdpa", 2.0 * static_cast<double>(sizeof(float)) * static_cast<double>(positions * s.d));
  if (!peers::present()) return r;
  const sequences<float> x(s);
  const std::shared_ptr<peers> others = share(x);
  r.hold(others);
  others->enter(r, "sdpa", {.kind = "cached", .context = positions});
  others->enter(r, "eager", {.kind = "cached_products", .context = positions});
  return r;
}

}  // namespace

void add_streams() {
  for (const char* what : {"local32", "conv32"}) {
    std::string name = "position_";
    add_race(name.append(what).append("/S64_d512/float"), 15, [=] { return kept(what, 64, settled); });
  }
  add_race("position_simple/S4096_d512/float", 15, [] { return states(4096); });
  for (const index_t slots : {1, 16}) {
    std::string name = "position_full/S";
    add_race(name.append(std::to_string(slots)).append("_T4096_d512/float"), 15,
             [=] { return kept("full", slots, 4096); });
  }
  for (const char* what : {"simple", "local8", "conv7"}) {
    std::string name = "position_";
    add_race(name.append(what).append("/S1_d64/float/one_thread"), 15, [=] { return one_slot(what); });
  }
  for (const char* what : {"simple", "local32", "conv32", "full"}) {
    std::string name = "prefill_";
    add_race(name.append(what).append("/").append(shapes[3].text()).append("/float"), 11,
             [=] { return prefill(what); });
  }
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
