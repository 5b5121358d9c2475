// SPDX-License-Identifier: Apache-2.0

#include "common/report/progress.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <unistd.h>

#ifdef EXAMPLES_WITH_BARKEEP
#include <barkeep/barkeep.h>
#endif

namespace examples {

namespace {

std::string duration_text(double seconds) {
  const auto whole = std::lround(seconds);
  char text[32];
  std::snprintf(text, sizeof text, "%ld:%02ld", whole / 60, whole % 60);
  return text;
}

std::string status_text(const progress_words& words, double bits, double items_per_second, double seconds_left) {
  char text[128];
  const bool many = items_per_second >= 1e4;
  std::snprintf(text, sizeof text, "%.3f bits/%s  %.*f%s %s/s  %s left", bits, words.loss.c_str(), many ? 1 : 0,
                many ? items_per_second / 1000 : items_per_second, many ? "k" : "", words.items.c_str(),
                duration_text(seconds_left).c_str());
  return text;
}

std::string status_text(double per_second, double seconds_left) {
  char text[64];
  std::snprintf(text, sizeof text, "%.0f/s  %s left", per_second, duration_text(seconds_left).c_str());
  return text;
}

using clock = std::chrono::steady_clock;

}  // namespace

class progress_display {
 public:
  virtual ~progress_display() = default;
  virtual void step(std::int64_t done, const std::string& status) = 0;
  virtual void finish() = 0;
};

namespace {

class plain_lines final : public progress_display {
 public:
  plain_lines(std::string name, std::string unit, std::int64_t total)
      : name_(std::move(name)), unit_(std::move(unit)), total_(total) {}

  // Every few seconds, and the last: a log of a thousand steps should still be readable.
  void step(std::int64_t done, const std::string& status) override {
    const auto now = clock::now();
    if (done != total_ && printed_ && now - last_ < std::chrono::seconds(5)) return;
    printed_ = true;
    last_ = now;
    std::printf("%-9s %s %5lld/%lld  %s\n", name_.c_str(), unit_.c_str(), static_cast<long long>(done),
                static_cast<long long>(total_), status.c_str());
    std::fflush(stdout);
  }
  void finish() override {}

 private:
  std::string name_;
  std::string unit_;
  std::int64_t total_;
  bool printed_ = false;
  clock::time_point last_{};
};

#ifdef EXAMPLES_WITH_BARKEEP
class bar final : public progress_display {
 public:
  bar(const std::string& name, std::int64_t total, std::int64_t done) : done_(done) {
    bar_ = barkeep::ProgressBar(&done_, {.total = total, .message = name, .style = barkeep::Blocks, .show = false});
    // A status is a message that may change while the bar's thread draws; its own animation is blank.
    status_ = barkeep::Status({.message = "", .style = barkeep::Strings{""}, .show = false});
    both_ = bar_ | status_;
    both_->show();
  }
  ~bar() override { bar::finish(); }

  void step(std::int64_t done, const std::string& status) override {
    done_ = done;
    // A new message redraws the line: ten times a second is enough for a reader.
    const auto now = clock::now();
    if (now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    status_->message(status);
  }
  void finish() override { both_->done(); }

 private:
  std::atomic<std::int64_t> done_;
  clock::time_point last_{};
  std::shared_ptr<barkeep::ProgressBarDisplay<std::atomic<std::int64_t>>> bar_;
  std::shared_ptr<barkeep::StatusDisplay> status_;
  std::shared_ptr<barkeep::CompositeDisplay> both_;
};
#endif

}  // namespace

progress::progress(const std::string& name, progress_words words, std::int64_t total, std::int64_t done)
    : words_(std::move(words)) {
#ifdef EXAMPLES_WITH_BARKEEP
  if (isatty(STDOUT_FILENO) != 0) {
    display_ = std::make_unique<bar>(name, total, done);
    return;
  }
#endif
  (void)done;
  display_ = std::make_unique<plain_lines>(name, words_.unit, total);
}

progress::~progress() = default;

void progress::step(std::int64_t done, double bits, double items_per_second, double seconds_left) {
  display_->step(done, status_text(words_, bits, items_per_second, seconds_left));
}

void progress::step(std::int64_t done, double per_second, double seconds_left) {
  display_->step(done, status_text(per_second, seconds_left));
}

void progress::finish() {
  display_->finish();
}

}  // namespace examples
