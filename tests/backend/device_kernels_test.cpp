// Every operation of kernels/ on a device against the CPU's bits, in awkward shapes: on the emulated device everywhere
// (a host access to its memory faults), on a GPU where there is one. And the unary functions on all 2^32 floats.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <xxhash.h>

#include <functional>
#include <memory>

#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/fp8.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/logit_scale.h"
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
#include "runtime/backend/gpu/cuda_memory.h"
#include "sim/emulated_memory.h"
#include "tests/backend/device_problem.h"

namespace seeksim::test {
namespace {

using kernels::Trans;

// ---- what is compared, on any device; T: how tensors are stored ----

template <class T>
void products(runtime::DeviceMemory& device) {
  struct Shape {
    Index m, n, k, segment;
  };
  for (const Shape s : {Shape{1, 1, 1, 0},
                        {3, 5, 0, 0},
                        {7, 65, 33, 0},
                        {64, 64, 16, 0},
                        {65, 127, 100, 13},
                        {130, 70, 257, 33},
                        {5, 9, 40, 1},
                        {129, 257, 64, 0},
                        {1536, 1408, 24, 0},     // in large tiles, all of them whole
                        {1409, 1409, 19, 0}}) {  // and ragged
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        Problem p(device);
        p.random<T>(s.m * s.k + 1);
        p.random<T>(s.n * s.k + 1);
        p.random<T>(s.n);
        p.room<T>(s.m * s.n);
        p.room<float>(s.m * s.n);
        p.compare("gemm", [&](Lane lane, const Problem::Arrays& a) {
          const auto rows = ta ? a.mat<const T>(0, s.k, s.m) : a.mat<const T>(0, s.m, s.k);
          const auto columns = tb ? a.mat<const T>(1, s.n, s.k) : a.mat<const T>(1, s.k, s.n);
          const Trans a_is = ta ? Trans::yes : Trans::no, b_is = tb ? Trans::yes : Trans::no;
          kernels::gemm<T>(lane, a_is, b_is, rows, columns, a.mat<T>(3, s.m, s.n), s.segment, a.vec<const T>(2));
          kernels::gemm<T, float>(lane, a_is, b_is, rows, columns, a.mat<float>(4, s.m, s.n), s.segment);
        });
      }
    }
  }
}

template <class T>
void attention(runtime::DeviceMemory& device) {
  for (const Index group : {1, 2}) {
    for (const Index tokens : {1, 7, 64, 129}) {
      for (const double rate : {0.0, 0.3}) {
        kernels::AttentionShape s;
        s.samples = 2;
        s.tokens = tokens;
        s.heads = 4;
        s.group = group;
        s.head_dim = 10;
        s.first_head = 4;
        kernels::Dropout drop = kernels::dropout_of(rate);
        drop.key = 99;
        const Index rows = s.samples * tokens, columns = s.key_heads() * s.group_columns(), wide = s.heads * s.head_dim;
        const Index entries = s.samples * s.heads * tokens;
        Problem p(device);
        p.random<T>(rows * columns, 1000);
        p.random<T>(rows * wide, 1000);
        p.room<T>(entries * tokens);
        p.room<T>(rows * wide);
        p.room<T>(rows * columns);
        p.compare("attention", [&](Lane lane, const Problem::Arrays& a) {
          const auto qkv = a.mat<const T>(0, rows, columns), dout = a.mat<const T>(1, rows, wide);
          const auto probs = a.mat<T>(2, entries, tokens);
          // Working memory that only the CPU uses.
          std::vector<float> scratch(static_cast<std::size_t>(2 * tokens * tokens));
          kernels::attention_forward<T>(lane, s, qkv, probs, a.mat<T>(3, rows, wide), drop);
          kernels::attention_backward<T>(lane, s, dout, qkv, probs, {scratch.data(), 2 * tokens, tokens, tokens},
                                         a.mat<T>(4, rows, columns), drop);
        });
        if (group > 1) continue;
        Problem turned(device);
        turned.random<float>(tokens * s.head_dim);
        turned.random<T>(rows * columns);
        turned.compare("rotary", [&](Lane lane, const Problem::Arrays& a) {
          const auto angles = a.mat<const float>(0, tokens, s.head_dim);
          kernels::rotary_forward<T>(lane, s, angles, a.mat<T>(1, rows, columns));
          kernels::rotary_backward<T>(lane, s, angles, a.mat<T>(1, rows, columns));
        });
      }
    }
  }
}

