// SPDX-License-Identifier: Apache-2.0
//
// Scratch from memory of the program's own: a buffer that is there before the first call, and a count of what calls
// take. aft asks on the calling thread only, and gives back all of it before the call returns.

#include <aft/aft.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory_resource>
#include <new>
#include <vector>

namespace {

/// Counts what passes through it; `limit` makes it fail, as a program's own budget might.
class counting : public std::pmr::memory_resource {
 public:
  explicit counting(std::pmr::memory_resource& from) : from_(from) {}
  std::size_t held = 0, most = 0, limit = SIZE_MAX;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (held + bytes > limit) throw std::bad_alloc();
    void* const p = from_.allocate(bytes, alignment);
    held += bytes;
    most = held > most ? held : most;
    return p;
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    held -= bytes;
    from_.deallocate(p, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::pmr::memory_resource& from_;
};

}  // namespace

int main() {
  const aft::index_t T = 256, d = 64;
  std::vector<float> x(static_cast<std::size_t>(T * d)), y(x.size()), w(static_cast<std::size_t>(T * T));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.1F * static_cast<float>(i));
  const auto in = aft::as_view(x.data(), {T, d});
  const auto out = aft::as_view(y.data(), {T, d});
  const aft::dense_bias bias{aft::as_view(w.data(), {T, T})};

  // The null resource behind the buffer turns a call that wants more than it into std::bad_alloc.
  std::vector<std::byte> arena(std::size_t{64} << 20);
  std::pmr::monotonic_buffer_resource buffer(arena.data(), arena.size(), std::pmr::null_memory_resource());
  counting memory(buffer);
  const aft::cpu exec{.threads = 2, .memory = &memory};
  for (int step = 0; step < 3; ++step) {
    aft::full(exec, in, in, in, bias, out);
    buffer.release();  // a monotonic buffer takes nothing back by itself
  }
  const bool balanced = memory.held == 0 && memory.most > 0;
  std::printf("scratch %s, %s\n", memory.most < arena.size() ? "fits into the buffer" : "exceeds the buffer",
              balanced ? "all of it given back" : "some of it kept");

  // Too little: the call throws what the resource threw, and has written nothing.
  const std::vector<float> kept(y);
  memory.limit = memory.most / 2;
  bool refused = false;
  try {
    aft::full(exec, in, in, in, bias, out);
  } catch (const std::bad_alloc&) {
    refused = true;
  }
  std::printf("half of it: %s, y %s\n", refused ? "std::bad_alloc" : "no exception",
              y == kept ? "as it was" : "changed");
  return balanced && refused && y == kept && memory.held == 0 ? 0 : 1;
}
