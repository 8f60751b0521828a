#include "kernels/fused_attention.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

template <class T>
void check_shapes(AttentionShape s, Mat<const T> qkv, Mat<const float> stats, Mat<const T> out, const Dropout& drop) {
  SEEKSIM_CHECK(s.head_dim > 0 && s.tokens > 0, "head_dim %lld, tokens %lld", static_cast<long long>(s.head_dim),
                static_cast<long long>(s.tokens));
  SEEKSIM_CHECK(s.group > 0 && s.heads % s.group == 0, "%lld query heads in groups of %lld",
                static_cast<long long>(s.heads), static_cast<long long>(s.group));
  SEEKSIM_CHECK_EQ(qkv.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(qkv.cols, s.key_heads() * s.group_columns());
  SEEKSIM_CHECK_EQ(stats.rows, s.samples * s.heads * s.tokens);
  SEEKSIM_CHECK_EQ(stats.cols, 2);
  SEEKSIM_CHECK_EQ(out.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(out.cols, s.heads * s.head_dim);
  const Index all_heads = s.first_head + s.heads;
  SEEKSIM_CHECK(s.first_head >= 0 && (!drop.on() || all_heads * s.tokens * s.tokens < Index{1} << 34),
                "dropout numbers the probabilities of %lld heads of %lld tokens", static_cast<long long>(all_heads),
                static_cast<long long>(s.tokens));
}

}  // namespace

template <class T>
void fused_attention_forward(Lane lane, AttentionShape shape, InMat<T> qkv, Mat<float> stats, OutMat<T> out,
                             const Dropout& drop) {
  check_shapes<T>(shape, qkv, stats, out, drop);
  if (const DeviceTable* device = device_of(lane))
    return device->products<T>().fused_attention_forward(lane, shape, drop, qkv, stats, out);
  products_in<T>().fused_attention_forward(shape, drop, qkv, stats, out);
}

template <class T>
void fused_attention_backward(Lane lane, AttentionShape shape, InMat<T> dout, InMat<T> qkv, InMat<T> out,
                              Mat<const float> stats, OutMat<T> dqkv, const Dropout& drop) {
  check_shapes<T>(shape, qkv, stats, out, drop);
  SEEKSIM_CHECK_EQ(dout.rows, out.rows);
  SEEKSIM_CHECK_EQ(dout.cols, out.cols);
  SEEKSIM_CHECK_EQ(dqkv.rows, qkv.rows);
  SEEKSIM_CHECK_EQ(dqkv.cols, qkv.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->products<T>().fused_attention_backward(lane, shape, drop, dout, qkv, out, stats, dqkv);
  products_in<T>().fused_attention_backward(shape, drop, dout, qkv, out, stats, dqkv);
}

template void fused_attention_forward<float>(Lane, AttentionShape, InMat<float>, Mat<float>, OutMat<float>,
                                             const Dropout&);
template void fused_attention_forward<bf16>(Lane, AttentionShape, InMat<bf16>, Mat<float>, OutMat<bf16>,
                                            const Dropout&);
template void fused_attention_forward<fp16>(Lane, AttentionShape, InMat<fp16>, Mat<float>, OutMat<fp16>,
                                            const Dropout&);
template void fused_attention_backward<float>(Lane, AttentionShape, InMat<float>, InMat<float>, InMat<float>,
                                              Mat<const float>, OutMat<float>, const Dropout&);
template void fused_attention_backward<bf16>(Lane, AttentionShape, InMat<bf16>, InMat<bf16>, InMat<bf16>,
                                             Mat<const float>, OutMat<bf16>, const Dropout&);
template void fused_attention_backward<fp16>(Lane, AttentionShape, InMat<fp16>, InMat<fp16>, InMat<fp16>,
                                             Mat<const float>, OutMat<fp16>, const Dropout&);

}  // namespace seeksim::kernels
