/* SPDX-License-Identifier: Apache-2.0 */
/*! @file aft.h  The C interface: every operator on tensors that are described as DLPack describes them.
 *
 * C99, and C++. The library behind it is the C++ one with its checks, its texts and its bits: what a page of that one
 * says of an operator, of its shapes and of its promises holds here. What is different:
 *
 * - A tensor is an aft_tensor, laid out as DLPack's DLTensor, so that a pointer to one of those can be cast. Rank and
 *   element type are values, and what no C++ program could compile, a wrong type or rank, is AFT_SHAPE_ERROR here.
 * - A call returns a code and throws nothing. One that returns AFT_SHAPE_ERROR, AFT_DEVICE_ERROR or AFT_OUT_OF_MEMORY
 *   has written to none of its tensors.
 * - Indices are b (batch), h (head), t (query position), s (key position), c (channel). q, y and dy are (B, Tq, d), k
 * is (B, Tk, hk), v is (B, Tk, d), or all of them without B; hk divides d. Strides and extents count elements.
 * - Calls may run at the same time on any number of threads.
 *
 * Structs only grow at their end. A tensor argument that is written is `const aft_tensor*` as well: the description is
 * constant, its memory is not.
 */
#ifndef AFT_AFT_H
#define AFT_AFT_H

#include <stddef.h>
#include <stdint.h>

/* Only these functions leave a shared library. */
#if defined(_WIN32) && defined(AFT_C_INTERFACE_EXPORTS)
#define AFT_C_API __declspec(dllexport)
#elif defined(_WIN32)
#define AFT_C_API
#else
#define AFT_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*! What calls return. */
enum {
  AFT_OK = 0,
  AFT_SHAPE_ERROR = 1,   /*!< Arguments that do not fit together: aft::shape_error. Nothing was written. */
  AFT_DEVICE_ERROR = 2,  /*!< A device's failure, by CUDA's name for it, or a tensor on one in a build without CUDA. */
  AFT_OUT_OF_MEMORY = 3, /*!< No scratch memory. */
  AFT_INTERNAL_ERROR = 4 /*!< Anything else, which is a fault of the library. */
};

/*! The function of q that multiplies the average. AFT_GATE_NONE does not read q, which may be NULL then. */
enum { AFT_GATE_SIGMOID, AFT_GATE_NONE, AFT_GATE_IDENTITY, AFT_GATE_RELU, AFT_GATE_TANH, AFT_GATE_SILU };
/*! Pairs outside a window or filter: bias 0, or not seen at all. */
enum { AFT_ZERO_BIAS, AFT_EXCLUDED };
/*! What products of half and bfloat16 data may be made of: operands of that type where it is faster, or float. */
enum { AFT_ARITHMETIC_AUTOMATIC, AFT_ARITHMETIC_FULL };
/*! Kinds of bias. */
enum { AFT_DENSE, AFT_FACTORIZED, AFT_BANDED };
/*! Operators, for aft_stream_spec. */
enum { AFT_FULL, AFT_LOCAL, AFT_SIMPLE, AFT_CONV };

/*! A tensor of somebody else's memory: DLPack's DLTensor, member for member.
 *
 * The element at index 0 of every axis lies at data + byte_offset, a multiple of the element's size. `data` may be NULL
 * where an extent is 0. device.type is 1 or 3 (kDLCPU, kDLCUDAHost) on the host, 2 (kDLCUDA) on the CUDA device
 * device.id, which is AFT_DEVICE_ERROR where the library was built without CUDA, 13 (kDLCUDAManaged) on either; another
 * is AFT_SHAPE_ERROR. All tensors of a call are in one place, which is where it runs, but for query_offsets and
 * key_offsets, which are on the host. dtype.code is 2 for 16, 32 and 64 bits (half, float, double), 4 for bfloat16, 0
 * and 1 for integers, 6 for bool; lanes is 1. `strides` are in elements and may be negative, in inputs 0; NULL is
 * row-major.
 */
typedef struct aft_tensor {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  const int64_t* shape;
  const int64_t* strides;
  uint64_t byte_offset;
} aft_tensor;

/*! A bias, or its gradient. AFT_DENSE: w is (Tq, Tk), (H, Tq, Tk) or (B, H, Tq, Tk). AFT_FACTORIZED: u (Tq, n) or
 * (H, Tq, n), v (Tk, n) or (H, Tk, n), and w[t,s] is the product of their rows. AFT_BANDED, for aft_local alone: w is
 * (Tq, before + after + 1), with a head axis before or without. Elements are of the data's type, or float (double for
 * double data). Members that a kind has no use for are not looked at. */
typedef struct aft_bias {
  int32_t kind;
  const aft_tensor *w, *u, *v;
} aft_bias;

/*! What a stream is of: an operator, the data's type and shape. before and after are those of AFT_LOCAL's window, taps
 * those of AFT_CONV's filter, capacity the positions that AFT_FULL keeps; an operator looks at its own alone. */
