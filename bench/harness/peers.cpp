// SPDX-License-Identifier: Apache-2.0
#include "peers.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace aft_bench {
namespace {

/// The other process, alive until the program ends.
class process {
 public:
  process() {
    std::array<int, 2> to{}, from{};
    if (pipe(to.data()) != 0 || pipe(from.data()) != 0) throw std::runtime_error("no pipe for the peers");
    posix_spawn_file_actions_t actions{};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    for (const int fd : {to[0], to[1], from[0], from[1]}) posix_spawn_file_actions_addclose(&actions, fd);
    std::string shell = "sh", option = "-c", command = "exec " + run_settings().peers;
    std::array<char*, 4> argv = {shell.data(), option.data(), command.data(), nullptr};
    const int failed = posix_spawn(&child_, "/bin/sh", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (failed != 0) throw std::runtime_error("cannot start the peers");
    // A peer that has ended is reported where it is asked, not by a signal.
    std::signal(SIGPIPE, SIG_IGN);
    in_ = fdopen(to[1], "w");
    out_ = fdopen(from[0], "r");
  }
  ~process() {
    // End of input ends the process.
    std::fclose(in_);
    std::fclose(out_);
    waitpid(child_, nullptr, 0);
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;

  std::string ask(const std::string& command) {
    std::fputs((command + "\n").c_str(), in_);
    std::fflush(in_);
    std::string answer;
    for (int c = 0; (c = std::fgetc(out_)) != '\n';) {
      if (c == EOF) throw std::runtime_error("the peers have ended at: " + command);
      answer += static_cast<char>(c);
    }
    return answer;
  }

 private:
  pid_t child_ = 0;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

process& worker() {
  static process only;
  return only;
}

/// The value of a key in a one-level answer.
std::string field(const std::string& answer, const std::string& key) {
  const std::size_t at = answer.find("\"" + key + "\": ");
  if (at == std::string::npos) throw std::runtime_error("the peers answered " + answer);
  const std::size_t begin = at + key.size() + 4;
  return answer.substr(begin, answer.find_first_of(",}", begin) - begin);
}

}  // namespace

bool peers::present() {
  return !run_settings().peers.empty();
}

std::string peers::version() {
  const std::string quoted = field(worker().ask(R"({"version": true})"), "version");
  return quoted.substr(1, quoted.size() - 2);
}

peers::peers(std::string dtype) : dtype_(std::move(dtype)), file_(memfd_create("aft_bench", 0)) {
  if (file_ < 0) throw std::runtime_error("no memory to share with the peers");
}

peers::~peers() {
  close(file_);
  try {
    if (open_) worker().ask(R"({"close": true})");
  } catch (const std::exception& e) {
    // The next command to it will say the same where it can be thrown.
    std::fprintf(stderr, "%s\n", e.what());
  }
}

peers& peers::share(const char* name, const void* data, std::size_t bytes, const std::vector<index_t>& extents) {
  std::string shape;
  for (const index_t n : extents) shape += (shape.empty() ? "" : ", ") + std::to_string(n);
  if (!tensors_.empty()) tensors_ += ", ";
  tensors_.append("\"").append(name).append("\": [").append(std::to_string(bytes_)).append(", [");
  tensors_.append(shape).append("]]");
  const auto* from = static_cast<const char*>(data);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = pwrite(file_, from + done, bytes - done, static_cast<off_t>(bytes_ + done));
    if (n <= 0) throw std::runtime_error("cannot share data with the peers");
    done += static_cast<std::size_t>(n);
  }
  bytes_ += (bytes + 63) / 64 * 64;
  return *this;
}

void peers::open() {
  if (open_) return;
  if (ftruncate(file_, static_cast<off_t>(bytes_)) != 0) throw std::runtime_error("cannot size the shared file");
  std::string command = R"({"open": "/proc/)";
  command.append(std::to_string(getpid())).append("/fd/").append(std::to_string(file_)).append(R"(", "dtype": ")");
  command.append(dtype_).append(R"(", "tensors": {)").append(tensors_).append("}}");
  worker().ask(command);
  open_ = true;
}

void peers::enter(race& r, const std::string& name, const call& what) {
  open();
  const auto text = [](bool b) { return b ? "true" : "false"; };
  std::string command = R"({"make": ")";
  command.append(name).append(R"(", "kind": ")").append(what.kind).append(R"(", "causal": )").append(text(what.causal));
  command.append(R"(, "training": )").append(text(what.training));
  command.append(R"(, "compiled": )").append(text(what.compiled));
  if (what.window > 0) command.append(R"(, "window": )").append(std::to_string(what.window));
  if (what.context > 0) command.append(R"(, "context": )").append(std::to_string(what.context));
  worker().ask(command + "}");
  const auto timed = [name](std::int64_t calls) {
    std::string run = R"({"run": ")";
    run.append(name).append(R"(", "calls": )").append(std::to_string(calls)).append("}");
    return std::stod(field(worker().ask(run), "seconds"));
  };
  r.enter_timed(name, timed, race::place::other_process);
}

std::vector<float> peers::result(const std::string& name, index_t count) {
  // Over the inputs: the other side has its own copies.
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  if (bytes > bytes_) throw std::runtime_error("the shared file is too small for a result");
  worker().ask(R"({"result": ")" + name + R"(", "offset": 0})");
  std::vector<float> y(static_cast<std::size_t>(count));
  auto* to = reinterpret_cast<char*>(y.data());
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = pread(file_, to + done, bytes - done, static_cast<off_t>(done));
    if (n <= 0) throw std::runtime_error("cannot read the peers' result");
    done += static_cast<std::size_t>(n);
  }
  return y;
}

}  // namespace aft_bench
