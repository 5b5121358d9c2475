// SPDX-License-Identifier: Apache-2.0
#pragma once

/// AFT-simple of one element on the device, from a file that nvcc compiles. Throws what aft throws.
void call_from_cuda_file(const float* x, float* y);
/// The same as the first position of a slot, of which `slot` is the memory.
void continue_from_cuda_file(const float* x, float* y, void* slot);