template <class T>
void norms(runtime::DeviceMemory& device) {
  for (const Index c : {1, 31, 128, 129, 777}) {
    const Index samples = 3, tokens = 10, rows = samples * tokens;
    Problem p(device);
    p.random<T>(rows * c);                                  // 0 x
    p.random<T>(rows * c);                                  // 1 dy
    p.random<T>(c);                                         // 2 gamma
    p.random<T>(c);                                         // 3 beta
    p.room<T>(rows * c);                                    // 4 y
    p.room<T>(rows * c);                                    // 5 dx
    p.room<float>(rows);                                    // 6 mean
    p.room<float>(rows);                                    // 7 rstd
    for (int sums = 0; sums < 3; ++sums) p.room<float>(c);  // 8, 9, 10
    p.room<float>(samples * c);                             // 11
    p.room<float>(samples * c);                             // 12
    p.compare("layer norm", [&](Lane lane, const Problem::Arrays& a) {
      const auto x = a.mat<const T>(0, rows, c), dy = a.mat<const T>(1, rows, c);
      const auto mean = a.vec<float>(6), rstd = a.vec<float>(7);
      kernels::layer_norm_forward<T>(lane, x, a.vec<const T>(2), a.vec<const T>(3), 1e-5f, a.mat<T>(4, rows, c), mean,
                                     rstd);
      kernels::layer_norm_backward<T>(lane, dy, x, a.vec<const T>(2), mean, rstd, a.mat<const T>(4, rows, c),
                                      a.mat<T>(5, rows, c));
      kernels::layer_norm_param_grad<T>(lane, dy, x, mean, rstd, tokens, a.vec<float>(8), a.vec<float>(9));
      kernels::bias_grad<T>(lane, dy, tokens, a.vec<float>(10));
      kernels::layer_norm_sample_grads<T>(lane, dy, x, mean, rstd, tokens, 3, a.mat<float>(11, samples, c),
                                          a.mat<float>(12, samples, c));
    });
    p.compare("rms norm", [&](Lane lane, const Problem::Arrays& a) {
      const auto x = a.mat<const T>(0, rows, c), dy = a.mat<const T>(1, rows, c);
      const auto rstd = a.vec<float>(7);
      kernels::rms_norm_forward<T>(lane, x, a.vec<const T>(2), 1e-5f, a.mat<T>(4, rows, c), rstd);
      kernels::rms_norm_backward<T>(lane, dy, x, a.vec<const T>(2), rstd, {}, a.mat<T>(5, rows, c));
      kernels::rms_norm_param_grad<T>(lane, dy, x, rstd, tokens, a.vec<float>(8));
      kernels::rms_norm_sample_grads<T>(lane, dy, x, rstd, tokens, 3, a.mat<float>(11, samples, c));
      kernels::bias_sample_grads<T>(lane, dy, tokens, 3, a.mat<float>(12, samples, c));
    });
  }
}

