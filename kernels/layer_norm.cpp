#include "kernels/layer_norm.h"

#include "kernels/check.h"
#include "kernels/device_table.h"
#include "kernels/isa/table.h"
#include "kernels/row_checks.h"

namespace seeksim::kernels {
namespace {

void check_sample_rows(Mat<float> sums, Index samples, Index columns) {
  SEEKSIM_CHECK_EQ(sums.rows, samples);
  SEEKSIM_CHECK_EQ(sums.cols, columns);
}

Mat<float> one_row(Vec<float> v) { return {v.data, 1, v.n, v.n}; }

template <class T>
Mat<const T> rows_of(Mat<const T> m, Index first, Index count) {
  return {m.row(first), count, m.cols, m.stride};
}

}  // namespace

template <class T>
void layer_norm_forward(Lane lane, InMat<T> x, InVec<T> gamma, InVec<T> beta, float eps, OutMat<T> y, Vec<float> mean,
                        Vec<float> rstd) {
  check_same<T>(x, y);
  SEEKSIM_CHECK_EQ(gamma.n, x.cols);
  SEEKSIM_CHECK_EQ(beta.n, x.cols);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().layer_norm_forward(lane, x, gamma, beta, eps, y, mean, rstd);
  elements_in<T>().layer_norm_forward(x, gamma.data, beta.data, eps, y, mean.data, rstd.data);
}

template <class T>
void layer_norm_backward(Lane lane, InMat<T> dy, InMat<T> x, InVec<T> gamma, Vec<const float> mean,
                         Vec<const float> rstd, InMat<T> residual, OutMat<T> dx) {
  check_same<T>(dy, x);
  check_same<T>(dx, x);
  if (residual.data != nullptr) check_same<T>(residual, x);
  SEEKSIM_CHECK_EQ(gamma.n, x.cols);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().layer_norm_backward(lane, dy, x, gamma, mean, rstd, residual, dx);
  elements_in<T>().layer_norm_backward(dy, x, gamma.data, mean.data, rstd.data, residual, dx);
}

template <class T>
void layer_norm_param_grad(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> mean, Vec<const float> rstd,
                           Index tokens, Vec<float> dgamma, Vec<float> dbeta) {
  check_same<T>(dy, x);
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  SEEKSIM_CHECK_EQ(dgamma.n, x.cols);
  SEEKSIM_CHECK_EQ(dbeta.n, x.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().centred_sums(lane, dy, x, mean.data, rstd.data, tokens, slab_size(tokens), one_row(dbeta),
                                          one_row(dgamma));
  elements_in<T>().column_sums(dy, x, mean.data, rstd.data, tokens, slab_size(tokens), dbeta.data, dgamma.data);
}

template <class T>
void bias_grad(Lane lane, InMat<T> dy, Index tokens, Vec<float> db) {
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(db.n, dy.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().plain_sums(lane, dy, tokens, slab_size(tokens), one_row(db));
  elements_in<T>().column_sums(dy, dy, nullptr, nullptr, tokens, slab_size(tokens), db.data, nullptr);
}

template <class T>
void layer_norm_sample_grads(Lane lane, InMat<T> dy, InMat<T> x, Vec<const float> mean, Vec<const float> rstd,
                             Index tokens, Index segment, Mat<float> dgamma, Mat<float> dbeta) {
  check_same<T>(dy, x);
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  check_sample_rows(dgamma, x.rows / tokens, x.cols);
  check_sample_rows(dbeta, x.rows / tokens, x.cols);
  if (const DeviceTable* device = device_of(lane))
    return device->rows<T>().centred_sums(lane, dy, x, mean.data, rstd.data, tokens, segment, dbeta, dgamma);
  for (Index s = 0; s < dgamma.rows; ++s) {
    const Index first = s * tokens;
    elements_in<T>().column_sums(rows_of<T>(dy, first, tokens), rows_of<T>(x, first, tokens), mean.data + first,
                                 rstd.data + first, tokens, segment, dbeta.row(s), dgamma.row(s));
  }
}

template <class T>
void bias_sample_grads(Lane lane, InMat<T> dy, Index tokens, Index segment, Mat<float> db) {
  check_samples(dy.rows, tokens);
  check_sample_rows(db, dy.rows / tokens, dy.cols);
  if (const DeviceTable* device = device_of(lane)) return device->rows<T>().plain_sums(lane, dy, tokens, segment, db);
  for (Index s = 0; s < db.rows; ++s) {
    const auto rows = rows_of<T>(dy, s * tokens, tokens);
    elements_in<T>().column_sums(rows, rows, nullptr, nullptr, tokens, segment, db.row(s), nullptr);
  }
}

template void layer_norm_forward<float>(Lane, InMat<float>, InVec<float>, InVec<float>, float, OutMat<float>,
                                        Vec<float>, Vec<float>);
template void layer_norm_forward<bf16>(Lane, InMat<bf16>, InVec<bf16>, InVec<bf16>, float, OutMat<bf16>, Vec<float>,
                                       Vec<float>);
template void layer_norm_forward<fp16>(Lane, InMat<fp16>, InVec<fp16>, InVec<fp16>, float, OutMat<fp16>, Vec<float>,
                                       Vec<float>);
template void layer_norm_backward<float>(Lane, InMat<float>, InMat<float>, InVec<float>, Vec<const float>,
                                         Vec<const float>, InMat<float>, OutMat<float>);
template void layer_norm_backward<bf16>(Lane, InMat<bf16>, InMat<bf16>, InVec<bf16>, Vec<const float>, Vec<const float>,
                                        InMat<bf16>, OutMat<bf16>);
template void layer_norm_backward<fp16>(Lane, InMat<fp16>, InMat<fp16>, InVec<fp16>, Vec<const float>, Vec<const float>,
                                        InMat<fp16>, OutMat<fp16>);
template void layer_norm_param_grad<float>(Lane, InMat<float>, InMat<float>, Vec<const float>, Vec<const float>, Index,
                                           Vec<float>, Vec<float>);
template void layer_norm_param_grad<bf16>(Lane, InMat<bf16>, InMat<bf16>, Vec<const float>, Vec<const float>, Index,
                                          Vec<float>, Vec<float>);
template void layer_norm_param_grad<fp16>(Lane, InMat<fp16>, InMat<fp16>, Vec<const float>, Vec<const float>, Index,
                                          Vec<float>, Vec<float>);
template void bias_grad<float>(Lane, InMat<float>, Index, Vec<float>);
template void bias_grad<bf16>(Lane, InMat<bf16>, Index, Vec<float>);
template void bias_grad<fp16>(Lane, InMat<fp16>, Index, Vec<float>);
template void layer_norm_sample_grads<float>(Lane, InMat<float>, InMat<float>, Vec<const float>, Vec<const float>,
                                             Index, Index, Mat<float>, Mat<float>);
template void layer_norm_sample_grads<bf16>(Lane, InMat<bf16>, InMat<bf16>, Vec<const float>, Vec<const float>, Index,
                                            Index, Mat<float>, Mat<float>);
template void layer_norm_sample_grads<fp16>(Lane, InMat<fp16>, InMat<fp16>, Vec<const float>, Vec<const float>, Index,
                                            Index, Mat<float>, Mat<float>);
template void bias_sample_grads<float>(Lane, InMat<float>, Index, Index, Mat<float>);
template void bias_sample_grads<bf16>(Lane, InMat<bf16>, Index, Index, Mat<float>);
template void bias_sample_grads<fp16>(Lane, InMat<fp16>, Index, Index, Mat<float>);

}  // namespace seeksim::kernels
