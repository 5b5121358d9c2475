// SPDX-License-Identifier: Apache-2.0
/// @file json_lines.hpp  What a run finds, a line of JSON each: kept whatever becomes of the program afterwards.
#pragma once

#include <string>
#include <string_view>

namespace aft::gpu {

/// From now on lines go to the end of this file, each with the name of the stage. Without a file they go nowhere.
void open_lines(const char* path, std::string stage);

/// A line of these members, `"name": value, ...`, in one write that has reached the disk when this returns: a card that
/// takes the machine with it, or the end of a time limit, leaves whole lines.
void write_line(const std::string& members);

/// In quotes, with what JSON does not allow there replaced.
std::string quoted(std::string_view text);

/// Cases that the tests' filters have let through. A stage whose filter fits nothing would pass for nothing.
int cases_run();

}  // namespace aft::gpu