template <class T>
void losses(runtime::DeviceMemory& device) {
  for (const Index v : {1, 8, 211, 1000, 5000}) {
    const Index tokens = 5, samples = 3, rows = tokens * samples;
    Problem p(device);
    p.random<T>(rows * v);  // 0 logits
    p.indices(rows, v);     // 1
    p.room<T>(rows * v);    // 2 dlogits
    p.room<float>(rows);    // 3 losses
    p.room<float>(samples);
    p.compare("cross-entropy", [&](Lane lane, const Problem::Arrays& a) {
      kernels::softmax_cross_entropy<T>(lane, a.mat<const T>(0, rows, v), a.vec<const std::int32_t>(1), 0.125f,
                                        a.vec<float>(3), a.mat<T>(2, rows, v));
      kernels::sample_losses(lane, a.vec<const float>(3), tokens, a.vec<float>(4));
      // In place, and without a gradient.
      kernels::softmax_cross_entropy<T>(lane, a.mat<const T>(0, rows, v), a.vec<const std::int32_t>(1), 2.0f,
                                        a.vec<float>(3), a.mat<T>(0, rows, v));
      kernels::softmax_cross_entropy<T>(lane, a.mat<const T>(2, rows, v), a.vec<const std::int32_t>(1), 2.0f,
                                        a.vec<float>(3), {});
    });
    for (const int way : {0, 1, 3}) {
      const kernels::Stretch part = kernels::stretch_of_way(v, 4, way);
      Problem of_way(device);
      of_way.random<T>(rows * part.size + 1);
      of_way.indices(rows, v);
      for (int sums = 0; sums < 4; ++sums) of_way.room<float>(rows);
      of_way.compare("a slice's cross-entropy", [&](Lane lane, const Problem::Arrays& a) {
        const auto logits = a.mat<T>(0, rows, part.size);
        const auto ids = a.vec<const std::int32_t>(1);
        const kernels::VocabularySlice slice{v, part.first};
        const auto maxima = a.vec<float>(2), sums = a.vec<float>(3), at_target = a.vec<float>(4);
        kernels::slice_maxima<T>(lane, logits, slice, ids, maxima, at_target);
        kernels::slice_sums<T>(lane, logits, slice, maxima, sums);
        kernels::slice_cross_entropy<T>(lane, logits, slice, ids, 0.5f, maxima, sums, at_target, a.vec<float>(5),
                                        logits);
      });
    }
  }
}

template <class T>
void elements(runtime::DeviceMemory& device) {
  for (const Index cols : {1, 33, 300}) {
    const Index rows = 6, n = rows * cols, stride = cols + 3;
    Problem p(device);
    p.random<T>(rows * stride);  // 0
    p.random<T>(n);              // 1
    p.room<T>(n);                // 2
    p.room<T>(n);                // 3
    p.room<float>(n);            // 4
    p.room<T>(2 * n);            // 5
    p.compare("elementwise", [&](Lane lane, const Problem::Arrays& a) {
      const auto x = a.mat<const T>(0, rows, cols, stride), b = a.mat<const T>(1, rows, cols);
      const auto y = a.mat<T>(2, rows, cols);
      kernels::gelu_forward<T>(lane, x, y);
      kernels::gelu_backward<T>(lane, b, x, a.mat<T>(3, rows, cols));
      kernels::add<T>(lane, x, y, y);
      kernels::Dropout drop = kernels::dropout_of(0.4);
      drop.key = 5;
      kernels::dropout<T>(lane, drop, 3, y, y, 2);
      kernels::widen<T>(lane, a.vec<const T>(1), a.vec<float>(4));
      kernels::scale(lane, a.vec<float>(4), 1.7f);
      kernels::narrow<T>(lane, a.vec<const float>(4), Vec<T>{a.vec<T>(5).data, n});
      kernels::round_through<T>(lane, a.vec<float>(4));
      kernels::copy<T>(lane, a.vec<const T>(1), Vec<T>{a.vec<T>(5).data + n, n});
      kernels::clear(lane, Vec<T>{a.vec<T>(5).data, 1});
    });
    Problem gated(device);
    gated.random<T>(rows * 2 * cols);
    gated.random<T>(n);
    gated.room<T>(n);
    gated.room<T>(2 * n);
    gated.compare("swiglu", [&](Lane lane, const Problem::Arrays& a) {
      const Index slab = kernels::slab_size(cols);
      kernels::swiglu_forward<T>(lane, slab, a.mat<const T>(0, rows, 2 * cols), a.mat<T>(2, rows, cols));
      kernels::swiglu_backward<T>(lane, slab, a.mat<const T>(1, rows, cols), a.mat<const T>(0, rows, 2 * cols),
                                  a.mat<T>(3, rows, 2 * cols));
    });
  }
}

