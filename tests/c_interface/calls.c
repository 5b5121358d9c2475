/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator forward and backward, by the C interface and by C++, in every type: the same bits. On the host, or
   with AFT_CALLS_ON_DEVICE on a device. */
#include <aft/aft.h>

#include <stdio.h>
#include <string.h>

#include "call_memory.h"

/* Aligned for every type. */
typedef union block {
  double align;
  unsigned char bytes[ROOMS * ROOM];
} block;
static block filled, in_c, in_cpp;
static struct call_memory memory;

static void* room(int at) {
  return memory.block + at * ROOM;
}

/* Bits of an element, and DLPack's code. */
static const uint8_t bits_of[TYPES] = {32, 64, 16, 16};
static const uint8_t code_of[TYPES] = {2, 2, 2, 4};

static int compute_type(int type) {
  return type == TYPE_DOUBLE ? TYPE_DOUBLE : TYPE_FLOAT;
}

static aft_tensor tensor(int at, int type, int32_t ndim, const int64_t* shape) {
  aft_tensor t;
  memset(&t, 0, sizeof t);
  t.data = room(at);
  t.device.type = DEVICE_TYPE;
  t.device.id = DEVICE_ID;
  t.ndim = ndim;
  t.dtype.code = code_of[type];
  t.dtype.bits = bits_of[type];
  t.dtype.lanes = 1;
  t.shape = shape;
  return t;
}

static aft_tensor integers(int at, uint8_t code, uint8_t bits, int32_t ndim, const int64_t* shape) {
  aft_tensor t = tensor(at, TYPE_FLOAT, ndim, shape);
  t.dtype.code = code;
  t.dtype.bits = bits;
  return t;
}

/* The shapes of the data of a call, channels last. */
static int32_t fill_shape(int call, int64_t channels, int64_t* shape) {
  int32_t n = 0;
  shape[n++] = call == CALL_PACKED ? 1 : BATCH;
  if (call == CALL_CONV_2 || call == CALL_CONV_SPARSE) {
    shape[n++] = 3;
    shape[n++] = 4;
  } else if (call == CALL_CONV_3) {
    shape[n++] = 2;
    shape[n++] = 3;
    shape[n++] = 2;
  } else {
    shape[n++] = call == CALL_PACKED ? BATCH * LENGTH : LENGTH;
  }
  shape[n++] = channels;
  return n;
}

/* Without them a call would be on the default stream. */
static aft_options options(void) {
  aft_options o;
  memset(&o, 0, sizeof o);
  o.size = sizeof o;
  o.cuda_stream = stream_of_calls();
  return o;
}

