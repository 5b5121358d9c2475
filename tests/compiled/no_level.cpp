// SPDX-License-Identifier: Apache-2.0
// The library on a processor with none of its levels, here one that was built without any: every operator, forward and
// backward, in both types of arithmetic, says so and writes nothing.
#include <aft/aft.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

int calls = 0, faults = 0;

template <class T, class F>
void refused(const char* what, const std::vector<T>& out, F call) {
  ++calls;
  std::string said = "nothing";
  try {
    call();
  } catch (const aft::device_error& error) {
    said = error.what();
  }
  bool written = false;
  for (const T& x : out) written = written || x != T(7);
  if (said.find("none of the instruction sets that the library was built for") != std::string::npos && !written) return;
  std::printf("%s said: %s%s\n", what, said.c_str(), written ? ", and wrote" : "");
  ++faults;
}

template <class T>
void call_all() {
  constexpr aft::index_t B = 1, t = 3, d = 2;
  const std::vector<T> x(static_cast<std::size_t>(B * t * d), T(1)), w(static_cast<std::size_t>(t * t), T(0));
  std::vector<T> out(x.size(), T(7));
  const aft::tensor_view<const T, 3> in{x.data(), {B, t, d}};
  const aft::tensor_view<T, 3> y{out.data(), {B, t, d}};
  const aft::dense_bias bias{aft::tensor_view<const T, 2>{w.data(), {t, t}}};
  const aft::tensor_view<const T, 2> r{w.data(), {1, 3}}, values{w.data(), {1, 1}};
  const std::vector<aft::index_t> offset(1, 0);
  const aft::sparse_filter taps{aft::tensor_view<const aft::index_t, 2>{offset.data(), {1, 1}}, values};
  constexpr aft::window strict = aft::window::strict(2);
  constexpr auto no = aft::no_grad;

  refused("full", out, [&] { aft::full(aft::cpu{}, in, in, in, bias, y); });
  refused("local", out, [&] { aft::local(aft::cpu{}, in, in, in, bias, strict, y); });
  refused("simple", out, [&] { aft::simple(aft::cpu{}, in, in, in, y); });
  refused("conv", out, [&] { aft::conv(aft::cpu{}, in, in, in, r, y); });
  refused("conv, sparse", out, [&] { aft::conv(aft::cpu{}, in, in, in, taps, y); });
  refused("full_backward", out, [&] { aft::full_backward(aft::cpu{}, in, in, in, bias, in, no, y, no, no); });
  refused("local_backward", out, [&] { aft::local_backward(aft::cpu{}, in, in, in, bias, strict, in, no, y, no, no); });
  refused("simple_backward", out, [&] { aft::simple_backward(aft::cpu{}, in, in, in, in, no, y, no); });
  refused("conv_backward", out, [&] { aft::conv_backward(aft::cpu{}, in, in, in, r, in, no, y, no, no); });
  refused("conv_backward, sparse", out, [&] { aft::conv_backward(aft::cpu{}, in, in, in, taps, in, no, y, no, no); });

  const aft::stream_spec spec = aft::stream_spec::simple<T>(d, d);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(spec.bytes())));
  const aft::stream_view<aft::host_space> slots{spec, memory, 1};
  aft::reset(aft::cpu{}, slots);
  const std::vector<std::byte> before(memory, memory + spec.bytes());
  refused("simple, a stream", out, [&] { aft::simple(aft::cpu{}, in, in, in, y, {.causal = true, .stream = slots}); });
  if (std::memcmp(before.data(), memory, before.size()) != 0) {
    std::printf("a refused call changed a slot\n");
    ++faults;
  }
  std::free(memory);
}

}  // namespace

int main() {
  call_all<float>();
  call_all<double>();
  if (std::string(aft::isa()) != "none") {
    std::printf("the level is called %s\n", aft::isa());
    ++faults;
  }
  std::printf("%d calls, %d faults\n", calls, faults);
  return faults == 0 ? 0 : 1;
}
