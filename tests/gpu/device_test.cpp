// SPDX-License-Identifier: Apache-2.0
// What only a real device can show: streams, graphs, errors that leave the context usable.
#include <doctest/doctest.h>

#include <aft/aft.hpp>

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

using aft::index_t;

namespace {

/// Numbers in device memory.
template <class T>
class device_array {
 public:
  explicit device_array(const std::vector<T>& x) : size_(x.size()) {
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()) == cudaSuccess);
    write(x);
  }
  device_array(const device_array&) = delete;
  device_array& operator=(const device_array&) = delete;
  ~device_array() { (void)cudaFree(data_); }

  T* data() const { return data_; }
  void write(const std::vector<T>& x) const {
    REQUIRE(cudaMemcpy(data_, x.data(), bytes(), cudaMemcpyHostToDevice) == cudaSuccess);
    // Of pageable memory it may return before the last part is on the device, and other streams do not wait for it.
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  std::vector<T> read() const {
    std::vector<T> x(size_);
    REQUIRE(cudaMemcpy(x.data(), data_, bytes(), cudaMemcpyDeviceToHost) == cudaSuccess);
    return x;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(T); }
  std::size_t size_;
  T* data_ = nullptr;
};
using device_floats = device_array<float>;

// Enough keys and channels for tensor cores.
constexpr index_t B = 2, T = 70, d = 24;

std::vector<float> ramp(std::size_t n, float step) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(step * static_cast<float>(i));
  return x;
}

/// AFT-full and its gradients on device memory.
struct tensors {
  device_floats q{ramp(B * T * d, 0.1f)}, k{ramp(B * T * d, 0.3f)}, v{ramp(B * T * d, 0.7f)}, w{ramp(T * T, 0.2f)};
  device_floats y{ramp(B * T * d, 0)}, dk{ramp(B * T * d, 0)}, dw{ramp(T * T, 0)};

  static aft::tensor_view<const float, 3, aft::device_space> in(const device_floats& x) {
    return {x.data(), {B, T, d}};
  }
  static aft::tensor_view<float, 3, aft::device_space> out(const device_floats& x) { return {x.data(), {B, T, d}}; }

  void run(cudaStream_t stream) const {
    const aft::cuda exec{stream};
    const aft::dense_bias bias{aft::tensor_view<const float, 2, aft::device_space>{w.data(), {T, T}}};
    const aft::dense_bias dbias{aft::tensor_view<float, 2, aft::device_space>{dw.data(), {T, T}}};
    aft::full(exec, in(q), in(k), in(v), bias, out(y));
    aft::full_backward(exec, in(q), in(k), in(v), bias, in(y), aft::no_grad, out(dk), aft::no_grad, dbias);
  }
  std::vector<std::vector<float>> results() const { return {y.read(), dk.read(), dw.read()}; }
  void clear() const {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const device_floats* x : {&y, &dk}) x->write(std::vector<float>(B * T * d, nan));
    dw.write(std::vector<float>(T * T, nan));
  }
};

/// What `calls` does on the stream, as a graph. A capture that throws is ended all the same: as long as one is open, no
/// test after it can take memory.
template <class F>
cudaGraph_t captured(cudaStream_t stream, F calls) {
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  try {
    calls(stream);
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    throw;
  }
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  return graph;
}

}  // namespace

