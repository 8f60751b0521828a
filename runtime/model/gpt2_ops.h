// Launches that forward and backward share: a kernel, its cost, and views typed as read or written.
#pragma once

#include "kernels/dropout.h"
#include "kernels/gemm.h"
#include "runtime/launch/launcher.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Trans;
using kernels::Vec;

// S: how operands are held; So: how the result is.
// c (M, N) = op(a) (M, K) op(b) (K, N), summed in segments of K (kernels/gemm.h).
template <class S, class So>
void product(Launcher& launch, const char* tensor, const char* site, Trans ta, Trans tb, MatView<const S> a,
             MatView<const S> b, MatView<So> c, Index segment) {
  const Index k = ta == Trans::no ? a.cols : a.rows;
  launch(
      tensor, site, gemm_cost(c.rows, c.cols, k),
      [ta, tb, segment](Lane lane, Mat<const S> x, Mat<const S> y, Mat<So> z) {
        kernels::gemm<S, So>(lane, ta, tb, x, y, z, segment);
      },
      a, b, c);
}

template <class S>
void product_bias(Launcher& launch, const char* tensor, const char* site, Trans ta, Trans tb, MatView<const S> a,
                  MatView<const S> b, VecView<const S> bias, MatView<S> c, Index segment) {
  const Index k = ta == Trans::no ? a.cols : a.rows;
  launch(
      tensor, site, gemm_cost(c.rows, c.cols, k),
      [ta, tb, segment](Lane lane, Mat<const S> x, Mat<const S> y, Vec<const S> add, Mat<S> z) {
        kernels::gemm<S>(lane, ta, tb, x, y, z, segment, add);
      },
      a, b, bias, c);
}

// y = dropout of x, samples of `tokens` rows, the first of which is token first_token; forward and backward alike.
// Returns where it is: where nothing is dropped, nothing is launched, and x serves.
template <class S>
MatView<S> dropped(Launcher& launch, const char* site, const kernels::Dropout& drop, Index tokens, MatView<S> x,
                   MatView<S> y, Index first_token = 0) {
  if (!drop.on()) return x;
  launch(
      "dropout", site, memory_cost(2 * x.rows * x.cols, 10),
      [drop, tokens, first_token](Lane lane, Mat<const S> in, Mat<S> out) {
        kernels::dropout<S>(lane, drop, tokens, in, out, first_token);
      },
      reads(x), y);
  return y;
}

}  // namespace seeksim::runtime
