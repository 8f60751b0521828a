// The common text of all products_*.cpp. Everything but the table has internal linkage, so that nothing compiled for
// one instruction set can be linked into the path of another.
#if defined(__AVX2__)
#include <immintrin.h>
// g++ 12 sees its own _mm256_undefined_ps() as a use of something uninitialised.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <type_traits>

#include "kernels/cast_body.h"
#include "kernels/isa/table.h"
#include "kernels/math.h"
#include "kernels/philox_body.h"
#include "kernels/scalar.h"
#include "kernels/scratch.h"

namespace seeksim::kernels {
namespace {

#include "kernels/isa/simd.inl"

#include "kernels/isa/storage.inl"

#include "kernels/isa/lanes.inl"

#include "kernels/isa/dropout.inl"

#include "kernels/isa/pack.inl"

#include "kernels/isa/gemm.inl"

#include "kernels/isa/fast.inl"

#include "kernels/isa/attention.inl"

#include "kernels/isa/fused_attention.inl"

#include "kernels/isa/fused_parts.inl"

template <class T>
constexpr StoredProducts<T> kStored = {
    .gemm = gemm_body<T, T>,
    .gemm_to_float = gemm_body<T, float>,
    .fast_gemm = fast_gemm_body<T, T>,
    .fast_gemm_to_float = fast_gemm_body<T, float>,
    .attention_forward = attention_forward_body<T>,
    .attention_backward = attention_backward_body<T>,
    .fused_attention_forward = fused_attention_forward_body<T>,
    .fused_attention_backward = fused_attention_backward_body<T>,
    .fused_part_forward = fused_part_forward_body<T>,
    .fused_join = fused_join_body,
    .fused_root = fused_root_body<T>,
    .fused_part_backward = fused_part_backward_body<T>,
};

}  // namespace

const ProductTable& SEEKSIM_PRODUCT_TABLE() {
  static constexpr ProductTable kTable = {
      .in_float = kStored<float>,
      .in_bf16 = kStored<bf16>,
      .in_fp16 = kStored<fp16>,
  };
  return kTable;
}

}  // namespace seeksim::kernels
