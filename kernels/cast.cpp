#include "kernels/cast.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/pointwise.h"

namespace seeksim::kernels {

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

template <class T>
void narrow(Lane lane, Vec<const float> x, OutVec<T> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  if constexpr (std::is_same_v<T, float>) {
    copy(lane, x, y);
  } else {
    if (const DeviceTable* device = device_of(lane)) return device->elements<T>().narrow(lane, x, y);
    half_elements<T>().narrow(x.data, y.data, x.n);
  }
}

template <class T>
void widen(Lane lane, InVec<T> x, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  if constexpr (std::is_same_v<T, float>) {
    copy(lane, x, y);
  } else {
    if (const DeviceTable* device = device_of(lane)) return device->elements<T>().widen(lane, x, y);
    half_elements<T>().widen(x.data, y.data, x.n);
  }
}

template <class T>
void round_through([[maybe_unused]] Lane lane, [[maybe_unused]] Vec<float> x) {
  if constexpr (!std::is_same_v<T, float>) {
    if (const DeviceTable* device = device_of(lane)) return device->elements<T>().round_through(lane, x);
    half_elements<T>().round_through(x.data, x.n);
  }
}

template void narrow<float>(Lane, Vec<const float>, OutVec<float>);
template void narrow<bf16>(Lane, Vec<const float>, OutVec<bf16>);
template void narrow<fp16>(Lane, Vec<const float>, OutVec<fp16>);
template void widen<float>(Lane, InVec<float>, Vec<float>);
template void widen<bf16>(Lane, InVec<bf16>, Vec<float>);
template void widen<fp16>(Lane, InVec<fp16>, Vec<float>);
template void round_through<float>(Lane, Vec<float>);
template void round_through<bf16>(Lane, Vec<float>);
template void round_through<fp16>(Lane, Vec<float>);

}  // namespace seeksim::kernels
