// SPDX-License-Identifier: Apache-2.0
//
// A server's loop: requests arrive, take a free slot, share calls with who is there, and leave. A call has the whole
// prompt of who is new and one position of everyone else, packed. With padding who is done waits for the whole batch.

#include <aft/aft.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory_resource>
#include <vector>

namespace {
struct request {
  aft::index_t arrival, prompt, length, seen = 0;  // the first in calls, the others in positions
  float answer = 0;                                // the last number of the last row
};
constexpr aft::index_t places = 16, d_model = 256, taps = 16, vocabulary = 64;

/// Answers all; returns how many rows that took.
aft::index_t serve(std::vector<request>& requests, const std::vector<float>& tokens, bool padded) {
  const auto spec = aft::stream_spec::conv<float>(d_model, d_model, taps);
  std::pmr::monotonic_buffer_resource memory;
  const aft::stream_view stream{spec, memory.allocate(static_cast<std::size_t>(spec.bytes() * places), 64), places};
  const std::vector<float> filter(taps, 0.5F);
  std::vector<request*> at(places);
  auto next = requests.begin();
  for (aft::index_t now = 0, rows = 0;; ++now) {
    const bool empty = std::count(at.begin(), at.end(), nullptr) == places;
    if (empty && next == requests.end()) return rows;
    std::vector<aft::index_t> ids, offsets{0};
    std::vector<float> x;
    for (request*& who : at) {
      if (who == nullptr && (empty || !padded) && next != requests.end() && next->arrival <= now) {
        aft::reset(aft::cpu{}, stream, &who - at.data());
        who = &*next++;
      }
      if (who == nullptr) continue;
      for (aft::index_t n = who->seen == 0 ? who->prompt : 1; n > 0; --n) {
        const auto token = tokens.begin() + (who->arrival + who->seen++) % vocabulary * d_model;
        x.insert(x.end(), token, token + d_model);
      }
      ids.push_back(&who - at.data());
      offsets.push_back(static_cast<aft::index_t>(x.size()) / d_model);
    }
    std::vector<float> y(x.size());
    const auto in = aft::as_view(x.data(), {offsets.back(), d_model});
    const auto list = [](auto& of) { return aft::as_view(of.data(), {static_cast<aft::index_t>(of.size())}); };
    aft::conv(in, in, in, aft::as_view(filter.data(), {1, taps}), aft::as_view(y.data(), in.extents()),
              aft::options{.causal = true, .stream = stream, .slot_ids = list(ids), .query_offsets = list(offsets)});
    rows += offsets.back();
    auto end = offsets.begin();
    for (request* const r : at)
      if (r != nullptr && (++end, r->seen == r->length)) r->answer = y[static_cast<std::size_t>(*end * d_model - 1)];
    const auto done = [](const request* r) { return r == nullptr || r->seen >= r->length; };
    if (!padded || std::all_of(at.begin(), at.end(), done)) std::replace_if(at.begin(), at.end(), done, nullptr);
  }
}
}  // namespace

int main() try {
  std::vector<float> tokens(vocabulary * d_model), answers[2];
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = std::sin(0.37F * static_cast<float>(i));
  double rows[2] = {0, 0};  // without padding as many as there are positions
  for (const std::size_t padded : {0U, 1U}) {
    std::vector<request> requests;
    for (aft::index_t i = 0; i < 300; ++i) requests.push_back({i / 2, 1 + i * 7 % 40, 42 + i * i % 211});
    const auto start = std::chrono::steady_clock::now();
    rows[padded] = static_cast<double>(serve(requests, tokens, padded != 0));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%6.0f rows of padding, %.0f positions a second\n", rows[padded] - rows[0], rows[0] / seconds.count());
    for (const request& r : requests) answers[padded].push_back(r.answer);
  }
  return answers[0] == answers[1] ? 0 : 1;
} catch (const aft::shape_error& e) {
  return std::puts(e.what());
}
