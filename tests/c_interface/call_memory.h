/* SPDX-License-Identifier: Apache-2.0 */
/*! @file call_memory.h  The same calls for C and for C++: their sizes, and where their tensors lie in one block; on the
 * host, or in a program that defines AFT_CALLS_ON_DEVICE on a device. */
#ifndef AFT_TESTS_C_INTERFACE_CALL_MEMORY_H
#define AFT_TESTS_C_INTERFACE_CALL_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*! Grids are 3 x 4 and 2 x 3 x 2, so that all calls have as many positions. */
enum { BATCH = 2, LENGTH = 12, CHANNELS = 4, KEY_CHANNELS = 2, HEADS = 2, FACTORS = 3, BEFORE = 2, AFTER = 1 };
enum { WIDTH = BEFORE + AFTER + 1 };
/*! Packed sequences, in as many rows as a batch has. */
enum { SEQUENCES = 3 };
/*! Streams: so many positions in the first call and the others in a second one, of three slots the last and the first.
 */
enum { FIRST_PART = 5, SLOTS = 3 };

enum { TYPE_FLOAT, TYPE_DOUBLE, TYPE_HALF, TYPE_BFLOAT16, TYPES };
enum {
  CALL_FULL_DENSE,
  CALL_FULL_FACTORIZED,
  CALL_LOCAL_DENSE,
  CALL_LOCAL_FACTORIZED,
  CALL_LOCAL_BANDED,
  CALL_SIMPLE,
  CALL_CONV_1,
  CALL_CONV_2,
  CALL_CONV_3,
  CALL_CONV_SPARSE,
  CALL_PACKED,
  CALL_STREAM_FULL,
  CALL_STREAM_LOCAL,
  CALL_STREAM_SIMPLE,
  CALL_STREAM_CONV,
  CALL_REPARAMETERIZE,
  CALL_SPARSITY,
  CALL_ATTENTION_MAP,
  CALLS
};

/*! Each tensor has a room of its own in a block; what a call writes beyond its tensor is seen. */
enum {
  AT_Q,
  AT_K,
  AT_V,
  AT_Y,
  AT_DY,
  AT_DQ,
  AT_DK,
  AT_DV,
  AT_W,
  AT_U,
  AT_FACTOR_V,
  AT_DW,
  AT_DU,
  AT_DFACTOR_V,
  AT_LSE,
  AT_AVERAGE,
  AT_MASK,
  AT_LENGTHS,
  AT_OFFSETS,
  AT_IDS,
  AT_TAPS,
  ROOMS
};
/*! Bytes: dense biases and maps of double have 2 x 2 x 12 x 12 x 4 elements. */
enum { ROOM = 20480 };

/*! Rows of k are one element longer than its channels, and v begins three elements after its room. */
enum { KEY_STRIDE = KEY_CHANNELS + 1, V_OFFSET = 3 };

/*! Taps of a sparse filter on the grid of CALL_CONV_2, SPARSE_TAPS a head. */
enum { SPARSE_TAPS = 2 };
static const int32_t sparse_offsets[] = {0, 1, -1, 0, 0, 0, 1, -2};

/*! Biases that hold the type of arithmetic instead of the data's: dense ones and filters. The gate differs from call to
 * call, so that each is tried. */
static inline int gate_of_call(int call) {
  return call % 6;
}
static inline int is_stream(int call) {
  return call >= CALL_STREAM_FULL && call <= CALL_STREAM_CONV;
}
static inline int is_grid(int call) {
  return call == CALL_CONV_2 || call == CALL_CONV_3 || call == CALL_CONV_SPARSE;
}

/*! What AT_IDS holds, of int32: the slots of the batch, one slot to copy and where to. */
enum { IDS_OF_BATCH = 0, ID_FROM = BATCH, ID_TO, IDS };

/*! DLPack's numbers, for memory that take_memory gives. */
#if defined(AFT_CALLS_ON_DEVICE)
enum { DEVICE_TYPE = 2, DEVICE_ID = AFT_CALLS_ON_DEVICE };
#else
enum { DEVICE_TYPE = 1, DEVICE_ID = 0 };
#endif
/*! Memory where the calls run, aligned to 64 bytes; it lives as long as the program. */
void* take_memory(size_t bytes);
void write_memory(void* to, const void* from, size_t bytes);
/*! Once all calls before are done. */
void read_memory(void* to, const void* from, size_t bytes);
/*! A stream of the device, NULL on the host. */
void* stream_of_calls(void);

/*! What a call works on: `block` and `slots` are of take_memory; offsets of packed sequences are read from `host`. */
enum { SLOT_MEMORY = 1 << 17 };
struct call_memory {
  unsigned char* block;
  unsigned char* host;
  void* slots;
  int64_t positions[SLOTS];
};

/*! Fills the rooms of inputs with numbers of a type; in C++, which has the types. */
void fill_block(int type, unsigned char* block);
/*! The call, forward and backward, by the C++ interface. */
void call_in_cpp(int call, int type, struct call_memory* memory);
/*! How many of all calls do not have the bits of C++; each of them is printed. */
int failed_calls(void);

#ifdef __cplusplus
}
#endif

#endif
