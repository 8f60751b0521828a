#include "reference/muon.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace seeksim::reference {

namespace {

using Values = std::vector<double>;

constexpr int kRounds = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315, kLeast = 1e-7;
// A run's values are within so many times the largest that any value was off by here.
constexpr double kRoom = 8;
constexpr std::size_t kSamples = 96;  // values that say how far off one may be

struct Unrounded {
  double operator()(double x) { return x; }
};
// What fp32 may make of a result: off by its unit, in a direction drawn anew for each operation. A matrix that is
// all but singular shows here by how much the rounds amplify that.
struct Shaken {
  double operator()(double x) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return state >> 63 != 0 ? x * (1 + kUnit) : x * (1 - kUnit);
  }
  std::uint64_t state;
};

// A matrix with no more rows than columns.
struct Wide {
  std::size_t rows = 0, cols = 0;
  Values x;
};

template <class Round, class Term>
double sum_over(Round& round, std::size_t n, Term term) {
  double sum = 0;
  for (std::size_t k = 0; k < n; ++k) sum = round(sum + term(k));
  return sum;
}

template <class Round>
void one_round(Round& round, Wide& m) {
  const std::size_t n = m.rows, c = m.cols;
  Values gram(n * n), poly(n * n), next(n * c);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      gram[i * n + j] = sum_over(round, c, [&](std::size_t k) { return m.x[i * c + k] * m.x[j * c + k]; });
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      const double square = sum_over(round, n, [&](std::size_t k) { return gram[i * n + k] * gram[k * n + j]; });
      poly[i * n + j] = round(round(kB * gram[i * n + j]) + kC * square);
    }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < c; ++j) {
      const double sum = sum_over(round, n, [&](std::size_t k) { return poly[i * n + k] * m.x[k * c + j]; });
      next[i * c + j] = round(round(kA * m.x[i * c + j]) + sum);
    }
  m.x = std::move(next);
}

Values transposed(const Values& x, std::size_t rows, std::size_t cols) {
  Values out(x.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < cols; ++j) out[j * rows + i] = x[i * cols + j];
  return out;
}

template <class Round>
Values orthogonalised(Round& round, Values x, std::size_t rows, std::size_t cols) {
  const double norm2 = sum_over(round, x.size(), [&](std::size_t k) { return x[k] * x[k]; });
  const double norm = std::max(std::sqrt(norm2), kLeast);
  for (double& value : x) value = round(value / norm);
  const bool tall = rows > cols;
  Wide m{std::min(rows, cols), std::max(rows, cols), tall ? transposed(x, rows, cols) : std::move(x)};
  for (int i = 0; i < kRounds; ++i) one_round(round, m);
  return tall ? transposed(m.x, cols, rows) : std::move(m.x);
}

// Momentum as it is renewed, and the matrix that is then made orthogonal.
template <class Round>
Values look_ahead(Round& round, const Optimizer& o, const MatrixBefore& before, double factor) {
  Values out;
  const double kept = o.momentum, taken = 1 - o.momentum;
  for (std::size_t i = 0; i < before.gradients.size(); ++i) {
    const double g = round(taken * round(before.gradients[i] * factor));
    const double renewed = round(kept * before.momentum[i] + g);
    out.push_back(round(kept * renewed + g));
  }
  return out;
}

template <class Round>
Values direction(Round round, const Optimizer& o, const Parameter& p, const MatrixBefore& before, double factor) {
  return orthogonalised(round, look_ahead(round, o, before, factor), std::size_t(p.rows), std::size_t(p.cols));
}

// By how much fp32 may be off in a value of `exact`.
double noise_of(const Values& exact, const Optimizer& o, const Parameter& p, const MatrixBefore& before,
                double factor) {
  double most = 0;
  const std::size_t draws = 1 + kSamples / std::max<std::size_t>(1, exact.size());
  for (std::size_t draw = 0; draw < draws; ++draw) {
    const Values shaken = direction(Shaken{draw + 1}, o, p, before, factor);
    for (std::size_t i = 0; i < exact.size(); ++i) most = std::max(most, std::abs(shaken[i] - exact[i]));
  }
  return kRoom * most;
}

}  // namespace

bool is_muons(const Optimizer& optimizer, const Parameter& parameter) {
  return optimizer.muon && parameter.matrix && parameter.layer >= 0;
}

std::vector<BoundedElement> muon_updated(const Optimizer& o, const Parameter& p, bool llama, const MatrixBefore& before,
                                         const Bounded& factor, double decay, double rate) {
  const Values exact = direction(Unrounded{}, o, p, before, factor.v);
  // A factor that is off moves a direction that is made of old momentum and gradient by as much.
  const double of_factor = factor.v > 0 ? factor.e / factor.v : 0;
  const double noise = noise_of(exact, o, p, before, factor.v) + 1e3 * of_factor;
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
