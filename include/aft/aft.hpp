// SPDX-License-Identifier: Apache-2.0
/// @file aft.hpp  The Attention Free Transformer operators: the one header that users include.
#pragma once

#include <aft/core/any_view.hpp>
#include <aft/core/config.hpp>
#include <aft/core/errors.hpp>
#include <aft/core/executors.hpp>
#include <aft/core/numeric.hpp>
#include <aft/core/options.hpp>
#include <aft/core/tensor_view.hpp>
#include <aft/core/version.hpp>
#include <aft/math/bias.hpp>
#include <aft/math/window.hpp>