template <class T>
void embeddings(runtime::DeviceMemory& device) {
  for (const Index vocabulary : {3, 50}) {
    const Index samples = 5, tokens = 7, rows = samples * tokens, c = 130, first = vocabulary / 3;
    Problem p(device);
    p.indices(rows, vocabulary);    // 0
    p.random<T>(vocabulary * c);    // 1 wte
    p.random<T>(tokens * c);        // 2 wpe
    p.room<T>(rows * c);            // 3 x
    p.random<T>(rows * c);          // 4 dx
    p.room<float>(vocabulary * c);  // 5
    p.room<float>(vocabulary * c);  // 6
    p.room<float>((tokens + 2) * c);
    p.compare("embeddings", [&](Lane lane, const Problem::Arrays& a) {
      const auto ids = a.vec<const std::int32_t>(0);
      const auto dx = a.mat<const T>(4, rows, c), x = a.mat<const T>(3, rows, c);
      kernels::embedding_forward<T>(lane, ids, tokens, a.mat<const T>(1, vocabulary, c), a.mat<const T>(2, tokens, c),
                                    a.mat<T>(3, rows, c));
      kernels::embedding_backward<T>(lane, ids, tokens, dx, a.mat<float>(5, vocabulary, c));
      kernels::embedding_backward_slice<T>(lane, ids, tokens, vocabulary, first, x,
                                           a.mat<float>(6, vocabulary - first, c));
      kernels::position_backward<T>(lane, dx, tokens, a.mat<float>(7, tokens + 2, c));
    });
  }
}

template <class T>
void sums_and_counts(runtime::DeviceMemory& device) {
  for (const Index n : {1, 1000, 1024, 5000}) {
    const Index slab = (n + 7) / 8, blocks = (n + 1023) / 1024;
    Problem p(device);
    p.random<T>(n);
    p.room<float>(blocks);
    p.room<float>((slab + 1023) / 1024);
    p.room<float>(1);
    p.array(std::vector<std::int64_t>(2, 7));
    p.room<float>(3);
    p.compare("norms", [&](Lane lane, const Problem::Arrays& a) {
      const auto x = a.vec<const T>(0);
      kernels::norm2_blocks<T>(lane, x, a.vec<float>(1));
      kernels::norm2_of_slabs<T>(lane, x, slab, a.vec<float>(2), a.vec<float>(3));
      kernels::count_nonfinite<T>(lane, x, {a.vec<std::int64_t>(4).data, 1});
      kernels::first_nonfinite<T>(lane, {x.data, 1, n, n}, {a.vec<std::int64_t>(4).data + 1, 1});
      kernels::tree_fold(lane, a.vec<const float>(1), {a.vec<float>(5).data, 1}, 0.3f);
      kernels::tree_fold(lane, a.vec<const float>(1), {a.vec<float>(5).data + 1, 1}, 1.0f, 2);
    });
    if constexpr (std::is_same_v<T, float>) {
      Problem bad(device);
      std::vector<float> values(static_cast<std::size_t>(n), 1.0f);
      values[std::size_t(n / 2)] = __builtin_nanf("");
      values[std::size_t(n - 1)] = __builtin_inff();
      bad.array(values);
      bad.array(std::vector<std::int64_t>(2, 0));
      bad.compare("values that are not finite", [&](Lane lane, const Problem::Arrays& a) {
        kernels::count_nonfinite<float>(lane, a.vec<const float>(0), {a.vec<std::int64_t>(1).data, 1});
        kernels::first_nonfinite<float>(lane, a.mat<const float>(0, 1, n), {a.vec<std::int64_t>(1).data + 1, 1});
      });
    }
  }
}

