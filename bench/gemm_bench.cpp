// GEMM under the contract beside OpenBLAS's best kernel for this CPU, on one core, over the shapes of a GPT's linear
// layers (packing included on both sides), and beside itself on operands stored in 16 bits (results too, but for dW).
// The runs of all sides alternate; medians of CPU time are compared.
//
// OpenBLAS takes its core type from the environment when it is loaded, and Debian's detection is wrong on new CPUs, so
// the program starts itself again with OPENBLAS_CORETYPE and OPENBLAS_NUM_THREADS set.
//
//   bench_gemm_bench [repetitions]        default 9

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "kernels/cast.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"

#ifdef SEEKSIM_HAVE_OPENBLAS
#include <cblas.h>
extern "C" char* openblas_get_corename(void);
#endif

namespace seeksim::kernels {
namespace {

enum class Kind { forward_nn, forward_nt, input_grad, weight_grad };
const char* const kKindNames[] = {"fwd NN", "fwd NT", "dX NT", "dW TN"};

struct Shape {
  Kind kind;
  Index m, n, k, segment;
};

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// CPU seconds of `count` calls.
template <class F>
double timed(F f, int count) {
  const double begin = cpu_seconds();
  for (int i = 0; i < count; ++i) f();
  return (cpu_seconds() - begin) / count;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Row {
  double ours = 0, peer = 0;  // GFLOP/s
  double bf16 = 0, fp16 = 0;  // time relative to fp32
};

// The same numbers as T.
template <class T>
struct Stored {
  std::vector<T> a, b, c;
  Stored(const std::vector<float>& from_a, const std::vector<float>& from_b)
      : a(from_a.size()), b(from_b.size()), c(from_a.size()) {
    const auto n = static_cast<Index>(from_a.size());
    narrow<T>({}, {from_a.data(), n}, {a.data(), n});
    narrow<T>({}, {from_b.data(), n}, {b.data(), n});
  }
};

// op(A) times op(B) of operands stored as T; gradients of weights are floats.
template <class T>
void multiply(const Shape& s, const std::vector<T>& a, const std::vector<T>& b, std::vector<T>& c,
              std::vector<float>& floats) {
  const bool ta = s.kind == Kind::weight_grad, tb = s.kind == Kind::forward_nt || s.kind == Kind::input_grad;
  const Mat<const T> am = ta ? Mat<const T>{a.data(), s.k, s.m, s.m} : Mat<const T>{a.data(), s.m, s.k, s.k};
  const Mat<const T> bm = tb ? Mat<const T>{b.data(), s.n, s.k, s.k} : Mat<const T>{b.data(), s.k, s.n, s.n};
  const Trans opa = ta ? Trans::yes : Trans::no, opb = tb ? Trans::yes : Trans::no;
  if (s.kind == Kind::weight_grad) {
    gemm<T, float>({}, opa, opb, am, bm, {floats.data(), s.m, s.n, s.n}, s.segment);
  } else {
    gemm<T>({}, opa, opb, am, bm, {c.data(), s.m, s.n, s.n}, s.segment);
  }
}

Row measure(const Shape& s, int repetitions, const std::vector<float>& a, const std::vector<float>& b,
            std::vector<float>& c, std::vector<float>& d, Stored<bf16>& b16, Stored<fp16>& h16) {
  const auto ours = [&] { multiply(s, a, b, c, c); };
  const auto in_bf16 = [&] { multiply(s, b16.a, b16.b, b16.c, c); };
  const auto in_fp16 = [&] { multiply(s, h16.a, h16.b, h16.c, c); };
  const auto peer = [&] {
#ifdef SEEKSIM_HAVE_OPENBLAS
    const bool ta = s.kind == Kind::weight_grad, tb = s.kind == Kind::forward_nt || s.kind == Kind::input_grad;
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, static_cast<int>(s.m),
                static_cast<int>(s.n), static_cast<int>(s.k), 1.0F, a.data(), static_cast<int>(ta ? s.m : s.k),
                b.data(), static_cast<int>(tb ? s.k : s.n), 0.0F, d.data(), static_cast<int>(s.n));
#else
    d[0] = 0;
#endif
  };
  const double flop = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  const int count = std::max(1, static_cast<int>(0.02 / (flop / 120e9)));  // about 20 ms a run
  ours();
  peer();
  in_bf16();
  in_fp16();
  std::vector<double> ours_s, peer_s, bf16_s, fp16_s;
  for (int r = 0; r < repetitions; ++r) {
    ours_s.push_back(timed(ours, count));
    peer_s.push_back(timed(peer, count));
    bf16_s.push_back(timed(in_bf16, count));
    fp16_s.push_back(timed(in_fp16, count));
  }
  const double t = median(ours_s);
  return {flop / t * 1e-9, flop / median(peer_s) * 1e-9, median(bf16_s) / t, median(fp16_s) / t};
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  const auto add = [&](Kind kind, std::vector<std::array<Index, 3>> list) {
    for (const auto& [m, n, k] : list) all.push_back({kind, m, n, k, 0});
  };
  const std::vector<std::array<Index, 3>> forward = {
      {8, 768, 768},    {32, 768, 768},    {64, 3072, 768},   {64, 768, 3072},   {256, 256, 256},  {512, 768, 256},
      {1024, 768, 768}, {1024, 3072, 768}, {1024, 768, 3072}, {2048, 768, 3072}, {2048, 1024, 256}};
  add(Kind::forward_nn, forward);
  add(Kind::forward_nt, forward);
  add(Kind::input_grad, {{8, 768, 768},
                         {64, 768, 3072},
                         {64, 3072, 768},
                         {256, 768, 768},
                         {512, 256, 768},
                         {1024, 768, 3072},
                         {2048, 768, 3072},
                         {2048, 3072, 768}});
  add(Kind::weight_grad, {{768, 768, 8},
                          {768, 768, 32},
                          {768, 768, 64},
                          {768, 768, 256},
                          {768, 768, 1024},
                          {768, 3072, 1024},
                          {3072, 768, 1024},
                          {768, 768, 2048},
                          {3072, 768, 2048},
                          {256, 1024, 2048}});
  // F2 as the trainer uses it: 8 slabs of K forward and for dX, a segment a sample for dW.
  for (const Index segment : {64, 128, 256}) {
    all.push_back({Kind::weight_grad, 768, 768, 1024, segment});
    all.push_back({Kind::weight_grad, 256, 1024, 1024, segment});
    all.push_back({Kind::weight_grad, 768, 3072, 1024, segment});
  }
  for (const auto& [m, n, k] : std::vector<std::array<Index, 3>>{
           {1024, 256, 256}, {1024, 768, 768}, {1024, 256, 1024}, {1024, 768, 3072}, {2048, 768, 3072}}) {
    all.push_back({Kind::forward_nn, m, n, k, slab_size(k)});
    all.push_back({Kind::input_grad, m, n, k, slab_size(k)});
  }
  return all;
}

Index tokens(const Shape& s) { return s.kind == Kind::weight_grad ? s.k : s.m; }

void report(const char* what, const std::vector<double>& ratios) {
  if (!ratios.empty()) std::printf("median ratio, %s: %.3f (%zu rows)\n", what, median(ratios), ratios.size());
}

int run(int repetitions) {
#ifdef SEEKSIM_HAVE_OPENBLAS
  std::printf("ours: %s    OpenBLAS core: %s    repetitions: %d\n", name(active_isa()), openblas_get_corename(),
              repetitions);
#else
  std::printf("built without OpenBLAS: the second column means nothing\n");
#endif
  constexpr std::size_t kMost = 3072 * 3072;
  std::vector<float> a(kMost), b(kMost), c(kMost), d(kMost);
  for (std::size_t i = 0; i < kMost; ++i) {
    a[i] = static_cast<float>((i * 2654435761U >> 8) & 0xffff) * 0x1p-16F - 0.5F;
    b[i] = static_cast<float>((i * 2246822519U >> 8) & 0xffff) * 0x1p-16F - 0.5F;
  }
  Stored<bf16> b16(a, b);
  Stored<fp16> h16(a, b);
  std::printf(
      "| op | M | N | K | segment | ours | OpenBLAS | ratio | time in bf16 | time in fp16 |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  std::vector<double> chain, segmented, few, half, half_few;
  for (const Shape& s : shapes()) {
    const Row row = measure(s, repetitions, a, b, c, d, b16, h16);
    const double ratio = row.ours / row.peer;
    std::printf("| %s | %lld | %lld | %lld | %s | %.1f | %.1f | %.2f | %.2f | %.2f |\n",
                kKindNames[static_cast<int>(s.kind)], static_cast<long long>(s.m), static_cast<long long>(s.n),
                static_cast<long long>(s.k), s.segment ? std::to_string(s.segment).c_str() : "-", row.ours, row.peer,
                ratio, row.bf16, row.fp16);
    std::fflush(stdout);
    (s.segment != 0 ? segmented : tokens(s) >= 256 ? chain : few).push_back(ratio);
    for (double time : {row.bf16, row.fp16}) (tokens(s) >= 256 ? half : half_few).push_back(time);
  }
  report("one chain (F1), 256 tokens and more", chain);
  report("one chain (F1), fewer tokens", few);
  report("segments (F2)", segmented);
  report("time in 16 bits over time in fp32, 256 tokens and more", half);
  report("time in 16 bits over time in fp32, fewer tokens", half_few);
  return 0;
}

}  // namespace
}  // namespace seeksim::kernels

int main(int argc, char** argv) {
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) {
    setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
  }
  return seeksim::kernels::run(argc > 1 ? std::atoi(argv[1]) : 9);
}
