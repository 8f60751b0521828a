// Launches that forward and backward share: a kernel, its cost, and views typed as read or written.
#pragma once

#include "kernels/gemm.h"
#include "runtime/launcher.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Trans;
using kernels::Vec;

// c (M, N) = op(a) (M, K) op(b) (K, N), summed in segments of K (kernels/gemm.h).
inline void product(Launcher& launch, const char* tensor, const char* site, Trans ta, Trans tb, MatView<const float> a,
                    MatView<const float> b, MatView<float> c, Index segment) {
  const Index k = ta == Trans::no ? a.cols : a.rows;
  launch(
      tensor, site, gemm_cost(c.rows, c.cols, k),
      [ta, tb, segment](Lane lane, Mat<const float> x, Mat<const float> y, Mat<float> z) {
        kernels::gemm(lane, ta, tb, x, y, z, segment);
      },
      a, b, c);
}

inline void product_bias(Launcher& launch, const char* tensor, const char* site, Trans ta, Trans tb,
                         MatView<const float> a, MatView<const float> b, VecView<const float> bias, MatView<float> c,
                         Index segment) {
  const Index k = ta == Trans::no ? a.cols : a.rows;
  launch(
      tensor, site, gemm_cost(c.rows, c.cols, k),
      [ta, tb, segment](Lane lane, Mat<const float> x, Mat<const float> y, Vec<const float> add, Mat<float> z) {
        kernels::gemm(lane, ta, tb, x, y, z, segment, add);
      },
      a, b, bias, c);
}

}  // namespace seeksim::runtime