// Of those with one moment or none, and the mean of weights beside them.
template <class T>
void lion_and_sgd(runtime::DeviceMemory& device) {
  using kernels::OptimizerRule;
  for (const OptimizerRule rule :
       {OptimizerRule::lion, OptimizerRule::sgd, OptimizerRule::momentum, OptimizerRule::nesterov}) {
    for (const float decay : {0.0f, 0.1f}) {
      const Index n = 1500;
      kernels::OptimizerStep step;
      step.rule = rule;
      step.lr = 1e-2f;
      step.beta2 = 0.99f;
      step.one_minus_beta2 = 0.01f;
      step.weight_decay = decay;
      step.grad_factor = 0.7f;
      step.decoupled = rule == OptimizerRule::lion;
      Problem p(device);
      p.random<float>(n);
      p.random<T>(n);
      for (int state = 0; state < 2; ++state) p.random<float>(n);
      p.random<T>(n);
      p.array(std::vector<kernels::Stagnation>(1));
      p.random<float>(n);
      p.compare("Lion and SGD", [&](Lane lane, const Problem::Arrays& a) {
        const Vec<float> master = a.vec<float>(2), m = rule == OptimizerRule::sgd ? Vec<float>{} : a.vec<float>(3);
        kernels::optimize(lane, step, a.vec<const float>(0), master, m, {});
        kernels::move_mean<T>(lane, 0.3f, a.vec<const T>(1), a.vec<float>(6));
        if constexpr (is_half<T>) {
          const auto counts = a.vec<kernels::Stagnation>(5);
          kernels::optimize_copying<T>(lane, step, a.vec<const float>(0), master, m, {}, a.vec<T>(4));
          kernels::optimize_copying<T, T>(lane, step, a.vec<const T>(1), master, m, {}, a.vec<T>(4));
          kernels::optimize_rounding<T>(lane, step, a.vec<const float>(0), a.vec<T>(4), m, {}, counts);
          kernels::OptimizerStep at_random = step;
          at_random.rounding = {std::is_same_v<T, kernels::bf16>, 7, 3, 5, 0xfffffff0u};
          kernels::optimize_rounding<T, T>(lane, at_random, a.vec<const T>(1), a.vec<T>(4), m, {}, counts);
        }
      });
    }
  }
}

// A matrix of 24 x 60: its direction, its norm, one round of the iteration, and the step.
template <class T>
void casts_to_fp8(runtime::DeviceMemory& device) {
  using kernels::Fp8;
  struct Shape {
    Index rows, cols, of_sample, segment;
  };
  for (const Shape s : {Shape{1, 1, 1, 0}, {6, 77, 2, 0}, {70, 45, 35, 33}, {2100, 3, 700, 64}}) {
    for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
      Problem p(device);
      p.random<T>(s.rows * s.cols);
      for (int result = 0; result < 4; ++result) p.room<float>(s.rows * s.cols);
      p.random<float>(1);
      p.compare("casts to 8 bits", [&](Lane lane, const Problem::Arrays& a) {
        const auto x = a.mat<const T>(0, s.rows, s.cols);
        const auto result = [&](int i) { return a.mat<float>(i, s.rows, s.cols); };
        kernels::fp8_cast<T>(lane, {format, 300.0F, s.cols != 45}, x, result(1));
        kernels::fp8_cast_samples<T>(lane, {format, 1, s.cols == 45}, s.of_sample, x, result(2));
        kernels::mx_cast<T>(lane, format, false, s.segment, x, result(3));
        kernels::mx_cast<T>(lane, format, true, s.segment, x, result(4));
        kernels::fold_magnitude<T>(lane, x, a.vec<float>(5));
      });
    }
  }
}

