#include "reference/muon.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace seeksim::reference {

namespace {

template <class T>
using Values = std::vector<T>;

constexpr int kRounds = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeast = 1e-7;
// A run's values are within so many times the root mean square of what fp32 was off by here.
constexpr double kRoom = 16;

// A matrix with no more rows than columns.
template <class T>
struct Wide {
  std::size_t rows = 0, cols = 0;
  Values<T> x;
};

// Sums over k, upwards in double and downwards in fp32.
template <class T, class Term>
T sum_over(std::size_t n, Term term) {
  T sum = 0;
  const bool down = sizeof(T) == sizeof(float);
  for (std::size_t k = 0; k < n; ++k) sum += term(down ? n - 1 - k : k);
  return sum;
}

template <class T>
void one_round(Wide<T>& m) {
  const std::size_t n = m.rows, c = m.cols;
  Values<T> gram(n * n), poly(n * n), next(n * c);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      gram[i * n + j] = sum_over<T>(c, [&](std::size_t k) { return m.x[i * c + k] * m.x[j * c + k]; });
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const T square = sum_over<T>(n, [&](std::size_t k) { return gram[i * n + k] * gram[k * n + j]; });
      poly[i * n + j] = T(kB) * gram[i * n + j] + T(kC) * square;
    }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < c; ++j)
      next[i * c + j] =
          T(kA) * m.x[i * c + j] + sum_over<T>(n, [&](std::size_t k) { return poly[i * n + k] * m.x[k * c + j]; });
  m.x = std::move(next);
}

template <class T>
Values<T> transposed(const Values<T>& x, std::size_t rows, std::size_t cols) {
  Values<T> out(x.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < cols; ++j) out[j * rows + i] = x[i * cols + j];
  return out;
}

template <class T>
Values<T> orthogonalised(Values<T> x, std::size_t rows, std::size_t cols) {
  const T norm2 = sum_over<T>(x.size(), [&](std::size_t k) { return x[k] * x[k]; });
  const T norm = std::max(T(std::sqrt(norm2)), T(kLeast));
  for (T& value : x) value /= norm;
  const bool tall = rows > cols;
  Wide<T> m{std::min(rows, cols), std::max(rows, cols), tall ? transposed(x, rows, cols) : std::move(x)};
  for (int round = 0; round < kRounds; ++round) one_round(m);
  return tall ? transposed(m.x, cols, rows) : std::move(m.x);
}

// Momentum as it is renewed, and the matrix that is then made orthogonal.
template <class T>
Values<T> look_ahead(const Optimizer& o, const MatrixBefore& before, double factor) {
  Values<T> out;
  const T kept = T(o.momentum), taken = T(1 - o.momentum);
  for (std::size_t i = 0; i < before.gradients.size(); ++i) {
    const T g = T(before.gradients[i]) * T(factor), renewed = kept * T(before.momentum[i]) + taken * g;
    out.push_back(kept * renewed + taken * g);
  }
  return out;
}

}  // namespace

bool is_muons(const Optimizer& optimizer, const Parameter& parameter) {
  return optimizer.muon && parameter.matrix && parameter.layer >= 0;
}

std::vector<BoundedElement> muon_updated(const Optimizer& o, const Parameter& p, bool llama, const MatrixBefore& before,
                                         const Bounded& factor, double decay, double rate) {
  const auto rows = std::size_t(p.rows), cols = std::size_t(p.cols);
  const Values<double> exact = orthogonalised(look_ahead<double>(o, before, factor.v), rows, cols);
  const Values<float> in_fp32 = orthogonalised(look_ahead<float>(o, before, factor.v), rows, cols);
  double squares = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double off = double(in_fp32[i]) - exact[i];
    squares += off * off;
  }
  // A factor that is off moves a direction that is made of old momentum and gradient by as much.
  const double of_factor = factor.v > 0 ? factor.e / factor.v : 0;
  const double noise = kRoom * std::sqrt(squares / double(std::max<std::size_t>(1, exact.size()))) + 1e3 * of_factor;
  const double outputs = llama ? p.rows : p.cols, inputs = llama ? p.cols : p.rows;
  const auto constant = [](double x) { return Bounded(x, kUnit * std::abs(x)); };
  const Bounded scale = constant(std::sqrt(std::max(1.0, outputs / inputs))), lr = constant(rate);
  const Bounded kept = constant(o.momentum), taken = constant(1 - o.momentum);
  std::vector<BoundedElement> after;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    BoundedElement one;
    const Bounded w(before.weights[i]);
    one.first = kept * Bounded(before.momentum[i]) + taken * (Bounded(before.gradients[i]) * factor);
    one.weight = (decay != 0 ? w - lr * constant(decay) * w : w) - lr * (scale * Bounded(exact[i], noise));
    after.push_back(one);
  }
  return after;
}

}  // namespace seeksim::reference
