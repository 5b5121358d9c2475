// SPDX-License-Identifier: Apache-2.0
//
// Weights of another model to begin with: how AFT, section 5.3, makes an AFT-conv of a trained Transformer. What mixes
// positions is another model's own, so that queries and keys are left as they start; values, outputs, MLPs, norms,
// patches and the head are taken.
#pragma once

#include "common/layers/parameter.hpp"
#include "common/training/safetensors.hpp"

#include <filesystem>
#include <map>
#include <string>

namespace examples::vision {

/// What another program calls the tensors of this one. Empty: the same.
class name_table {
 public:
  /// A JSON object of this program's names and the other's, such as
  ///   {"block.{}.mlp.up": "blocks.{}.mlp.fc1.weight^T"}
  /// with {} for the number of a block, and ^T behind a matrix that is stored (out, in). Throws user_error.
  static name_table read(const std::filesystem::path& file);

  bool empty() const { return names_.empty(); }
  /// The other's name of a tensor, with its ^T; empty where it has none.
  std::string of(const std::string& name) const;

 private:
  std::map<std::string, std::string> names_;
};

/// Copies what the file has for these parameters, and returns for how many that was. Of a joint projection of queries,
/// keys and values the values' columns alone, its last ones. What the file lacks starts as it did, unless the table
/// names it. Throws user_error, before anything is changed, where a tensor is missing or does not fit, or none is
/// there.
index_t begin_with(const safetensors::file& from, const name_table& names, const parameter_list<float>& parameters);

}  // namespace examples::vision