/* Two calls that go on from slots; then a slot is forked, and their positions are told. */
static int call_stream(int call, int type) {
  static const int64_t dense_shape[] = {HEADS, LENGTH, LENGTH}, band_shape[] = {HEADS, LENGTH, WIDTH};
  static const int64_t taps_shape[] = {HEADS, 3}, ids_shape[] = {BATCH}, one_shape[] = {1};
  const int64_t data_strides[] = {LENGTH * CHANNELS, CHANNELS, 1};
  const int64_t state_strides[] = {LENGTH * KEY_CHANNELS, KEY_CHANNELS, 1};
  const int64_t key_strides[] = {LENGTH * KEY_STRIDE, KEY_STRIDE, 1};
  const int compute = compute_type(type);
  const aft_tensor w = tensor(AT_W, compute, 3, dense_shape), taps = tensor(AT_W, compute, 2, taps_shape);
  const aft_tensor band = tensor(AT_W, type, 3, band_shape);
  const aft_bias dense = {AFT_DENSE, &w, NULL, NULL}, banded = {AFT_BANDED, &band, NULL, NULL};
  aft_tensor slot_ids = integers(AT_IDS, 0, 32, 1, ids_shape), state;
  aft_tensor source = integers(AT_IDS, 0, 32, 1, one_shape), target = source;
  const aft_options bare = options();
  int64_t state_shape[2], bytes = 0, first = 0;
  aft_stream_spec spec;
  aft_stream stream;
  int code, slot;

  memset(&spec, 0, sizeof spec);
  spec.op = call == CALL_STREAM_FULL    ? AFT_FULL
            : call == CALL_STREAM_LOCAL ? AFT_LOCAL
                                        : (call == CALL_STREAM_SIMPLE ? AFT_SIMPLE : AFT_CONV);
  spec.dtype.code = code_of[type];
  spec.dtype.bits = bits_of[type];
  spec.dtype.lanes = 1;
  spec.d = CHANNELS;
  spec.hk = KEY_CHANNELS;
  spec.before = BEFORE;
  spec.after = AFTER;
  spec.taps = 3;
  spec.capacity = LENGTH;
  code = aft_stream_bytes(&spec, &bytes);
  if (code != AFT_OK) return code;
  if (SLOTS * bytes > SLOT_MEMORY) return -1;
  state_shape[0] = SLOTS;
  state_shape[1] = bytes;
  state = integers(AT_Q, 1, 8, 2, state_shape);
  state.data = memory.slots;
  stream.spec = &spec;
  stream.state = &state;
  code = aft_stream_reset(&stream, -1, &bare);
  source.byte_offset = ID_FROM * sizeof(int32_t);
  target.byte_offset = ID_TO * sizeof(int32_t);
  while (code == AFT_OK && first < LENGTH) {
    const int64_t count = first == 0 ? FIRST_PART : LENGTH - FIRST_PART;
    const int64_t data_shape[] = {BATCH, count, CHANNELS}, key_shape[] = {BATCH, count, KEY_CHANNELS};
    const uint64_t size = (uint64_t)(bits_of[type] / 8), row = (uint64_t)first * CHANNELS * size;
    aft_tensor q = tensor(AT_Q, type, 3, data_shape), k = tensor(AT_K, type, 3, key_shape);
    aft_tensor v = tensor(AT_V, type, 3, data_shape), y = tensor(AT_Y, type, 3, data_shape);
    aft_tensor lse = tensor(AT_LSE, compute, 3, key_shape), average = tensor(AT_AVERAGE, type, 3, data_shape);
    aft_options o = options();
    o.causal = 1;
    o.gate = gate_of_call(call);
    o.lse = &lse;
    o.average = &average;
    o.stream = &stream;
    o.slot_ids = &slot_ids;
    q.strides = v.strides = y.strides = average.strides = data_strides;
    k.strides = key_strides;
    lse.strides = state_strides;
    q.byte_offset = y.byte_offset = average.byte_offset = row;
    v.byte_offset = row + V_OFFSET * size;
    k.byte_offset = (uint64_t)first * KEY_STRIDE * size;
    lse.byte_offset = (uint64_t)first * KEY_CHANNELS * (uint64_t)(bits_of[compute] / 8);
    if (call == CALL_STREAM_FULL) code = aft_full(&q, &k, &v, &dense, &y, &o);
    if (call == CALL_STREAM_LOCAL) code = aft_local(&q, &k, &v, &banded, BEFORE, AFTER, &y, &o);
    if (call == CALL_STREAM_SIMPLE) code = aft_simple(&q, &k, &v, &y, &o);
    if (call == CALL_STREAM_CONV) code = aft_conv(&q, &k, &v, &taps, &y, &o);
    first += count;
  }
  if (code == AFT_OK) code = aft_stream_copy(&stream, &source, &target, &bare);
  for (slot = 0; code == AFT_OK && slot < SLOTS; ++slot)
    code = aft_stream_position(&stream, slot, memory.positions + slot, &bare);
  return code;
}

