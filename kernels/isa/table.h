// The seam between the public functions (plain x86-64: checks and dispatch) and their bodies, which are compiled three
// times from one source. Arguments are already checked; shapes as in the public headers.
#pragma once

#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/dropout.h"
#include "kernels/experts.h"
#include "kernels/fast_way.h"
#include "kernels/fp8.h"
#include "kernels/fused_attention.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/optimizer.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "kernels/range.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// Matrix products: isa/products_*.cpp. Operands are stored as T.
template <class T>
struct StoredProducts {
  void (*gemm)(bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<T> c, Index segment, const T* bias);
  void (*gemm_to_float)(bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<float> c, Index segment, const T* bias);
  // gemm in another order of K, for `fast` (fast.h).
  void (*fast_gemm)(bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<T> c, const T* bias, const FastWay& way);
  void (*fast_gemm_to_float)(bool ta, bool tb, Mat<const T> a, Mat<const T> b, Mat<float> c, const T* bias,
                             const FastWay& way);
  void (*attention_forward)(AttentionShape, const Dropout&, Mat<const T> qkv, Mat<T> probs, Mat<T> out);
  void (*attention_backward)(AttentionShape, const Dropout&, Mat<const T> dout, Mat<const T> qkv, Mat<const T> probs,
                             Mat<float> scratch, Mat<T> dqkv);
  void (*fused_attention_forward)(AttentionShape, const Dropout&, Mat<const T> qkv, Mat<float> stats, Mat<T> out);
  void (*fused_attention_backward)(AttentionShape, const Dropout&, Mat<const T> dout, Mat<const T> qkv,
                                   Mat<const T> out, Mat<const float> stats, Mat<T> dqkv);
  void (*fused_part_forward)(AttentionShape, const FusedPlace&, const Dropout&, Mat<const T> qkv, Mat<const T> kv,
                             Mat<float> state);
  void (*fused_join)(Mat<const float> newer, Mat<float> older);
  void (*fused_root)(AttentionShape, Mat<const float> state, Mat<float> stats, Mat<T> out);
  void (*fused_part_backward)(AttentionShape, const FusedPlace&, const Dropout&, Mat<const T> dout, Mat<const T> qkv,
                              Mat<const T> kv, Mat<const T> out, Mat<const float> stats, Mat<float> dq, Mat<float> dkv);
};

struct ProductTable {
  StoredProducts<float> in_float;
  StoredProducts<bf16> in_bf16;
  StoredProducts<fp16> in_fp16;
};

// Everything else: isa/elements_*.cpp. First the operations on tensors stored as T.
template <class T>
struct StoredElements {
  void (*gelu_forward)(const T* x, T* y, Index n);
  void (*gelu_backward)(const T* dy, const T* x, T* dx, Index n);
  void (*swiglu_forward)(const T* gate, const T* up, T* y, Index n);
  void (*swiglu_backward)(const T* dy, const T* gate, const T* up, T* dgate, T* dup, Index n);
  // turn: 1, or -1 to turn back.
  void (*rotate)(const float* cosines, const float* sines, float turn, T* first, T* second, Index n);
  void (*add)(const T* a, const T* b, T* y, Index n);
  void (*accumulate)(float* sum, const T* x, Index n);  // sum += x
  // Dropout of elements first + i of a sample.
  void (*dropout)(const Dropout&, std::uint32_t sample, Index first, const T* x, T* y, Index n);
  void (*layer_norm_forward)(Mat<const T> x, const T* gamma, const T* beta, float eps, Mat<T> y, float* mean,
                             float* rstd);
  void (*layer_norm_backward)(Mat<const T> dy, Mat<const T> x, const T* gamma, const float* mean, const float* rstd,
                              Mat<const T> residual, Mat<T> dx);
  // Column sums over tokens (F2 by `segment` in a sample, F3 over samples): of dy into `plain`, of dy * xhat into
  // `scaled` (skipped when null).
  void (*column_sums)(Mat<const T> dy, Mat<const T> x, const float* mean, const float* rstd, Index tokens,
                      Index segment, float* plain, float* scaled);
  void (*rms_norm_forward)(Mat<const T> x, const T* gamma, float eps, Mat<T> y, float* rstd);
  void (*rms_norm_backward)(Mat<const T> dy, Mat<const T> x, const T* gamma, const float* rstd, Mat<const T> residual,
                            Mat<T> dx);
  void (*rms_column_sums)(Mat<const T> dy, Mat<const T> x, const float* rstd, Index tokens, Index segment,
                          float* scaled);
  void (*softmax_cross_entropy)(Mat<const T> logits, const std::int32_t* targets, float scale, float* losses,
                                Mat<T> dlogits);
  // Cross-entropy in stages, over a slice of the vocabulary.
  float (*row_maximum)(const T* x, Index n);
  float (*segment_node)(const T* x, float max, Index n, Index segment);
  void (*slice_gradient)(const T* x, float max, float sum, float scale, Index target, T* d, Index n);
  float (*norm2)(const T* x, Index n);  // F4 of x^2
  // Experts: of all rows; of one token and the rows of its slots; of one row.
  void (*route_backward)(const Router&, Mat<const float> probs, const std::int32_t* slots, const float* gates,
                         Mat<const float> shares, const float* spreads, const float* dgates, float scale,
                         Mat<T> dlogits);
  void (*expert_combine)(const std::int32_t* slots, const float* gates, Index choices, Mat<const T> y, T* out);
  void (*expert_collect)(const std::int32_t* slots, Index choices, Mat<const T> dx, const T* router, T* out);
  float (*row_dot)(const T* a, const T* b, Index n);  // F4
  void (*scale_row)(float factor, const T* x, T* y, Index n);
  Index (*count_nonfinite)(const T* x, Index n);
  TensorRange (*range)(Mat<const T> x);
  // Casts to 8 bits, of a row; of a block of a row; of the columns of a block of rows.
  void (*fp8_cast)(const Fp8Cast&, const T* x, float* y, Index n);
  void (*mx_row)(Fp8 format, const T* x, float* y, Index n);
  void (*mx_columns)(Fp8 format, Mat<const T> x, Mat<float> y);
  std::uint32_t (*magnitude_bits)(const T* x, Index n);  // of the largest one; NaN above infinity
  void (*move_mean)(float weight, const T* x, float* mean, Index n);
  std::uint64_t (*block_digest)(const T* x, Index n);  // n up to kBlock
};

