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

// ---- chunks --------------------------------------------------------------------------------------------------------

namespace {

template <class T>
void check_part(AttentionShape s, const FusedPlace& place, Mat<const T> qkv, Mat<const T> kv, const Dropout& drop) {
  SEEKSIM_CHECK(s.head_dim > 0 && s.tokens > 0 && s.tokens % kFusedBlock == 0, "head_dim %lld, %lld tokens of a chunk",
                static_cast<long long>(s.head_dim), static_cast<long long>(s.tokens));
  const Index blocks = s.tokens / kFusedBlock;
  SEEKSIM_CHECK((blocks & (blocks - 1)) == 0 && place.query % s.tokens == 0 && place.key % s.tokens == 0,
                "%lld tokens from %lld and %lld on are no nodes of the tree over blocks",
                static_cast<long long>(s.tokens), static_cast<long long>(place.query),
                static_cast<long long>(place.key));
  SEEKSIM_CHECK(s.group > 0 && s.heads % s.group == 0, "%lld query heads in groups of %lld",
                static_cast<long long>(s.heads), static_cast<long long>(s.group));
  SEEKSIM_CHECK_EQ(qkv.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(qkv.cols, s.key_heads() * s.group_columns());
  SEEKSIM_CHECK_EQ(kv.rows, qkv.rows);
  SEEKSIM_CHECK_EQ(kv.cols, s.key_heads() * 2 * s.head_dim);
  const Index all_heads = s.first_head + s.heads;
  SEEKSIM_CHECK(s.first_head >= 0 && (!drop.on() || all_heads * place.tokens * place.tokens < Index{1} << 34),
                "dropout numbers the probabilities of %lld heads of %lld tokens", static_cast<long long>(all_heads),
                static_cast<long long>(place.tokens));
}

void check_state(const AttentionShape& s, Index rows, Index cols) {
  SEEKSIM_CHECK_EQ(rows, s.samples * s.heads * s.tokens);
  SEEKSIM_CHECK_EQ(cols, fused_state_columns(s));
}

template <class M>
void check_rows_of(const AttentionShape& s, const M& rows) {
  SEEKSIM_CHECK_EQ(rows.rows, s.samples * s.tokens);
  SEEKSIM_CHECK_EQ(rows.cols, s.heads * s.head_dim);
}

}  // namespace

template <class T>
void fused_part_forward(Lane lane, AttentionShape shape, FusedPlace place, InMat<T> qkv, InMat<T> kv, Mat<float> state,
                        const Dropout& drop) {
  check_part<T>(shape, place, qkv, kv, drop);
  check_state(shape, state.rows, state.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->products<T>().fused_part_forward(lane, shape, place, drop, qkv, kv, state);
  products_in<T>().fused_part_forward(shape, place, drop, qkv, kv, state);
}

void fused_join(Lane lane, Mat<const float> newer, Mat<float> older) {
  SEEKSIM_CHECK_EQ(newer.rows, older.rows);
  SEEKSIM_CHECK_EQ(newer.cols, older.cols);
  SEEKSIM_CHECK(older.cols > 2, "%lld columns of a state", static_cast<long long>(older.cols));
  if (const DeviceTable* device = device_of(lane)) return device->products<float>().fused_join(lane, newer, older);
  products_in<float>().fused_join(newer, older);
}

template <class T>
void fused_root(Lane lane, AttentionShape shape, Mat<const float> state, Mat<float> stats, OutMat<T> out) {
  check_state(shape, state.rows, state.cols);
  SEEKSIM_CHECK_EQ(stats.rows, state.rows);
  SEEKSIM_CHECK_EQ(stats.cols, 2);
  check_rows_of(shape, out);
  if (const DeviceTable* device = device_of(lane))
    return device->products<T>().fused_root(lane, shape, state, stats, out);
  products_in<T>().fused_root(shape, state, stats, out);
}

template <class T>
void fused_part_backward(Lane lane, AttentionShape shape, FusedPlace place, InMat<T> dout, InMat<T> qkv, InMat<T> kv,
                         InMat<T> out, Mat<const float> stats, Mat<float> dq, Mat<float> dkv, const Dropout& drop) {
  check_part<T>(shape, place, qkv, kv, drop);
  check_rows_of(shape, dout), check_rows_of(shape, out), check_rows_of(shape, dq);
  SEEKSIM_CHECK_EQ(stats.rows, shape.samples * shape.heads * shape.tokens);
  SEEKSIM_CHECK_EQ(stats.cols, 2);
  SEEKSIM_CHECK_EQ(dkv.rows, kv.rows);
  SEEKSIM_CHECK_EQ(dkv.cols, kv.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->products<T>().fused_part_backward(lane, shape, place, drop, dout, qkv, kv, out, stats, dq, dkv);
  products_in<T>().fused_part_backward(shape, place, drop, dout, qkv, kv, out, stats, dq, dkv);
}

#define SEEKSIM_FUSED_PARTS_OF(T)                                                                                \
  template void fused_part_forward<T>(Lane, AttentionShape, FusedPlace, InMat<T>, InMat<T>, Mat<float>,          \
                                      const Dropout&);                                                           \
  template void fused_root<T>(Lane, AttentionShape, Mat<const float>, Mat<float>, OutMat<T>);                    \
  template void fused_part_backward<T>(Lane, AttentionShape, FusedPlace, InMat<T>, InMat<T>, InMat<T>, InMat<T>, \
                                       Mat<const float>, Mat<float>, Mat<float>, const Dropout&);
SEEKSIM_FUSED_PARTS_OF(float)
SEEKSIM_FUSED_PARTS_OF(bf16)
SEEKSIM_FUSED_PARTS_OF(fp16)
#undef SEEKSIM_FUSED_PARTS_OF

}  // namespace seeksim::kernels
