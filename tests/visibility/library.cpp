// SPDX-License-Identifier: Apache-2.0
// A shared library with hidden symbols that lets the exceptions of its calls through.
#include <aft/aft.hpp>

[[gnu::visibility("default")]] void wrong_shape();
[[gnu::visibility("default")]] void wrong_tensor();
[[gnu::visibility("default")]] void lost_device();

void wrong_shape() {
  float r[3] = {1, 2, 3}, gain[1] = {1}, out[2];
  const aft::tensor_view<float, 1> head{gain, {1}};
  aft::reparameterize(aft::tensor_view<float, 2>{r, {1, 3}}, head, head, aft::tensor_view<float, 2>{out, {1, 2}});
}

void wrong_tensor() {
  struct tensor {
    void* data;
    struct {
      int device_type, device_id;
    } device;
    int ndim;
    struct {
      unsigned char code, bits;
      unsigned short lanes;
    } dtype;
    std::int64_t *shape, *strides;
    std::uint64_t byte_offset;
  };
  std::int64_t shape[1] = {1};
  const tensor t{nullptr, {1, 0}, 1, {0, 64, 1}, shape, nullptr, 0};
  aft::from_dlpack<const float, 1>(t);
}

void lost_device() {
  throw aft::device_error("aft::simple: cudaErrorIllegalAddress");
}