template <class T>
void muon(runtime::DeviceMemory& device) {
  for (const float decay : {0.0f, 0.1f}) {
    const Index rows = 24, cols = 60, n = rows * cols;
    kernels::OptimizerStep step;
    step.rule = kernels::OptimizerRule::given;
    step.lr = 1e-2f;
    step.weight_decay = decay;
    step.grad_factor = 1.3f;
    Problem p(device);
    for (int state = 0; state < 3; ++state) p.random<float>(n);
    p.random<T>(n);
    p.room<float>(n);
    for (int square = 0; square < 2; ++square) p.room<float>(rows * rows);
    p.room<float>(2);
    p.room<float>(1);
    p.array(std::vector<kernels::Stagnation>(1));
    p.compare("Muon", [&](Lane lane, const Problem::Arrays& a) {
      using kernels::Trans;
      const Vec<float> x = a.vec<float>(0), master = a.vec<float>(2);
      kernels::muon_direction(lane, kernels::MuonStep{.factor = 0.7f}, a.vec<float>(1), x);
      kernels::norm2_of_slabs<float>(lane, x, n, a.vec<float>(7), a.vec<float>(8));
      kernels::scale_to_norm(lane, a.vec<const float>(8), kernels::kMuonLeast, x);
      const auto m = a.mat<const float>(0, rows, cols);
      kernels::gemm<float>(lane, Trans::no, Trans::yes, m, m, a.mat<float>(5, rows, rows));
      const auto gram = a.mat<const float>(5, rows, rows);
      kernels::gemm<float>(lane, Trans::no, Trans::no, gram, gram, a.mat<float>(6, rows, rows));
      kernels::weighted_sum(lane, kernels::kMuonB, a.vec<const float>(5), kernels::kMuonC, a.vec<float>(6));
      kernels::gemm<float>(lane, Trans::no, Trans::no, a.mat<const float>(6, rows, rows), m,
                           a.mat<float>(4, rows, cols));
      kernels::weighted_sum(lane, kernels::kMuonA, x, 1, a.vec<float>(4));
      kernels::optimize(lane, step, a.vec<const float>(4), master, {}, {});
      if constexpr (is_half<T>) {
        kernels::optimize_copying<T>(lane, step, a.vec<const float>(4), master, {}, {}, a.vec<T>(3));
        kernels::optimize_rounding<T>(lane, step, a.vec<const float>(4), a.vec<T>(3), {}, {},
                                      a.vec<kernels::Stagnation>(9));
      }
    });
  }
}

template <class T>
void optimizers(runtime::DeviceMemory& device) {
  for (const float decay : {0.0f, 0.1f}) {
    for (const bool decoupled : {true, false}) {
      const Index n = 1500;
      kernels::OptimizerStep step;
      step.lr = 1e-2f;
      step.weight_decay = decay;
      step.decoupled = decoupled;
      step.grad_factor = 0.7f;
      Problem p(device);
      p.random<float>(n);
      p.random<T>(n);
      for (int state = 0; state < 3; ++state) p.random<float>(n);
      p.random<T>(n);
      p.array(std::vector<kernels::Stagnation>(1));
      p.compare("AdamW", [&](Lane lane, const Problem::Arrays& a) {
        const auto v = Vec<float>(a.vec<float>(4));
        // Second moments are not negative.
        kernels::change_on_host(lane, v, [](Vec<float> all) {
          for (Index i = 0; i < all.n; ++i) all[i] = all[i] * all[i];
        });
        kernels::optimize(lane, step, a.vec<const float>(0), a.vec<float>(2), a.vec<float>(3), v);
        if constexpr (is_half<T>) {
          kernels::optimize_copying<T>(lane, step, a.vec<const float>(0), a.vec<float>(2), a.vec<float>(3), v,
                                       a.vec<T>(5));
          kernels::optimize_copying<T, T>(lane, step, a.vec<const T>(1), a.vec<float>(2), a.vec<float>(3), v,
                                          a.vec<T>(5));
          kernels::optimize_rounding<T>(lane, step, a.vec<const float>(0), a.vec<T>(5), a.vec<float>(3), v,
                                        a.vec<kernels::Stagnation>(6));
          kernels::optimize_rounding<T, T>(lane, step, a.vec<const T>(1), a.vec<T>(5), a.vec<float>(3), v,
                                           a.vec<kernels::Stagnation>(6));
        }
      });
    }
  }
}

