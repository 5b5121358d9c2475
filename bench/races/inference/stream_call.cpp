// SPDX-License-Identifier: Apache-2.0
#include "stream_call.hpp"

#include <aft/core/stream/slot_header.hpp>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace aft_bench {
namespace {

/// As attention usually has.
constexpr index_t channels_a_head = 64;
constexpr auto header_bytes = static_cast<std::size_t>(aft::checks::slot_layout::header_bytes);

aft::stream_spec spec_of(const std::string& what, index_t number, index_t d, index_t longest) {
  if (what == "simple") return aft::stream_spec::simple<float>(d, d);
  if (what == "full") return aft::stream_spec::full<float>(d, d, longest);
  if (what == "local") return aft::stream_spec::local<float>(d, d, aft::window::strict(number));
  if (what == "conv") return aft::stream_spec::conv<float>(d, d, number);
  throw std::invalid_argument("no stream named " + what);
}

}  // namespace

stream_call::stream_call(const std::string& what, const shape& s, index_t longest, bias_rows rows)
    : what_(what.substr(0, what.find_first_of("0123456789"))),
      number_(what_ == what ? 0 : std::stol(what.substr(what_.size()))),
      s_(s),
      longest_(longest),
      rows_(rows),
      spec_(spec_of(what_, number_, s.d, longest)),
      x_(s) {
  const index_t count = rows == bias_rows::own ? longest : 1;
  if (what_ == "full") bias_ = normal_values<float>(count * longest, 4);
  if (what_ == "local") bias_ = normal_values<float>(count * (2 * number_ - 1), 4);
  if (what_ == "conv") bias_ = normal_values<float>(s.d / channels_a_head * number_, 4);
  memory_ = buffer<float>(s.B * spec_.bytes() / static_cast<index_t>(sizeof(float)));
  aft::reset(aft::cpu{}, slots());
}

void stream_call::call(const aft::cpu& exec, const rows_in& q, const rows_in& k, const rows_in& v, const rows_out& y,
                       const aft::options& options) {
  if (what_ == "simple") return aft::simple(exec, q, k, v, y, options);
  if (what_ == "conv") {
    const aft::tensor_view<const float, 2> filter{bias_.data(), {s_.d / channels_a_head, number_}};
    return aft::conv(exec, q, k, v, filter, y, options);
  }
  const index_t step = rows_ == bias_rows::own ? 1 : 0;
  if (what_ == "full") {
    const aft::tensor_view<const float, 2> w{bias_.data(), {longest_, longest_}, {step * longest_, 1}};
    return aft::full(exec, q, k, v, aft::dense_bias{w}, y, options);
  }
  const aft::window win = aft::window::strict(number_);
  const aft::tensor_view<const float, 2> band{
      bias_.data(), {step == 0 ? 1 : longest_, win.width()}, {step * win.width(), 1}};
  aft::local(exec, q, k, v, aft::banded_bias{band}, win, y, options);
}

void stream_call::fill(const aft::cpu& exec, index_t positions) {
  constexpr index_t chunk = 512;
  const index_t first = 0;
  sequences<float> x({1, std::min(chunk, positions), s_.d});
  aft::reset(exec, slots());
  const aft::options options{
      .causal = true, .stream = slots(), .slot_ids = aft::tensor_view<const index_t, 1>{&first, {1}}};
  const index_t by_calls = what_ == "full" ? std::min(chunk, positions) : positions;
  for (index_t t = 0; t < by_calls; t += chunk) {
    const index_t rows = std::min(chunk, by_calls - t);
    const auto part = [&](const buffer<float>& b) { return rows_in{b.data(), {1, rows, s_.d}}; };
    call(exec, part(x.q), part(x.k), part(x.v), {x.y.data(), {1, rows, s_.d}}, options);
  }
  if (what_ == "full") repeat(by_calls, positions);
  std::vector<index_t> from(static_cast<std::size_t>(s_.B - 1), 0), to(from.size());
  std::iota(to.begin(), to.end(), 1);
  const auto ids = [](const std::vector<index_t>& list) {
    return aft::tensor_view<const index_t, 1>{list.data(), {static_cast<index_t>(list.size())}};
  };
  if (!to.empty()) aft::copy(exec, slots(), ids(from), ids(to));
  headers_.resize(static_cast<std::size_t>(s_.B) * header_bytes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(s_.B); ++i)
    std::memcpy(headers_.data() + i * header_bytes,
                reinterpret_cast<const std::byte*>(memory_.data()) + i * static_cast<std::size_t>(spec_.bytes()),
                header_bytes);
}

/// The first slot after `positions` of which the first `length`, whole blocks of keys, came again and again. Calls
/// would leave the same bytes, but at 65,536 positions take minutes for them.
void stream_call::repeat(index_t length, index_t positions) {
  auto* const slot = reinterpret_cast<std::byte*>(memory_.data());
  const aft::checks::slot_layout l = spec_.layout();
  const index_t row = l.channels * l.element;
  const auto again = [&](index_t at, index_t bytes, index_t all) {
    std::byte* const first = slot + aft::checks::slot_layout::header_bytes + at * l.element;
    for (index_t done = bytes; done < all; done += bytes)
      std::memcpy(first + done, first, static_cast<std::size_t>(std::min(bytes, all - done)));
  };
  const auto blocks = [](index_t n) {
    return (n + aft::checks::slot_layout::block - 1) / aft::checks::slot_layout::block;
  };
  again(l.rows_at(), 2 * length * row, 2 * positions * row);
  again(l.keys_at(), length * row, positions * row);
  again(l.references_at(), blocks(length) * row, blocks(positions) * row);
  aft::checks::slot_header::write(slot, aft::checks::digest_of(spec_), positions);
}

/// Nothing that full keeps changes once it is there, so that its header alone takes a slot back.
void stream_call::rewind() {
  for (std::size_t i = 0; i < static_cast<std::size_t>(s_.B); ++i)
    std::memcpy(reinterpret_cast<std::byte*>(memory_.data()) + i * static_cast<std::size_t>(spec_.bytes()),
                headers_.data() + i * header_bytes, header_bytes);
}

void stream_call::advance(const aft::cpu& exec) {
  call(exec, x_.in(x_.q), x_.in(x_.k), x_.in(x_.v), x_.out(x_.y), {.causal = true, .stream = slots()});
  if (what_ == "full") rewind();
}

void stream_call::chunks(const aft::cpu& exec, index_t length) {
  aft::reset(exec, slots());
  for (index_t t = 0; t < s_.T; t += length) {
    const index_t rows = std::min(length, s_.T - t);
    const auto part = [&](const auto& whole) { return whole.subview({0, t, 0}, {s_.B, rows, s_.d}); };
    call(exec, part(x_.in(x_.q)), part(x_.in(x_.k)), part(x_.in(x_.v)), part(x_.out(x_.y)),
         {.causal = true, .stream = slots()});
  }
}

void stream_call::uncut(const aft::cpu& exec) {
  call(exec, x_.in(x_.q), x_.in(x_.k), x_.in(x_.v), x_.out(x_.y), {.causal = true});
}

double stream_call::kept_bytes(index_t position) const {
  const index_t kept = std::min(spec_.reach() + 1, position);
  return 2.0 * static_cast<double>(sizeof(float)) * static_cast<double>(kept * s_.d * s_.B);
}

}  // namespace aft_bench
