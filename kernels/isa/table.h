// The seam between the public functions (plain x86-64: checks and dispatch) and their bodies, which are compiled three
// times from one source. Arguments are already checked; shapes as in the public headers.
#pragma once

#include "kernels/attention.h"
#include "kernels/cast.h"
#include "kernels/gemm.h"
#include "kernels/isa.h"
#include "kernels/optimizer.h"
#include "kernels/unary.h"
#include "kernels/view.h"

namespace seeksim::kernels {

// Matrix products: isa/products_*.cpp.
struct ProductTable {
  void (*gemm)(bool ta, bool tb, Mat<const float> a, Mat<const float> b, Mat<float> c, Index segment,
               const float* bias);
  void (*attention_forward)(AttentionShape, Mat<const float> qkv, Mat<float> probs, Mat<float> out);
  void (*attention_backward)(AttentionShape, Mat<const float> dout, Mat<const float> qkv, Mat<const float> probs,
                             Mat<float> scratch, Mat<float> dqkv);
};

// Everything else: isa/elements_*.cpp.
struct ElementTable {
  void (*unary)(Unary, const float* x, float* y, Index n);
  void (*gelu_backward)(const float* dy, const float* x, float* dx, Index n);
  void (*add)(const float* a, const float* b, float* y, Index n);
  void (*scale)(float* x, Index n, float factor);
  void (*adamw)(const AdamWStep&, const float* grad, float* p, float* m, float* v, Index n);
  void (*to_bf16)(const float*, std::uint16_t*, Index n);
  void (*to_fp16)(const float*, std::uint16_t*, Index n);
  void (*from_bf16)(const std::uint16_t*, float*, Index n);
  void (*from_fp16)(const std::uint16_t*, float*, Index n);
  // z[i] = normal quantile of the upper 24 bits of words[i], times stddev.
  void (*normal_of_words)(const std::uint32_t* words, float* z, Index n, float stddev);
  float (*norm2)(const float* x, Index n);  // F4 of x^2
  Index (*count_nonfinite)(const float* x, Index n);
  // Parts in ascending order of leaves; after part p has been pushed, adds_after[p] times the two topmost are added.
  void (*tree_parts)(const float* const* parts, const int* adds_after, Index count, float* out, Index n, float factor);
  void (*layer_norm_forward)(Mat<const float> x, const float* gamma, const float* beta, float eps, Mat<float> y,
                             float* mean, float* rstd);
  void (*layer_norm_backward)(Mat<const float> dy, Mat<const float> x, const float* gamma, const float* mean,
                              const float* rstd, Mat<const float> residual, Mat<float> dx);
  // Column sums over tokens (F2 in a sample, F3 over samples): of dy into `plain`, of dy * xhat into `scaled` (skipped
  // when null).
  void (*column_sums)(Mat<const float> dy, Mat<const float> x, const float* mean, const float* rstd, Index tokens,
                      float* plain, float* scaled);
  void (*softmax_cross_entropy)(Mat<const float> logits, const std::int32_t* targets, float scale, float* losses,
                                Mat<float> dlogits);
};

const ProductTable& products_scalar();
const ProductTable& products_avx2();
const ProductTable& products_avx512();
const ElementTable& elements_scalar();
const ElementTable& elements_avx2();
const ElementTable& elements_avx512();

// Of active_isa().
const ProductTable& products();
const ElementTable& elements();

}  // namespace seeksim::kernels