TEST_CASE("gpu: a captured graph gives the bits of the calls, at each replay") {
  tensors x;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  x.run(stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const auto direct = x.results();

  const cudaGraph_t graph = captured(stream, [&](cudaStream_t s) { x.run(s); });
  cudaGraphExec_t instance = nullptr;
  REQUIRE(cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess);
  for (int replay = 0; replay < 2; ++replay) {
    x.clear();
    REQUIRE(cudaGraphLaunch(instance, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(x.results() == direct);
  }
  CHECK(cudaGraphExecDestroy(instance) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("gpu: so does one of a bfloat16 product, whose kernels ask for more shared memory than others") {
  using number = aft::bfloat16;
  const auto numbers = [](std::size_t n, float step) {
    std::vector<number> x;
    for (float e : ramp(n, step)) x.push_back(number(e));
    return x;
  };
  const device_array<number> q(numbers(B * T * d, 0.1f)), k(numbers(B * T * d, 0.3f)), v(numbers(B * T * d, 0.7f));
  const device_array<number> w(numbers(T * T, 0.2f)), y(numbers(B * T * d, 0));
  const auto in = [](const device_array<number>& x) {
    return aft::tensor_view<const number, 3, aft::device_space>{x.data(), {B, T, d}};
  };
  const auto run = [&](cudaStream_t stream) {
    const aft::dense_bias bias{aft::tensor_view<const number, 2, aft::device_space>{w.data(), {T, T}}};
    aft::full(aft::cuda{stream}, in(q), in(k), in(v), bias,
              aft::tensor_view<number, 3, aft::device_space>{y.data(), {B, T, d}});
  };
  const auto bits = [&] {
    std::vector<std::uint16_t> all;
    for (number x : y.read()) all.push_back(x.bits);
    return all;
  };
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const cudaGraph_t graph = captured(stream, run);  // before any other call has asked
  run(stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  const auto direct = bits();
  cudaGraphExec_t instance = nullptr;
  REQUIRE(cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess);
  for (int replay = 0; replay < 2; ++replay) {
    y.write(numbers(B * T * d, 0));
    REQUIRE(cudaGraphLaunch(instance, stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(bits() == direct);
  }
  CHECK(cudaGraphExecDestroy(instance) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("gpu: each replay of a captured step takes the next position of its slots") {
  constexpr index_t steps = 12, window = 3;
  const aft::stream_spec spec = aft::stream_spec::local<float>(d, d, {window, 0});
  const device_array<std::byte> slots(std::vector<std::byte>(static_cast<std::size_t>(spec.bytes() * B)));
  const device_floats q(ramp(B * d, 0.1f)), k(ramp(B * d, 0.3f)), v(ramp(B * d, 0.7f)), y(ramp(B * d, 0));
  const device_floats band(ramp(static_cast<std::size_t>(steps * (window + 1)), 0.2f));
  const aft::stream_view<aft::device_space> st{spec, slots.data(), B};
  const auto in = [](const device_floats& x) {
    return aft::tensor_view<const float, 3, aft::device_space>{x.data(), {B, 1, d}};
  };
  const auto step = [&](cudaStream_t s) {
    const aft::banded_bias bias{aft::tensor_view<const float, 2, aft::device_space>{band.data(), {steps, window + 1}}};
    aft::local(aft::cuda{s}, in(q), in(k), in(v), bias, {window, 0},
               aft::tensor_view<float, 3, aft::device_space>{y.data(), {B, 1, d}},
               aft::options{.causal = true, .stream = st});
  };
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const cudaGraph_t graph = captured(stream, step);
  cudaGraphExec_t instance = nullptr;
  REQUIRE(cudaGraphInstantiate(&instance, graph, 0) == cudaSuccess);
  std::vector<std::vector<float>> results[2];
  for (const bool replayed : {false, true}) {
    aft::reset(aft::cuda{stream}, st);
    for (index_t t = 0; t < steps; ++t) {
      if (replayed) {
        REQUIRE(cudaGraphLaunch(instance, stream) == cudaSuccess);
      } else {
        step(stream);
      }
      CHECK(aft::position(aft::cuda{stream}, st, 1) == t + 1);
      results[replayed ? 1 : 0].push_back(y.read());
    }
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0][0] != results[0][1]);
  CHECK(cudaGraphExecDestroy(instance) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("gpu: calls on several streams at once give the same bits") {
  tensors x, other;
  x.run(nullptr);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const auto alone = x.results();
  cudaStream_t streams[2];
  for (auto& s : streams) REQUIRE(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) == cudaSuccess);
  for (int round = 0; round < 10; ++round) {
    x.run(streams[0]);
    other.run(streams[1]);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(x.results() == alone);
  CHECK(other.results() == alone);
  for (auto& s : streams) CHECK(cudaStreamDestroy(s) == cudaSuccess);
}

TEST_CASE("gpu: a call that asks for more memory than there is throws, and the device works afterwards") {
  // The scratch of a backward call holds dy gate(q), 4 TB here; broadcast views need no memory themselves.
  const index_t huge = index_t{1} << 36;
  device_floats one(std::vector<float>(16, 1.0f));
  const aft::tensor_view<const float, 3, aft::device_space> in{one.data(), {1, huge, 16}, {0, 0, 1}};
  const aft::tensor_view<const float, 3, aft::device_space> keys{one.data(), {1, 1, 16}};
  const aft::tensor_view<float, 3, aft::device_space> out{one.data(), {1, 1, 16}};
  device_floats gradient(std::vector<float>(16, 7.0f));
  const aft::tensor_view<float, 3, aft::device_space> dk{gradient.data(), {1, 1, 16}};
  CHECK_THROWS_AS(aft::simple_backward(aft::cuda{}, in, keys, keys, in, aft::no_grad, dk, aft::no_grad),
                  aft::device_error);
  CHECK(gradient.read() == std::vector<float>(16, 7.0f));
  tensors x;
  x.run(nullptr);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(std::isfinite(x.y.read()[0]));
  (void)out;
}
