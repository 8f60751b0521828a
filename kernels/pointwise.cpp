#include "kernels/pointwise.h"

#include <cstring>
#include <cwchar>
#include <limits>

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/row_checks.h"

namespace seeksim::kernels {
void unary(Lane lane, Unary f, Vec<const float> x, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  if (const DeviceTable* device = device_of(lane)) return device->common.unary(lane, f, x, y);
  elements().unary(f, x.data, y.data, x.n);
}

template <class T>
void gelu_forward(Lane lane, InMat<T> x, OutMat<T> y) {
  check_same<T>(x, y);
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().gelu_forward(lane, x, y);
  for (Index r = 0; r < x.rows; ++r) elements_in<T>().gelu_forward(x.row(r), y.row(r), x.cols);
}

template <class T>
void gelu_backward(Lane lane, InMat<T> dy, InMat<T> x, OutMat<T> dx) {
  check_same<T>(dy, x);
  check_same<T>(dx, x);
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().gelu_backward(lane, dy, x, dx);
  for (Index r = 0; r < x.rows; ++r) elements_in<T>().gelu_backward(dy.row(r), x.row(r), dx.row(r), x.cols);
}

template <class T>
void add(Lane lane, InMat<T> a, InMat<T> b, OutMat<T> y) {
  check_same<T>(a, y);
  check_same<T>(b, y);
  if (const DeviceTable* device = device_of(lane)) return device->elements<T>().add(lane, a, b, y);
  for (Index r = 0; r < y.rows; ++r) elements_in<T>().add(a.row(r), b.row(r), y.row(r), y.cols);
}

void scale(Lane lane, Vec<float> x, float factor) {
  if (const DeviceTable* device = device_of(lane)) return device->elements<float>().scale(lane, x, factor);
  elements().scale(x.data, x.n, factor);
}

void fill_bits(Lane lane, Vec<float> x, std::uint32_t bits) {
  if (const DeviceTable* device = device_of(lane)) return device->common.fill_bits(lane, x, bits);
  static_assert(sizeof(wchar_t) == sizeof bits);
  std::wmemset(reinterpret_cast<wchar_t*>(x.data), static_cast<wchar_t>(bits), static_cast<std::size_t>(x.n));
}

template <class T>
void copy(Lane lane, InVec<T> x, OutVec<T> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  const std::size_t bytes = static_cast<std::size_t>(x.n) * sizeof(T);
  if (const DeviceTable* device = device_of(lane)) return device->common.copy(lane, x.data, y.data, bytes);
  if (x.n > 0) std::memcpy(y.data, x.data, bytes);
}

template void gelu_forward<float>(Lane, InMat<float>, OutMat<float>);
template void gelu_forward<bf16>(Lane, InMat<bf16>, OutMat<bf16>);
template void gelu_forward<fp16>(Lane, InMat<fp16>, OutMat<fp16>);
template void gelu_backward<float>(Lane, InMat<float>, InMat<float>, OutMat<float>);
template void gelu_backward<bf16>(Lane, InMat<bf16>, InMat<bf16>, OutMat<bf16>);
template void gelu_backward<fp16>(Lane, InMat<fp16>, InMat<fp16>, OutMat<fp16>);
template void add<float>(Lane, InMat<float>, InMat<float>, OutMat<float>);
template void add<bf16>(Lane, InMat<bf16>, InMat<bf16>, OutMat<bf16>);
template void add<fp16>(Lane, InMat<fp16>, InMat<fp16>, OutMat<fp16>);
template void copy<float>(Lane, InVec<float>, OutVec<float>);
template void copy<bf16>(Lane, InVec<bf16>, OutVec<bf16>);
template void copy<fp16>(Lane, InVec<fp16>, OutVec<fp16>);

void replace_finite(Lane lane, Vec<const float> come, Vec<float> to) {
  check_on_cpu(lane, "lets gradients wait");
  for (Index i = 0; i < to.n; ++i) {
    if (!((to[i] - to[i]) == 0.0F))
      to.data[i] = std::numeric_limits<float>::quiet_NaN();
    else
      to.data[i] = come.n > 0 ? come[i] : 0.0F;
  }
}

void take_share(Lane lane, Vec<const float> sum, float share, Vec<float> rest) {
  check_on_cpu(lane, "takes a share away");
  for (Index i = 0; i < rest.n; ++i) rest[i] = rest[i] - sum[i] * share;
}

}  // namespace seeksim::kernels
