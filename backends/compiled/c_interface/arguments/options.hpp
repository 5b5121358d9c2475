// SPDX-License-Identifier: Apache-2.0
/// @file arguments/options.hpp  From the options of the C interface, of whatever version, to those of C++ and an
/// executor.
#pragma once

#include <aft/aft.h>

#include <aft/core/executors.hpp>
#include <aft/core/problem/options.hpp>

#include "place.hpp"

namespace aft::c_interface {

/// What a C++ caller says in two arguments, and where that is to happen.
struct settings {
  options opt{};
  cpu exec{};  ///< where the place is the host
  place where{};
};

/// The whole struct, of a call that was given these tensors; NULL is the defaults.
settings read_options(const char* op, const aft_options* o, std::initializer_list<named> given);
/// Only where to run, for calls that have no options in C++.
settings read_executor(const char* op, const aft_options* o, std::initializer_list<named> given);

}  // namespace aft::c_interface
