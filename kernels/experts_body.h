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
  for (int e = 0; e < r.experts; ++e) probs[e] = V::mul(probs[e], inverse);
  for (int j = 0; j < r.choices; ++j) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < r.experts; ++e) {
      if (choice_of(slots, j, e) < j) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    slots[j] = best;
    gates[j] = probs[best];
    total = V::add(total, gates[j]);
  }
  for (int j = 0; j < r.choices && r.normalized; ++j) gates[j] = V::div(gates[j], total);
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

SEEKSIM_HD float token_loss(const Router& r, const float* probs, const float* shares, float spread) {
  using V = FloatOps;
  return V::add(V::mul(r.balance, dot(shares, probs, r.experts)), V::mul(r.z, V::mul(spread, spread)));
}

// What the gradients of a token's logits have in common.
struct LogitGradient {
  float of_choices;      // sum of dgate * gate
  float of_shares;       // sum of share * prob
  float balance, twice;  // factors of both losses, the loss's own included; twice: times 2 spread
};

SEEKSIM_HD LogitGradient logit_gradient(const Router& r, const float* probs, const float* gates, const float* dgates,
                                        const float* shares, float spread, float scale) {
  using V = FloatOps;
  return {dot(dgates, gates, r.choices), dot(shares, probs, r.experts), V::mul(scale, r.balance),
          V::mul(V::mul(V::mul(scale, r.z), 2.0F), spread)};
}

// d of logit e.
SEEKSIM_HD float of_logit(const Router& r, const LogitGradient& g, int e, const float* probs, const std::int32_t* slots,
                          const float* gates, const float* dgates, const float* shares) {
  using V = FloatOps;
  const int j = choice_of(slots, r.choices, e);
  float d = 0.0F;
  if (!r.normalized) {
    d = V::mul(probs[e], V::sub(j < r.choices ? dgates[j] : 0.0F, g.of_choices));
  } else if (j < r.choices) {
    d = V::mul(gates[j], V::sub(dgates[j], g.of_choices));
  }
  d = V::fma(V::mul(g.balance, probs[e]), V::sub(shares[e], g.of_shares), d);
  return V::fma(g.twice, probs[e], d);
}

}  // namespace seeksim::kernels::experts
