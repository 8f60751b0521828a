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
  Attention(const Training& training, Store<R>& storing, std::int64_t step_number, std::int64_t sample_number)
      : t(training), m(training.model), store(storing), step(step_number), sample(sample_number) {}

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
      for (int i = 0; i < m.T; ++i) {
        Tensor<R> p(std::size_t(i) + 1);
        double most = -INFINITY;
        for (int j = 0; j <= i; ++j) {
          Sum<R> dot;
          for (int d = 0; d < m.D(); ++d) dot.add(a.qkv[q_at(i, h, d)], a.qkv[k_at(j, h, d)]);
          p[std::size_t(j)] = dot.value() * Scale();
          most = std::max(most, value_of(p[std::size_t(j)]));
        }
        Sum<R> sum;
        for (R& one : p) {
          one = exp_of(one - R(most));  // the same probabilities for any `most`
          sum.add(one);
        }
        const R all = sum.value();
        for (int j = 0; j <= i; ++j) {
          R& one = p[std::size_t(j)];
          one = one / all;
          a.probs[prob_at(h, i, j)] = m.fused_attention ? one : store(one);
          if (m.drop_attention > 0) one = one * R(keep(l, h, i, j));
        }
        for (int d = 0; d < m.D(); ++d) {
          Sum<R> y;
          for (int j = 0; j <= i; ++j) y.add(p[std::size_t(j)], a.qkv[v_at(j, h, d)]);
          a.att[at(i, m.H * m.D(), h * m.D() + d)] = store(y.value());
        }
      }
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
      for (int i = 0; i < m.T; ++i) {
        Tensor<R> dp(std::size_t(i) + 1);
        Sum<R> dots;
        for (int j = 0; j <= i; ++j) {
          const R kept = m.drop_attention > 0 ? R(keep(l, h, i, j)) : R(1.0);
          Sum<R> sum;
          for (int d = 0; d < m.D(); ++d) {
            const R& dy = datt[at(i, m.H * m.D(), h * m.D() + d)];
            sum.add(dy, a.qkv[v_at(j, h, d)]);
            sums[v_at(j, h, d)].add(m.drop_attention > 0 ? a.probs[prob_at(h, i, j)] * kept : a.probs[prob_at(h, i, j)],
                                    dy);
          }
          dp[std::size_t(j)] = m.drop_attention > 0 ? sum.value() * kept : sum.value();
          if (!m.fused_attention) dots.add(dp[std::size_t(j)], a.probs[prob_at(h, i, j)]);
        }
        // The same number where nothing is rounded; fused attention has it from what it stored.
        for (int x = 0; m.fused_attention && x < m.D(); ++x) {
          const std::size_t out = at(i, m.H * m.D(), h * m.D() + x);
          dots.add(datt[out], a.att[out]);
        }
        const R dot = dots.value();
        for (int j = 0; j <= i; ++j) {
          const R ds = a.probs[prob_at(h, i, j)] * (dp[std::size_t(j)] - dot) * Scale();
          for (int d = 0; d < m.D(); ++d) {
            sums[q_at(i, h, d)].add(ds, a.qkv[k_at(j, h, d)]);
            sums[k_at(j, h, d)].add(ds, a.qkv[q_at(i, h, d)]);
          }
        }
      }
    }
    Tensor<R> dqkv(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) dqkv[i] = store(sums[i].value());
    return dqkv;
  }
  // Queries and keys are turned by angles that grow with the position; gradients are turned back.
  void rotate(Tensor<R>& qkv, double direction) {
    const int half = m.D() / 2;
    for (int i = 0; i < m.T; ++i) {
      for (int h = 0; h < m.H + m.K; ++h) {
        for (int d = 0; d < half; ++d) {
          const double angle = i * std::pow(m.rope_theta, -2.0 * d / m.D());
          const R cos = rounded_angle(std::cos(angle)), sin = rounded_angle(direction * std::sin(angle));
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
  const Training& t;
  const Model& m;
  Store<R>& store;
  std::int64_t step, sample;
};

}  // namespace seeksim::reference
