# SPDX-License-Identifier: Apache-2.0
# The C interface's sources, for whoever builds a library of them. They are C++ on <aft/aft.hpp> and compile with kernels in
# the same file as well as against a library that holds them.
set(AFT_C_INTERFACE_SOURCES "")
foreach(_aft_source arguments/biases arguments/calls arguments/options arguments/place arguments/streams arguments/tensors attention_map errors filters
        gradients operators streams version)
  list(APPEND AFT_C_INTERFACE_SOURCES "${CMAKE_CURRENT_LIST_DIR}/${_aft_source}.cpp")
endforeach()