// Operations that exist for 16 bits only.
template <class T>
struct HalfElements {
  void (*narrow)(const float* x, T* y, Index n);
  void (*widen)(const T* x, float* y, Index n);
  void (*round_through)(float* x, Index n);
  // fp32 masters and their copy; gradients in fp32 or in 16 bits.
  void (*optimize_copying)(const OptimizerStep&, const float* grad, float* p, float* m, float* v, T* copy, Index n);
  void (*optimize_of_half_copying)(const OptimizerStep&, const T* grad, float* p, float* m, float* v, T* copy, Index n);
  // Parameters in 16 bits, without masters.
  Stagnation (*optimize_rounding)(const OptimizerStep&, const float* grad, T* p, float* m, float* v, Index n);
  Stagnation (*optimize_of_half_rounding)(const OptimizerStep&, const T* grad, T* p, float* m, float* v, Index n);
};

struct ElementTable {
  StoredElements<float> in_float;
  StoredElements<bf16> in_bf16;
  StoredElements<fp16> in_fp16;
  HalfElements<bf16> of_bf16;
  HalfElements<fp16> of_fp16;
  void (*unary)(Unary, const float* x, float* y, Index n);
  void (*scale)(float* x, Index n, float factor);
  float (*token_loss)(float sum, float max, float at_target);
  void (*route)(const Router&, Mat<const float> logits, const Routes& out);
  void (*expert_places)(const std::int32_t* slots, Index of_sample, Index samples, Index ranks, int own, Index places,
                        std::int32_t* sources, std::int32_t* of_rank);
  void (*optimize)(const OptimizerStep&, const float* grad, float* p, float* m, float* v, Index n);
  void (*muon_direction)(const MuonStep&, float* m, float* x, Index n);
  void (*scale_to_norm)(const float* norm2, float least, float* x, Index n);
  void (*weighted_sum)(float a, const float* x, float b, float* y, Index n);
  // Four words of each of so many Philox blocks: of `first`, and of the counters after it, whose number has `element`
  // as its low half and `sample` as its high one.
  void (*philox_words)(PhiloxCounter first, std::uint64_t key, std::uint32_t* words, Index blocks);
  // z[i] = normal quantile of the upper 24 bits of words[i], times stddev.
  void (*normal_of_words)(const std::uint32_t* words, float* z, Index n, float stddev);
  // Parts in ascending order of leaves. After part p is pushed, the two topmost operands are added adds_after[p] times.
  void (*tree_parts)(const float* const* parts, const int* adds_after, Index count, float* out, Index n, float factor);
};

const ProductTable& products_scalar();
const ProductTable& products_avx2();
const ProductTable& products_avx512();
const ElementTable& elements_scalar();
const ElementTable& elements_avx2();
const ElementTable& elements_avx512();

// The tables of active_isa().
const ProductTable& products();
const ElementTable& elements();

// Parts of the tables for tensors stored as T.
template <class T>
const StoredProducts<T>& products_in() {
  if constexpr (std::is_same_v<T, bf16>) {
    return products().in_bf16;
  } else if constexpr (std::is_same_v<T, fp16>) {
    return products().in_fp16;
  } else {
    return products().in_float;
  }
}
template <class T>
const StoredElements<T>& elements_in() {
  if constexpr (std::is_same_v<T, bf16>) {
    return elements().in_bf16;
  } else if constexpr (std::is_same_v<T, fp16>) {
    return elements().in_fp16;
  } else {
    return elements().in_float;
  }
}
template <class T>
const HalfElements<T>& half_elements() {
  if constexpr (std::is_same_v<T, bf16>) {
    return elements().of_bf16;
  } else {
    return elements().of_fp16;
  }
}

}  // namespace seeksim::kernels
