#include "kernels/rotary.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

template <class T>
void rotate(Lane lane, AttentionShape s, Mat<const float> angles, float turn, Mat<T> qkv) {
  SEEKSIM_CHECK(s.head_dim > 0 && s.head_dim % 2 == 0, "head_dim %lld: halves are needed",
                static_cast<long long>(s.head_dim));
  SEEKSIM_CHECK(s.group > 0 && s.heads % s.group == 0, "%lld query heads in groups of %lld",
                static_cast<long long>(s.heads), static_cast<long long>(s.group));
  SEEKSIM_CHECK_EQ(qkv.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(qkv.cols, s.key_heads() * s.group_columns());
  SEEKSIM_CHECK_EQ(angles.cols, s.head_dim);
  SEEKSIM_CHECK(s.tokens <= angles.rows, "%lld tokens, angles of %lld positions", static_cast<long long>(s.tokens),
                static_cast<long long>(angles.rows));
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().rotate(lane, s, angles, turn, qkv);
  const Index half = s.head_dim / 2;
  for (Index r = 0; r < qkv.rows; ++r) {
    const float* const cosines = angles.row(r % s.tokens);
    for (Index key_head = 0; key_head < s.key_heads(); ++key_head) {
      for (Index h = 0; h <= s.group; ++h) {  // the query heads, then k
        T* const head = qkv.row(r) + key_head * s.group_columns() + h * s.head_dim;
        elements_in<T>().rotate(cosines, cosines + half, turn, head, head + half, half);
      }
    }
  }
}

}  // namespace

template <class T>
void rotary_forward(Lane lane, AttentionShape shape, Mat<const float> angles, OutMat<T> qkv) {
  rotate<T>(lane, shape, angles, 1.0F, qkv);
}

template <class T>
void rotary_backward(Lane lane, AttentionShape shape, Mat<const float> angles, OutMat<T> dqkv) {
  rotate<T>(lane, shape, angles, -1.0F, dqkv);
}

template void rotary_forward<float>(Lane, AttentionShape, Mat<const float>, OutMat<float>);
template void rotary_forward<bf16>(Lane, AttentionShape, Mat<const float>, OutMat<bf16>);
template void rotary_forward<fp16>(Lane, AttentionShape, Mat<const float>, OutMat<fp16>);
template void rotary_backward<float>(Lane, AttentionShape, Mat<const float>, OutMat<float>);
template void rotary_backward<bf16>(Lane, AttentionShape, Mat<const float>, OutMat<bf16>);
template void rotary_backward<fp16>(Lane, AttentionShape, Mat<const float>, OutMat<fp16>);

}  // namespace seeksim::kernels
