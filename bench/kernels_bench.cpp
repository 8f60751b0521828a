// Every kernel at the size of one training step of the peer comparison (4 layers, width 256, 4 heads, 128 tokens, 8
// samples, vocabulary 512), and what a step on one rank and one core costs in kernels: time an operation times how
// often a step runs it. CPU time; run it pinned to one core:   taskset -c 1 bench_kernels_bench

#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/digest.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/fused_attention.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/layer_norm.h"
#include "kernels/norms.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "kernels/range.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "kernels/slabs.h"
#include "kernels/swiglu.h"
#include "kernels/tree.h"

namespace seeksim::kernels {
namespace {

constexpr Index kLayers = 4, kC = 256, kHeads = 4, kT = 128, kB = 8, kV = 512, kR = kB * kT;
constexpr Index kParameters = kLayers * (12 * kC * kC + 13 * kC) + 2 * kV * kC + kT * kC + 2 * kC;

// One array of small numbers, cut into views; operations write to a second one.
struct Arrays {
  std::vector<float> in = std::vector<float>(8 << 20), out = std::vector<float>(8 << 20);
  std::vector<std::int32_t> tokens = std::vector<std::int32_t>(kR);
  Arrays() {
    fill_normal({}, {in.data(), static_cast<Index>(in.size())}, 1, 0, 0.05F, 7);
    for (Index i = 0; i < kR; ++i)
      tokens[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((i * 2654435761LL >> 7) % kV);
  }
  Mat<const float> read(Index rows, Index cols, Index at = 0) const { return {in.data() + at, rows, cols, cols}; }
  Mat<float> write(Index rows, Index cols, Index at = 0) { return {out.data() + at, rows, cols, cols}; }
  Vec<const float> row(Index n, Index at = 0) const { return {in.data() + at, n}; }
  Vec<float> to(Index n, Index at = 0) { return {out.data() + at, n}; }
  Vec<const std::int32_t> ids() const { return {tokens.data(), kR}; }
};
Arrays& arrays() {
  static Arrays a;
  return a;
}
constexpr Index kFar = 4 << 20;  // a second operand in the same array

std::map<std::string, double>& times_a_step() {
  static std::map<std::string, double> counts;
  return counts;
}

template <class F>
void op(const std::string& name, double times, F f) {
  times_a_step()[name] = times;
  benchmark::RegisterBenchmark(name.c_str(), [f](benchmark::State& state) {
    for (auto _ : state) f(arrays());
  })->Unit(benchmark::kMicrosecond);
}

void product(const std::string& name, double times, Trans ta, Trans tb, Index m, Index n, Index k, Index segment) {
  times_a_step()[name] = times;
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    Arrays& x = arrays();
    const Mat<const float> a = ta == Trans::yes ? x.read(k, m) : x.read(m, k);
    const Mat<const float> b = tb == Trans::yes ? x.read(n, k, kFar) : x.read(k, n, kFar);
    for (auto _ : state) gemm({}, ta, tb, a, b, x.write(m, n), segment);
    state.counters["GFLOP/s"] =
        benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
  })->Unit(benchmark::kMicrosecond);
}

// y (R, out) = x (R, in) W (in, out): forward, dX and dW, with K in slabs where tensor parallelism would cut it.
void linear(const std::string& name, double times, Index in, Index out, bool cut_in) {
  const Index forward = cut_in ? slab_size(in) : 0, backward = cut_in ? 0 : slab_size(out);
  product("gemm " + name + " forward", times, Trans::no, Trans::no, kR, out, in, forward);
  product("gemm " + name + " dX", times, Trans::no, Trans::yes, kR, in, out, backward);
  product("gemm " + name + " dW", times, Trans::yes, Trans::no, in, out, kR, kT);
  op("bias_grad " + name, times, [=](Arrays& x) { bias_grad({}, x.read(kR, out), kT, x.to(out)); });
}

void register_products() {
  linear("qkv", kLayers, kC, 3 * kC, false);
  linear("proj", kLayers, kC, kC, true);
  linear("fc", kLayers, kC, 4 * kC, false);
  linear("out", kLayers, 4 * kC, kC, true);
  linear("head", 1, kC, kV, false);
  constexpr AttentionShape kShape{kB, kT, kHeads, kC / kHeads};
  op("attention forward", kLayers, [=](Arrays& x) {
    attention_forward({}, kShape, x.read(kR, 3 * kC), x.write(kB * kHeads * kT, kT), x.write(kR, kC, kFar));
  });
  op("attention backward", kLayers, [=](Arrays& x) {
    attention_backward({}, kShape, x.read(kR, kC), x.read(kR, 3 * kC, 1 << 20), x.read(kB * kHeads * kT, kT, kFar),
                       x.write(2 * kT, kT), x.write(kR, 3 * kC, kFar));
  });
  op("fused attention forward", 0, [=](Arrays& x) {
    fused_attention_forward({}, kShape, x.read(kR, 3 * kC), x.write(kB * kHeads * kT, 2), x.write(kR, kC, kFar));
  });
  op("fused attention backward", 0, [=](Arrays& x) {
    fused_attention_backward({}, kShape, x.read(kR, kC), x.read(kR, 3 * kC, 1 << 20), x.read(kR, kC, kFar),
                             x.read(kB * kHeads * kT, 2, 6 << 20), x.write(kR, 3 * kC, kFar));
  });
  const Dropout drop = dropout_of(0.1);
  op("attention forward, dropout", 0, [=](Arrays& x) {
    attention_forward({}, kShape, x.read(kR, 3 * kC), x.write(kB * kHeads * kT, kT), x.write(kR, kC, kFar), drop);
  });
  op("attention backward, dropout", 0, [=](Arrays& x) {
    attention_backward({}, kShape, x.read(kR, kC), x.read(kR, 3 * kC, 1 << 20), x.read(kB * kHeads * kT, kT, kFar),
                       x.write(2 * kT, kT), x.write(kR, 3 * kC, kFar), drop);
  });
  op("attention forward, 64 tokens, 8 heads of 8", 0, [=](Arrays& x) {
    attention_forward({}, {32, 64, 8, 8}, x.read(2048, 192), x.write(32 * 8 * 64, 64), x.write(2048, 64, kFar));
  });
  op("attention backward, 64 tokens, 8 heads of 8", 0, [=](Arrays& x) {
    attention_backward({}, {32, 64, 8, 8}, x.read(2048, 64), x.read(2048, 192, 1 << 20), x.read(32 * 8 * 64, 64, kFar),
                       x.write(128, 64), x.write(2048, 192, kFar));
  });
  // A quarter as many key heads, so a row holds the columns of half as many heads.
  constexpr AttentionShape kGrouped{kB, kT, kHeads, kC / kHeads, 0, 4};
  constexpr Index kColumns = kGrouped.key_heads() * kGrouped.group_columns();
  op("attention forward, 4 query heads a key head", 0, [=](Arrays& x) {
    attention_forward({}, kGrouped, x.read(kR, kColumns), x.write(kB * kHeads * kT, kT), x.write(kR, kC, kFar));
  });
  op("attention backward, 4 query heads a key head", 0, [=](Arrays& x) {
    attention_backward({}, kGrouped, x.read(kR, kC), x.read(kR, kColumns, 1 << 20), x.read(kB * kHeads * kT, kT, kFar),
                       x.write(2 * kT, kT), x.write(kR, kColumns, kFar));
  });
  op("rotary forward, 4 query heads a key head", 0,
     [=](Arrays& x) { rotary_forward({}, kGrouped, x.read(kT, kC / kHeads), x.write(kR, kColumns)); });
}

void register_rows() {
  constexpr double kNorms = 2 * kLayers + 1;
  op("layer_norm forward", kNorms, [](Arrays& x) {
    layer_norm_forward({}, x.read(kR, kC), x.row(kC), x.row(kC, 1 << 20), 1e-5F, x.write(kR, kC), x.to(kR, kFar),
                       x.to(kR, kFar + kR));
  });
  op("layer_norm backward", kNorms, [](Arrays& x) {
    layer_norm_backward({}, x.read(kR, kC), x.read(kR, kC, kFar), x.row(kC), x.row(kR, 1 << 20), x.row(kR, 2 << 20),
                        x.read(kR, kC, 3 << 20), x.write(kR, kC));
  });
  op("layer_norm parameters", kNorms, [](Arrays& x) {
    layer_norm_param_grad({}, x.read(kR, kC), x.read(kR, kC, kFar), x.row(kR, 1 << 20), x.row(kR, 2 << 20), kT,
                          x.to(kC), x.to(kC, kFar));
  });
  op("rms_norm forward", 0,
     [](Arrays& x) { rms_norm_forward({}, x.read(kR, kC), x.row(kC), 1e-5F, x.write(kR, kC), x.to(kR, kFar)); });
  op("rms_norm backward", 0, [](Arrays& x) {
    rms_norm_backward({}, x.read(kR, kC), x.read(kR, kC, kFar), x.row(kC), x.row(kR, 2 << 20), x.read(kR, kC, 3 << 20),
                      x.write(kR, kC));
  });
  op("rms_norm parameters", 0, [](Arrays& x) {
    rms_norm_param_grad({}, x.read(kR, kC), x.read(kR, kC, kFar), x.row(kR, 2 << 20), kT, x.to(kC));
  });
  op("residual add", 2 * kLayers, [](Arrays& x) { add({}, x.read(kR, kC), x.read(kR, kC, kFar), x.write(kR, kC)); });
  op("dropout", 0, [](Arrays& x) { dropout({}, dropout_of(0.1), kT, x.read(kR, kC), x.write(kR, kC)); });
  op("gelu forward", kLayers, [](Arrays& x) { gelu_forward({}, x.read(kR, 4 * kC), x.write(kR, 4 * kC)); });
  op("gelu backward", kLayers,
     [](Arrays& x) { gelu_backward({}, x.read(kR, 4 * kC), x.read(kR, 4 * kC, kFar), x.write(kR, 4 * kC)); });
  op("swiglu forward", 0,
     [](Arrays& x) { swiglu_forward({}, slab_size(2 * kC), x.read(kR, 4 * kC), x.write(kR, 2 * kC)); });
  op("swiglu backward", 0, [](Arrays& x) {
    swiglu_backward({}, slab_size(2 * kC), x.read(kR, 2 * kC), x.read(kR, 4 * kC, kFar), x.write(kR, 4 * kC));
  });
  op("cross entropy", 1,
     [](Arrays& x) { softmax_cross_entropy({}, x.read(kR, kV), x.ids(), 1.0F, x.to(kR, kFar), x.write(kR, kV)); });
  op("embedding forward", 1,
     [](Arrays& x) { embedding_forward({}, x.ids(), kT, x.read(kV, kC), x.read(kT, kC, kFar), x.write(kR, kC)); });
  op("embedding backward", 1, [](Arrays& x) { embedding_backward({}, x.ids(), kT, x.read(kR, kC), x.write(kV, kC)); });
  op("position backward", 1, [](Arrays& x) { position_backward({}, x.read(kR, kC), kT, x.write(kT, kC)); });
}

// The cost of storage in 16 bits, row by row to compare with fp32 above. Not part of the sum over a step.
template <class T>
struct Halves {
  std::vector<T> in, out;
  Halves() : in(arrays().in.size()), out(in.size()) {
    narrow<T>({}, {arrays().in.data(), static_cast<Index>(in.size())}, {in.data(), static_cast<Index>(in.size())});
  }
  Mat<const T> read(Index rows, Index cols, Index at = 0) const { return {in.data() + at, rows, cols, cols}; }
  Mat<T> write(Index rows, Index cols, Index at = 0) { return {out.data() + at, rows, cols, cols}; }
  Vec<const T> row(Index n, Index at = 0) const { return {in.data() + at, n}; }
};

template <class T>
void register_halves(const std::string& type) {
  static Halves<T> h;
  op("layer_norm forward " + type, 0, [](Arrays& x) {
    layer_norm_forward<T>({}, h.read(kR, kC), h.row(kC), h.row(kC, 1 << 20), 1e-5F, h.write(kR, kC), x.to(kR, kFar),
                          x.to(kR, kFar + kR));
  });
  op("layer_norm backward " + type, 0, [](Arrays& x) {
    layer_norm_backward<T>({}, h.read(kR, kC), h.read(kR, kC, kFar), h.row(kC), x.row(kR, 1 << 20), x.row(kR, 2 << 20),
                           h.read(kR, kC, 3 << 20), h.write(kR, kC));
  });
  op("layer_norm parameters " + type, 0, [](Arrays& x) {
    layer_norm_param_grad<T>({}, h.read(kR, kC), h.read(kR, kC, kFar), x.row(kR, 1 << 20), x.row(kR, 2 << 20), kT,
                             x.to(kC), x.to(kC, kFar));
  });
  op("gelu forward " + type, 0, [](Arrays&) { gelu_forward<T>({}, h.read(kR, 4 * kC), h.write(kR, 4 * kC)); });
  op("cross entropy " + type, 0,
     [](Arrays& x) { softmax_cross_entropy<T>({}, h.read(kR, kV), x.ids(), 1.0F, x.to(kR, kFar), h.write(kR, kV)); });
  constexpr AttentionShape kShape{kB, kT, kHeads, kC / kHeads};
  op("attention forward " + type, 0, [=](Arrays&) {
    attention_forward<T>({}, kShape, h.read(kR, 3 * kC), h.write(kB * kHeads * kT, kT), h.write(kR, kC, kFar));
  });
  op("attention backward " + type, 0, [=](Arrays& x) {
    attention_backward<T>({}, kShape, h.read(kR, kC), h.read(kR, 3 * kC, 1 << 20), h.read(kB * kHeads * kT, kT, kFar),
                          x.write(2 * kT, kT), h.write(kR, 3 * kC, kFar));
  });
  op("adamw of all parameters, copy in " + type, 0, [](Arrays& x) {
    static std::vector<float> v(static_cast<std::size_t>(kParameters));
    const OptimizerStep step{.lr = 3e-4F, .weight_decay = 0.1F, .inverse_bias1 = 2, .inverse_sqrt_bias2 = 3};
    optimize_copying<T>({}, step, x.row(kParameters), x.to(kParameters), x.to(kParameters, kFar),
                        {v.data(), kParameters}, {h.out.data(), kParameters});
  });
  op("range of all parameters " + type, 0, [](Arrays&) {
    TensorRange r;
    range<T>({}, {h.in.data(), 1, kParameters, kParameters}, {&r, 1});
    benchmark::DoNotOptimize(r);
  });
}

void register_step() {
  op("norm2 of all parameters", 1,
     [](Arrays& x) { norm2_blocks({}, x.row(kParameters), x.to((kParameters + kBlock - 1) / kBlock)); });
  op("count_nonfinite of all parameters", 1, [](Arrays& x) {
    std::int64_t count = 0;
    count_nonfinite({}, x.row(kParameters), {&count, 1});
    benchmark::DoNotOptimize(count);
  });
  op("adamw of all parameters", 1, [](Arrays& x) {
    static std::vector<float> v(static_cast<std::size_t>(kParameters));
    const OptimizerStep step{.lr = 3e-4F, .weight_decay = 0.1F, .inverse_bias1 = 2, .inverse_sqrt_bias2 = 3};
    optimize({}, step, x.row(kParameters), x.to(kParameters), x.to(kParameters, kFar), {v.data(), kParameters});
  });
  op("muon's directions of all parameters", 1,
     [](Arrays& x) { muon_direction({}, MuonStep{}, x.to(kParameters), x.to(kParameters, kFar)); });
  op("digest of all parameters", 1, [](Arrays& x) { benchmark::DoNotOptimize(digest(x.row(kParameters))); });
  op("tree_sum of 8 x 1M", 0, [](Arrays& x) {
    TreePart parts[8];
    for (Index p = 0; p < 8; ++p) parts[p] = {{0, p}, x.in.data() + (p << 20)};
    tree_sum({}, parts, 8, 8, x.to(1 << 20));
  });
  op("add_ways of 8 x 256 x 4096", 0, [](Arrays& x) {
    add_ways({}, {x.in.data(), 8, 1 << 20, 1 << 20}, {x.in.data(), 4096}, {x.to(1 << 20).data, 256, 4096, 4096});
  });
  op("fill_normal of all parameters", 0, [](Arrays& x) { fill_normal({}, x.to(kParameters), 3, 0, 0.02F, 1); });
}

// Prints as usual, and adds up the kernels of a step.
class Summing : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      const bool single = run.run_type == Run::RT_Iteration && run.repetitions <= 1;
      const bool middle = run.run_type == Run::RT_Aggregate && run.aggregate_name == "median";
      if (!single && !middle) continue;
      const std::string name = run.run_name.function_name;
      const double ms = run.GetAdjustedCPUTime() * 1e-3 * times_a_step()[name];
      (name.starts_with("gemm") ? products_ms : other_ms) += ms;
    }
  }
  double products_ms = 0, other_ms = 0;
};

}  // namespace
}  // namespace seeksim::kernels

int main(int argc, char** argv) {
  namespace k = seeksim::kernels;
  benchmark::Initialize(&argc, argv);
  k::register_products();
  k::register_rows();
  k::register_step();
  k::register_halves<k::bf16>("bf16");
  k::register_halves<k::fp16>("fp16");
  k::Summing reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::printf("one step, one core, %s: %.1f ms in GEMM + %.1f ms in all else = %.1f ms of kernels\n",
              name(k::active_isa()), reporter.products_ms, reporter.other_ms, reporter.products_ms + reporter.other_ms);
}
