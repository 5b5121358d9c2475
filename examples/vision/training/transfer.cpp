// SPDX-License-Identifier: Apache-2.0

#include "vision/training/transfer.hpp"

#include "common/support/user_error.hpp"
#include "common/training/training_state.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace examples::vision {

namespace {

/// A name with {} in the place of its first number, and that number.
std::pair<std::string, std::string> without_number(const std::string& name) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto first = std::find_if(name.begin(), name.end(), digit);
  const auto last = std::find_if_not(first, name.end(), digit);
  if (first == name.end()) return {name, {}};
  return {std::string(name.begin(), first) + "{}" + std::string(last, name.end()), {first, last}};
}

/// The last `columns` numbers of every row of a tensor, for the last ones of every row of a parameter.
struct copy {
  parameter<float>* to;
  const float* from;
  index_t rows, columns, from_columns;
  bool transposed;

  void run() const {
    const index_t own = to->count() / std::max(rows, index_t{1});
    for (index_t r = 0; r < rows; ++r)
      for (index_t c = 0; c < columns; ++c) {
        const index_t at = from_columns - columns + c;
        to->value[static_cast<std::size_t>(r * own + own - columns + c)] =
            transposed ? from[at * rows + r] : from[r * from_columns + at];
      }
  }
};

copy fit(parameter<float>& p, const safetensors::file& file, std::string name) {
  const bool transposed = name.ends_with("^T");
  if (transposed) name.resize(name.size() - 2);
  const auto found = file.tensors().find(name);
  const auto refuse = [&](const std::string& what) -> copy {
    throw user_error("--begin-with: tensor \"" + name + "\" for \"" + p.name + "\" " + what);
  };
  if (found == file.tensors().end()) return refuse("is missing");
  if (found->second.type != "F32") return refuse("has dtype " + found->second.type + ", expected F32");
  std::vector<index_t> shape = found->second.shape;
  if (transposed) std::reverse(shape.begin(), shape.end());
  const bool joint = p.name.ends_with(".project") && p.shape.size() == 2;
  const bool fits = joint ? shape.size() == 2 && shape[0] == p.shape[0] && shape[1] >= p.shape[0] : shape == p.shape;
  if (!fits) return refuse("has shape " + shape_text(shape) + ", expected " + shape_text(p.shape));
  copy c{&p, reinterpret_cast<const float*>(file.data(found->second)), 1, p.count(), p.count(), transposed};
  if (p.shape.size() == 2) c.rows = p.shape[0], c.columns = p.shape[1], c.from_columns = shape[1];
  if (joint) c.columns = p.shape[0];
  return c;
}

}  // namespace

name_table name_table::read(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw user_error("cannot read " + file.string());
  name_table table;
  try {
    table.names_ = nlohmann::json::parse(in).get<std::map<std::string, std::string>>();
  } catch (const nlohmann::json::exception& e) {
    throw user_error(file.string() + ": expected a JSON object of names, " + e.what());
  }
  return table;
}

std::string name_table::of(const std::string& name) const {
  if (names_.empty()) return name;
  const auto [general, number] = without_number(name);
  auto found = names_.find(name);
  if (found == names_.end()) found = names_.find(general);
  if (found == names_.end()) return {};
  std::string theirs = found->second;
  if (const std::size_t at = theirs.find("{}"); at != std::string::npos) theirs.replace(at, 2, number);
  return theirs;
}

index_t begin_with(const safetensors::file& from, const name_table& names, const parameter_list<float>& parameters) {
  std::vector<copy> copies;
  for (parameter<float>* p : parameters) {
    const std::string theirs = names.of(p->name);
    if (theirs.empty() || (names.empty() && !from.tensors().contains(theirs))) continue;
    copies.push_back(fit(*p, from, theirs));
  }
  if (copies.empty()) throw user_error("--begin-with: the file has no tensor of this model");
  for (const copy& c : copies) c.run();
  return static_cast<index_t>(copies.size());
}

}  // namespace examples::vision
