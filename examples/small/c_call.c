/* SPDX-License-Identifier: Apache-2.0
 *
 * AFT-local from C, forward and backward. Tensors are described as DLPack describes them; where another library hands
 * out a DLTensor*, cast it to const aft_tensor*.
 */
#include <aft/aft.h>

#include <math.h>
#include <stdio.h>

enum { B = 2, T = 16, d = 8, H = 2, before = 3, after = 0, width = before + after + 1 };

static float q[B * T * d], k[B * T * d], v[B * T * d], y[B * T * d], w[H * T * width];
static float dy[B * T * d], dk[B * T * d], dw[H * T * width];

/* Row-major floats of the host. */
static aft_tensor floats(float* data, const int64_t* shape, int32_t ndim) {
  aft_tensor t = {0};
  t.data = data;
  t.device.type = 1; /* kDLCPU */
  t.ndim = ndim;
  t.dtype.code = 2; /* kDLFloat */
  t.dtype.bits = 32;
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

static void refused(const char* what) {
  printf("%s: %s\n", what, aft_last_error());
}

int main(void) {
  const int64_t rows[] = {B, T, d}, band[] = {H, T, width}, wrong[] = {B, T, d / 2, 2};
  const aft_tensor tq = floats(q, rows, 3), tk = floats(k, rows, 3), tv = floats(v, rows, 3), ty = floats(y, rows, 3);
  const aft_tensor tw = floats(w, band, 3), tdw = floats(dw, band, 3), tdy = floats(dy, rows, 3),
                   tdk = floats(dk, rows, 3);
  const aft_tensor four_axes = floats(q, wrong, 4);
  const aft_bias bias = {AFT_BANDED, &tw, NULL, NULL}, dbias = {AFT_BANDED, &tdw, NULL, NULL};
  aft_options o = {0};
  double sum = 0;
  int i;

  for (i = 0; i < B * T * d; ++i) {
    q[i] = (float)sin(0.3 * i);
    k[i] = (float)cos(0.2 * i);
    v[i] = (float)sin(0.1 * i);
    dy[i] = 1;
  }
  for (i = 0; i < H * T * width; ++i) w[i] = (float)sin(0.5 * i);

  o.size = sizeof o;
  o.causal = 1;
  if (aft_local(&tq, &tk, &tv, &bias, before, after, &ty, &o) != AFT_OK) {
    refused("aft_local");
    return 1;
  }
  /* dq and dv are not wanted. */
  if (aft_local_backward(&tq, &tk, &tv, &bias, before, after, &tdy, NULL, &tdk, NULL, &dbias, &o) != AFT_OK) {
    refused("aft_local_backward");
    return 1;
  }
  /* The same number on all keys of a channel would change no weight: their gradients add up to 0. */
  for (i = 0; i < B * T * d; ++i) sum += dk[i];
  printf("aft %d, %s: last y = %.6f, gradients of the keys add up to %.1e\n", aft_version(), aft_isa(),
         (double)y[B * T * d - 1], sum);

  /* A wrong call writes nothing and says why. */
  if (aft_local(&four_axes, &tk, &tv, &bias, before, after, &ty, &o) != AFT_SHAPE_ERROR) return 1;
  refused("four axes");
  return fabs(sum) < 1e-4 ? 0 : 1;
}
