#include "kernels/attention.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

void check_shapes(AttentionShape s, Mat<const float> qkv, Mat<const float> probs, Mat<const float> out) {
  SEEKSIM_CHECK(s.head_dim > 0 && s.tokens > 0, "head_dim %lld, tokens %lld", static_cast<long long>(s.head_dim),
                static_cast<long long>(s.tokens));
  SEEKSIM_CHECK_EQ(qkv.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(qkv.cols, s.heads * 3 * s.head_dim);
  SEEKSIM_CHECK_EQ(probs.rows, s.samples * s.heads * s.tokens);
  SEEKSIM_CHECK_EQ(probs.cols, s.tokens);
  SEEKSIM_CHECK_EQ(out.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(out.cols, s.heads * s.head_dim);
}

}  // namespace

void attention_forward(Lane, AttentionShape shape, Mat<const float> qkv, Mat<float> probs, Mat<float> out) {
  check_shapes(shape, qkv, probs, out);
  products().attention_forward(shape, qkv, probs, out);
}

void attention_backward(Lane, AttentionShape shape, Mat<const float> dout, Mat<const float> qkv, Mat<const float> probs,
                        Mat<float> scratch, Mat<float> dqkv) {
  check_shapes(shape, qkv, probs, dout);
  SEEKSIM_CHECK(scratch.rows >= shape.tokens && scratch.cols >= shape.tokens, "scratch %lld x %lld",
                static_cast<long long>(scratch.rows), static_cast<long long>(scratch.cols));
  SEEKSIM_CHECK_EQ(dqkv.rows, qkv.rows);
  SEEKSIM_CHECK_EQ(dqkv.cols, qkv.cols);
  products().attention_backward(shape, dout, qkv, probs, scratch, dqkv);
}

}  // namespace seeksim::kernels
