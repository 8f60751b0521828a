#include "kernels/cross_entropy.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"
#include "kernels/tree.h"

namespace seeksim::kernels {

void softmax_cross_entropy(Lane, Mat<const float> logits, Vec<const std::int32_t> targets, float scale,
                           Vec<float> losses, Mat<float> dlogits) {
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
  elements().softmax_cross_entropy(logits, targets.data, scale, losses.data, dlogits);
}

void sample_losses(Lane, Vec<const float> losses, Index tokens, Vec<float> out) {
  SEEKSIM_CHECK_EQ(losses.n, out.n * tokens);
  for (Index s = 0; s < out.n; ++s) out[s] = tree_fold({losses.data + s * tokens, tokens});
}

}  // namespace seeksim::kernels
