// SPDX-License-Identifier: Apache-2.0

#include "common/report/results_file.hpp"

#include "common/support/atomic_file.hpp"

#include <nlohmann/json.hpp>

namespace examples {

namespace {

#if defined(__clang__)
constexpr const char* compiler = "clang++ " __clang_version__;
#elif defined(__GNUC__)
constexpr const char* compiler = "g++ " __VERSION__;
#else
constexpr const char* compiler = "unknown";
#endif

#ifdef EXAMPLES_WITH_ONEDNN
constexpr const char* products = "oneDNN";
#else
constexpr const char* products = "Eigen";
#endif

}  // namespace

void add_training(nlohmann::json& to, const run_settings& s, const history& past) {
  to["batch"] = s.batch;
  to["steps"] = s.steps;
  to["learning_rate"] = s.learning_rate;
  to["bias_lr_scale"] = s.bias_scale;
  to["seed"] = s.seed;
  to["train_bits"] = past.bits;
  to["seconds"] = past.seconds;
}

void write_results(const std::filesystem::path& file, nlohmann::json results) {
  results["compiler"] = compiler;
  results["products"] = products;
  const std::string whole = results.dump(1) + "\n";
  atomic_file out(file);
  out.append(whole.data(), whole.size());
  out.commit();
}

std::string printable(const std::string& bytes) {
  std::string s = bytes;
  for (char& c : s)
    if (c != '\n' && c != '\t' && (c < ' ' || c > '~')) c = '?';
  return s;
}

}  // namespace examples
