#include "reference/products.h"

namespace seeksim::reference {
namespace {

// Once for each instruction set: several numbers at once, each by the same operations. Sanitizers do not go with it.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define SEEKSIM_WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SEEKSIM_WIDE
#endif

// c (rows, cols) = a (rows, inner) b (inner, cols), by rows of b.
SEEKSIM_WIDE void multiply(const double* a, const double* b, double* __restrict c, int rows, int inner, int cols) {
  for (int r = 0; r < rows; ++r) {
    double* const row = c + at(r, cols, 0);
    for (int k = 0; k < inner; ++k) {
      const double factor = a[at(r, inner, k)];
      const double* const other = b + at(k, cols, 0);
      for (int n = 0; n < cols; ++n) row[n] += factor * other[n];
    }
  }
}

// Of each row: squares, and variances, added up.
struct Totals {
  std::vector<double> squares, variances;
  explicit Totals(int lines) : squares(std::size_t(lines)), variances(std::size_t(lines)) {}
};
Totals of_rows(const Plain& x) {
  Totals t(x.rows);
  for (int r = 0; r < x.rows; ++r) {
    for (int c = 0; c < x.cols; ++c) {
      const std::size_t i = at(r, x.cols, c);
      t.squares[std::size_t(r)] += x.v[i] * x.v[i];
      if (!x.s.empty()) t.variances[std::size_t(r)] += x.s[i];
    }
  }
  return t;
}
Totals of_columns(const Plain& x) {
  Totals t(x.cols);
  for (int r = 0; r < x.rows; ++r) {
    for (int c = 0; c < x.cols; ++c) {
      const std::size_t i = at(r, x.cols, c);
      t.squares[std::size_t(c)] += x.v[i] * x.v[i];
      if (!x.s.empty()) t.variances[std::size_t(c)] += x.s[i];
    }
  }
  return t;
}

// Of a sum of n products of a row and a column: what is on its operands; and a rounding of each partial sum. These walk
// at random from 0 to y: their squares add up to n y^2 / 3 on the straight way, and to a sixth of the squares of all
// products beside it, n at a time.
void add_noise(const Plain& a, const Plain& b, Plain& y) {
  const Totals left = of_rows(a), right = of_columns(b);
  const double n = a.cols;
  y.s.resize(y.v.size());
  for (int r = 0; r < y.rows; ++r) {
    const double va = left.squares[std::size_t(r)], sa = left.variances[std::size_t(r)];
    for (int c = 0; c < y.cols; ++c) {
      const std::size_t i = at(r, y.cols, c);
      const double vb = right.squares[std::size_t(c)], sb = right.variances[std::size_t(c)];
      const double partial = n * y.v[i] * y.v[i] / 3 + va * vb / 6;
      y.s[i] = (va * sb + sa * vb + sa * sb) / n + kVariance * partial + kTinyVariance;
    }
  }
}

}  // namespace

Plain plain(const Tensor<double>& x, int rows, int cols) { return {rows, cols, x, {}}; }

Plain plain(const Tensor<Noisy>& x, int rows, int cols) {
  Plain y{rows, cols, std::vector<double>(x.size()), std::vector<double>(x.size())};
  for (std::size_t i = 0; i < x.size(); ++i) y.v[i] = x[i].v, y.s[i] = x[i].s;
  return y;
}

Plain plain(const Matrix& w) {
  const std::vector<double> values(w.data, w.data + at(w.in, w.out, 0));
  return w.out_first ? transposed({w.out, w.in, values, {}}) : Plain{w.in, w.out, values, {}};
}

Plain transposed(const Plain& x) {
  Plain y{x.cols, x.rows, std::vector<double>(x.v.size()), std::vector<double>(x.s.size())};
  for (int r = 0; r < x.rows; ++r) {
    for (int c = 0; c < x.cols; ++c) {
      y.v[at(c, x.rows, r)] = x.v[at(r, x.cols, c)];
      if (!x.s.empty()) y.s[at(c, x.rows, r)] = x.s[at(r, x.cols, c)];
    }
  }
  return y;
}

template <class R>
Plain product(const Plain& a, const Plain& b) {
  Plain y{a.rows, b.cols, std::vector<double>(at(a.rows, b.cols, 0)), {}};
  multiply(a.v.data(), b.v.data(), y.v.data(), a.rows, a.cols, b.cols);
  if constexpr (std::is_same_v<R, Noisy>) add_noise(a, b, y);
  return y;
}
template Plain product<double>(const Plain& a, const Plain& b);
template Plain product<Noisy>(const Plain& a, const Plain& b);

}  // namespace seeksim::reference
