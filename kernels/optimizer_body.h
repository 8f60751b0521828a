// The optimizers' rules for one element: the written sequences that are part of the contract (F0). One text for host
// and device. A rule has: kMoments, of m and v; update(), which renews the moments and returns what p loses lr times;
// and applied(), p after that.
#pragma once

#include "kernels/optimizer.h"
#include "kernels/philox_body.h"
#include "kernels/scalar.h"

namespace seeksim::kernels {

// The step's constants as lanes, and the two products that are formed once.
template <class V>
struct OptimizerLanes {
  typename V::F beta1, beta2, one_minus_beta1, one_minus_beta2, eps, inverse_bias1, inverse_sqrt_bias2, grad_factor;
  typename V::F minus_lr;     // -lr
  typename V::F minus_decay;  // -(lr * weight_decay) when decoupled
  typename V::F l2;           // weight_decay when not decoupled
};

template <class V>
SEEKSIM_HD OptimizerLanes<V> optimizer_lanes(const OptimizerStep& s) {
  return {V::lit(s.beta1),
          V::lit(s.beta2),
          V::lit(s.one_minus_beta1),
          V::lit(s.one_minus_beta2),
          V::lit(s.eps),
          V::lit(s.inverse_bias1),
          V::lit(s.inverse_sqrt_bias2),
          V::lit(s.grad_factor),
          V::lit(-s.lr),
          V::lit(-FloatOps::mul(s.lr, s.weight_decay)),
          V::lit(s.weight_decay)};
}

// kDecay: weight_decay is not 0. Without it nothing is added to g or p: p - lr * 0 * p would turn a -0 into +0 and an
// infinite p into a NaN.
template <class V, bool kDecay, bool kDecoupled>
SEEKSIM_HD typename V::F optimizer_applied(const OptimizerLanes<V>& s, typename V::F update, typename V::F p) {
  if (kDecay && kDecoupled) p = V::fma(s.minus_decay, p, p);
  return V::fma(s.minus_lr, update, p);
}

template <class V, bool kDecay_, bool kDecoupled>
struct AdamWRule {
  using F = typename V::F;
  static constexpr int kMoments = 2;
  static constexpr bool kDecays = kDecay_ && kDecoupled;  // applied() does

  SEEKSIM_HD F update(const OptimizerLanes<V>& s, F grad, F p, F& m, F& v) {
    auto g = V::mul(grad, s.grad_factor);  // times 1 changes nothing
    if (kDecay_ && !kDecoupled) g = V::fma(s.l2, p, g);
    m = V::fma(s.beta1, m, V::mul(s.one_minus_beta1, g));
    v = V::fma(s.beta2, v, V::mul(V::mul(s.one_minus_beta2, g), g));
    const auto denominator = V::fma(V::sqrt(v), s.inverse_sqrt_bias2, s.eps);
    return V::div(V::mul(m, s.inverse_bias1), denominator);
  }
  SEEKSIM_HD F applied(const OptimizerLanes<V>& s, F update, F p) {
    return optimizer_applied<V, kDecay_, kDecoupled>(s, update, p);
  }
};

// +0 of both zeros: p - lr * +0 is p, also where p is a zero.
template <class V>
SEEKSIM_HD typename V::F sign_of(typename V::F c) {
  const typename V::F zero = V::lit(0.0F), one = V::lit(1.0F), minus_one = V::lit(-1.0F);
  typename V::F sign = c > zero ? one : zero;
  sign = c < zero ? minus_one : sign;
  return c == c ? sign : c;
}

template <class V, bool kDecay_>
struct LionRule {
  using F = typename V::F;
  static constexpr int kMoments = 1;
  static constexpr bool kDecays = kDecay_;

  SEEKSIM_HD F update(const OptimizerLanes<V>& s, F grad, F /*p*/, F& m, F& /*v*/) {
    const auto g = V::mul(grad, s.grad_factor);
    const auto c = V::fma(s.beta1, m, V::mul(s.one_minus_beta1, g));
    m = V::fma(s.beta2, m, V::mul(s.one_minus_beta2, g));
    return sign_of<V>(c);
  }
  SEEKSIM_HD F applied(const OptimizerLanes<V>& s, F update, F p) {
    return optimizer_applied<V, kDecay_, true>(s, update, p);
  }
};

// torch.optim.SGD: the decay is in the gradient, and so in the momentum.
template <class V, bool kDecay, int kMoments_, bool kNesterov>
struct SgdRule {
  using F = typename V::F;
  static constexpr int kMoments = kMoments_;
  static constexpr bool kDecays = false;

