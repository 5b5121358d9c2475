/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of a library with CUDA, where there may be no GPU: calls on the host are right, and each call on a
   device that is not there says so by CUDA's name for it. On a machine with GPUs the device is one beyond them. */
#include <aft/aft.h>

#include <stdio.h>
#include <string.h>

/* In calls.cpp. */
int failures_in_cpp(int has_gpu);

enum { NO_DEVICE = 99, SIZE = 4 };

static float input[64], written[64];
static int32_t integers[16];
static unsigned char bytes_of_slots[4096];
static const int64_t data_shape[] = {1, SIZE, 1}, bias_shape[] = {SIZE, SIZE}, filter_shape[] = {1, 3};
static const int64_t one[] = {1}, map_shape[] = {1, SIZE, SIZE, 1}, taps_shape[] = {1, 3};
static int failed;

static void expect(int holds, const char* what) {
  if (holds) return;
  printf("wrong: %s: %s\n", what, aft_last_error());
  ++failed;
}

static aft_tensor tensor(void* data, int32_t device, int32_t ndim, const int64_t* shape) {
  aft_tensor t;
  memset(&t, 0, sizeof t);
  t.data = data;
  t.device.type = device < 0 ? 1 : 2;
  t.device.id = device < 0 ? 0 : device;
  t.ndim = ndim;
  t.dtype.code = 2;
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

/* That a call ended with this code and wrote nothing. */
static void expect_refusal(int code, int expected, const char* op, const char* text) {
  size_t i, changed = 0;
  for (i = 0; i < sizeof written / sizeof *written; ++i) changed += written[i] != 42;
  expect(code == expected, op);
  expect(strncmp(aft_last_error(), op, strlen(op)) == 0 && strstr(aft_last_error(), text) != NULL, op);
  expect(changed == 0, "nothing written");
}

/* Every function on a device; what CUDA says has `text` in it. */
static void call_all(int32_t device, const char* text) {
  const aft_tensor x = tensor(input, device, 3, data_shape), y = tensor(written, device, 3, data_shape);
  const aft_tensor w = tensor(input, device, 2, bias_shape), r = tensor(input, device, 2, filter_shape);
  const aft_tensor number = tensor(input, device, 1, one), out = tensor(written, device, 2, filter_shape);
  const aft_tensor to_number = tensor(written, device, 1, one), map = tensor(written, device, 4, map_shape);
  const aft_tensor values = tensor(input, device, 2, taps_shape);
  const aft_bias bias = {AFT_DENSE, &w, NULL, NULL};
  const int code = AFT_DEVICE_ERROR;
  aft_tensor taps = tensor(integers, device, 2, taps_shape);
  taps.dtype.code = 0;
  expect_refusal(aft_full(&x, &x, &x, &bias, &y, NULL), code, "aft::full", text);
  expect_refusal(aft_local(&x, &x, &x, &bias, 1, 1, &y, NULL), code, "aft::local", text);
  expect_refusal(aft_simple(&x, &x, &x, &y, NULL), code, "aft::simple", text);
  expect_refusal(aft_conv(&x, &x, &x, &r, &y, NULL), code, "aft::conv", text);
  expect_refusal(aft_conv_sparse(&x, &x, &x, &taps, &values, &y, NULL), code, "aft::conv", text);
  expect_refusal(aft_full_backward(&x, &x, &x, &bias, &x, &y, NULL, NULL, NULL, NULL), code, "aft::full_backward",
                 text);
  expect_refusal(aft_local_backward(&x, &x, &x, &bias, 1, 1, &x, &y, NULL, NULL, NULL, NULL), code,
                 "aft::local_backward", text);
  expect_refusal(aft_simple_backward(&x, &x, &x, &x, &y, NULL, NULL, NULL), code, "aft::simple_backward", text);
  expect_refusal(aft_conv_backward(&x, &x, &x, &r, &x, &y, NULL, NULL, NULL, NULL), code, "aft::conv_backward", text);
  expect_refusal(aft_conv_sparse_backward(&x, &x, &x, &taps, &values, &x, &y, NULL, NULL, NULL, NULL), code,
                 "aft::conv_backward", text);
  expect_refusal(aft_reparameterize(&r, &number, &number, &out, NULL), code, "aft::reparameterize", text);
  expect_refusal(aft_reparameterize_backward(&r, &number, &number, &r, &out, NULL, NULL, NULL), code,
                 "aft::reparameterize_backward", text);
  expect_refusal(aft_filter_entropy(&r, &to_number, NULL), code, "aft::filter_entropy", text);
  expect_refusal(aft_filter_entropy_backward(&r, &number, &out, NULL), code, "aft::filter_entropy_backward", text);
  expect_refusal(aft_gumbel_filter(&r, &r, 0.5, &out, NULL), code, "aft::gumbel_filter", text);
  expect_refusal(aft_gumbel_filter_backward(&r, &r, 0.5, &r, &out, NULL), code, "aft::gumbel_filter_backward", text);
  expect_refusal(aft_gumbel_filter_hard(&r, &out, NULL), code, "aft::gumbel_filter_hard", text);
  expect_refusal(aft_attention_map(&x, &bias, &map, NULL), code, "aft::attention_map", text);
}

static void call_streams(int32_t device, const char* text) {
  aft_stream_spec spec;
  aft_tensor state, ids = tensor(integers, device, 1, one), other;
  aft_stream stream;
  int64_t shape[2] = {2, 0}, position = -7;
  size_t i, changed = 0;
  memset(&spec, 0, sizeof spec);
  spec.op = AFT_SIMPLE;
  spec.dtype.code = 2;
  spec.dtype.bits = 32;
  spec.dtype.lanes = 1;
  spec.d = spec.hk = 1;
  expect(aft_stream_bytes(&spec, shape + 1) == AFT_OK && 2 * shape[1] + 64 <= (int64_t)sizeof bytes_of_slots, "bytes");
  state = tensor(bytes_of_slots + (64 - (uintptr_t)bytes_of_slots % 64), device, 2, shape);
  state.dtype.code = 1;
  state.dtype.bits = 8;
  ids.dtype.code = 0;
  other = ids;
  other.byte_offset = 4;
  stream.spec = &spec;
  stream.state = &state;
  expect_refusal(aft_stream_reset(&stream, -1, NULL), AFT_DEVICE_ERROR, "aft::reset", text);
  expect_refusal(aft_stream_copy(&stream, &ids, &other, NULL), AFT_DEVICE_ERROR, "aft::copy", text);
  expect_refusal(aft_stream_position(&stream, 0, &position, NULL), AFT_DEVICE_ERROR, "aft::position", text);
  for (i = 0; i < sizeof bytes_of_slots; ++i) changed += bytes_of_slots[i] != 0;
  expect(position == -7 && changed == 0, "slots are as they were");
}

static void call_wrongly(void) {
  const aft_tensor host = tensor(input, -1, 3, data_shape), x = tensor(input, NO_DEVICE, 3, data_shape);
  const aft_tensor other = tensor(input, NO_DEVICE + 1, 3, data_shape), y = tensor(written, NO_DEVICE, 3, data_shape);
  aft_tensor taps = tensor(integers, -1, 2, taps_shape), values = tensor(input, NO_DEVICE, 2, taps_shape);
  taps.dtype.code = 0;
  expect_refusal(aft_simple(&x, &host, &x, &y, NULL), AFT_SHAPE_ERROR, "aft::simple", "argument 'k'");
  expect_refusal(aft_simple(&x, &x, &other, &y, NULL), AFT_SHAPE_ERROR, "aft::simple", "argument 'v'");
  expect_refusal(aft_simple(&host, &host, &host, &y, NULL), AFT_SHAPE_ERROR, "aft::simple", "argument 'y'");
  expect_refusal(aft_conv_sparse(&x, &x, &x, &taps, &values, &y, NULL), AFT_SHAPE_ERROR, "aft::conv",
                 "argument 'taps'");
}

static void call_host(void) {
  float y[SIZE], k[SIZE] = {0, 0, 0, 0}, v[SIZE] = {1, 2, 3, 6};
  const aft_tensor keys = tensor(k, -1, 3, data_shape), values = tensor(v, -1, 3, data_shape);
  const aft_tensor out = tensor(y, -1, 3, data_shape);
  aft_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.gate = AFT_GATE_NONE;
  o.cuda_stream = integers; /* not looked at */
  expect(aft_simple(NULL, &keys, &values, &out, &o) == AFT_OK, "a call on the host");
  expect(y[0] == 3 && y[SIZE - 1] == 3, "the average of 1, 2, 3 and 6");
}

int main(void) {
  const aft_tensor x = tensor(input, NO_DEVICE, 3, data_shape), y = tensor(written, NO_DEVICE, 3, data_shape);
  size_t i;
  int has_gpu;
  for (i = 0; i < sizeof written / sizeof *written; ++i) written[i] = 42;
  for (i = 0; i < SIZE; ++i) integers[i] = (int32_t)i;
  expect_refusal(aft_simple(&x, &x, &x, &y, NULL), AFT_DEVICE_ERROR, "aft::simple", "cudaError");
  printf("%s\n", aft_last_error());
  has_gpu = strstr(aft_last_error(), "cudaErrorInvalidDevice") != NULL;
  call_all(NO_DEVICE, "cudaError");
  call_streams(NO_DEVICE, "cudaError");
  if (!has_gpu) {
    /* The first of none. */
    call_all(0, "cudaError");
    call_streams(0, "cudaError");
  }
  call_wrongly();
  call_host();
  failed += failures_in_cpp(has_gpu);
  printf("%s: %d failures, %s\n", has_gpu ? "a machine with a GPU" : "no GPU here", failed, aft_isa());
  return failed != 0;
}
