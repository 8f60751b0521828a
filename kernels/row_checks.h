// Checks of the operands of kernels that go row by row.
#pragma once

#include "kernels/check.h"
#include "kernels/view.h"

namespace seeksim::kernels {

template <class T>
void check_same(Mat<const T> a, Mat<const T> b) {
  SEEKSIM_CHECK_EQ(a.rows, b.rows);
  SEEKSIM_CHECK_EQ(a.cols, b.cols);
}

// `rows` must be the rows of whole samples.
inline void check_samples(Index rows, Index tokens) {
  SEEKSIM_CHECK(tokens > 0 && rows > 0 && rows % tokens == 0, "%lld rows are no whole number of samples of %lld tokens",
                static_cast<long long>(rows), static_cast<long long>(tokens));
}

}  // namespace seeksim::kernels
