// SPDX-License-Identifier: Apache-2.0

#include "common/byte_lm/writer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace examples::byte_lm {

template <class Real>
writer<Real>::writer(model<Real>& network, const std::string& prompt, const writing& how)
    : model_(network),
      bytes_(prompt.begin(), prompt.end()),
      prompt_size_(prompt.size()),
      how_(how),
      random_(how.seed, purpose::sample),
      stream_(network.make_stream()),
      logits_(vocabulary),
      sums_(vocabulary) {}

template <class Real>
std::uint8_t writer<Real>::next() {
  const auto size = static_cast<index_t>(bytes_.size());
  const index_t context = model_.shape().context;
  if ((how_.restart || !model_.unlimited()) && size - begin_ > context) {
    begin_ = size - (context + 1) / 2;
    stream_.reset();
  }
  if (how_.how == decoding::stream)
    go_on();
  else
    model_.logits(size - begin_, bytes_.data() + begin_, size - begin_ - 1, logits_.data());
  bytes_.push_back(draw());
  return bytes_.back();
}

/// Shows the stream what it has not seen: a byte, or as many as a call takes of a prompt.
template <class Real>
void writer<Real>::go_on() {
  const index_t end = static_cast<index_t>(bytes_.size()) - begin_;
  while (stream_.position < end) {
    const index_t count = std::min(end - stream_.position, model_.shape().context);
    model_.logits(stream_, bytes_.data() + begin_ + stream_.position, count, logits_.data());
  }
}

template <class Real>
std::uint8_t writer<Real>::draw() {
  const Real top = *std::max_element(logits_.begin(), logits_.end());
  double sum = 0;
  for (index_t i = 0; i < vocabulary; ++i)
    sums_[i] = sum += std::exp(static_cast<double>(logits_[i] - top) / how_.temperature);
  const auto drawn = std::upper_bound(sums_.begin(), sums_.end(), random_.uniform() * sum);
  return static_cast<std::uint8_t>(std::min<std::ptrdiff_t>(drawn - sums_.begin(), vocabulary - 1));
}

template <class Real>
std::string writer<Real>::text() const {
  return {bytes_.begin() + static_cast<std::ptrdiff_t>(prompt_size_), bytes_.end()};
}

decoding_seconds measure_decoding(model<float>& network) {
  using clock = std::chrono::steady_clock;
  const auto seconds_of = [](auto&& work) {
    const auto start = clock::now();
    work();
    return std::chrono::duration<double>(clock::now() - start).count();
  };
  const index_t context = network.shape().context;
  const std::vector<std::uint8_t> text(static_cast<std::size_t>(context), ' ');
  buffer<float> logits(vocabulary);
  model_stream<float> stream = network.make_stream();
  decoding_seconds shortest{1e9, 1e9};
  for (int i = 0; i < 25; ++i) {
    shortest.recompute = std::min(
        shortest.recompute, seconds_of([&] { network.logits(context, text.data(), context - 1, logits.data()); }));
    // Some bytes at the end of the context: the first finds the weights of the model thrown out of the caches.
    const index_t last = std::min(context, index_t{8});
    stream.reset();
    if (last < context) network.logits(stream, text.data(), context - last, logits.data());
    for (index_t t = context - last; t < context; ++t)
      shortest.stream =
          std::min(shortest.stream, seconds_of([&] { network.logits(stream, text.data() + t, 1, logits.data()); }));
  }
  return shortest;
}

template class writer<float>;
template class writer<double>;

}  // namespace examples::byte_lm
