#include "kernels/rms_norm.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/row_checks.h"

namespace seeksim::kernels {
template <class T>
void rms_norm_forward(Lane lane, InMat<T> x, InVec<T> gamma, float eps, OutMat<T> y, Vec<float> rstd) {
  check_same<T>(x, y);
  SEEKSIM_CHECK_EQ(gamma.n, x.cols);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().rms_norm_forward(lane, x, gamma, eps, y, rstd);
  elements_in<T>().rms_norm_forward(x, gamma.data, eps, y, rstd.data);
}

template <class T>
void rms_norm_backward(Lane lane, InMat<T> dy, InMat<T> x, InVec<T> gamma, Vec<const float> rstd, InMat<T> residual,
                       OutMat<T> dx) {
  check_same<T>(dy, x);
  check_same<T>(dx, x);
  if (residual.data != nullptr) check_same<T>(residual, x);
  SEEKSIM_CHECK_EQ(gamma.n, x.cols);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().rms_norm_backward(lane, dy, x, gamma, rstd, residual, dx);
  elements_in<T>().rms_norm_backward(dy, x, gamma.data, rstd.data, residual, dx);
}

template <class T>
void rms_norm_param_grad(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> rstd, Index tokens, Vec<float> dgamma) {
  check_same<T>(dy, x);
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  SEEKSIM_CHECK_EQ(dgamma.n, x.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().scaled_sums(lane, dy, x, rstd.data, tokens, slab_size(tokens),
                                         {dgamma.data, 1, dgamma.n, dgamma.n});
  elements_in<T>().rms_column_sums(dy, x, rstd.data, tokens, slab_size(tokens), dgamma.data);
}

template <class T>
void rms_norm_sample_grads(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> rstd, Index tokens, Index segment,
                           Mat<float> dgamma) {
  check_same<T>(dy, x);
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  SEEKSIM_CHECK_EQ(dgamma.rows, x.rows / tokens);
  SEEKSIM_CHECK_EQ(dgamma.cols, x.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().scaled_sums(lane, dy, x, rstd.data, tokens, segment, dgamma);
  for (Index s = 0; s < dgamma.rows; ++s) {
    const Index first = s * tokens;
    const Mat<const T> dys{dy.row(first), tokens, dy.cols, dy.stride}, xs{x.row(first), tokens, x.cols, x.stride};
    elements_in<T>().rms_column_sums(dys, xs, rstd.data + first, tokens, segment, dgamma.row(s));
  }
}

template void rms_norm_forward<float>(Lane, InMat<float>, InVec<float>, float, OutMat<float>, Vec<float>);
template void rms_norm_forward<bf16>(Lane, InMat<bf16>, InVec<bf16>, float, OutMat<bf16>, Vec<float>);
template void rms_norm_forward<fp16>(Lane, InMat<fp16>, InVec<fp16>, float, OutMat<fp16>, Vec<float>);
template void rms_norm_backward<float>(Lane, InMat<float>, InMat<float>, InVec<float>, Vec<const float>, InMat<float>,
                                       OutMat<float>);
template void rms_norm_backward<bf16>(Lane, InMat<bf16>, InMat<bf16>, InVec<bf16>, Vec<const float>, InMat<bf16>,
                                      OutMat<bf16>);
template void rms_norm_backward<fp16>(Lane, InMat<fp16>, InMat<fp16>, InVec<fp16>, Vec<const float>, InMat<fp16>,
                                      OutMat<fp16>);
template void rms_norm_param_grad<float>(Lane, InMat<float>, InMat<float>, Vec<const float>, Index, Vec<float>);
template void rms_norm_param_grad<bf16>(Lane, InMat<bf16>, InMat<bf16>, Vec<const float>, Index, Vec<float>);
template void rms_norm_param_grad<fp16>(Lane, InMat<fp16>, InMat<fp16>, Vec<const float>, Index, Vec<float>);
template void rms_norm_sample_grads<float>(Lane, InMat<float>, InMat<float>, Vec<const float>, Index, Index,
                                           Mat<float>);
template void rms_norm_sample_grads<bf16>(Lane, InMat<bf16>, InMat<bf16>, Vec<const float>, Index, Index, Mat<float>);
template void rms_norm_sample_grads<fp16>(Lane, InMat<fp16>, InMat<fp16>, Vec<const float>, Index, Index, Mat<float>);

}  // namespace seeksim::kernels
