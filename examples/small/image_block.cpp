// SPDX-License-Identifier: Apache-2.0
//
// One mixing step on a batch of images, channels first as image libraries store them: AFT-conv with filters that are
// normalised per head (AFT Eq. 8), and the gradients of their parameters.

#include <aft/aft.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

std::vector<float> waves(aft::index_t size, float step) {
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(step * static_cast<float>(i));
  return x;
}

}  // namespace

int main() {
  constexpr aft::index_t B = 2, H = 14, W = 14, d = 32, heads = 4, side = 7;
  // A (B, channels, H, W) tensor as the (B, H, W, channels) view that calls take: the memory stays as it is.
  const auto image = []<class T>(T* data, aft::index_t channels) {
    return aft::tensor_view<T, 4>{data, {B, channels, H, W}}.permute({0, 2, 3, 1});
  };
  // Keys are shared by the channels of a head, as in the papers.
  const std::vector<float> q = waves(B * d * H * W, 0.11F), k = waves(B * heads * H * W, 0.23F);
  const std::vector<float> v = waves(B * d * H * W, 0.37F), raw = waves(heads * side * side, 0.71F);
  const std::vector<float> gain(heads, 1.0F), shift(heads, 0.0F);
  std::vector<float> filter(raw.size()), y(q.size());

  const auto taps = [](auto& x) { return aft::as_view(x.data(), {heads, side, side}); };
  const auto per_head = [](auto& x) { return aft::as_view(x.data(), {heads}); };
  aft::reparameterize(taps(raw), per_head(gain), per_head(shift), taps(filter));
  const auto vq = image(q.data(), d), vk = image(k.data(), heads), vv = image(v.data(), d);
  aft::conv(vq, vk, vv, taps(filter), image(y.data(), d));

  // The loss is |y|^2 / 2, so that dy is y. Only the filter's parameters are trained here.
  std::vector<float> dfilter(raw.size()), draw(raw.size()), dgain(heads), dshift(heads);
  aft::conv_backward(vq, vk, vv, taps(filter), image(y.data(), d), aft::no_grad, aft::no_grad, aft::no_grad,
                     taps(dfilter));
  aft::reparameterize_backward(taps(raw), per_head(gain), per_head(shift), taps(dfilter), taps(draw), per_head(dgain),
                               per_head(dshift));

  // Step down the slope of the gain: the loss has to fall by about step * |slope|^2.
  const auto loss = [](const std::vector<float>& x) {
    double sum = 0;
    for (float value : x) sum += 0.5 * static_cast<double>(value) * static_cast<double>(value);
    return sum;
  };
  const double before = loss(y);
  std::vector<float> stepped(gain);
  double promised = 0;
  for (std::size_t h = 0; h < stepped.size(); ++h) {
    stepped[h] -= 1e-2F * dgain[h];
    promised += 1e-2 * static_cast<double>(dgain[h]) * static_cast<double>(dgain[h]);
  }
  aft::reparameterize(taps(raw), per_head(stepped), per_head(shift), taps(filter));
  aft::conv(vq, vk, vv, taps(filter), image(y.data(), d));
  const double fell = before - loss(y);
  std::printf("the loss fell by %.2f of what its slope promised\n", fell / promised);
  return std::abs(fell / promised - 1) < 0.1 ? 0 : 1;
}