typedef struct aft_stream_spec {
  int32_t op;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t d, hk, before, after, taps, capacity;
} aft_stream_spec;

/*! A stream: `state` is (slots, bytes) of uint8, row-major and aligned to 64 bytes, with bytes as aft_stream_bytes
 * gives them. A slot is plain bytes, which aft_stream_reset makes ready. */
typedef struct aft_stream {
  const aft_stream_spec* spec;
  const aft_tensor* state;
} aft_stream;

/*! What every operator can be told beyond its tensors. Zero is the default of every member but `size`, and NULL in
 * place of the whole struct gives the defaults:
 *
 *     aft_options o = {0};
 *     o.size = sizeof o;
 *     o.causal = 1;
 *
 * `size` says which members are there. A library takes members that lie behind it for zero, so that programs of older
 * headers go on; and it refuses, with AFT_SHAPE_ERROR, a byte other than zero behind the members that it knows, so that
 * no option of a newer header is silently left out. */
typedef struct aft_options {
  size_t size;                   /*!< sizeof(aft_options) */
  int32_t causal;                /*!< Other than 0: key s is visible to query t iff s <= first_query + t. */
  int32_t gate;                  /*!< AFT_GATE_SIGMOID and so on. */
  int32_t outside;               /*!< AFT_ZERO_BIAS or AFT_EXCLUDED; aft_local and aft_conv only. */
  int32_t arithmetic;            /*!< AFT_ARITHMETIC_AUTOMATIC or AFT_ARITHMETIC_FULL. */
  int32_t threads;               /*!< The most threads to use, 0: OpenMP's choice. Results do not depend on it. */
  int64_t first_query;           /*!< Query t stands at position first_query + t. */
  const aft_tensor* mask;        /*!< (B|1, Tq|1, Tk), (Tq|1, Tk) or (Tk) of uint8, int8 or bool; 0 hides the pair. */
  const aft_tensor* key_lengths; /*!< (B) of int64 or int32: keys from there on are hidden. */
  const aft_tensor* lse;         /*!< (B, Tq, hk) of float (double for double data): forward writes, backward reads. */
  const aft_tensor* average;     /*!< (B, Tq, d) of the data's type or of lse's: the same. */
  const aft_tensor* query_lengths; /*!< (B) of int64 or int32: rows from there on are padding. */
  const aft_tensor* query_offsets; /*!< (N + 1) of int64 or int32, where packed sequences begin in q and y. */
  const aft_tensor* key_offsets;   /*!< The same for k and v; NULL: as query_offsets. */
  const aft_tensor* slot_ids;      /*!< (B) of int64 or int32: the slot of each batch element; -1: none, skip it. */
  const aft_stream* stream;        /*!< The call's rows are the next positions of these sequences. */
  void* cuda_stream;               /*!< A cudaStream_t of the tensors' device, NULL: its default stream. Only looked at
                                      where tensors are on a device: such a call is then asynchronous on it. */
} aft_options;

/*! aft::full: w[t,s] for every pair, AFT_DENSE or AFT_FACTORIZED. Writes y; y may be q. */
AFT_C_API int aft_full(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias,
                       const aft_tensor* y, const aft_options* o);
/*! aft::local: w[t,s] where t - before <= s <= t + after, 0 elsewhere. aft::window::strict(n) is (n - 1, n - 1),
 * inclusive(n) is (n, n). Any kind of bias. */
AFT_C_API int aft_local(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias,
                        int64_t before, int64_t after, const aft_tensor* y, const aft_options* o);
/*! aft::simple: no bias. */
AFT_C_API int aft_simple(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* y,
                         const aft_options* o);
/*! aft::conv: filter (H, taps) on (B, T, d); (H, kh, kw) on (B, H, W, d); (H, kd, kh, kw) on (B, D, H, W, d). */
AFT_C_API int aft_conv(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* filter,
                       const aft_tensor* y, const aft_options* o);
/*! aft::conv with an aft::sparse_filter: taps (H, m) on (B, T, d), or (H, m, axes) on any grid, of int32 or int64, are
 * the offsets s - t whose bias is not 0, and values (H, m) those biases. No stream. */
AFT_C_API int aft_conv_sparse(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* taps,
                              const aft_tensor* values, const aft_tensor* y, const aft_options* o);

/*! Gradients of aft_full. dy is read; dq, dk, dv have the shapes of q, k, v, dbias is a bias of the same kind and
 * shapes, and all are overwritten. One that is NULL is not wanted and costs nothing. lse and average of the options,
 * where a forward call wrote both, are read; without them they are computed again. */
AFT_C_API int aft_full_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias,
                                const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv,
                                const aft_bias* dbias, const aft_options* o);
