// SPDX-License-Identifier: Apache-2.0
#include "ceilings.hpp"

#include "operands.hpp"

#include <oneapi/dnnl/dnnl.hpp>
#include <omp.h>

#include <array>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#endif

namespace aft_bench {
namespace {

/// oneDNN takes its threads from OpenMP. Set in every call: the library under test never changes it, others may.
void use_threads(int threads) {
  omp_set_num_threads(threads);
}

constexpr std::size_t line = 64;

#if defined(__AVX512F__)
struct vector {
  __m512 x;
  static vector load(const char* p) { return {_mm512_load_ps(p)}; }
  friend vector operator+(vector a, vector b) { return {_mm512_add_ps(a.x, b.x)}; }
  void store(char* p) const { _mm512_store_ps(p, x); }
  void store_around(char* p) const { _mm512_stream_ps(reinterpret_cast<float*>(p), x); }
};
#elif defined(__AVX__)
struct vector {
  __m256 x, y;
  static vector load(const char* p) {
    const auto* f = reinterpret_cast<const float*>(p);
    return {_mm256_load_ps(f), _mm256_load_ps(f + 8)};
  }
  friend vector operator+(vector a, vector b) { return {_mm256_add_ps(a.x, b.x), _mm256_add_ps(a.y, b.y)}; }
  void store(char* p) const {
    _mm256_store_ps(reinterpret_cast<float*>(p), x);
    _mm256_store_ps(reinterpret_cast<float*>(p) + 8, y);
  }
  void store_around(char* p) const {
    _mm256_stream_ps(reinterpret_cast<float*>(p), x);
    _mm256_stream_ps(reinterpret_cast<float*>(p) + 8, y);
  }
};
#else
struct vector {
  std::array<float, 16> x;
  static vector load(const char* p) {
    vector r{};
    std::memcpy(r.x.data(), p, line);
    return r;
  }
  friend vector operator+(vector a, vector b) {
    for (std::size_t i = 0; i < 16; ++i) a.x[i] += b.x[i];
    return a;
  }
  void store(char* p) const { std::memcpy(p, x.data(), line); }
  void store_around(char* p) const { store(p); }
};
#endif

/// The last U of the R arrays that are read are updated where they lie: their lines are in the caches already, so that
/// a store around those would be the dearer one.
template <std::size_t R, std::size_t U, std::size_t W, bool Around>
void stream_lines(std::vector<buffer<float>>& from, std::vector<buffer<float>>& to, std::size_t begin,
                  std::size_t end) {
  std::array<char*, R> a{};
  std::array<char*, W> y{};
  for (std::size_t i = 0; i < R; ++i) a[i] = reinterpret_cast<char*>(from[i].data());
  for (std::size_t i = 0; i < W; ++i) y[i] = reinterpret_cast<char*>(to[i].data());
  for (std::size_t o = begin * line; o < end * line; o += line) {
    vector sum = vector::load(a[0] + o);
    for (std::size_t i = 1; i < R; ++i) sum = sum + vector::load(a[i] + o);
    for (std::size_t i = R - U; i < R; ++i) sum.store(a[i] + o);
    for (std::size_t i = 0; i < W; ++i) {
      if constexpr (Around) {
        sum.store_around(y[i] + o);
      } else {
        sum.store(y[i] + o);
      }
    }
  }
#if defined(__AVX__)
  if constexpr (Around) _mm_sfence();
#endif
}

template <std::size_t R, std::size_t U, std::size_t W>
std::function<void()> stream_of(std::size_t bytes, int threads, bool around) {
  struct arrays {
    std::vector<buffer<float>> from, to;
  };
  const auto x = std::make_shared<arrays>();
  const std::size_t lines = bytes / line;
  const auto n = static_cast<index_t>(lines * line / sizeof(float));
  for (std::size_t i = 0; i < R; ++i) x->from.emplace_back(n);
  for (std::size_t i = 0; i < W; ++i) x->to.emplace_back(n);
  return [x, lines, threads, around] {
    const auto parts = static_cast<std::size_t>(threads);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t begin = lines * i / parts, end = lines * (i + 1) / parts;
      if (around) {
        stream_lines<R, U, W, true>(x->from, x->to, begin, end);
      } else {
        stream_lines<R, U, W, false>(x->from, x->to, begin, end);
      }
    }
  };
}

/// Eight sums: as many loads are under way as a core has line buffers for, which one sum that waits for itself would
/// not reach.
vector read_lines(const char* begin, const char* end) {
  constexpr std::ptrdiff_t together = 8;
  std::array<vector, together> sums{};
  for (; end - begin >= together * static_cast<std::ptrdiff_t>(line); begin += together * line)
    for (std::size_t i = 0; i < together; ++i) sums[i] = sums[i] + vector::load(begin + i * line);
  for (; begin < end; begin += line) sums[0] = sums[0] + vector::load(begin);
  for (std::size_t i = 1; i < together; ++i) sums[0] = sums[0] + sums[i];
  return sums[0];
}

}  // namespace

