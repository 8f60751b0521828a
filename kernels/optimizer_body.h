// AdamW for one element: the written sequence that is part of the contract (F0). One text for host and device.
#pragma once

#include "kernels/optimizer.h"
#include "kernels/scalar.h"

namespace seeksim::kernels {

// The step's constants as lanes, and the two products that are formed once.
template <class V>
struct AdamWLanes {
  typename V::F beta1, beta2, one_minus_beta1, one_minus_beta2, eps, inverse_bias1, inverse_sqrt_bias2, grad_factor;
  typename V::F minus_lr;     // -lr
  typename V::F minus_decay;  // -(lr * weight_decay) when decoupled
  typename V::F l2;           // weight_decay when not decoupled
};

template <class V>
SEEKSIM_HD AdamWLanes<V> adamw_lanes(const AdamWStep& s) {
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

// The moments' share of a step. Returns the update: p loses lr times this.
template <class V, bool kDecay, bool kDecoupled>
SEEKSIM_HD typename V::F adamw_moments(const AdamWLanes<V>& s, typename V::F grad, typename V::F p, typename V::F& m,
                                       typename V::F& v) {
  auto g = V::mul(grad, s.grad_factor);  // times 1 changes nothing
  if (kDecay && !kDecoupled) g = V::fma(s.l2, p, g);
  m = V::fma(s.beta1, m, V::mul(s.one_minus_beta1, g));
  v = V::fma(s.beta2, v, V::mul(V::mul(s.one_minus_beta2, g), g));
  const auto denominator = V::fma(V::sqrt(v), s.inverse_sqrt_bias2, s.eps);
  return V::div(V::mul(m, s.inverse_bias1), denominator);
}

template <class V, bool kDecay, bool kDecoupled>
SEEKSIM_HD typename V::F adamw_applied(const AdamWLanes<V>& s, typename V::F update, typename V::F p) {
  if (kDecay && kDecoupled) p = V::fma(s.minus_decay, p, p);
  return V::fma(s.minus_lr, update, p);
}

template <class V, bool kDecay, bool kDecoupled>
SEEKSIM_HD void adamw_body(const AdamWLanes<V>& s, typename V::F grad, typename V::F& p, typename V::F& m,
                           typename V::F& v) {
  const auto update = adamw_moments<V, kDecay, kDecoupled>(s, grad, p, m, v);
  p = adamw_applied<V, kDecay, kDecoupled>(s, update, p);
}

}  // namespace seeksim::kernels
