// The operations of a model on one sample, as plain loops: products, norms, and what storing a value does to it. T
// tokens, C channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/noisy.h"
#include "reference/parameters.h"
#include "reference/training.h"

namespace seeksim::reference {

template <class R>
using Tensor = std::vector<R>;
template <class R>
using Sums = std::vector<Sum<R>>;  // of a gradient; null where it is frozen

inline std::size_t at(int row, int cols, int col) { return std::size_t(row) * std::size_t(cols) + std::size_t(col); }

// (in, out), or as Llama's files have it (out, in).
struct Matrix {
  const double* data = nullptr;
  int in = 0, out = 0;
  bool out_first = false;
  std::size_t place(int k, int n) const { return out_first ? reference::at(n, in, k) : reference::at(k, out, n); }
};

// Rounds what is kept between operations, and sees what leaves the range of its type: surely; or it may, by its bound.
template <class R>
struct Store {
  Type type = Type::f32;
  bool overflows = false;
  bool may_overflow = false;

  R operator()(R x) {
    const double v = std::abs(value_of(x)), e = bound_of(x), most = largest_of(type) * (1 + unit_of(type) / 2);
    if (!(v + e < most)) may_overflow = true;
    if (v - e > most) overflows = true;
    if constexpr (std::is_same_v<R, Noisy>) {
      const double relative = unit_of(type) * v, absolute = tiny_of(type);
      x.s += (relative * relative + absolute * absolute) / 3;
    }
    return x;
  }
  void all(Tensor<R>& x) {
    for (R& one : x) one = (*this)(one);
  }
  Tensor<R> added(const Tensor<R>& a, const Tensor<R>& b) {
    Tensor<R> y(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) y[i] = (*this)(a[i] + b[i]);
    return y;
  }
};

// y (T, out) = x (T, in) w + b.
template <class R>
Tensor<R> linear(int T, Store<R>& store, const Tensor<R>& x, const Matrix& w, const double* b) {
  Tensor<R> y(std::size_t(T * w.out));
  for (int i = 0; i < T; ++i) {
    for (int n = 0; n < w.out; ++n) {
      Sum<R> sum;
      for (int k = 0; k < w.in; ++k) sum.add(x[at(i, w.in, k)], R(w.data[w.place(k, n)]));
      const R product = sum.value();
      y[at(i, w.out, n)] = store(b != nullptr ? product + R(b[n]) : product);
    }
  }
  return y;
}

// dx (T, in), not yet stored; dw and db are added to.
template <class R>
Tensor<R> linear_backward(int T, const Tensor<R>& x, const Tensor<R>& dy, const Matrix& w, Sums<R>* dw, Sums<R>* db) {
  Tensor<R> dx(std::size_t(T * w.in));
  for (int i = 0; i < T; ++i) {
    for (int k = 0; k < w.in; ++k) {
      Sum<R> sum;
      for (int n = 0; n < w.out; ++n) {
        sum.add(dy[at(i, w.out, n)], R(w.data[w.place(k, n)]));
        if (dw != nullptr) (*dw)[w.place(k, n)].add(x[at(i, w.in, k)], dy[at(i, w.out, n)]);
      }
      dx[at(i, w.in, k)] = sum.value();
    }
    for (int n = 0; db != nullptr && n < w.out; ++n) (*db)[std::size_t(n)].add(dy[at(i, w.out, n)]);
  }
  return dx;
}

// A layer norm, or of a Llama an RMS norm, which has neither mean nor bias.
template <class R>
struct Norm {
  Tensor<R> y, normed, rstd;  // (T, C), (T, C) before weight and bias, (T)

  void forward(const Model& m, Store<R>& store, const Tensor<R>& x, const double* gamma, const double* beta) {
    y.resize(x.size()), normed.resize(x.size()), rstd.resize(std::size_t(m.T));
    for (int i = 0; i < m.T; ++i) {
      R mean{};
      Sum<R> sum, squares;
      for (int c = 0; c < m.C; ++c) sum.add(x[at(i, m.C, c)]);
      if (!m.llama) mean = sum.value() / R(double(m.C));
      for (int c = 0; c < m.C; ++c) {
        const R d = m.llama ? x[at(i, m.C, c)] : x[at(i, m.C, c)] - mean;
        squares.add(d, d);
      }
      const R variance = squares.value() / R(double(m.C));
      const R scale = R(1.0) / root_of(variance + R(double(static_cast<float>(m.norm_eps))));
      rstd[std::size_t(i)] = scale;
      for (int c = 0; c < m.C; ++c) {
        const R x_hat = (m.llama ? x[at(i, m.C, c)] : x[at(i, m.C, c)] - mean) * scale;
        const R scaled = x_hat * R(gamma[c]);
        normed[at(i, m.C, c)] = x_hat;
        y[at(i, m.C, c)] = store(beta != nullptr ? scaled + R(beta[c]) : scaled);
      }
    }
  }

  // dx (T, C) + residual, where there is one.
  Tensor<R> backward(const Model& m, Store<R>& store, const double* gamma, const Tensor<R>& dy,
                     const Tensor<R>* residual, Sums<R>* dgamma, Sums<R>* dbeta) const {
    Tensor<R> dx(dy.size());
    for (int i = 0; i < m.T; ++i) {
      Sum<R> sum, dots;
      for (int c = 0; c < m.C; ++c) {
        const R d = dy[at(i, m.C, c)] * R(gamma[c]);
        sum.add(d);
        dots.add(d, normed[at(i, m.C, c)]);
        if (dgamma != nullptr) (*dgamma)[std::size_t(c)].add(dy[at(i, m.C, c)] * normed[at(i, m.C, c)]);
        if (dbeta != nullptr) (*dbeta)[std::size_t(c)].add(dy[at(i, m.C, c)]);
      }
      const R mean = sum.value() / R(double(m.C));
      const R dot = dots.value() / R(double(m.C));
      for (int c = 0; c < m.C; ++c) {
        R d = dy[at(i, m.C, c)] * R(gamma[c]);
        if (!m.llama) d = d - mean;
        d = (d - normed[at(i, m.C, c)] * dot) * rstd[std::size_t(i)];
        dx[at(i, m.C, c)] = store(residual != nullptr ? (*residual)[at(i, m.C, c)] + d : d);
      }
    }
    return dx;
  }
};

}  // namespace seeksim::reference
