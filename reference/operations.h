// The operations of a model on one sample, as plain loops: products, norms, and what storing a value does to it. T
// tokens, C channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/parameters.h"
#include "reference/products.h"
#include "reference/training.h"

namespace seeksim::reference {

template <class R>
using Sums = std::vector<Sum<R>>;  // of a gradient; null where it is frozen

// Rounds what is kept between operations, and sees what leaves the range of its type: surely; or it may, by its bound.
template <class R>
struct Store {
  explicit Store(Type stored_as)
      : type(stored_as), most(largest_of(type) * (1 + unit_of(type) / 2)), unit(unit_of(type)), tiny(tiny_of(type)) {}

  Type type;
  double most, unit, tiny;
  bool overflows = false;
  bool may_overflow = false;

  R operator()(R x) {
    const double v = std::abs(value_of(x));
    if (!(v < most / 2 && variance_of(x) < most)) look(v, bound_of(x));
    if constexpr (std::is_same_v<R, Noisy>) {
      const double relative = unit * v;
      x.s += (relative * relative + tiny * tiny) / 3;
    }
    return x;
  }
  // At a value of this size that may be off by e.
  void look(double v, double e) {
    if (!(v + e < most)) may_overflow = true;
    if (v - e > most) overflows = true;
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
  Tensor<R> y = tensor<R>(product<R>(plain(x, T, w.in), plain(w)));
  for (int i = 0; i < T; ++i) {
    for (int n = 0; n < w.out; ++n) {
      R& one = y[at(i, w.out, n)];
      one = store(b != nullptr ? one + R(b[n]) : one);
    }
  }
  return y;
}

// dx (T, in), not yet stored; dw and db are added to.
template <class R>
Tensor<R> linear_backward(int T, const Tensor<R>& x, const Tensor<R>& dy, const Matrix& w, Sums<R>* dw, Sums<R>* db) {
  const Plain in = plain(x, T, w.in), out = plain(dy, T, w.out);
  if (dw != nullptr) {
    const Plain d = w.out_first ? product<R>(transposed(out), in) : product<R>(transposed(in), out);
    for (std::size_t i = 0; i < d.v.size(); ++i) (*dw)[i].add(value_at<R>(d, i));
  }
  for (int i = 0; db != nullptr && i < T; ++i)
    for (int n = 0; n < w.out; ++n) (*db)[std::size_t(n)].add(dy[at(i, w.out, n)]);
  return tensor<R>(product<R>(out, transposed(plain(w))));
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
