// A router on one token, and an expert's capacity in one sample: one text for host and device (F0; sums over experts
// and choices are F1).
#pragma once

#include "kernels/experts.h"
#include "kernels/math.h"
#include "kernels/scalar.h"

namespace seeksim::kernels::experts {

// The expert that a slot chose, taken or not.
SEEKSIM_HD std::int32_t chosen(std::int32_t slot) { return slot >= 0 ? slot : -1 - slot; }

// The number of the choice that is expert e; k: none.
SEEKSIM_HD int choice_of(const std::int32_t* slots, int k, std::int32_t e) {
  int j = 0;
  while (j < k && chosen(slots[j]) != e) ++j;
  return j;
}

SEEKSIM_HD float dot(const float* a, const float* b, Index n) {
  float sum = 0.0F;
  for (Index i = 0; i < n; ++i) sum = FloatOps::fma(a[i], b[i], sum);
  return sum;
}

SEEKSIM_HD float sigmoid(float logit) {
  using V = FloatOps;
  return V::div(1.0F, V::add(1.0F, math::exp<V>(V::sub(0.0F, logit))));
}

// Of what route_token leaves: probabilities, or logits.
SEEKSIM_HD float score(const Router& r, float kept) { return r.sigmoid ? sigmoid(kept) : kept; }

// Where all scores of a sum may be 0; it changes no sum above 1e-12.
inline constexpr float kLeastSum = 1e-20F;

// probs (E), slots (k) and gates (k) of a token. Returns the log of the sum of exp(logit).
SEEKSIM_HD float route_token(const Router& r, const float* logits, float* probs, std::int32_t* slots, float* gates) {
  using V = FloatOps;
  float max = V::from_bits(0xff800000U), sum = 0.0F, total = 0.0F;
  for (int e = 0; e < r.experts; ++e) max = logits[e] > max ? logits[e] : max;
  for (int e = 0; e < r.experts; ++e) {
    probs[e] = math::exp<V>(V::sub(logits[e], max));
    sum = V::add(sum, probs[e]);
  }
  const float inverse = V::div(1.0F, sum);
  for (int e = 0; e < r.experts; ++e) probs[e] = r.sigmoid ? logits[e] : V::mul(probs[e], inverse);
  for (int j = 0; j < r.choices; ++j) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < r.experts; ++e) {
      if (choice_of(slots, j, e) < j) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    slots[j] = best;
    gates[j] = score(r, probs[best]);
    total = V::add(total, gates[j]);
  }
  if (r.sigmoid) total = V::add(total, kLeastSum);
  for (int j = 0; j < r.choices; ++j) gates[j] = V::mul(r.scale, r.normalized ? V::div(gates[j], total) : gates[j]);
  return V::add(math::log<V>(sum), max);
}

// Marks the slots of a sample that expert e does not take. Returns how many chose it.
SEEKSIM_HD Index limit_expert(const Router& r, std::int32_t e, std::int32_t* slots) {
  Index count = 0;
  for (int j = 0; j < r.choices; ++j) {
    for (Index t = 0; t < r.tokens; ++t) {
      std::int32_t& slot = slots[t * r.choices + j];
      if (chosen(slot) != e) continue;
      if (r.capacity > 0 && count >= r.capacity) slot = -1 - e;
      ++count;
    }
  }
  return count;
}

// The places of a sample at one rank (experts.h): `slots` are the sample's, of which the first is number `begin`.
SEEKSIM_HD void place_sample(const std::int32_t* slots, Index count, Index begin, Index rank, int own, Index places,
                             std::int32_t* sources, std::int32_t* of_rank) {
  Index used = 0;
  for (Index s = 0; s < count && used < places; ++s) {
    if (slots[s] < 0 || slots[s] / own != rank) continue;
    sources[used] = static_cast<std::int32_t>(begin + s);
    of_rank[used] = static_cast<std::int32_t>(slots[s] - rank * own);
    ++used;
  }
  for (; used < places; ++used) sources[used] = of_rank[used] = -1;
}

