// SPDX-License-Identifier: Apache-2.0
/// @file instruction_set.hpp  The name of the instructions that a file is compiled for.
///
/// Files of one name share one copy of every template, whichever of them the linker keeps. So the name tells apart all
/// flags under which a compiler writes other instructions: those that our code and xsimd ask for by macros, and those
/// that the compiler takes by itself, as shlx for a shift. Left out are extensions that only intrinsics reach which
/// neither we nor xsimd use (AES, SHA, AMX), and those of operating systems (XSAVE).
///
/// Levels that compilers know have short names: isa_sse2 is x86-64, isa_sse4_2 x86-64-v2, isa_avx2_fma x86-64-v3,
/// isa_avx512 x86-64-v4, isa_neon armv8-a. What a file has beyond its level follows in words, as in isa_avx512_bf16;
/// `only` comes before the parts of a level that is not whole, as in isa_avx2_only_fma_f16c.
#pragma once

// AFT_ISA_IF(macro, word) is the word where the compiler defines the macro as 1 (or as a version, for RISC-V), else
// nothing: the name that is pasted from the value is then no macro, and the second argument the empty one.
#define AFT_ISA_SET_1 ,
#define AFT_ISA_SET_1000000 ,
#define AFT_ISA_SET_2000000 ,
#define AFT_ISA_SECOND(a, b, ...) b
#define AFT_ISA_CHOOSE(a, word) AFT_ISA_SECOND(a word, , )
#define AFT_ISA_PASTE(value, word) AFT_ISA_CHOOSE(AFT_ISA_SET_##value, word)
#define AFT_ISA_IF(macro, word) AFT_ISA_PASTE(macro, word)

// Each word begins with an underscore: before it is joined it stands alone, where a plain one might be a program's
// macro.
#define AFT_ISA_JOIN_10(a, b, c, d, e, f, g, h, i, j, ...) a##b##c##d##e##f##g##h##i##j
#define AFT_ISA_JOIN(...) AFT_ISA_JOIN_10(__VA_ARGS__, , , , , , , , , , )

#if defined(__SSE2__) || defined(_M_X64)
// Each of these has those below it.
#if defined(__AVX512F__) && defined(__AVX512CD__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
#define AFT_ISA_VECTORS isa_avx512
#elif defined(__AVX512F__)
#define AFT_ISA_VECTORS                                                                                     \
  AFT_ISA_JOIN(isa_avx512f, AFT_ISA_IF(__AVX512CD__, _cd), AFT_ISA_IF(__AVX512BW__, _bw),                   \
               AFT_ISA_IF(__AVX512DQ__, _dq), AFT_ISA_IF(__AVX512VL__, _vl), AFT_ISA_IF(__AVX512ER__, _er), \
               AFT_ISA_IF(__AVX512PF__, _pf), AFT_ISA_IF(__AVX5124FMAPS__, _4fmaps),                        \
               AFT_ISA_IF(__AVX5124VNNIW__, _4vnniw))
#elif defined(__AVX2__)
#define AFT_ISA_VECTORS isa_avx2
#elif defined(__AVX__)
#define AFT_ISA_VECTORS isa_avx
#elif defined(__SSE4_2__)
#define AFT_ISA_VECTORS isa_sse4_2
#elif defined(__SSE4_1__)
#define AFT_ISA_VECTORS isa_sse4_1
#elif defined(__SSSE3__)
#define AFT_ISA_VECTORS isa_ssse3
#elif defined(__SSE3__)
#define AFT_ISA_VECTORS isa_sse3
#else
#define AFT_ISA_VECTORS isa_sse2
#endif

// The levels' other parts: x86-64-v3 has all of them, x86-64-v2 the first.
#define AFT_ISA_PARTS                                                                                   \
  AFT_ISA_JOIN(AFT_ISA_IF(__POPCNT__, _popcnt), AFT_ISA_IF(__FMA__, _fma), AFT_ISA_IF(__F16C__, _f16c), \
               AFT_ISA_IF(__BMI__, _bmi), AFT_ISA_IF(__BMI2__, _bmi2), AFT_ISA_IF(__LZCNT__, _lzcnt),   \
               AFT_ISA_IF(__MOVBE__, _movbe))
#if defined(__AVX2__) && defined(__POPCNT__) && defined(__FMA__) && defined(__F16C__) && defined(__BMI__) && \
    defined(__BMI2__) && defined(__LZCNT__) && defined(__MOVBE__)
#if defined(__AVX512F__)
#define AFT_ISA_LEVEL AFT_ISA_VECTORS
#else
#define AFT_ISA_LEVEL isa_avx2_fma
#endif
#elif defined(__SSE4_2__) && !defined(__AVX2__) && defined(__POPCNT__) && !defined(__FMA__) && !defined(__F16C__) && \
    !defined(__BMI__) && !defined(__BMI2__) && !defined(__LZCNT__) && !defined(__MOVBE__)
#define AFT_ISA_LEVEL AFT_ISA_VECTORS
#elif defined(__SSE4_2__)
#define AFT_ISA_LEVEL AFT_ISA_JOIN(AFT_ISA_VECTORS, _only, AFT_ISA_PARTS)
#else
#define AFT_ISA_LEVEL AFT_ISA_JOIN(AFT_ISA_VECTORS, AFT_ISA_PARTS)
#endif