void sums_of_ways(runtime::DeviceMemory& device) {
  for (const Index ways : {1, 2, 3, 8}) {
    const Index rows = 9, c = 40, samples = 5;
    Problem p(device);
    p.random<float>(ways * rows * c);
    p.random<float>(c);
    p.room<float>(rows * c);
    p.random<float>(ways * samples * c);
    p.room<float>(c);
    p.room<float>(rows * c);
    p.compare("ways", [&](Lane lane, const Problem::Arrays& a) {
      kernels::add_ways<float>(lane, a.mat<const float>(0, ways, rows * c), a.vec<const float>(1),
                               a.mat<float>(2, rows, c));
      kernels::add_samples(lane, a.mat<const float>(3, ways, samples * c), a.vec<float>(4));
      kernels::max_over_ways(lane, a.mat<const float>(0, ways, rows * c), a.vec<float>(5));
    });
  }
  for (const int ways : {2, 8}) {
    const Index vocabulary = 19, rows = 30, c = 7, filled = kernels::filled_ways(vocabulary, ways);
    Problem p(device);
    p.indices(rows, vocabulary);
    p.random<bf16>(filled * rows * c);
    p.room<bf16>(rows * c);
    p.compare("rows of ways", [&](Lane lane, const Problem::Arrays& a) {
      kernels::select_rows<bf16>(lane, a.vec<const std::int32_t>(0), vocabulary, ways,
                                 a.mat<const bf16>(1, filled, rows * c), a.mat<bf16>(2, rows, c));
    });
  }
}

void the_rest(runtime::DeviceMemory& device) {
  Problem p(device);
  const Index rows = 3, v = 211;
  p.random<float>(rows * v);
  p.random<float>(1);
  p.random<float>(rows * v);
  p.room<float>(rows);
  p.room<float>(999);
  p.compare("logit scale, random numbers, trees", [&](Lane lane, const Problem::Arrays& a) {
    kernels::logit_scale_backward(lane, a.mat<const float>(0, rows, v), a.vec<const float>(1), a.mat<float>(2, rows, v),
                                  a.vec<float>(3));
    kernels::logit_scale_forward(lane, a.mat<const float>(0, rows, v), a.vec<const float>(1), a.mat<float>(0, rows, v));
    kernels::fill_normal(lane, a.vec<float>(4), 3, 1001, 0.02f, 42);
    kernels::fill_bits(lane, {a.vec<float>(4).data, 3}, 0x7fa5a5a5u);
    kernels::tree_add(lane, a.vec<const float>(0), a.vec<const float>(2), a.vec<float>(2));
    const kernels::TreePart parts[] = {{{1, 1}, a.vec<float>(0).data}, {{1, 0}, a.vec<float>(2).data}};
    kernels::tree_sum(lane, parts, 2, 3, a.vec<float>(2), 0.5f);
  });
}