  SEEKSIM_HD F update(const OptimizerLanes<V>& s, F grad, F p, F& m, F& /*v*/) {
    auto g = V::mul(grad, s.grad_factor);
    if (kDecay) g = V::fma(s.l2, p, g);
    if (kMoments == 0) return g;
    m = V::fma(s.beta1, m, V::mul(s.one_minus_beta1, g));
    return kNesterov ? V::fma(s.beta1, m, g) : m;
  }
  SEEKSIM_HD F applied(const OptimizerLanes<V>& s, F update, F p) { return V::fma(s.minus_lr, update, p); }
};

// x, which is bf16 after it, by 16 random bits: with the odds of what they would have to be at least to carry. What is
// not finite stays, and so does what is a bf16 already.
template <class V>
SEEKSIM_HD typename V::F rounded_at_random(typename V::F x, typename V::U random) {
  const typename V::U bits = V::bits(x), high = V::ulit(0xffff0000U), exponent = V::ulit(0x7f800000U);
  const typename V::F rounded = V::from_bits((bits + (random & V::ulit(0xffffU))) & high);
  return (bits & exponent) != exponent ? rounded : x;
}

// Random bits of an element of r's parameter; dropout's samples never come to that number.
template <class C>
SEEKSIM_HD typename C::U random_of_element(const StochasticRounding& r, typename C::U element) {
  typename C::U c[4] = {element, C::ulit(0xffffffffU), C::ulit(r.parameter), C::ulit(r.step)};
  philox_body<C>(c, static_cast<std::uint32_t>(r.key), static_cast<std::uint32_t>(r.key >> 32));
  return c[0];
}

template <class V>
SEEKSIM_HD typename V::F moved_mean(typename V::F weight, typename V::F x, typename V::F mean) {
  return V::fma(weight, V::sub(x, mean), mean);
}

// The momentum was made by others, and the variance stays.
template <class V, bool kDecay_>
struct FrozenRule {
  using F = typename V::F;
  static constexpr int kMoments = 2;
  static constexpr bool kDecays = kDecay_;

  SEEKSIM_HD F update(const OptimizerLanes<V>& s, F grad, F /*p*/, F& m, F& v) {
    m = V::mul(grad, s.grad_factor);
    return V::div(V::mul(m, s.inverse_bias1), V::fma(V::sqrt(v), s.inverse_sqrt_bias2, s.eps));
  }
  SEEKSIM_HD F applied(const OptimizerLanes<V>& s, F update, F p) {
    return optimizer_applied<V, kDecay_, true>(s, update, p);
  }
};

// Its update was made by others: a matrix that Muon orthogonalised.
template <class V, bool kDecay_>
struct GivenRule {
  using F = typename V::F;
  static constexpr int kMoments = 0;
  static constexpr bool kDecays = kDecay_;

  SEEKSIM_HD F update(const OptimizerLanes<V>& s, F grad, F /*p*/, F& /*m*/, F& /*v*/) {
    return V::mul(grad, s.grad_factor);
  }
  SEEKSIM_HD F applied(const OptimizerLanes<V>& s, F update, F p) {
    return optimizer_applied<V, kDecay_, true>(s, update, p);
  }
};

// ---- Muon ----

// Renews the momentum m by the gradient g; returns what Nesterov's rule looks ahead to.
template <class V>
SEEKSIM_HD typename V::F muon_direction(const MuonStep& s, typename V::F g, typename V::F& m) {
  const auto momentum = V::lit(s.momentum), scaled = V::mul(V::lit(s.one_minus_momentum), V::mul(g, V::lit(s.factor)));
  m = V::fma(momentum, m, scaled);
  return V::fma(momentum, m, scaled);
}

// What a matrix is multiplied by, so that its norm is 1.
template <class V>
SEEKSIM_HD typename V::F one_over_norm(typename V::F norm2, typename V::F least) {
  const auto norm = V::sqrt(norm2);
  return V::div(V::lit(1.0F), norm > least ? norm : least);
}

// a x + b y, of which a x is rounded.
template <class V>
SEEKSIM_HD typename V::F weighted_sum(typename V::F a, typename V::F x, typename V::F b, typename V::F y) {
  return V::fma(b, y, V::mul(a, x));
}

}  // namespace seeksim::kernels