SEEKSIM_HD std::int32_t known(std::int32_t expert, int own) { return expert >= 0 && expert < own ? expert : -1; }

SEEKSIM_HD float share(const Router& r, Index count) {
  const Index slots = r.tokens * r.choices;
  return FloatOps::div(FloatOps::from_int(static_cast<std::int32_t>(count)),
                       FloatOps::from_int(static_cast<std::int32_t>(slots)));
}

// What a token's scores are divided by in the balancing loss, so that they add up to 1; and the sum of share times what
// comes of it.
struct Mean {
  float all, of_shares;
};
SEEKSIM_HD Mean mean_share(const Router& r, const float* probs, const float* shares) {
  using V = FloatOps;
  if (!r.sigmoid) return {1.0F, dot(shares, probs, r.experts)};
  float all = 0.0F, sum = 0.0F;
  for (int e = 0; e < r.experts; ++e) {
    const float one = sigmoid(probs[e]);
    all = V::add(all, one);
    sum = V::fma(shares[e], one, sum);
  }
  all = V::add(all, kLeastSum);
  return {all, V::div(sum, all)};
}

SEEKSIM_HD float token_loss(const Router& r, const float* probs, const float* shares, float spread) {
  using V = FloatOps;
  return V::add(V::mul(r.balance, mean_share(r, probs, shares).of_shares), V::mul(r.z, V::mul(spread, spread)));
}

// What the gradients of a token's logits have in common.
struct LogitGradient {
  float of_choices;      // sum of dgate * gate; over scale where gates are divided; 0 where none sees another's logit
  Mean mean;             // of the balancing loss
  float balance, twice;  // factors of both losses, the loss's own included; twice: times 2 spread
  float spread;
};

SEEKSIM_HD LogitGradient logit_gradient(const Router& r, const float* probs, const float* gates, const float* dgates,
                                        const float* shares, float spread, float scale) {
  using V = FloatOps;
  const float sum = dot(dgates, gates, r.choices);
  const float of_choices = r.normalized ? V::div(sum, r.scale) : r.sigmoid ? 0.0F : sum;
  return {of_choices, mean_share(r, probs, shares), V::mul(scale, r.balance),
          V::mul(V::mul(V::mul(scale, r.z), 2.0F), spread), spread};
}

// Of sigmoid gates: through the gate and the balancing loss to the score, and from there to the logit.
SEEKSIM_HD float of_sigmoid_logit(const Router& r, const LogitGradient& g, int j, float logit, float share,
                                  const float* gates, const float* dgates) {
  using V = FloatOps;
  const float one = sigmoid(logit);
  float d = j < r.choices ? V::mul(gates[j], V::sub(dgates[j], g.of_choices)) : 0.0F;
  d = V::fma(V::mul(g.balance, V::div(one, g.mean.all)), V::sub(share, g.mean.of_shares), d);
  return V::fma(g.twice, math::exp<V>(V::sub(logit, g.spread)), V::mul(V::sub(1.0F, one), d));
}

// d of logit e.
SEEKSIM_HD float of_logit(const Router& r, const LogitGradient& g, int e, const float* probs, const std::int32_t* slots,
                          const float* gates, const float* dgates, const float* shares) {
  using V = FloatOps;
  const int j = choice_of(slots, r.choices, e);
  if (r.sigmoid) return of_sigmoid_logit(r, g, j, probs[e], shares[e], gates, dgates);
  float d = 0.0F;
  if (!r.normalized) {
    d = V::mul(probs[e], V::sub(j < r.choices ? V::mul(r.scale, dgates[j]) : 0.0F, g.of_choices));
  } else if (j < r.choices) {
    d = V::mul(gates[j], V::sub(dgates[j], g.of_choices));
  }
  d = V::fma(V::mul(g.balance, probs[e]), V::sub(shares[e], g.mean.of_shares), d);
  return V::fma(g.twice, probs[e], d);
}

}  // namespace seeksim::kernels::experts
