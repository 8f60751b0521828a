// Causal attention with key heads that several query heads share, rotary positions and dropout, on one sample. T
// tokens, D channels of a head.
#pragma once

#include <algorithm>
#include <cmath>

#include "reference/operations.h"
#include "reference/random.h"

namespace seeksim::reference {

// What attention leaves for its backward pass. qkv (T, [H q | K k | K v]), as the files have it.
template <class R>
struct Heads {
  Tensor<R> qkv, probs, att;  // (T, (H + 2K) D), (H, T, T), (T, H D)
};

template <class R>
class Attention {
 public:
  // begins (T): the first token of each token's document.
  Attention(const Training& training, Store<R>& storing, std::int64_t step_number, std::int64_t sample_number,
            const std::vector<int>& begins)
      : t(training), m(training.model), store(storing), step(step_number), sample(sample_number), first(begins) {}

  int width() const { return (m.H + 2 * m.K) * m.D(); }
  std::size_t q_at(int i, int h, int d) const { return at(i, width(), h * m.D() + d); }
  std::size_t k_at(int i, int h, int d) const { return at(i, width(), (m.H + h / m.G()) * m.D() + d); }
  std::size_t v_at(int i, int h, int d) const { return at(i, width(), (m.H + m.K + h / m.G()) * m.D() + d); }
  std::size_t prob_at(int h, int i, int j) const { return at(h * m.T + i, m.T, j); }
  double keep(int l, int h, int i, int j) const {
    return dropout_factor(t, m.drop_attention, Site::attention, l, step, sample, prob_at(h, i, j));
  }
  double score_scale() const { return double(static_cast<float>(1 / std::sqrt(double(m.D())))); }

