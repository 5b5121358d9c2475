// SPDX-License-Identifier: Apache-2.0
/// @file turns.cpp  Two builds of the library called alternately in one process, see scripts/turns.
///
/// A machine's speed changes by tens of percent within seconds: its clock, its other guests. A pair of samples a
/// millisecond apart shares all of that, and the order within a pair changes from one to the next. One thread is timed
/// by its processor's time: with three programs to a core the quartiles of wall-clock ratios lay at 0.3 and 4.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

/// Both libraries compute on the same memory. With memory of their own the one that came second was 4% slower on
/// 8 x 197 x 384 `simple`, whichever it was: where pages lie is worth that much.
void* block(int number, std::size_t bytes) {
  static std::vector<std::unique_ptr<char[]>> blocks;
  const auto i = static_cast<std::size_t>(number);
  if (i == blocks.size()) blocks.push_back(std::make_unique<char[]>(bytes));
  return blocks[i].get();
}

clockid_t timer = CLOCK_MONOTONIC;

double seconds_now() {
  timespec now{};
  clock_gettime(timer, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class library {
 public:
  using setup_call = int (*)(int threads, void* (*)(int, std::size_t));
  explicit library(const char* path) {
    void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(2);
    }
    setup = reinterpret_cast<setup_call>(dlsym(handle, "turns_setup"));
    name = reinterpret_cast<const char* (*)(int)>(dlsym(handle, "turns_name"));
    call_ = reinterpret_cast<void (*)(int, int)>(dlsym(handle, "turns_call"));
  }
  /// Seconds of one call.
  double sample(int i, int times) const {
    const double begin = seconds_now();
    call_(i, times);
    return (seconds_now() - begin) / times;
  }

  setup_call setup;
  const char* (*name)(int);

 private:
  void (*call_)(int, int);
};

double quantile(std::vector<double> x, double part) {
  std::sort(x.begin(), x.end());
  return x[static_cast<std::size_t>(part * static_cast<double>(x.size() - 1))];
}

}  // namespace

/// turns <library before> <library now> <threads> <seconds a call> <ratio that is enough> <part of a name> [JSON file]
int main(int count, char** arguments) {
  if (count < 7) return 2;
  const library before(arguments[1]), now(arguments[2]);
  const int threads = std::atoi(arguments[3]);
  const double seconds = std::atof(arguments[4]), enough = std::atof(arguments[5]);
  const std::string wanted = arguments[6];
  if (threads == 1) timer = CLOCK_THREAD_CPUTIME_ID;
  std::string json;
  const int calls = std::min(before.setup(threads, block), now.setup(threads, block));
  int slower = 0;
  std::printf("%-40s %12s %12s %8s %15s %6s\n", "call", "before us", "now us", "ratio", "quartiles", "pairs");
  for (int i = 0; i < calls; ++i) {
    const std::string name = now.name(i);
    if (name.find(wanted) == std::string::npos) continue;
    before.sample(i, 2);
    now.sample(i, 2);
    const double once = std::max(before.sample(i, 1), 1e-8);
    const int times = std::max(1, static_cast<int>(3e-4 / once));
    const int pairs = std::clamp(static_cast<int>(seconds / (2 * once * times)), 9, 2000);
    std::vector<double> old_times, new_times, ratios;
    for (int pair = 0; pair < pairs; ++pair) {
      double a = 0, b = 0;
      if (pair % 2 == 0) {
        a = before.sample(i, times);
        b = now.sample(i, times);
      } else {
        b = now.sample(i, times);
        a = before.sample(i, times);
      }
      old_times.push_back(a);
      new_times.push_back(b);
      ratios.push_back(a / b);
    }
    const double ratio = quantile(ratios, 0.5);
    if (ratio < enough) ++slower;
    std::printf("%-40s %12.2f %12.2f %8.3f [%5.2f, %5.2f] %6d%s\n", name.c_str(), 1e6 * quantile(old_times, 0.5),
                1e6 * quantile(new_times, 0.5), ratio, quantile(ratios, 0.25), quantile(ratios, 0.75), pairs,
                ratio < enough ? "  slower" : "");
    std::fflush(stdout);
    std::array<char, 512> row{};
    std::snprintf(row.data(), row.size(),
                  "%s\n  {\"call\": \"%s\", \"before_us\": %.3f, \"now_us\": %.3f, \"ratio\": %.4f, "
                  "\"quartiles\": [%.4f, %.4f], \"pairs\": %d}",
                  json.empty() ? "" : ",", name.c_str(), 1e6 * quantile(old_times, 0.5), 1e6 * quantile(new_times, 0.5),
                  ratio, quantile(ratios, 0.25), quantile(ratios, 0.75), pairs);
    json += row.data();
  }
  if (count > 7) {
    std::FILE* const file = std::fopen(arguments[7], "w");
    if (file == nullptr) return 2;
    std::fprintf(file, "[%s\n]\n", json.c_str());
    std::fclose(file);
  }
  std::printf("%d slower than %.2f of before\n", slower, enough);
  return slower == 0 ? 0 : 1;
}