/*! Gradients of aft_local. */
AFT_C_API int aft_local_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_bias* bias,
                                 int64_t before, int64_t after, const aft_tensor* dy, const aft_tensor* dq,
                                 const aft_tensor* dk, const aft_tensor* dv, const aft_bias* dbias,
                                 const aft_options* o);
/*! Gradients of aft_simple. */
AFT_C_API int aft_simple_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* dy,
                                  const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv,
                                  const aft_options* o);
/*! Gradients of aft_conv; dfilter has the shape of filter. */
AFT_C_API int aft_conv_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v, const aft_tensor* filter,
                                const aft_tensor* dy, const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv,
                                const aft_tensor* dfilter, const aft_options* o);
/*! Gradients of aft_conv_sparse; dvalues has the shape of values. */
AFT_C_API int aft_conv_sparse_backward(const aft_tensor* q, const aft_tensor* k, const aft_tensor* v,
                                       const aft_tensor* taps, const aft_tensor* values, const aft_tensor* dy,
                                       const aft_tensor* dq, const aft_tensor* dk, const aft_tensor* dv,
                                       const aft_tensor* dvalues, const aft_options* o);

/*! out = gain (r - mean) / std + shift for each head of a filter r; gain and shift are (H), out has the shape of r.
 * Types may differ. Of the options threads and cuda_stream are looked at. */
AFT_C_API int aft_reparameterize(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift,
                                 const aft_tensor* out, const aft_options* o);
/*! Its gradients; dr, dgain and dshift may be NULL. */
AFT_C_API int aft_reparameterize_backward(const aft_tensor* r, const aft_tensor* gain, const aft_tensor* shift,
                                          const aft_tensor* dout, const aft_tensor* dr, const aft_tensor* dgain,
                                          const aft_tensor* dshift, const aft_options* o);
/*! out[h] = -sum p log p with p = softmax(r[h]), the entropy of each head of a filter; out is (H). Types may differ. Of
 * the options threads and cuda_stream are looked at, here and in the four below. */
AFT_C_API int aft_filter_entropy(const aft_tensor* r, const aft_tensor* out, const aft_options* o);
/*! Its gradient; dout is (H), dr has the shape of r and may be NULL. */
AFT_C_API int aft_filter_entropy_backward(const aft_tensor* r, const aft_tensor* dout, const aft_tensor* dr,
                                          const aft_options* o);
/*! out = r softmax((r + noise) / tau) for each head of a filter r; noise and out have its shape, tau is finite and
 * above 0. */
AFT_C_API int aft_gumbel_filter(const aft_tensor* r, const aft_tensor* noise, double tau, const aft_tensor* out,
                                const aft_options* o);
/*! Its gradient for the same noise and tau; dr may be NULL. */
AFT_C_API int aft_gumbel_filter_backward(const aft_tensor* r, const aft_tensor* noise, double tau,
                                         const aft_tensor* dout, const aft_tensor* dr, const aft_options* o);
/*! The form of inference: out is r at each head's largest tap, of equal ones the first, and 0 elsewhere. */
AFT_C_API int aft_gumbel_filter_hard(const aft_tensor* r, const aft_tensor* out, const aft_options* o);
/*! The weights a[t,s,c] that aft_full averages v with: out is (B, Tq, Tk, channels), without B for a batch of one, of
 * any of the four types; channels is a multiple of hk. */
AFT_C_API int aft_attention_map(const aft_tensor* k, const aft_bias* bias, const aft_tensor* out, const aft_options* o);

/*! Bytes of one slot. */
AFT_C_API int aft_stream_bytes(const aft_stream_spec* spec, int64_t* bytes);
/*! Makes a slot empty, whatever it holds; slot -1: all of them. Of the options threads and cuda_stream are looked at,
 * here and in the two below. */
AFT_C_API int aft_stream_reset(const aft_stream* stream, int64_t slot, const aft_options* o);
/*! Copies slots `from` to slots `to`, tensors (n) of int64 or int32: none twice in `to`, none in both. */
AFT_C_API int aft_stream_copy(const aft_stream* stream, const aft_tensor* from, const aft_tensor* to,
                              const aft_options* o);
/*! How many positions a slot has seen. Of one on a device: once all before on the stream is done. */
AFT_C_API int aft_stream_position(const aft_stream* stream, int64_t slot, int64_t* position, const aft_options* o);

/*! What the last call of this thread that failed has to say: the text that the C++ call throws. Empty before any. Valid
 * until the thread's next call that fails; of another thread's calls it knows nothing. */
AFT_C_API const char* aft_last_error(void);
/*! 10000 major + 100 minor + patch, of the library; its header's are AFT_VERSION_MAJOR and so on in C++. */
AFT_C_API int aft_version(void);
/*! The level of instructions that the kernels which run are for, "v3" for instance, as aft::isa(). Static storage. */
AFT_C_API const char* aft_isa(void);

#ifdef __cplusplus
}
#endif

#endif
