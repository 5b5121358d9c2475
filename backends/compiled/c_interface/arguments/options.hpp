// SPDX-License-Identifier: Apache-2.0
/// @file arguments/options.hpp  From the options of the C interface, of whatever version, to those of C++ and an
/// executor.
#pragma once

#include <aft/aft.h>

#include <aft/core/executors.hpp>
#include <aft/core/problem/options.hpp>

namespace aft::c_interface {

/// What a C++ caller says in two arguments.
struct settings {
  options opt{};
  cpu exec{};
};

/// The whole struct; NULL is the defaults.
settings read_options(const char* op, const aft_options* o);
/// Only where to run, for calls that have no options in C++.
cpu read_executor(const char* op, const aft_options* o);

}  // namespace aft::c_interface
