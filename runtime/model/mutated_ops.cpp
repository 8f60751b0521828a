#include "runtime/model/mutated_ops.h"

#include <algorithm>
#include <vector>

#include "runtime/rules/host_math.h"

namespace seeksim::runtime {

using kernels::AttentionShape;
using kernels::Index;
using kernels::Mat;

bool replaces_mask(Mutant mutant) { return mutant == Mutant::mask_sees_next || mutant == Mutant::mask_hides_self; }

void mutated_attention(Mutant mutant, AttentionShape s, Mat<const float> qkv, Mat<float> probs, Mat<float> out) {
  const double scale = 1.0 / host_sqrt(double(s.head_dim));
  for (Index row = 0; row < s.samples * s.heads * s.tokens; ++row) {
    const Index i = row % s.tokens, h = row / s.tokens % s.heads, b = row / s.tokens / s.heads;
    const Index keys = mutant == Mutant::mask_sees_next ? std::min(i + 2, s.tokens) : std::max<Index>(i, 1);
    const Index of_group = h / s.group * s.group_columns(), D = s.head_dim;
    const float* const q = qkv.row(b * s.tokens + i) + of_group + h % s.group * D;
    const auto key = [&](Index j) { return qkv.row(b * s.tokens + j) + of_group + s.group * D; };
    std::vector<double> weight(std::size_t(s.tokens), 0);
    double sum = 0;
    for (Index j = 0; j < keys; ++j) {
      double dot = 0;
      for (Index d = 0; d < D; ++d) dot += double(q[d]) * double(key(j)[d]);
      sum += weight[std::size_t(j)] = host_exp(dot * scale);
    }
    for (Index j = 0; j < s.tokens; ++j) probs(row, j) = static_cast<float>(weight[std::size_t(j)] / sum);
    for (Index d = 0; d < D; ++d) {
      double value = 0;
      for (Index j = 0; j < keys; ++j) value += weight[std::size_t(j)] / sum * double(key(j)[D + d]);
      out(b * s.tokens + i, h * D + d) = static_cast<float>(value);
    }
  }
}

bool changes_queries(Mutant mutant) {
  return mutant == Mutant::softmax_scale_missing || mutant == Mutant::softmax_scale_by_model_width ||
         mutant == Mutant::key_heads_interleaved;
}

namespace {

// Query head h asks key head h mod K: it stands where head (h mod K) * G + h / K belongs. at: the column of a head's
// first element.
template <class At>
void interleave(AttentionShape s, bool back, Mat<float> rows, const At& at) {
  std::vector<float> old(std::size_t(s.heads * s.head_dim));
  for (Index r = 0; r < rows.rows; ++r) {
    for (Index h = 0; h < s.heads; ++h) std::copy_n(rows.row(r) + at(h), s.head_dim, old.data() + h * s.head_dim);
    for (Index h = 0; h < s.heads; ++h) {
      const Index there = h % s.key_heads() * s.group + h / s.key_heads();
      const Index from = back ? there : h, to = back ? h : there;
      std::copy_n(old.data() + from * s.head_dim, s.head_dim, rows.row(r) + at(to));
    }
  }
}

}  // namespace

void mutate_queries(Mutant mutant, AttentionShape s, Index width, bool back, Mat<float> qkv) {
  const auto at = [&](Index h) { return h / s.group * s.group_columns() + h % s.group * s.head_dim; };
  if (mutant == Mutant::key_heads_interleaved) return interleave(s, back, qkv, at);
  const auto root = host_sqrt(static_cast<float>(s.head_dim));
  const float factor = mutant == Mutant::softmax_scale_missing ? root : root / host_sqrt(static_cast<float>(width));
  for (Index r = 0; r < qkv.rows; ++r) {
    for (Index h = 0; h < s.heads; ++h) {
      for (Index d = 0; d < s.head_dim; ++d) qkv(r, at(h) + d) *= factor;
    }
  }
}

void mutate_heads(Mutant mutant, AttentionShape s, bool back, Mat<float> heads) {
  if (mutant != Mutant::key_heads_interleaved) return;
  interleave(s, back, heads, [&](Index h) { return h * s.head_dim; });
}

namespace {

// erf within 1.2e-7 (Abramowitz and Stegun 7.1.26 is coarser): the series where it converges fast, else 1.
double erf_of(double x) {
  if (x < 0) return -erf_of(-x);
  if (x > 5) return 1;
  double term = x, sum = x;
  for (int n = 1; n < 120; ++n) {
    term *= -x * x / n;
    sum += term / (2 * n + 1);
  }
  return 1.1283791670955126 * sum;  // 2 / sqrt(pi)
}
double phi(double x) { return (1 + erf_of(x / 1.4142135623730951)) / 2; }

}  // namespace

void gelu_by_erf(Mat<const float> x, Mat<float> y) {
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < x.cols; ++j) y(i, j) = static_cast<float>(double(x(i, j)) * phi(double(x(i, j))));
  }
}

void gelu_by_erf_backward(Mat<const float> dy, Mat<const float> x, Mat<float> dx) {
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < x.cols; ++j) {
      const double v = double(x(i, j)), density = 0.3989422804014327 * host_exp(-v * v / 2);
      dx(i, j) = static_cast<float>(double(dy(i, j)) * (phi(v) + v * density));
    }
  }
}

}  // namespace seeksim::runtime