std::function<void()> sgemm(const product& p, int threads) {
  struct operands {
    buffer<float> a, b, c;
  };
  const auto x = std::make_shared<operands>(
      operands{normal_values<float>(p.m * p.k, 11), normal_values<float>(p.k * p.n, 12), buffer<float>(p.m * p.n)});
  return [x, p, threads] {
    use_threads(threads);
    const dnnl_status_t status = dnnl_sgemm(p.a, p.b, p.m, p.n, p.k, 1.0f, x->a.data(), p.a == 'N' ? p.k : p.m,
                                            x->b.data(), p.b == 'N' ? p.n : p.k, 0.0f, x->c.data(), p.n);
    if (status != dnnl_success) throw std::runtime_error("dnnl_sgemm failed");
  };
}

std::function<void()> bf16_matmul(const product& p, int threads) {
  using tag = dnnl::memory::format_tag;
  using type = dnnl::memory::data_type;
  struct call {
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    buffer<aft::bfloat16> a, b, c;
    dnnl::matmul matmul;
    std::unordered_map<int, dnnl::memory> arguments;
  };
  use_threads(threads);
  const auto x = std::make_shared<call>();
  x->a = normal_values<aft::bfloat16>(p.m * p.k, 11);
  x->b = normal_values<aft::bfloat16>(p.k * p.n, 12);
  x->c = buffer<aft::bfloat16>(p.m * p.n);
  const dnnl::memory::desc a({p.m, p.k}, type::bf16, p.a == 'N' ? tag::ab : tag::ba);
  const dnnl::memory::desc b({p.k, p.n}, type::bf16, p.b == 'N' ? tag::ab : tag::ba);
  const dnnl::memory::desc c({p.m, p.n}, type::bf16, tag::ab);
  const dnnl::matmul::primitive_desc how(dnnl::matmul::desc(a, b, c), x->engine, true);
  if (!how) return {};
  x->matmul = dnnl::matmul(how);
  x->arguments = {{DNNL_ARG_SRC, dnnl::memory(a, x->engine, x->a.data())},
                  {DNNL_ARG_WEIGHTS, dnnl::memory(b, x->engine, x->b.data())},
                  {DNNL_ARG_DST, dnnl::memory(c, x->engine, x->c.data())}};
  return [x, threads] {
    use_threads(threads);
    x->matmul.execute(x->stream, x->arguments);
    x->stream.wait();
  };
}

std::function<void()> stream(int reads, int writes, std::size_t bytes, int threads, bool around_caches) {
  if (reads == 3 && writes == 1) return stream_of<3, 0, 1>(bytes, threads, around_caches);
  if (reads == 4 && writes == 3) return stream_of<4, 0, 3>(bytes, threads, around_caches);
  if (reads == 6 && writes == 3) return stream_of<6, 0, 3>(bytes, threads, around_caches);
  throw std::invalid_argument("no stream of that many arrays");
}

std::function<void()> stream(int reads, int updates, int writes, std::size_t bytes, int threads, bool around_caches) {
  if (reads == 6 && updates == 2 && writes == 1) return stream_of<8, 2, 1>(bytes, threads, around_caches);
  throw std::invalid_argument("no stream of that many arrays");
}

std::function<void()> reading_stream(std::size_t bytes, int threads) {
  struct arrays {
    buffer<float> from, sums;
  };
  const auto x = std::make_shared<arrays>();
  const std::size_t lines = bytes / line;
  x->from = buffer<float>(static_cast<index_t>(lines * line / sizeof(float)));
  x->sums = buffer<float>(threads * static_cast<index_t>(line / sizeof(float)));
  return [x, lines, threads] {
    const auto parts = static_cast<std::size_t>(threads);
    const auto* from = reinterpret_cast<const char*>(x->from.data());
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (std::size_t i = 0; i < parts; ++i) {
      const std::size_t begin = lines * i / parts, end = lines * (i + 1) / parts;
      // Stored, so that the sums are formed at all.
      read_lines(from + begin * line, from + end * line).store(reinterpret_cast<char*>(x->sums.data()) + i * line);
    }
  };
}

std::string library_version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace aft_bench