// Ice Lake's six, which later processors have together: one word keeps -march=native short.
#if defined(__AVX512IFMA__) && defined(__AVX512VBMI__) && defined(__AVX512VBMI2__) && defined(__AVX512VNNI__) && \
    defined(__AVX512BITALG__) && defined(__AVX512VPOPCNTDQ__)
#define AFT_ISA_OF_AVX512 _icl
#else
#define AFT_ISA_OF_AVX512                                                              \
  AFT_ISA_JOIN(AFT_ISA_IF(__AVX512IFMA__, _ifma), AFT_ISA_IF(__AVX512VBMI__, _vbmi),   \
               AFT_ISA_IF(__AVX512VBMI2__, _vbmi2), AFT_ISA_IF(__AVX512VNNI__, _vnni), \
               AFT_ISA_IF(__AVX512BITALG__, _bitalg), AFT_ISA_IF(__AVX512VPOPCNTDQ__, _vpopcntdq))
#endif
#define AFT_ISA_OF_AVX                                                                                             \
  AFT_ISA_JOIN(AFT_ISA_IF(__AVXVNNI__, _avxvnni), AFT_ISA_IF(__AVXIFMA__, _avxifma),                               \
               AFT_ISA_IF(__AVXVNNIINT8__, _vnni8), AFT_ISA_IF(__AVXVNNIINT16__, _vnni16),                         \
               AFT_ISA_IF(__AVXNECONVERT__, _neconvert), AFT_ISA_IF(__GFNI__, _gfni), AFT_ISA_IF(__FMA4__, _fma4), \
               AFT_ISA_IF(__XOP__, _xop), AFT_ISA_IF(__AVX10_1__, _avx10_1), AFT_ISA_IF(__AVX10_2__, _avx10_2))
// Prefetches among them: where PRFCHW is missing, its opcode need not be a no-op.
#define AFT_ISA_OF_SCALARS                                                                                        \
  AFT_ISA_JOIN(AFT_ISA_IF(__SSE4A__, _sse4a), AFT_ISA_IF(__TBM__, _tbm), AFT_ISA_IF(__PRFCHW__, _prfchw),         \
               AFT_ISA_IF(__3dNOW__, _3dnow), AFT_ISA_IF(__PREFETCHWT1__, _wt1), AFT_ISA_IF(__RAOINT__, _raoint), \
               AFT_ISA_IF(__APX_F__, _apx))
#define AFT_ISA_OF_COMPILER                                                                                            \
  AFT_ISA_JOIN(AFT_ISA_LEVEL, AFT_ISA_OF_AVX512, AFT_ISA_IF(__AVX512BF16__, _bf16), AFT_ISA_IF(__AVX512FP16__, _fp16), \
               AFT_ISA_OF_AVX, AFT_ISA_OF_SCALARS)

#elif defined(__aarch64__)
// A vector of a length that the flags fix is a type of its own to xsimd; without one, the compiler alone uses SVE.
#if defined(__ARM_FEATURE_SVE) && defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS > 0
#define AFT_ISA_VECTORS AFT_ISA_JOIN(isa_sve, __ARM_FEATURE_SVE_BITS)
#else
#define AFT_ISA_VECTORS AFT_ISA_JOIN(isa_neon, AFT_ISA_IF(__ARM_FEATURE_SVE, _sve))
#endif
#if defined(__ARM_FEATURE_ATOMICS) && defined(__ARM_FEATURE_QRDMX) && defined(__ARM_FEATURE_DOTPROD) && \
    defined(__ARM_FEATURE_COMPLEX) && defined(__ARM_FEATURE_JCVT) && defined(__ARM_FEATURE_RCPC)
#define AFT_ISA_LEVEL AFT_ISA_JOIN(AFT_ISA_VECTORS, _v8_4)
#else
#define AFT_ISA_LEVEL                                                                                           \
  AFT_ISA_JOIN(AFT_ISA_VECTORS, AFT_ISA_IF(__ARM_FEATURE_ATOMICS, _lse), AFT_ISA_IF(__ARM_FEATURE_QRDMX, _rdm), \
               AFT_ISA_IF(__ARM_FEATURE_DOTPROD, _dotprod), AFT_ISA_IF(__ARM_FEATURE_COMPLEX, _fcma),           \
               AFT_ISA_IF(__ARM_FEATURE_JCVT, _jscvt), AFT_ISA_IF(__ARM_FEATURE_RCPC, _rcpc))
#endif
#define AFT_ISA_OF_VECTORS                                                                                            \
  AFT_ISA_JOIN(AFT_ISA_IF(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC, _fp16), AFT_ISA_IF(__ARM_FEATURE_FP16_FML, _fhm),     \
               AFT_ISA_IF(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC, _bf16), AFT_ISA_IF(__ARM_FEATURE_MATMUL_INT8, _i8mm), \
               AFT_ISA_IF(__ARM_FEATURE_SHA3, _sha3), AFT_ISA_IF(__ARM_FEATURE_FRINT, _frint),                        \
               AFT_ISA_IF(__ARM_FEATURE_SVE2, _sve2), AFT_ISA_IF(__ARM_FEATURE_SVE2p1, _sve2p1),                      \
               AFT_ISA_IF(__ARM_FEATURE_SVE_BF16, _svebf16), AFT_ISA_IF(__ARM_FEATURE_SVE_MATMUL_FP32, _f32mm))
