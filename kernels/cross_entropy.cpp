#include "kernels/cross_entropy.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"
#include "kernels/tree.h"

namespace seeksim::kernels {

template <class T>
void softmax_cross_entropy(Lane, InMat<T> logits, Vec<const std::int32_t> targets, float scale, Vec<float> losses,
                           OutMat<T> dlogits) {
  SEEKSIM_CHECK_EQ(targets.n, logits.rows);
  SEEKSIM_CHECK_EQ(losses.n, logits.rows);
  SEEKSIM_CHECK(logits.cols > 0, "no vocabulary");
  for (Index r = 0; r < targets.n; ++r)
    SEEKSIM_CHECK(targets[r] >= 0 && targets[r] < logits.cols, "target %d of row %lld, vocabulary %lld", targets[r],
                  static_cast<long long>(r), static_cast<long long>(logits.cols));
  if (dlogits.data != nullptr) {
    SEEKSIM_CHECK_EQ(dlogits.rows, logits.rows);
    SEEKSIM_CHECK_EQ(dlogits.cols, logits.cols);
  }
  elements_in<T>().softmax_cross_entropy(logits, targets.data, scale, losses.data, dlogits);
}

void sample_losses(Lane, Vec<const float> losses, Index tokens, Vec<float> out) {
  SEEKSIM_CHECK_EQ(losses.n, out.n * tokens);
  for (Index s = 0; s < out.n; ++s) out[s] = tree_fold({losses.data + s * tokens, tokens});
}

template void softmax_cross_entropy<float>(Lane, InMat<float>, Vec<const std::int32_t>, float, Vec<float>,
                                           OutMat<float>);
template void softmax_cross_entropy<bf16>(Lane, InMat<bf16>, Vec<const std::int32_t>, float, Vec<float>, OutMat<bf16>);
template void softmax_cross_entropy<fp16>(Lane, InMat<fp16>, Vec<const std::int32_t>, float, Vec<float>, OutMat<fp16>);

}  // namespace seeksim::kernels
