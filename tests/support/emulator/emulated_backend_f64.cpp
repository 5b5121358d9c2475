// SPDX-License-Identifier: Apache-2.0
#include <aft/cuda/backend.hpp>

AFT_CUDA_INSTANTIATE(double);
