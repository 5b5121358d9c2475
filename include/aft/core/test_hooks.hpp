// SPDX-License-Identifier: Apache-2.0
/// @file test_hooks.hpp  Sizes that the tests make small, to reach on short sequences what long ones are made for.
///
/// A file that sets any of them compiles other code under the same template names. The name of the namespace that
/// depends on the instruction set therefore holds their values, so that the linker never takes one for the other.
#pragma once

#if defined(AFT_PARALLEL_GRAIN) || defined(AFT_WEIGHT_BYTES) || defined(AFT_OUTER_BYTES) || defined(AFT_OUTER_KEYS) || \
    defined(AFT_SEQUENCE_KEYS)
#define AFT_TEST_HOOKS 1
#else
#define AFT_TEST_HOOKS 0
#endif

// Numbers alone, as they become part of a name.
#if !defined(AFT_PARALLEL_GRAIN)
#define AFT_PARALLEL_GRAIN 4194304
#endif
#if !defined(AFT_WEIGHT_BYTES)
#define AFT_WEIGHT_BYTES 16777216
#endif
#if !defined(AFT_OUTER_BYTES)
#define AFT_OUTER_BYTES 524288
#endif
#if !defined(AFT_OUTER_KEYS)
#define AFT_OUTER_KEYS 4096
#endif
#if !defined(AFT_SEQUENCE_KEYS)
#define AFT_SEQUENCE_KEYS 0  // the measured lengths
#endif

#if AFT_TEST_HOOKS
#define AFT_JOIN_HOOKS_(isa, grain, weights, outer, keys, sequence) \
  isa##_hooks_##grain##_##weights##_##outer##_##keys##_##sequence
#define AFT_JOIN_HOOKS(...) AFT_JOIN_HOOKS_(__VA_ARGS__)
/// The name `isa` for code that these sizes belong to.
#define AFT_WITH_HOOKS(isa) \
  AFT_JOIN_HOOKS(isa, AFT_PARALLEL_GRAIN, AFT_WEIGHT_BYTES, AFT_OUTER_BYTES, AFT_OUTER_KEYS, AFT_SEQUENCE_KEYS)
#else
#define AFT_WITH_HOOKS(isa) isa
#endif
