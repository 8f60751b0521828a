#include "kernels/pointwise.h"

#include <cstring>

#include "kernels/check.h"
#include "kernels/isa/table.h"
#include "kernels/unary.h"

namespace seeksim::kernels {
namespace {

void check_same(Mat<const float> a, Mat<const float> b) {
  SEEKSIM_CHECK_EQ(a.rows, b.rows);
  SEEKSIM_CHECK_EQ(a.cols, b.cols);
}

}  // namespace

void unary(Lane, Unary f, Vec<const float> x, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  elements().unary(f, x.data, y.data, x.n);
}

void gelu_forward(Lane, Mat<const float> x, Mat<float> y) {
  check_same(x, y);
  for (Index r = 0; r < x.rows; ++r) elements().unary(Unary::gelu, x.row(r), y.row(r), x.cols);
}

void gelu_backward(Lane, Mat<const float> dy, Mat<const float> x, Mat<float> dx) {
  check_same(dy, x);
  check_same(dx, x);
  for (Index r = 0; r < x.rows; ++r) elements().gelu_backward(dy.row(r), x.row(r), dx.row(r), x.cols);
}

void add(Lane, Mat<const float> a, Mat<const float> b, Mat<float> y) {
  check_same(a, y);
  check_same(b, y);
  for (Index r = 0; r < y.rows; ++r) elements().add(a.row(r), b.row(r), y.row(r), y.cols);
}

void scale(Lane, Vec<float> x, float factor) { elements().scale(x.data, x.n, factor); }

void fill_bits(Lane, Vec<float> x, std::uint32_t bits) {
  for (Index i = 0; i < x.n; ++i) std::memcpy(x.data + i, &bits, sizeof bits);
}

void copy(Lane, Vec<const float> x, Vec<float> y) {
  SEEKSIM_CHECK_EQ(x.n, y.n);
  if (x.n > 0) std::memcpy(y.data, x.data, static_cast<std::size_t>(x.n) * sizeof(float));
}

}  // namespace seeksim::kernels
