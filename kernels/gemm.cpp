#include "kernels/gemm.h"

#include "kernels/arithmetic.h"
#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {

template <class T, class To>
void gemm(Lane lane, Trans ta, Trans tb, InMat<T> a, InMat<T> b, OutMat<To> c, Index segment, InVec<T> bias) {
  const bool a_flipped = ta == Trans::yes, b_flipped = tb == Trans::yes;
  SEEKSIM_CHECK_EQ(a_flipped ? a.cols : a.rows, c.rows);
  SEEKSIM_CHECK_EQ(b_flipped ? b.rows : b.cols, c.cols);
  SEEKSIM_CHECK_EQ(a_flipped ? a.rows : a.cols, b_flipped ? b.cols : b.rows);
  SEEKSIM_CHECK(a.stride >= a.cols && b.stride >= b.cols && c.stride >= c.cols, "strides %lld %lld %lld",
                static_cast<long long>(a.stride), static_cast<long long>(b.stride), static_cast<long long>(c.stride));
  SEEKSIM_CHECK(segment >= 0, "segment %lld", static_cast<long long>(segment));
  if (bias.n > 0) SEEKSIM_CHECK_EQ(bias.n, c.cols);
  const T* const bias_data = bias.n > 0 ? bias.data : nullptr;
  if (lane.arithmetic != nullptr)
    return lane.arithmetic->gemm(lane, GemmCall<T, To>{a_flipped, b_flipped, a, b, c, segment, bias});
  if constexpr (std::is_same_v<T, To>) {
    if (const DeviceTable* device = device_of(lane))
      return device->products<T>().gemm(lane, a_flipped, b_flipped, a, b, c, segment, bias_data);
    products_in<T>().gemm(a_flipped, b_flipped, a, b, c, segment, bias_data);
  } else {
    if (const DeviceTable* device = device_of(lane))
      return device->products<T>().gemm_to_float(lane, a_flipped, b_flipped, a, b, c, segment, bias_data);
    products_in<T>().gemm_to_float(a_flipped, b_flipped, a, b, c, segment, bias_data);
  }
}

template void gemm<float, float>(Lane, Trans, Trans, InMat<float>, InMat<float>, OutMat<float>, Index, InVec<float>);
template void gemm<bf16, bf16>(Lane, Trans, Trans, InMat<bf16>, InMat<bf16>, OutMat<bf16>, Index, InVec<bf16>);
template void gemm<bf16, float>(Lane, Trans, Trans, InMat<bf16>, InMat<bf16>, OutMat<float>, Index, InVec<bf16>);
template void gemm<fp16, fp16>(Lane, Trans, Trans, InMat<fp16>, InMat<fp16>, OutMat<fp16>, Index, InVec<fp16>);
template void gemm<fp16, float>(Lane, Trans, Trans, InMat<fp16>, InMat<fp16>, OutMat<float>, Index, InVec<fp16>);

}  // namespace seeksim::kernels
