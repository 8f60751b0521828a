#include "kernels/layer_norm.h"

#include "kernels/check.h"
#include "kernels/isa/table.h"

namespace seeksim::kernels {
namespace {

void check_same(Mat<const float> a, Mat<const float> b) {
  SEEKSIM_CHECK_EQ(a.rows, b.rows);
  SEEKSIM_CHECK_EQ(a.cols, b.cols);
}

void check_samples(Index rows, Index tokens) {
  SEEKSIM_CHECK(tokens > 0 && rows > 0 && rows % tokens == 0, "%lld rows are no whole number of samples of %lld tokens",
                static_cast<long long>(rows), static_cast<long long>(tokens));
}

}  // namespace

void layer_norm_forward(Lane, Mat<const float> x, Vec<const float> gamma, Vec<const float> beta, float eps,
                        Mat<float> y, Vec<float> mean, Vec<float> rstd) {
  check_same(x, y);
  SEEKSIM_CHECK_EQ(gamma.n, x.cols);
  SEEKSIM_CHECK_EQ(beta.n, x.cols);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  elements().layer_norm_forward(x, gamma.data, beta.data, eps, y, mean.data, rstd.data);
}

void layer_norm_backward(Lane, Mat<const float> dy, Mat<const float> x, Vec<const float> gamma, Vec<const float> mean,
                         Vec<const float> rstd, Mat<const float> residual, Mat<float> dx) {
  check_same(dy, x);
  check_same(dx, x);
  if (residual.data != nullptr) check_same(residual, x);
  SEEKSIM_CHECK_EQ(gamma.n, x.cols);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  elements().layer_norm_backward(dy, x, gamma.data, mean.data, rstd.data, residual, dx);
}

void layer_norm_param_grad(Lane, Mat<const float> dy, Mat<const float> x, Vec<const float> mean, Vec<const float> rstd,
                           Index tokens, Vec<float> dgamma, Vec<float> dbeta) {
  check_same(dy, x);
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(mean.n, x.rows);
  SEEKSIM_CHECK_EQ(rstd.n, x.rows);
  SEEKSIM_CHECK_EQ(dgamma.n, x.cols);
  SEEKSIM_CHECK_EQ(dbeta.n, x.cols);
  elements().column_sums(dy, x, mean.data, rstd.data, tokens, dbeta.data, dgamma.data);
}

void bias_grad(Lane, Mat<const float> dy, Index tokens, Vec<float> db) {
  check_samples(dy.rows, tokens);
  SEEKSIM_CHECK_EQ(db.n, dy.cols);
  elements().column_sums(dy, dy, nullptr, nullptr, tokens, db.data, nullptr);
}

}  // namespace seeksim::kernels
