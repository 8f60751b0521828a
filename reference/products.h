// Products of matrices, as the passes of a model are made of. What rounding does to each number of a product follows
// from its operands as a whole: the sizes of values and the noise on them have nothing to do with each other, so that a
// sum over both is, up to chance, the product of their sums.
#pragma once

#include <cstddef>
#include <vector>

#include "reference/noisy.h"

namespace seeksim::reference {

template <class R>
using Tensor = std::vector<R>;

inline std::size_t at(int row, int cols, int col) { return std::size_t(row) * std::size_t(cols) + std::size_t(col); }

// A parameter: (in, out), or as Llama's files have it (out, in).
struct Matrix {
  const double* data = nullptr;
  int in = 0, out = 0;
  bool out_first = false;
  std::size_t place(int k, int n) const { return out_first ? reference::at(n, in, k) : reference::at(k, out, n); }
};

// Values of (rows, cols), and their variances beside them; none: they are exact.
struct Plain {
  int rows = 0, cols = 0;
  std::vector<double> v, s;
};

Plain plain(const Tensor<double>& x, int rows, int cols);
Plain plain(const Tensor<Noisy>& x, int rows, int cols);
Plain plain(const Matrix& w);  // (in, out)
Plain transposed(const Plain& x);

// a (rows, inner) b (inner, cols). R = Noisy: with the variances of sums over `inner` in fp32.
template <class R>
Plain product(const Plain& a, const Plain& b);

template <class R>
R value_at(const Plain& x, std::size_t i) {
  if constexpr (std::is_same_v<R, Noisy>)
    return {x.v[i], x.s[i]};
  else
    return x.v[i];
}
template <class R>
Tensor<R> tensor(const Plain& x) {
  Tensor<R> y(x.v.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = value_at<R>(x, i);
  return y;
}

}  // namespace seeksim::reference
