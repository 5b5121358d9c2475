// SPDX-License-Identifier: Apache-2.0
#include "choice.hpp"

#include <aft/core/errors.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "processor.hpp"

namespace aft::AFT_COMPILED_VERSION {

namespace {

/// From the least to the most. A name without kernels is one that this build left out, or of another architecture.
/// "The fastest" is the last of those that the processor has and that pay. That v3 pays over v2 and v4 over v3 where
/// the processor has them is measured on Ice Lake (docs/adr/0019-compiled-library.md).
const level levels[] = {
#if defined(AFT_BUILT_V2)
    {"v2", &has_v2, nullptr, &v2_f32, &v2_f64},
#else
    {"v2", &has_v2, nullptr, nullptr, nullptr},
#endif
#if defined(AFT_BUILT_V3)
    {"v3", &has_v3, nullptr, &v3_f32, &v3_f64},
#else
    {"v3", &has_v3, nullptr, nullptr, nullptr},
#endif
#if defined(AFT_BUILT_V4)
    {"v4", &has_v4, nullptr, &v4_f32, &v4_f64},
#else
    {"v4", &has_v4, nullptr, nullptr, nullptr},
#endif
// The instructions that the levels with BF16 add have no part in double arithmetic.
#if defined(AFT_BUILT_V4_BF16) && defined(AFT_BUILT_V4)
    {"v4-bf16", &has_v4_bf16, &gains_by_v4_bf16, &v4_bf16_f32, &v4_f64},
#elif defined(AFT_BUILT_V4_BF16)
    {"v4-bf16", &has_v4_bf16, &gains_by_v4_bf16, &v4_bf16_f32, &v4_bf16_f64},
#else
    {"v4-bf16", &has_v4_bf16, &gains_by_v4_bf16, nullptr, nullptr},
#endif
#if defined(AFT_BUILT_NEON)
    {"neon", &has_neon, nullptr, &neon_f32, &neon_f64},
#else
    {"neon", &has_neon, nullptr, nullptr, nullptr},
#endif
#if defined(AFT_BUILT_NEON_BF16) && defined(AFT_BUILT_NEON)
    {"neon-bf16", &has_neon_bf16, nullptr, &neon_bf16_f32, &neon_f64},
#elif defined(AFT_BUILT_NEON_BF16)
    {"neon-bf16", &has_neon_bf16, nullptr, &neon_bf16_f32, &neon_bf16_f64},
#else
    {"neon-bf16", &has_neon_bf16, nullptr, nullptr, nullptr},
#endif
};

[[noreturn]] void refuse() {
  throw device_error("aft::compiled: this processor has none of the instruction sets that the library was built for");
}
constexpr kernels refuse_all() {
  kernels all{};
  all.forward.fill([](const problem&, const cpu&) { refuse(); });
  all.backward.fill([](const backward_problem&, const cpu&) { refuse(); });
  all.build_info = []() noexcept -> const char* { return "aft, no instruction set that this processor has"; };
  return all;
}
constexpr kernels refusing = refuse_all();

bool can_run(const level& l) {
  return l.f32 != nullptr && l.runs();
}

/// The last level that runs of those up to `cap`. The cap itself was asked for by its name, so it need not pay, and nor
/// need one over a level that this build left out.
const level* fastest(const level* cap) {
  const level* found = nullptr;
  for (const level& l : levels) {
    const bool over_another = &l != levels && can_run(*(&l - 1));
    if (can_run(l) && (l.pays == nullptr || !over_another || l.pays() || &l == cap)) found = &l;
    if (&l == cap) break;
  }
  return found;
}

choice choose() {
  choice c{"none", {}, &refusing, &refusing};
  std::size_t count = 0;
  for (const level& l : levels) {
    if (can_run(l)) c.all[count++] = l.name;
  }
  const level* found = fastest(nullptr);
  const char* const asked = std::getenv("AFT_ISA");
  if (asked != nullptr && *asked != '\0') {
    const level* cap = nullptr;
    for (const level& l : levels) {
      if (std::strcmp(asked, l.name) == 0) cap = &l;
    }
    // A level that this build left out is a cap all the same, as long as the processor has it and something is below.
    const level* const capped = cap != nullptr && cap->runs() ? fastest(cap) : nullptr;
    if (capped != nullptr) {
      found = capped;
    } else {
      std::fprintf(stderr, "aft: AFT_ISA=%s is ignored: %s; %s runs\n", asked,
                   cap == nullptr ? "no level is called that" : "this processor and library have nothing up to it",
                   found == nullptr ? "nothing" : found->name);
    }
  }
  if (found != nullptr) {
    c.isa = found->name;
    c.f32 = found->f32;
    c.f64 = found->f64;
  }
  return c;
}

}  // namespace

const choice& chosen() {
  static const choice once = choose();
  return once;
}

}  // namespace aft::AFT_COMPILED_VERSION
