// What all elements_*.cpp have in common. Everything but the table has internal linkage, so that nothing compiled for
// one instruction set can be linked into the path of another.
#if defined(__AVX2__)
#include <immintrin.h>
// g++ 12 sees its own _mm256_undefined_ps() as a use of something uninitialised.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "kernels/cast_body.h"
#include "kernels/isa/table.h"
#include "kernels/math.h"
#include "kernels/optimizer_body.h"
#include "kernels/scalar.h"
#include "kernels/scratch.h"

namespace seeksim::kernels {
namespace {

#include "kernels/isa/simd.inl"

#include "kernels/isa/elements.inl"

#include "kernels/isa/rows.inl"

}  // namespace

const ElementTable& SEEKSIM_ELEMENT_TABLE() {
  static constexpr ElementTable kTable = {
      .unary = unary_body,
      .gelu_backward = gelu_backward_body,
      .add = add_body,
      .scale = scale_body,
      .adamw = adamw_body_of_step,
      .to_bf16 = to_bf16_body,
      .to_fp16 = to_fp16_body,
      .from_bf16 = from_bf16_body,
      .from_fp16 = from_fp16_body,
      .normal_of_words = normal_body,
      .norm2 = norm2_body,
      .count_nonfinite = count_nonfinite_body,
      .tree_parts = tree_parts_body,
      .layer_norm_forward = layer_norm_forward_body,
      .layer_norm_backward = layer_norm_backward_body,
      .column_sums = column_sums_body,
      .softmax_cross_entropy = softmax_cross_entropy_body,
  };
  return kTable;
}

}  // namespace seeksim::kernels
