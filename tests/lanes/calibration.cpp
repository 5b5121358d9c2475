// SPDX-License-Identifier: Apache-2.0
// How long this file takes to compile says how fast the machine is, for scripts/test: templates and their optimisation
// are what most of its time goes into. Nothing of the project is included, so that the measure stays the same.
#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <vector>

std::map<std::string, std::vector<std::string>> words_by_start(const std::string& text);
std::map<std::string, std::vector<std::string>> words_by_start(const std::string& text) {
  static const std::regex word("[[:alpha:]]([[:alnum:]]*)");
  std::map<std::string, std::vector<std::string>> found;
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
    found[i->str().substr(0, 1)].push_back(i->str());
  for (auto& [start, words] : found) {
    std::stable_sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
  }
  return found;
}