static int call_operator(int call, int type) {
  static const int64_t dense_shape[] = {HEADS, LENGTH, LENGTH}, band_shape[] = {HEADS, LENGTH, WIDTH};
  static const int64_t u_shape[] = {HEADS, LENGTH, FACTORS}, v_shape[] = {LENGTH, FACTORS};
  static const int64_t taps_shape[] = {HEADS, 3}, plane_shape[] = {HEADS, 3, 2}, cube_shape[] = {HEADS, 2, 3, 1};
  static const int64_t mask_shape[] = {LENGTH}, lengths_shape[] = {BATCH}, offsets_shape[] = {SEQUENCES + 1};
  const int compute = compute_type(type);
  int64_t data_shape[5], key_shape[5], key_strides[5];
  const int32_t n = fill_shape(call, CHANNELS, data_shape), key_axes = fill_shape(call, KEY_CHANNELS, key_shape);
  aft_tensor q = tensor(AT_Q, type, n, data_shape), k = tensor(AT_K, type, key_axes, key_shape);
  aft_tensor v = tensor(AT_V, type, n, data_shape), y = tensor(AT_Y, type, n, data_shape);
  aft_tensor dy = tensor(AT_DY, type, n, data_shape), dq = tensor(AT_DQ, type, n, data_shape);
  aft_tensor dk = tensor(AT_DK, type, n, key_shape), dv = tensor(AT_DV, type, n, data_shape);
  aft_tensor lse = tensor(AT_LSE, compute, n, key_shape), average = tensor(AT_AVERAGE, type, n, data_shape);
  aft_tensor mask = integers(AT_MASK, 6, 8, 1, mask_shape), lengths = integers(AT_LENGTHS, 0, 32, 1, lengths_shape);
  aft_tensor offsets = integers(AT_OFFSETS, 0, 32, 1, offsets_shape);
  aft_tensor w = tensor(AT_W, compute, 3, dense_shape), dw = tensor(AT_DW, compute, 3, dense_shape);
  aft_tensor band = tensor(AT_W, type, 3, band_shape), dband = tensor(AT_DW, type, 3, band_shape);
  aft_tensor u = tensor(AT_U, type, 3, u_shape), du = tensor(AT_DU, type, 3, u_shape);
  aft_tensor fv = tensor(AT_FACTOR_V, type, 2, v_shape), dfv = tensor(AT_DFACTOR_V, type, 2, v_shape);
  aft_bias bias = {AFT_DENSE, &w, NULL, NULL}, dbias = {AFT_DENSE, &dw, NULL, NULL};
  aft_options o = options();
  const aft_options bare = o;
  int code = AFT_OK;
  int32_t i;

  offsets.data = memory.host + AT_OFFSETS * ROOM;
  offsets.device.type = 1;

  key_strides[n - 1] = 1;
  key_strides[n - 2] = KEY_STRIDE;
  for (i = n - 2; i-- > 0;) key_strides[i] = key_strides[i + 1] * key_shape[i + 1];
  k.strides = key_strides;
  v.byte_offset = V_OFFSET * (uint64_t)(bits_of[type] / 8);

  o.causal = !is_grid(call);
  o.gate = gate_of_call(call);
  if (call == CALL_PACKED) {
    o.query_offsets = o.key_offsets = &offsets;
  } else {
    o.mask = &mask;
    o.key_lengths = &lengths;
  }
  if (call != CALL_ATTENTION_MAP) {
    o.lse = &lse;
    o.average = &average;
  }
  if (call == CALL_FULL_FACTORIZED || call == CALL_LOCAL_FACTORIZED) {
    bias.kind = dbias.kind = AFT_FACTORIZED;
    bias.u = &u;
    bias.v = &fv;
    dbias.u = &du;
    dbias.v = &dfv;
  } else if (call == CALL_LOCAL_BANDED || call == CALL_PACKED) {
    bias.kind = dbias.kind = AFT_BANDED;
    bias.w = &band;
    dbias.w = &dband;
  }
  switch (call) {
    case CALL_FULL_DENSE:
    case CALL_FULL_FACTORIZED:
      code = aft_full(&q, &k, &v, &bias, &y, &o);
      return code != AFT_OK ? code : aft_full_backward(&q, &k, &v, &bias, &dy, &dq, &dk, &dv, &dbias, &o);
    case CALL_LOCAL_DENSE:
    case CALL_LOCAL_FACTORIZED:
    case CALL_LOCAL_BANDED:
    case CALL_PACKED:
      code = aft_local(&q, &k, &v, &bias, BEFORE, AFTER, &y, &o);
      return code != AFT_OK ? code
                            : aft_local_backward(&q, &k, &v, &bias, BEFORE, AFTER, &dy, &dq, &dk, &dv, &dbias, &o);
    case CALL_SIMPLE:
      code = aft_simple(&q, &k, &v, &y, &o);
      return code != AFT_OK ? code : aft_simple_backward(&q, &k, &v, &dy, &dq, &dk, &dv, &o);
    case CALL_CONV_1:
    case CALL_CONV_2:
    case CALL_CONV_3:
      w.ndim = dw.ndim = call == CALL_CONV_1 ? 2 : (call == CALL_CONV_2 ? 3 : 4);
      w.shape = dw.shape = call == CALL_CONV_1 ? taps_shape : (call == CALL_CONV_2 ? plane_shape : cube_shape);
      code = aft_conv(&q, &k, &v, &w, &y, &o);
      return code != AFT_OK ? code : aft_conv_backward(&q, &k, &v, &w, &dy, &dq, &dk, &dv, &dw, &o);
    case CALL_CONV_SPARSE: {
      static const int64_t offsets_of_taps[] = {HEADS, SPARSE_TAPS, 2}, values_shape[] = {HEADS, SPARSE_TAPS};
      const aft_tensor taps = integers(AT_TAPS, 0, 32, 3, offsets_of_taps);
      w.ndim = dw.ndim = 2;
      w.shape = dw.shape = values_shape;
      code = aft_conv_sparse(&q, &k, &v, &taps, &w, &y, &o);
      return code != AFT_OK ? code : aft_conv_sparse_backward(&q, &k, &v, &taps, &w, &dy, &dq, &dk, &dv, &dw, &o);
    }
    case CALL_REPARAMETERIZE: {
      /* r in the room of w, gain and shift in those of q and v; only the number of threads is read of the options. */
      static const int64_t heads_shape[] = {HEADS};
      aft_tensor gain = tensor(AT_Q, type, 1, heads_shape), shift = tensor(AT_U, type, 1, heads_shape);
      aft_tensor dgain = tensor(AT_DQ, type, 1, heads_shape), dshift = tensor(AT_DU, type, 1, heads_shape);
      aft_tensor out = tensor(AT_Y, type, 3, plane_shape), dout = tensor(AT_DY, type, 3, plane_shape);
      w.shape = dw.shape = plane_shape;
      code = aft_reparameterize(&w, &gain, &shift, &out, &o);
      return code != AFT_OK ? code : aft_reparameterize_backward(&w, &gain, &shift, &dout, &dw, &dgain, &dshift, &bare);
    }
    case CALL_SPARSITY: {
      /* The filter in the room of w, noise in that of u; entropies, their slopes and the form of inference in others.
       */
      static const int64_t heads_shape[] = {HEADS};
      aft_tensor entropy = tensor(AT_DK, type, 1, heads_shape), dentropy = tensor(AT_DY, type, 1, heads_shape);
      aft_tensor slopes = tensor(AT_DV, type, 3, plane_shape), hard = tensor(AT_DQ, type, 3, plane_shape);
      aft_tensor noise = tensor(AT_U, type, 3, plane_shape), out = tensor(AT_Y, type, 3, plane_shape);
      aft_tensor dout = tensor(AT_DY, type, 3, plane_shape);
      w.shape = dw.shape = plane_shape;
      code = aft_filter_entropy(&w, &entropy, &o);
      if (code == AFT_OK) code = aft_filter_entropy_backward(&w, &dentropy, &slopes, &bare);
      if (code == AFT_OK) code = aft_gumbel_filter(&w, &noise, 0.5, &out, &o);
      if (code == AFT_OK) code = aft_gumbel_filter_backward(&w, &noise, 0.5, &dout, &dw, &bare);
      return code != AFT_OK ? code : aft_gumbel_filter_hard(&w, &hard, &bare);
    }
    default: {
      static const int64_t map_shape[] = {BATCH, LENGTH, LENGTH, CHANNELS};
      aft_tensor out = tensor(AT_DW, type, 4, map_shape);
      return aft_attention_map(&k, &bias, &out, &o);
    }
  }
}