// Return addresses are signed by instructions that older processors lack where the level is their own.
#define AFT_ISA_OF_SCALARS                                                                     \
  AFT_ISA_JOIN(AFT_ISA_IF(__ARM_FEATURE_PAUTH, _pauth), AFT_ISA_IF(__ARM_FEATURE_MOPS, _mops), \
               AFT_ISA_IF(__ARM_FEATURE_SME, _sme))
#define AFT_ISA_OF_COMPILER AFT_ISA_JOIN(AFT_ISA_LEVEL, AFT_ISA_OF_VECTORS, AFT_ISA_OF_SCALARS)

#elif defined(__arm__)
#define AFT_ISA_OF_COMPILER                                                                         \
  AFT_ISA_JOIN(isa_arm, __ARM_ARCH, AFT_ISA_IF(__thumb2__, _thumb2), AFT_ISA_IF(__ARM_NEON, _neon), \
               AFT_ISA_IF(__ARM_FEATURE_FMA, _fma), AFT_ISA_IF(__ARM_FEATURE_IDIV, _idiv))

#elif defined(__powerpc__) || defined(__powerpc64__)
#if defined(__VSX__) && defined(_ARCH_PWR11)
#define AFT_ISA_OF_COMPILER isa_vsx_power11
#elif defined(__VSX__) && defined(_ARCH_PWR10)
#define AFT_ISA_OF_COMPILER AFT_ISA_JOIN(isa_vsx_power10, AFT_ISA_IF(__MMA__, _mma))
#elif defined(__VSX__) && defined(_ARCH_PWR9)
#define AFT_ISA_OF_COMPILER isa_vsx_power9
#elif defined(__VSX__) && defined(_ARCH_PWR8)
#define AFT_ISA_OF_COMPILER isa_vsx_power8
#elif defined(__VSX__)
#define AFT_ISA_OF_COMPILER isa_vsx
#else
#define AFT_ISA_OF_COMPILER AFT_ISA_JOIN(isa_power, AFT_ISA_IF(__ALTIVEC__, _altivec), AFT_ISA_IF(_ARCH_PWR8, _8))
#endif

#elif defined(__s390x__) && defined(__ARCH__)
// __VEC__, vectors in the language, is what xsimd asks for; __VX__ what the compiler may use.
#if defined(__VEC__)
#define AFT_ISA_OF_COMPILER AFT_ISA_JOIN(isa_vxe, __ARCH__)
#else
#define AFT_ISA_OF_COMPILER AFT_ISA_JOIN(isa_s390x, __ARCH__, AFT_ISA_IF(__VX__, _vx))
#endif

#elif defined(__riscv)
#if defined(__riscv_v_fixed_vlen)
#define AFT_ISA_VECTORS AFT_ISA_JOIN(isa_rvv, __riscv_v_fixed_vlen)
#else
#define AFT_ISA_VECTORS AFT_ISA_JOIN(isa_riscv, AFT_ISA_IF(__riscv_vector, _v))
#endif
#define AFT_ISA_OF_COMPILER                                                                                 \
  AFT_ISA_JOIN(AFT_ISA_VECTORS, AFT_ISA_IF(__riscv_compressed, _c), AFT_ISA_IF(__riscv_zba, _zba),          \
               AFT_ISA_IF(__riscv_zbb, _zbb), AFT_ISA_IF(__riscv_zbs, _zbs), AFT_ISA_IF(__riscv_zfh, _zfh), \
               AFT_ISA_IF(__riscv_zfa, _zfa), AFT_ISA_IF(__riscv_zicond, _zicond), AFT_ISA_IF(__riscv_zvfh, _zvfh))

#elif defined(__wasm__)
#define AFT_ISA_OF_COMPILER                                                                                   \
  AFT_ISA_JOIN(isa_wasm, AFT_ISA_IF(__wasm_simd128__, _simd128), AFT_ISA_IF(__wasm_relaxed_simd__, _relaxed), \
               AFT_ISA_IF(__wasm_sign_ext__, _sx))

#elif defined(__loongarch__)
#define AFT_ISA_OF_COMPILER \
  AFT_ISA_JOIN(isa_loongarch, AFT_ISA_IF(__loongarch_sx, _lsx), AFT_ISA_IF(__loongarch_asx, _lasx))

#else
#define AFT_ISA_OF_COMPILER isa_generic
#endif

/// The name. The choice of vectors made of plain numbers (docs/install.md) is part of it.
#if defined(AFT_EMULATED_SIMD)
#define AFT_HOST_ISA AFT_ISA_JOIN(AFT_ISA_OF_COMPILER, _emulated)
#else
#define AFT_HOST_ISA AFT_ISA_OF_COMPILER
#endif
