#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/cast.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/tree.h"

namespace seeksim::kernels {
namespace {

// Stands for a value that this slice does not have: a quiet NaN, which no sum can hide.
constexpr float kNobodys = std::numeric_limits<float>::quiet_NaN();

void check_targets(Vec<const std::int32_t> targets, Index vocabulary) {
  for (Index r = 0; r < targets.n; ++r)
    SEEKSIM_CHECK(targets[r] >= 0 && targets[r] < vocabulary, "target %d of row %lld, vocabulary %lld", targets[r],
                  static_cast<long long>(r), static_cast<long long>(vocabulary));
}

template <class T>
void check_slice(Mat<const T> logits, VocabularySlice slice) {
  const Index end = slice.first + logits.cols, segment = slab_size(slice.vocabulary);
  SEEKSIM_CHECK(slice.vocabulary > 0 && end <= slice.vocabulary, "columns up to %lld of a vocabulary of %lld",
                static_cast<long long>(end), static_cast<long long>(slice.vocabulary));
  SEEKSIM_CHECK(logits.cols == 0 || (slice.first % segment == 0 && (end % segment == 0 || end == slice.vocabulary)),
                "columns [%lld, %lld) are not whole segments of %lld", static_cast<long long>(slice.first),
                static_cast<long long>(end), static_cast<long long>(segment));
}

}  // namespace

template <class T>
void softmax_cross_entropy(Lane lane, InMat<T> logits, Vec<const std::int32_t> targets, float scale, Vec<float> losses,
                           OutMat<T> dlogits) {
  SEEKSIM_CHECK_EQ(targets.n, logits.rows);
  SEEKSIM_CHECK_EQ(losses.n, logits.rows);
  SEEKSIM_CHECK(logits.cols > 0, "no vocabulary");
  if (dlogits.data != nullptr) {
    SEEKSIM_CHECK_EQ(dlogits.rows, logits.rows);
    SEEKSIM_CHECK_EQ(dlogits.cols, logits.cols);
  }
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().softmax_cross_entropy(lane, logits, targets.data, scale, losses.data, dlogits);
  check_targets(targets, logits.cols);
  elements_in<T>().softmax_cross_entropy(logits, targets.data, scale, losses.data, dlogits);
}

template <class T>
void slice_maxima(Lane lane, InMat<T> logits, VocabularySlice slice, Vec<const std::int32_t> targets, Vec<float> maxima,
                  Vec<float> at_target) {
  check_slice<T>(logits, slice);
  SEEKSIM_CHECK_EQ(targets.n, logits.rows);
  SEEKSIM_CHECK_EQ(maxima.n, logits.rows);
  SEEKSIM_CHECK_EQ(at_target.n, logits.rows);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().slice_maxima(lane, logits, slice.vocabulary, slice.first, targets.data, maxima.data,
                                          at_target.data);
  check_targets(targets, slice.vocabulary);
  for (Index r = 0; r < logits.rows; ++r) {
    const Index target = targets[r] - slice.first;
    maxima[r] = elements_in<T>().row_maximum(logits.row(r), logits.cols);
    at_target[r] = kNobodys;
    if (target >= 0 && target < logits.cols) widen<T>(lane, {logits.row(r) + target, 1}, {&at_target[r], 1});
  }
}

template <class T>
void slice_sums(Lane lane, InMat<T> logits, VocabularySlice slice, Vec<const float> maxima, Vec<float> sums) {
  check_slice<T>(logits, slice);
  SEEKSIM_CHECK_EQ(maxima.n, logits.rows);
  SEEKSIM_CHECK_EQ(sums.n, logits.rows);
  const Index segment = slab_size(slice.vocabulary);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().slice_sums(lane, logits, segment, maxima.data, sums.data);
  for (Index r = 0; r < logits.rows; ++r)
    sums[r] =
        logits.cols == 0 ? kNobodys : elements_in<T>().segment_node(logits.row(r), maxima[r], logits.cols, segment);
}

template <class T>
void slice_cross_entropy(Lane lane, InMat<T> logits, VocabularySlice slice, Vec<const std::int32_t> targets,
                         float scale, Vec<const float> maxima, Vec<const float> sums, Vec<const float> at_target,
                         Vec<float> losses, OutMat<T> dlogits) {
  check_slice<T>(logits, slice);
  for (const Index n : {targets.n, maxima.n, sums.n, at_target.n, losses.n, dlogits.rows})
    SEEKSIM_CHECK_EQ(n, logits.rows);
  SEEKSIM_CHECK_EQ(dlogits.cols, logits.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().slice_cross_entropy(lane, logits, slice.vocabulary, slice.first, targets.data, scale,
                                                 maxima.data, sums.data, at_target.data, losses.data, dlogits);
  check_targets(targets, slice.vocabulary);
  for (Index r = 0; r < logits.rows; ++r) {
    losses[r] = elements().token_loss(sums[r], maxima[r], at_target[r]);
    elements_in<T>().slice_gradient(logits.row(r), maxima[r], sums[r], scale, targets[r] - slice.first, dlogits.row(r),
                                    logits.cols);
  }
}

void sample_losses(Lane lane, Vec<const float> losses, Index tokens, Vec<float> out) {
  SEEKSIM_CHECK_EQ(losses.n, out.n * tokens);
  if (const DeviceTable* device = device_of(lane))
    return device->common.tree_fold(lane, {losses.data, out.n, tokens, tokens}, tokens < 1 ? 1 : tokens, 1.0F,
                                    out.data);
  for (Index s = 0; s < out.n; ++s) out[s] = tree_fold({losses.data + s * tokens, tokens});
}

template void softmax_cross_entropy<float>(Lane, InMat<float>, Vec<const std::int32_t>, float, Vec<float>,
                                           OutMat<float>);
template void softmax_cross_entropy<bf16>(Lane, InMat<bf16>, Vec<const std::int32_t>, float, Vec<float>, OutMat<bf16>);
template void softmax_cross_entropy<fp16>(Lane, InMat<fp16>, Vec<const std::int32_t>, float, Vec<float>, OutMat<fp16>);
template void slice_maxima<float>(Lane, InMat<float>, VocabularySlice, Vec<const std::int32_t>, Vec<float>, Vec<float>);
template void slice_sums<float>(Lane, InMat<float>, VocabularySlice, Vec<const float>, Vec<float>);
template void slice_cross_entropy<float>(Lane, InMat<float>, VocabularySlice, Vec<const std::int32_t>, float,
                                         Vec<const float>, Vec<const float>, Vec<const float>, Vec<float>,
                                         OutMat<float>);
template void slice_maxima<bf16>(Lane, InMat<bf16>, VocabularySlice, Vec<const std::int32_t>, Vec<float>, Vec<float>);
template void slice_sums<bf16>(Lane, InMat<bf16>, VocabularySlice, Vec<const float>, Vec<float>);
template void slice_cross_entropy<bf16>(Lane, InMat<bf16>, VocabularySlice, Vec<const std::int32_t>, float,
                                        Vec<const float>, Vec<const float>, Vec<const float>, Vec<float>, OutMat<bf16>);
template void slice_maxima<fp16>(Lane, InMat<fp16>, VocabularySlice, Vec<const std::int32_t>, Vec<float>, Vec<float>);
template void slice_sums<fp16>(Lane, InMat<fp16>, VocabularySlice, Vec<const float>, Vec<float>);
template void slice_cross_entropy<fp16>(Lane, InMat<fp16>, VocabularySlice, Vec<const std::int32_t>, float,
                                        Vec<const float>, Vec<const float>, Vec<const float>, Vec<float>, OutMat<fp16>);

}  // namespace seeksim::kernels