struct Kernels {
  const char* name;
  void (*compare)(runtime::DeviceMemory&);
};
#define SEEKSIM_OF_ALL_TYPES(f) \
  {#f "_float", f<float>}, {#f "_bf16", f<bf16>}, { #f "_fp16", f < fp16> }
const Kernels kKernels[] = {SEEKSIM_OF_ALL_TYPES(products),
                            SEEKSIM_OF_ALL_TYPES(attention),
                            SEEKSIM_OF_ALL_TYPES(norms),
                            SEEKSIM_OF_ALL_TYPES(losses),
                            SEEKSIM_OF_ALL_TYPES(elements),
                            SEEKSIM_OF_ALL_TYPES(embeddings),
                            SEEKSIM_OF_ALL_TYPES(sums_and_counts),
                            SEEKSIM_OF_ALL_TYPES(optimizers),
                            SEEKSIM_OF_ALL_TYPES(lion_and_sgd),
                            SEEKSIM_OF_ALL_TYPES(muon),
                            SEEKSIM_OF_ALL_TYPES(casts_to_fp8),
                            {"sums_of_ways", sums_of_ways},
                            {"the_rest", the_rest}};
#undef SEEKSIM_OF_ALL_TYPES
std::string name_of(const testing::TestParamInfo<Kernels>& info) { return info.param.name; }

class DeviceKernelsSlow : public testing::TestWithParam<Kernels> {};
TEST_P(DeviceKernelsSlow, EmulatedGiveTheCpusBits) {
  sim::EmulatedMemory device;
  GetParam().compare(device);
}
INSTANTIATE_TEST_SUITE_P(All, DeviceKernelsSlow, testing::ValuesIn(kKernels), name_of);

class DeviceKernelsGpu : public testing::TestWithParam<Kernels> {};
TEST_P(DeviceKernelsGpu, GiveTheCpusBits) {
  if (const std::string problem = runtime::cuda_problem(); !problem.empty()) GTEST_SKIP() << problem;
  runtime::CudaMemory device;
  GetParam().compare(device);
}
INSTANTIATE_TEST_SUITE_P(All, DeviceKernelsGpu, testing::ValuesIn(kKernels), name_of);

// ---- all floats ----

using kernels::Unary;

// Hashes of f over every `stride`-th of the 2^32 bit patterns, on the CPU and on the device.
void compare_all_floats(runtime::DeviceMemory& device, Unary f, std::uint64_t stride) {
  constexpr std::uint64_t kAll = std::uint64_t(1) << 32;
  constexpr Index kChunk = Index(1) << 22;
  const Lane lane = device.lane();
  const auto bytes = std::size_t(kChunk) * sizeof(float);
  auto* const there = reinterpret_cast<float*>(device.allocate(bytes));
  std::vector<float> x(static_cast<std::size_t>(kChunk)), here(x.size()), got(x.size());
  const auto canonical = [](std::vector<float>& values) {
    for (float& value : values) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      if ((bits & 0x7fffffffu) <= 0x7f800000u) continue;
      bits = 0x7fffffffu;
      std::memcpy(&value, &bits, sizeof bits);
    }
  };
  for (std::uint64_t first = 0; first < kAll; first += stride * std::uint64_t(kChunk)) {
    for (Index i = 0; i < kChunk; ++i) {
      const auto bits = std::uint32_t(first + std::uint64_t(i) * stride);
      std::memcpy(&x[std::size_t(i)], &bits, sizeof bits);
    }
    kernels::unary({}, f, {x.data(), kChunk}, {here.data(), kChunk});
    kernels::copy_bytes(lane, x.data(), there, bytes);
    kernels::unary(lane, f, {there, kChunk}, {there, kChunk});
    kernels::copy_bytes(lane, there, got.data(), bytes);
    canonical(here);
    canonical(got);
    ASSERT_EQ(XXH3_64bits(got.data(), bytes), XXH3_64bits(here.data(), bytes)) << "from bit pattern " << first;
  }
  device.release(reinterpret_cast<std::byte*>(there));
}

constexpr Unary kUnaries[] = {Unary::exp,  Unary::tanh,      Unary::log,  Unary::inverse_sqrt,
                              Unary::gelu, Unary::gelu_grad, Unary::silu, Unary::silu_grad};

TEST(UnarySlow, EmulatedOnEvery1021stFloat) {
  sim::EmulatedMemory device;
  for (const Unary f : kUnaries) compare_all_floats(device, f, 1021);
}

class UnaryGpu : public testing::TestWithParam<Unary> {};
TEST_P(UnaryGpu, OnAllFloats) {
  if (const std::string problem = runtime::cuda_problem(); !problem.empty()) GTEST_SKIP() << problem;
  runtime::CudaMemory device;
  compare_all_floats(device, GetParam(), 1);
}
INSTANTIATE_TEST_SUITE_P(All, UnaryGpu, testing::ValuesIn(kUnaries));

// The comparison must be able to fail: a device that computes something else.
TEST(DeviceProblem, SeesOneWrongBit) {
  sim::EmulatedMemory device;
  Problem p(device);
  p.random<float>(100);
  const auto scaled = [](Lane lane, const Problem::Arrays& a) {
    kernels::scale(lane, a.vec<float>(0), lane.device == nullptr ? 1.0f : 1.0000001f);
  };
  EXPECT_NONFATAL_FAILURE(p.compare("scale", scaled), "array 0");
}

}  // namespace
}  // namespace seeksim::test
