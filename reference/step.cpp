#include "reference/step.h"

#include <algorithm>
#include <cmath>

namespace seeksim::reference {

namespace {
double scheduled_rate(const Training& t, std::int64_t applied) {
  const Schedule& s = t.schedule;
  if (s.type.empty()) return t.optimizer.lr;
  if (s.type == "table") return s.table[std::min(std::size_t(applied), s.table.size() - 1)];
  // DeepSpeed's schedule stands before its first step at iteration -1.
  const double i = double(applied) - 1, warmup = double(std::max<std::int64_t>(2, s.warmup)), total = double(s.total);
  const bool cosine = s.type == "WarmupCosineLR";
  if (i < 0) return cosine ? 0 : s.min_lr;
  const double warmed = s.linear ? i / warmup : std::log(i + 1) / std::log(warmup);
  const double length = std::max(1.0, total - warmup);
  if (cosine) {
    if (i < warmup) return t.optimizer.lr * (s.warmup_min_ratio + warmed * (1 - s.warmup_min_ratio));
    const double way = std::min(i - warmup + 1, length) / length;
    const double half = (1 + std::cos(M_PI * way)) / 2;
    return t.optimizer.lr * std::max(0.0, s.cos_min_ratio + (1 - s.cos_min_ratio) * half);
  }
  double share = i < warmup ? warmed : 1;
  if (i >= warmup && s.type == "WarmupDecayLR") share = std::max(0.0, (total - i) / length);
  return s.min_lr + (s.max_lr - s.min_lr) * share;
}
}  // namespace

double learning_rate(const Training& t, std::int64_t applied, std::int64_t step) {
  double scale = 1;
  for (const Change& change : t.changes)
    if (change.step <= step && change.rate_scale) scale = *change.rate_scale;
  return scheduled_rate(t, applied) * scale;
}

double clipping(const Training& t, std::int64_t step) {
  double limit = t.clipping;
  for (const Change& change : t.changes)
    if (change.step <= step && change.clipping) limit = *change.clipping;
  return limit;
}

ScalerState first_state(const Scaler& scaler) {
  ScalerState state;
  state.scale = scaler.scale;
  state.tolerates = scaler.hysteresis;
  return state;
}

ScalerState next_state(const Scaler& scaler, ScalerState s, bool skipped) {
  if (scaler.kind == Scaler::Kind::torch) {
    if (skipped) {
      s.scale = double(static_cast<float>(s.scale * scaler.backoff));
      s.good_steps = 0;
    } else if (++s.good_steps == scaler.window) {
      const double grown = double(static_cast<float>(s.scale * scaler.growth));
      if (std::isfinite(grown)) s.scale = grown;
      s.good_steps = 0;
    }
  }
  if (scaler.kind != Scaler::Kind::deepspeed) return s;
  if (skipped) {
    if (s.tolerates > 1)
      --s.tolerates;
    else
      s.scale = std::max(s.scale / 2, scaler.least);
    s.last_overflow = s.updates;
  } else {
    if (scaler.consecutive) s.tolerates = scaler.hysteresis;
    const std::int64_t good = s.updates - s.last_overflow - 1;  // before this one
    if (good > 0 && good % scaler.window == 0) {
      s.scale *= 2;
      s.tolerates = scaler.hysteresis;
    }
  }
  ++s.updates;
  return s;
}

Bounded norm_of(const std::vector<const std::vector<float>*>& gradients) {
  double squares = 0, n = 0;
  for (const std::vector<float>* one : gradients) {
    for (const float g : *one) squares += double(g) * double(g);
    n += double(one->size());
  }
  // Lanes of a block, then trees over blocks, slabs and parameters.
  const double depth = 15 + std::ceil(std::log2(n + 1)) + std::ceil(std::log2(double(gradients.size()) + 1));
  return root_of(sum_of(squares, squares, depth));
}

Bounded clip_factor(double limit, double norm) {
  if (limit <= 0) return 1.0;
  const Bounded bound(double(static_cast<float>(limit)));
  const Bounded factor = bound / (Bounded(norm) + Bounded(double(1e-6f)));
  return factor.v < 1 ? factor : Bounded(1.0);
}

namespace {

// A number that is computed once in double and passed as fp32.
Bounded constant(double x) { return {x, kUnit * std::abs(x)}; }

}  // namespace

Corrections corrections(const Optimizer& o, std::int64_t t) {
  if (!o.bias_correction || o.sgd) return {1.0, 1.0, t};
  return {constant(1 / (1 - std::pow(o.beta1, double(t)))), constant(1 / std::sqrt(1 - std::pow(o.beta2, double(t)))),
          t};
}

namespace {

// How far a step goes, in rates: the sign of c, which rounding may have turned where c is no further from 0 than that.
Bounded sign_of(const Bounded& c) {
  const double sign = c.v > 0 ? 1 : c.v < 0 ? -1 : 0;
  return {sign, c.e > 0 && std::abs(c.v) <= c.e ? 2.0 : 0.0};
}

// Lion, by Algorithm 2 of "Symbolic Discovery of Optimization Algorithms".
BoundedElement updated_by_lion(const Optimizer& o, const Element& before, const Bounded& g, double decay,
                               const Bounded& lr) {
  const Bounded m(before.first), p(before.weight);
  const Bounded interpolated = constant(o.beta1) * m + constant(1 - o.beta1) * g;
  BoundedElement after;
  after.first = constant(o.beta2) * m + constant(1 - o.beta2) * g;
  after.second = Bounded(before.second);
  after.weight = (decay != 0 ? p - lr * constant(decay) * p : p) - lr * sign_of(interpolated);
  return after;
}

// torch.optim.SGD: decay in the gradient; the first gradient is the momentum, undampened.
BoundedElement updated_by_sgd(const Optimizer& o, const Element& before, Bounded g, double decay, const Bounded& lr,
                              std::int64_t t) {
  const Bounded p(before.weight), momentum = constant(o.momentum);
  if (decay != 0) g = g + constant(decay) * p;
  BoundedElement after;
  after.second = Bounded(before.second);
  Bounded step = g;
  if (o.momentum != 0) {
    after.first = t == 1 ? g : momentum * Bounded(before.first) + constant(1 - o.dampening) * g;
    step = o.nesterov ? g + momentum * after.first : after.first;
  }
  after.weight = p - lr * step;
  return after;
}

}  // namespace

BoundedElement updated(const Optimizer& o, const Element& before, double gradient, const Bounded& factor, double decay,
                       double rate, const Corrections& bias) {
  const Bounded lr = constant(rate), p(before.weight);
  Bounded g = Bounded(gradient) * factor;
  if (o.lion) return updated_by_lion(o, before, g, decay, lr);
  if (o.sgd) return updated_by_sgd(o, before, g, decay, lr, bias.t);
  if (!o.decoupled && decay != 0) g = g + constant(decay) * p;
  BoundedElement after;
  after.first = constant(o.beta1) * Bounded(before.first) + constant(1 - o.beta1) * g;
  after.second = constant(o.beta2) * Bounded(before.second) + constant(1 - o.beta2) * g * g;
  const Bounded root = root_of(after.second) * bias.second + constant(o.eps);
  const Bounded kept = o.decoupled && decay != 0 ? p - lr * constant(decay) * p : p;
  after.weight = kept - lr * (after.first * bias.first / root);
  return after;
}

}  // namespace seeksim::reference
