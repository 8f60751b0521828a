// The common text of all elements_*.cpp. Everything but the table has internal linkage, so that nothing compiled for
// one instruction set can be linked into the path of another.
#if defined(__AVX2__)
#include <immintrin.h>
// g++ 12 sees its own _mm256_undefined_ps() as a use of something uninitialised.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <type_traits>

#include "kernels/cast_body.h"
#include "kernels/experts_body.h"
#include "kernels/isa/table.h"
#include "kernels/math.h"
#include "kernels/optimizer_body.h"
#include "kernels/philox_body.h"
#include "kernels/scalar.h"
#include "kernels/scratch.h"

namespace seeksim::kernels {
namespace {

#include "kernels/isa/simd.inl"

#include "kernels/isa/storage.inl"

#include "kernels/isa/lanes.inl"

#include "kernels/isa/dropout.inl"

#include "kernels/isa/random.inl"

#include "kernels/isa/elements.inl"

#include "kernels/isa/rows.inl"

#include "kernels/isa/rms_norm.inl"

#include "kernels/isa/experts.inl"

#include "kernels/isa/optimizer.inl"

#include "kernels/isa/range.inl"

#include "kernels/isa/fp8.inl"

#include "kernels/isa/digest.inl"

template <class T>
constexpr StoredElements<T> kStored = {
    .gelu_forward = gelu_forward_body<T>,
    .gelu_backward = gelu_backward_body<T>,
    .swiglu_forward = swiglu_forward_body<T>,
    .swiglu_backward = swiglu_backward_body<T>,
    .rotate = rotate_body<T>,
    .add = add_body<T, T>,
    .accumulate = accumulate_body<T>,
    .dropout = dropout_body<T>,
    .layer_norm_forward = layer_norm_forward_body<T>,
    .layer_norm_backward = layer_norm_backward_body<T>,
    .column_sums = column_sums_body<T>,
    .rms_norm_forward = rms_norm_forward_body<T>,
    .rms_norm_backward = rms_norm_backward_body<T>,
    .rms_column_sums = rms_column_sums_body<T>,
    .softmax_cross_entropy = softmax_cross_entropy_body<T>,
    .row_maximum = row_max<T>,
    .segment_node = segment_node_body<T>,
    .slice_gradient = slice_gradient_body<T>,
    .norm2 = norm2_body<T>,
    .route_backward = route_backward_body<T>,
    .expert_combine = expert_combine_body<T>,
    .expert_collect = expert_collect_body<T>,
    .row_dot = row_dot_body<T>,
    .scale_row = scale_row_body<T>,
    .count_nonfinite = count_nonfinite_body<T>,
    .range = range_body<T>,
    .fp8_cast = fp8_cast_body<T>,
    .mx_row = mx_row_body<T>,
    .mx_columns = mx_columns_body<T>,
    .magnitude_bits = magnitude_bits_body<T>,
    .move_mean = move_mean_body<T>,
    .block_digest = block_digest_body<T>,
};

template <class T>
constexpr HalfElements<T> kHalf = {
    .narrow = convert_body<float, T>,
    .widen = convert_body<T, float>,
    .round_through = round_through_body<T>,
    .optimize_copying = optimize_copying_body<float, T>,
    .optimize_of_half_copying = optimize_copying_body<T, T>,
    .optimize_rounding = optimize_rounding_body<float, T>,
    .optimize_of_half_rounding = optimize_rounding_body<T, T>,
};

}  // namespace

const ElementTable& SEEKSIM_ELEMENT_TABLE() {
  static constexpr ElementTable kTable = {
      .in_float = kStored<float>,
      .in_bf16 = kStored<bf16>,
      .in_fp16 = kStored<fp16>,
      .of_bf16 = kHalf<bf16>,
      .of_fp16 = kHalf<fp16>,
      .unary = unary_body,
      .scale = scale_body,
      .token_loss = token_loss,
      .route = route_body,
      .expert_places = expert_places_body,
      .optimize = optimize_body,
      .muon_direction = muon_direction_body,
      .scale_to_norm = scale_to_norm_body,
      .weighted_sum = weighted_sum_body,
      .philox_words = philox_words_body,
      .normal_of_words = normal_body,
      .tree_parts = tree_parts_body,
  };
  return kTable;
}

}  // namespace seeksim::kernels