  void attend(Heads<R>& a, int l) {
    a.probs.assign(std::size_t(m.H * m.T * m.T), R{});
    a.att.assign(std::size_t(m.T * m.H * m.D()), R{});
    for (int h = 0; h < m.H; ++h) {
      const Plain scores = product<R>(head(a.qkv, q_at(0, h, 0)), transposed(head(a.qkv, k_at(0, h, 0))));
      Tensor<R> kept(std::size_t(m.T * m.T));
      for (int i = 0; i < m.T; ++i) softmax(scores, a, kept, l, h, i);
      const Plain y = product<R>(plain(kept, m.T, m.T), head(a.qkv, v_at(0, h, 0)));
      for (int i = 0; i < m.T; ++i)
        for (int d = 0; d < m.D(); ++d)
          a.att[at(i, m.H * m.D(), h * m.D() + d)] = store(value_at<R>(y, at(i, m.D(), d)));
    }
  }
  // Of the keys of its document up to token i. kept: with dropout.
  void softmax(const Plain& scores, Heads<R>& a, Tensor<R>& kept, int l, int h, int i) {
    R* const p = kept.data() + at(i, m.T, 0);
    double most = -INFINITY;
    for (int j = first[std::size_t(i)]; j <= i; ++j) {
      p[j] = value_at<R>(scores, at(i, m.T, j)) * Scale();
      most = std::max(most, value_of(p[j]));
    }
    Sum<R> sum;
    for (int j = first[std::size_t(i)]; j <= i; ++j) {
      p[j] = exp_of(p[j] - R(most));  // the same probabilities for any `most`
      sum.add(p[j]);
    }
    const R all = sum.value();
    for (int j = first[std::size_t(i)]; j <= i; ++j) {
      p[j] = p[j] / all;
      a.probs[prob_at(h, i, j)] = m.fused_attention ? p[j] : store(p[j]);
      if (m.drop_attention > 0) p[j] = p[j] * R(keep(l, h, i, j));
    }
  }
  // 1 / sqrt(D), after two roundings.
  R Scale() const {
    R scale(score_scale());
    if constexpr (std::is_same_v<R, Noisy>) scale.s = kVariance * scale.v * scale.v;
    return scale;
  }
  // dqkv from datt (T, H D).
  Tensor<R> attend_backward(const Heads<R>& a, int l, const Tensor<R>& datt) {
    std::vector<Sum<R>> sums(std::size_t(m.T * width()));
    for (int h = 0; h < m.H; ++h) {
      const Plain dy = columns(datt, m.H * m.D(), h * m.D()), q = head(a.qkv, q_at(0, h, 0)),
                  k = head(a.qkv, k_at(0, h, 0)), v = head(a.qkv, v_at(0, h, 0));
      const Plain of_probs = product<R>(dy, transposed(v));  // (T, T)
      Tensor<R> kept(std::size_t(m.T * m.T)), dscores(kept.size());
      for (int i = 0; i < m.T; ++i) softmax_backward(a, datt, of_probs, l, h, i, kept, dscores);
      const Plain d = plain(dscores, m.T, m.T);
      add(sums, v_at(0, h, 0), product<R>(transposed(plain(kept, m.T, m.T)), dy));
      add(sums, q_at(0, h, 0), product<R>(d, k));
      add(sums, k_at(0, h, 0), product<R>(transposed(d), q));
    }
    Tensor<R> dqkv(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) dqkv[i] = store(sums[i].value());
    return dqkv;
  }
  void softmax_backward(const Heads<R>& a, const Tensor<R>& datt, const Plain& of_probs, int l, int h, int i,
                        Tensor<R>& kept, Tensor<R>& dscores) {
    const R* const p = a.probs.data() + prob_at(h, i, 0);
    R* const ds = dscores.data() + at(i, m.T, 0);
    Sum<R> dots;
    for (int j = first[std::size_t(i)]; j <= i; ++j) {
      ds[j] = value_at<R>(of_probs, at(i, m.T, j));
      kept[at(i, m.T, j)] = p[j];
      if (m.drop_attention > 0) {
        const R factor(keep(l, h, i, j));
        ds[j] = ds[j] * factor;
        kept[at(i, m.T, j)] = p[j] * factor;
      }
      if (!m.fused_attention) dots.add(ds[j], p[j]);
    }
    // The same number where nothing is rounded; fused attention has it from what it stored.
    for (int x = 0; m.fused_attention && x < m.D(); ++x) {
      const std::size_t out = at(i, m.H * m.D(), h * m.D() + x);
      dots.add(datt[out], a.att[out]);
    }
    const R dot = dots.value();
    for (int j = first[std::size_t(i)]; j <= i; ++j) ds[j] = p[j] * (ds[j] - dot) * Scale();
  }
  // Queries and keys are turned by angles that grow with the position; gradients are turned back.
  void rotate(Tensor<R>& qkv, double direction) {
    const int half = m.D() / 2;
    for (int i = 0; i < m.T; ++i) {
      for (int d = 0; d < half; ++d) {
        const double angle = (i - first[std::size_t(i)]) * std::pow(m.rope_theta, -2.0 * d / m.D());
        const R cos = rounded_angle(std::cos(angle)), sin = rounded_angle(direction * std::sin(angle));
        for (int h = 0; h < m.H + m.K; ++h) {
          R& a = qkv[at(i, width(), h * m.D() + d)];
          R& b = qkv[at(i, width(), h * m.D() + half + d)];
          const R old = a;
          a = store(a * cos - b * sin);
          b = store(b * cos + old * sin);
        }
      }
    }
  }
  static R rounded_angle(double x) {
    R r(x);
    if constexpr (std::is_same_v<R, Noisy>) r.s = kVariance * x * x;
    return r;
  }

 private:
  // (T, D), of columns that begin at `first`.
  Plain columns(const Tensor<R>& x, int cols, int first) const {
    Tensor<R> part;
    for (int i = 0; i < m.T; ++i)
      for (int d = 0; d < m.D(); ++d) part.push_back(x[at(i, cols, first + d)]);
    return plain(part, m.T, m.D());
  }
  Plain head(const Tensor<R>& qkv, std::size_t first) const { return columns(qkv, width(), int(first)); }
  void add(std::vector<Sum<R>>& sums, std::size_t first, const Plain& d) const {
    for (int i = 0; i < m.T; ++i)
      for (int x = 0; x < m.D(); ++x) sums[first + at(i, width(), x)].add(value_at<R>(d, at(i, m.D(), x)));
  }

  const Training& t;
  const Model& m;
  Store<R>& store;
  std::int64_t step, sample;
  const std::vector<int>& first;
};

}  // namespace seeksim::reference
