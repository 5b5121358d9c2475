// SPDX-License-Identifier: Apache-2.0

#include "common/training/training_state.hpp"

#include "common/support/user_error.hpp"

#include <algorithm>
#include <cstring>

namespace examples {

std::string shape_text(const std::vector<index_t>& shape) {
  std::string s = "(";
  for (const index_t extent : shape) s += (s.size() > 1 ? ", " : "") + std::to_string(extent);
  return s + ")";
}

namespace {

/// A tensor of the file with the array that it belongs to.
struct target {
  std::string name;
  const char* type;
  std::vector<index_t> shape;
  void* data;
};

std::vector<target> targets_of(optimizer& state, history& past) {
  std::vector<target> all;
  const parameter_list<float>& parameters = state.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameter<float>& p = *parameters[i];
    all.push_back({p.name, "F32", p.shape, p.value.data()});
    all.push_back({"adam.first." + p.name, "F32", p.shape, state.first()[i].data()});
    all.push_back({"adam.second." + p.name, "F32", p.shape, state.second()[i].data()});
  }
  const auto steps = static_cast<index_t>(past.bits.size());
  all.push_back({"history.bits", "F64", {steps}, past.bits.data()});
  all.push_back({"history.seconds", "F64", {steps}, past.seconds.data()});
  return all;
}

}  // namespace

void restore(const safetensors::file& file, std::int64_t steps_done, optimizer& state, history& past) {
  history read;
  read.bits.resize(static_cast<std::size_t>(steps_done));
  read.seconds.resize(static_cast<std::size_t>(steps_done));
  const std::vector<target> wanted = targets_of(state, read);
  // All checks come first: an array is never half restored.
  for (const target& t : wanted) {
    const auto found = file.tensors().find(t.name);
    if (found == file.tensors().end()) throw user_error("checkpoint: tensor \"" + t.name + "\" is missing");
    if (found->second.type != t.type)
      throw user_error("checkpoint: tensor \"" + t.name + "\" has dtype " + found->second.type + ", expected " +
                       t.type);
    if (found->second.shape != t.shape)
      throw user_error("checkpoint: tensor \"" + t.name + "\" has shape " + shape_text(found->second.shape) +
                       ", expected " + shape_text(t.shape));
  }
  if (file.tensors().size() != wanted.size())
    for (const auto& entry : file.tensors())
      if (std::none_of(wanted.begin(), wanted.end(), [&](const target& t) { return t.name == entry.first; }))
        throw user_error("checkpoint: tensor \"" + entry.first + "\" is unknown");
  for (const target& t : wanted) {
    const safetensors::file::tensor& from = file.tensors().at(t.name);
    if (from.bytes > 0) std::memcpy(t.data, file.data(from), from.bytes);
  }
  state.set_steps_done(steps_done);
  past = std::move(read);
}

void save(const std::filesystem::path& path, const safetensors::metadata& header, optimizer& state,
          const history& past) {
  history copy = past;
  std::vector<safetensors::source> sources;
  for (const target& t : targets_of(state, copy))
    sources.push_back(
        {t.name, std::strcmp(t.type, "F32") == 0 ? safetensors::dtype::f32 : safetensors::dtype::f64, t.shape, t.data});
  safetensors::write(path, header, sources);
}

}  // namespace examples