static int failed_call(int call, int type) {
  const size_t bytes = sizeof filled.bytes;
  int64_t positions[SLOTS];
  size_t i, changed = 0;
  int code;
  fill_block(type, filled.bytes);
  memset(memory.positions, 0, sizeof memory.positions);
  write_memory(memory.block, filled.bytes, bytes);
  code = is_stream(call) ? call_stream(call, type) : call_operator(call, type);
  read_memory(in_c.bytes, memory.block, bytes);
  /* Two blocks that nobody wrote to would be equal too. */
  for (i = 0; i < bytes; ++i) changed += in_c.bytes[i] != filled.bytes[i];
  if (code != AFT_OK) {
    printf("call %d, type %d: code %d, %s\n", call, type, code, aft_last_error());
    return 1;
  }
  memcpy(positions, memory.positions, sizeof positions);
  write_memory(memory.block, filled.bytes, bytes);
  call_in_cpp(call, type, &memory);
  read_memory(in_cpp.bytes, memory.block, bytes);
  if (changed >= 64 && memcmp(in_c.bytes, in_cpp.bytes, bytes) == 0 &&
      memcmp(positions, memory.positions, sizeof positions) == 0)
    return 0;
  for (i = 0; i < bytes && in_c.bytes[i] == in_cpp.bytes[i]; ++i) continue;
  printf("call %d, type %d: %u bytes written, the first other one in room %u\n", call, type, (unsigned)changed,
         (unsigned)(i / ROOM));
  return 1;
}

int failed_calls(void) {
  int type, call, failed = 0;
  memory.block = (unsigned char*)take_memory(sizeof filled.bytes);
  memory.host = filled.bytes;
  memory.slots = take_memory(SLOT_MEMORY);
  for (type = 0; type < TYPES; ++type) {
    for (call = 0; call < CALLS; ++call) failed += failed_call(call, type);
  }
  if (aft_version() < 100) {
    printf("version %d\n", aft_version());
    ++failed;
  }
  printf("%d of %d calls failed, version %d, %s\n", failed, TYPES * CALLS, aft_version(), aft_isa());
  return failed;
}
