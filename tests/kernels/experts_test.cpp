// Layers of experts: against scalar references written from the header, on every instruction set and on the emulated
// kernels for GPUs; in 16 bits against fp32 on the widened operands, rounded once.
#include "kernels/experts.h"

#include <algorithm>
#include <numeric>

#include "tests/kernels/half.h"
#include "tests/kernels/unary_of_one.h"

namespace seeksim::kernels::test {
namespace {

class ExpertRows : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(ExpertRows);

using Slots = std::vector<std::int32_t>;

Vec<const std::int32_t> vec(const Slots& v) { return {v.data(), static_cast<Index>(v.size())}; }
Vec<std::int32_t> vec(Slots& v) { return {v.data(), static_cast<Index>(v.size())}; }
using test::vec;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

// What a router gives, in memory of its own.
struct Routed {
  Floats probs, gates, shares, spreads, losses;
  Slots slots;

  Routed(const Router& r, std::size_t rows)
      : probs(rows * at(r.experts)),
        gates(rows * at(r.choices)),
        shares(rows / at(r.tokens) * at(r.experts)),
        spreads(rows),
        losses(rows),
        slots(rows * at(r.choices)) {}
  Routes out(const Router& r) {
    const std::size_t rows = spreads.size(), E = at(r.experts);
    return {mat(probs, rows, E), vec(slots), vec(gates), mat(shares, rows / at(r.tokens), E),
            vec(spreads),        vec(losses)};
  }
};

float sigmoid_of(float x) { return 1.0F / (1.0F + unary_of_one(Unary::exp, 0.0F - x)); }

// A token's scores, and what the balancing loss divides them by.
struct Scores {
  Floats of;
  float all = 1;
};
Scores scores_of(const Router& r, const float* probs) {
  Scores scores{Floats(probs, probs + r.experts)};
  if (!r.sigmoid) return scores;
  scores.all = 0;
  for (float& one : scores.of) scores.all = scores.all + (one = sigmoid_of(one));
  scores.all = scores.all + 1e-20F;
  return scores;
}

// The same by the header's words.
Routed expected(const Router& r, const Floats& logits) {
  const std::size_t E = at(r.experts), k = at(r.choices), rows = logits.size() / E, T = at(r.tokens);
  Routed want(r, rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const x = &logits[row * E];
    float* const p = &want.probs[row * E];
    const float most = *std::max_element(x, x + E);
    float sum = 0, total = 0;
    for (std::size_t e = 0; e < E; ++e) sum = sum + (p[e] = unary_of_one(Unary::exp, x[e] - most));
    const float inverse = 1.0F / sum;
    for (std::size_t e = 0; e < E; ++e) p[e] = r.sigmoid ? x[e] : p[e] * inverse;
    const Floats scores = scores_of(r, p).of;
    want.spreads[row] = unary_of_one(Unary::log, sum) + most;
    Slots order(E);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[a] > x[b]; });
    for (std::size_t j = 0; j < k; ++j) {
      want.slots[row * k + j] = order[j];
      total = total + (want.gates[row * k + j] = scores[at(order[j])]);
    }
    if (r.sigmoid) total = total + 1e-20F;
    for (std::size_t j = 0; j < k && r.normalized; ++j) want.gates[row * k + j] = want.gates[row * k + j] / total;
    for (std::size_t j = 0; j < k; ++j) want.gates[row * k + j] = r.scale * want.gates[row * k + j];
  }
  for (std::size_t first = 0; first < rows; first += T) {
    std::vector<Index> count(E);
    for (std::size_t j = 0; j < k; ++j) {
      for (std::size_t row = first; row < first + T; ++row) {
        std::int32_t& slot = want.slots[row * k + j];
        const std::int32_t e = slot;
        if (r.capacity > 0 && count[at(e)] >= r.capacity) slot = -1 - e;
        ++count[at(e)];
      }
    }
    float* const share = &want.shares[first / T * E];
    for (std::size_t e = 0; e < E; ++e) share[e] = static_cast<float>(count[e]) / static_cast<float>(T * k);
    for (std::size_t row = first; row < first + T; ++row) {
      float dot = 0;
      const Scores scores = scores_of(r, &want.probs[row * E]);
      for (std::size_t e = 0; e < E; ++e) dot = fma1(share[e], scores.of[e], dot);
      dot = dot / scores.all;
      want.losses[row] = r.balance * dot + r.z * (want.spreads[row] * want.spreads[row]);
    }
  }
  return want;
}

struct Case {
  Router router;
  std::size_t samples;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int experts : {1, 2, 3, 8, 33, 130})
    for (const int choices : {1, 2, 5})
      for (const Index capacity : {0, 1, 3})
        for (const int kind : {0, 1, 2, 3, 4, 5}) {
          const bool normalized = kind % 2 == 1, sigmoid = kind >= 2;
          if (choices > experts) continue;
          const float balance = capacity == 1 ? 0.0F : 0.02F * static_cast<float>(experts);
          all.push_back({{.tokens = 5 + experts % 7,
                          .experts = experts,
                          .choices = choices,
                          .capacity = capacity,
                          .normalized = normalized,
                          .balance = balance,
                          .z = 0.001F,
                          .sigmoid = sigmoid,
                          .scale = kind >= 4      ? 2.5F
                                   : choices == 5 ? 0.75F
                                                  : 1.0F},
                         at(1 + choices % 3)});
        }
  return all;
}

// Few different values, so that ties are common.
Floats logits_of(Rng& rng, const Case& c) {
  Floats x = uniforms(rng, at(c.router.tokens) * c.samples * at(c.router.experts), -3.0F, 3.0F);
  for (float& one : x)
    if (rng() % 2 == 0) one = std::round(one);
  return x;
}

TEST_P(ExpertRows, ARouterChoosesTheLargestLogitsAndOfEqualOnesTheFirst) {
  Rng rng(1);
  std::size_t dropped = 0;
  for (const Case& c : cases()) {
    const Floats logits = logits_of(rng, c);
    const std::size_t rows = at(c.router.tokens) * c.samples;
    Routed got(c.router, rows);
    const Routed want = expected(c.router, logits);
    route({}, c.router, mat(logits, rows, at(c.router.experts)), got.out(c.router));
    ASSERT_EQ(got.slots, want.slots) << c.router.experts << " " << c.router.choices << " " << c.router.capacity;
    ASSERT_EQ(difference(got.probs, want.probs), "");
    ASSERT_EQ(difference(got.gates, want.gates), "");
    ASSERT_EQ(difference(got.shares, want.shares), "");
    ASSERT_EQ(difference(got.spreads, want.spreads), "");
    ASSERT_EQ(difference(got.losses, want.losses), "");
    for (const std::int32_t slot : got.slots) dropped += slot < 0;
  }
  EXPECT_GT(dropped, 100U);
}

// Gates of sigmoids that are divided by their sum add up to the scale, and each expert's score sees no other's logit.
TEST_P(ExpertRows, SigmoidGatesSeeTheChosenOnly) {
  const Router r{.tokens = 1, .experts = 4, .choices = 2, .sigmoid = true, .scale = 2.5F};
  const Floats logits = {0.5F, -1.0F, 2.0F, 0.25F};
  Routed one(r, 1), other(r, 1);
  route({}, r, mat(logits, 1, 4), one.out(r));
  EXPECT_EQ(one.slots, (Slots{2, 0}));
  EXPECT_NEAR(one.gates[0] + one.gates[1], 2.5F, 1e-6F);
  EXPECT_NEAR(one.gates[0] / one.gates[1], (1 / (1 + std::exp(-2.0))) / (1 / (1 + std::exp(-0.5))), 1e-6);
  const Floats lower = {0.5F, -30.0F, 2.0F, -100.0F};
  route({}, r, mat(lower, 1, 4), other.out(r));
  EXPECT_EQ(difference(one.gates, other.gates), "") << "experts that are not chosen";
  const Floats least(4, -500.0F);  // all sigmoids are 0
  route({}, r, mat(least, 1, 4), other.out(r));
  EXPECT_EQ(difference(other.gates, Floats(2, 0.0F)), "");
}

// What a sample is given does not depend on the samples around it.
TEST_P(ExpertRows, ASampleIsRoutedAsItIsAlone) {
  Rng rng(2);
  const Router r{.tokens = 9, .experts = 5, .choices = 2, .capacity = 3, .normalized = true, .balance = 0.1F, .z = 0};
  const Floats logits = uniforms(rng, 3 * 9 * 5);
  Routed all(r, 27), one(r, 9);
  route({}, r, mat(logits, 27, 5), all.out(r));
  const Floats second(logits.begin() + 45, logits.begin() + 90);
  route({}, r, mat(second, 9, 5), one.out(r));
  EXPECT_EQ(Slots(all.slots.begin() + 18, all.slots.begin() + 36), one.slots);
  EXPECT_EQ(difference(Floats(all.losses.begin() + 9, all.losses.begin() + 18), one.losses), "");
}

template <class T>
void expect_route_backward(Rng& rng, const Case& c) {
  const Router& r = c.router;
  const std::size_t E = at(r.experts), k = at(r.choices), rows = at(r.tokens) * c.samples;
  const Floats logits = logits_of(rng, c);
  const Routed from = expected(r, logits);
  Floats dgates = uniforms(rng, rows * k);
  for (std::size_t s = 0; s < dgates.size(); ++s)
    if (from.slots[s] < 0) dgates[s] = 0;
  const float scale = 0x1p-5F;
  Floats want(rows * E);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const p = &from.probs[row * E];
    const float* const share = &from.shares[row / at(r.tokens) * E];
    const Scores scores = scores_of(r, p);
    float of_choices = 0, of_shares = 0;
    for (std::size_t j = 0; j < k; ++j) of_choices = fma1(dgates[row * k + j], from.gates[row * k + j], of_choices);
    for (std::size_t e = 0; e < E; ++e) of_shares = fma1(share[e], scores.of[e], of_shares);
    of_shares = of_shares / scores.all;
    const float gate_sum = r.normalized ? of_choices / r.scale : of_choices;
    for (std::size_t e = 0; e < E; ++e) {
      float dgate = 0, gate = 0;
      for (std::size_t j = 0; j < k; ++j) {
        const std::int32_t slot = from.slots[row * k + j];
        if (at(slot >= 0 ? slot : -1 - slot) == e) dgate = dgates[row * k + j], gate = from.gates[row * k + j];
      }
      float d = r.normalized ? gate * (dgate - gate_sum) : p[e] * (r.scale * dgate - gate_sum);
      if (r.sigmoid && !r.normalized) d = gate * dgate;
      if (gate == 0 && (r.normalized || r.sigmoid)) d = 0;
      const float share_of = r.sigmoid ? scores.of[e] / scores.all : p[e],
                  twice = scale * r.z * 2.0F * from.spreads[row];
      d = fma1(scale * r.balance * share_of, share[e] - of_shares, d);
      if (r.sigmoid) d = (1.0F - scores.of[e]) * d;
      const float softmax = r.sigmoid ? unary_of_one(Unary::exp, p[e] - from.spreads[row]) : p[e];
      want[row * E + e] = fma1(twice, softmax, d);
    }
  }
  std::vector<T> got(rows * E);
  route_backward<T>({}, r, mat(from.probs, rows, E), vec(from.slots), vec(from.gates), mat(from.shares, c.samples, E),
                    vec(from.spreads), vec(dgates), scale, {got.data(), Index(rows), Index(E), Index(E)});
  if constexpr (std::is_same_v<T, float>) {
    ASSERT_EQ(difference(got, want), "") << r.experts << " " << r.choices << " " << r.normalized;
  } else {
    ASSERT_EQ(difference_rounded(got, want), "") << r.experts << " " << r.choices << " " << r.normalized;
  }
}

TEST_P(ExpertRows, GradientsOfLogitsAreTheWrittenSequence) {
  Rng rng(3);
  for (const Case& c : cases()) {
    expect_route_backward<float>(rng, c);
    expect_route_backward<bf16>(rng, c);
    expect_route_backward<fp16>(rng, c);
    if (HasFatalFailure()) return;
  }
}

// Slots of a made-up routing: some experts get nothing, some slots are not taken.
Slots slots_for(Rng& rng, std::size_t n, int experts) {
  Slots slots(n);
  for (std::int32_t& s : slots) {
    s = static_cast<std::int32_t>(rng() % std::size_t(experts));
    if (rng() % 5 == 0) s = -1 - s;
  }
  return slots;
}

template <class T>
void expect_products(Rng& rng) {
  for (const std::size_t K : {1, 7, 16, 33, 70})
    for (const std::size_t N : {1, 9, 40})
      for (const RowOf of : {RowOf::slot, RowOf::token})
        for (const Trans tw : {Trans::no, Trans::yes})
          for (const std::size_t segment : {std::size_t{0}, K / 8 + 1}) {
            const std::size_t E = 4, k = 2, rows = 11, slots_n = rows * k;
            const Slots slots = slots_for(rng, slots_n, 3);  // the last expert gets nothing
            const std::size_t x_rows = of == RowOf::token ? rows : slots_n, w_rows = E * (tw == Trans::yes ? N : K);
            const std::size_t w_cols = tw == Trans::yes ? K : N;
            const auto x = draw<T>(rng, x_rows * K, 9, false), w = draw<T>(rng, w_rows * w_cols, 9, false);
            Floats want(slots_n * N);
            for (std::size_t s = 0; s < slots_n; ++s)
              for (std::size_t n = 0; n < N && slots[s] >= 0; ++n) {
                const float* const xs = &x.wide[(of == RowOf::token ? s / k : s) * K];
                const std::size_t e = at(slots[s]);
                const float* const ws = tw == Trans::yes ? &w.wide[(e * N + n) * K] : &w.wide[e * K * N + n];
                want[s * N + n] = segchain(xs, 1, ws, tw == Trans::yes ? 1 : N, K, segment == 0 ? K : segment);
              }
            Tensor<T> y(Floats(slots_n * N, 9.0F));
            expert_product<T>({}, vec(slots), int(k), x.mat(x_rows, K), of, w.mat(w_rows, w_cols), tw, Index(segment),
                              y.out(slots_n, N));
            ASSERT_EQ(difference_rounded(y.stored, want), "") << K << " " << N << " " << segment;
          }
}

TEST_P(ExpertRows, ARowOfASlotIsItsExpertsProduct) {
  Rng rng(4);
  expect_products<bf16>(rng);
  expect_products<fp16>(rng);
}

TEST_P(ExpertRows, ProductsInFp32AreChains) {
  Rng rng(5);
  const std::size_t E = 3, K = 65, N = 17, rows = 9, k = 2;
  const Slots slots = slots_for(rng, rows * k, int(E));
  const Floats x = tames(rng, rows * K), w = tames(rng, E * N * K);
  Floats y(rows * k * N, 9.0F), want(rows * k * N);
  for (std::size_t s = 0; s < rows * k; ++s)
    for (std::size_t n = 0; n < N && slots[s] >= 0; ++n)
      want[s * N + n] = segchain(&x[s / k * K], 1, &w[(at(slots[s]) * N + n) * K], 1, K, K);
  expert_product({}, vec(slots), int(k), mat(x, rows, K), RowOf::token, mat(w, E * N, K), Trans::yes, 0,
                 mat(y, rows * k, N));
  EXPECT_EQ(difference(y, want), "");
}

TEST_P(ExpertRows, WeightGradientsAreTokensInSamplesInATree) {
  Rng rng(6);
  std::size_t seen = 0;
  for (const std::size_t samples : {1, 2, 3, 5, 8})
    for (const RowOf of : {RowOf::slot, RowOf::token}) {
      const std::size_t E = 4, k = 2, T = 6, M = 10, N = 19, rows = samples * T, slots_n = rows * k;
      const Slots slots = slots_for(rng, slots_n, 3);
      const std::size_t b_rows = of == RowOf::token ? rows : slots_n;
      const auto a = draw<bf16>(rng, slots_n * M, 9, false), b = draw<bf16>(rng, b_rows * N, 9, false);
      Floats dw(E * M * N, 9.0F), dw32 = dw, want(E * M * N), chain(E * M * N);
      for (std::size_t e = 0; e < E; ++e)
        for (std::size_t m = 0; m < M; ++m)
          for (std::size_t n = 0; n < N; ++n) {
            Floats leaves;
            float& all = chain[(e * M + m) * N + n];
            for (std::size_t first = 0; first < slots_n; first += T * k) {
              float leaf = 0;
              for (std::size_t s = first; s < first + T * k; ++s) {
                if (slots[s] != std::int32_t(e)) continue;
                const float left = a.wide[s * M + m], right = b.wide[(of == RowOf::token ? s / k : s) * N + n];
                leaf = fma1(left, right, leaf), all = fma1(left, right, all);
              }
              leaves.push_back(leaf);
            }
            want[(e * M + m) * N + n] = tree(leaves);
          }
      expert_weight_grad<bf16>({}, vec(slots), int(k), Index(T), a.mat(slots_n, M), b.mat(b_rows, N), of,
                               mat(dw, E * M, N));
      ASSERT_EQ(difference(dw, want), "") << samples;
      expert_weight_grad({}, vec(slots), int(k), Index(T), mat(a.wide, slots_n, M), mat(b.wide, b_rows, N), of,
                         mat(dw32, E * M, N));
      ASSERT_EQ(difference(dw32, want), "") << samples;
      seen += !difference(dw, chain).empty();
    }
  EXPECT_GE(seen, 6U) << "one chain over all samples must be seen to be wrong";
}

template <class T>
void expect_sums_of_slots(Rng& rng, std::size_t C, std::size_t F, std::size_t segment = 0) {
  const std::size_t k = 3, rows = 7, n = rows * k;
  const Slots slots = slots_for(rng, n, 5);
  const Floats gates = uniforms(rng, n, 0.0F, 1.0F);
  const auto y = draw<T>(rng, n * C, 9, false), router = draw<T>(rng, rows * C, 9, false),
             dout = draw<T>(rng, rows * C, 9, false), act = draw<T>(rng, n * F, 9, false);
  Floats combined(rows * C), collected(rows * C), dots(n), want_dy(n * C), want_dact(n * F);
  Tensor<T> out(Floats(rows * C, 9.0F)), sum = out, dy(Floats(n * C, 9.0F)), dact = draw<T>(rng, n * F, 9, false);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < C; ++c) {
      float added = 0;
      for (std::size_t s = r * k; s < (r + 1) * k; ++s) {
        if (slots[s] < 0) continue;
        combined[r * C + c] = fma1(gates[s], y.wide[s * C + c], combined[r * C + c]);
        added = added + y.wide[s * C + c];
        want_dy[s * C + c] = gates[s] * dout.wide[r * C + c];
      }
      collected[r * C + c] = added + router.wide[r * C + c];
    }
  for (std::size_t s = 0; s < n; ++s) {
    if (slots[s] < 0) continue;
    Floats nodes;
    for (std::size_t begin = 0; begin<F; begin += segment> 0 ? segment : F)
      nodes.push_back(lanes(std::min(segment > 0 ? segment : F, F - begin), [&](float sum_so_far, std::size_t i) {
        return fma1(dact.wide[s * F + begin + i], act.wide[s * F + begin + i], sum_so_far);
      }));
    while (nodes.size() > 1) {  // pairs, the last one alone
      Floats above;
      for (std::size_t i = 0; i < nodes.size(); i += 2)
        above.push_back(i + 1 < nodes.size() ? nodes[i] + nodes[i + 1] : nodes[i]);
      nodes = above;
    }
    dots[s] = nodes[0];
    for (std::size_t i = 0; i < F; ++i) want_dact[s * F + i] = gates[s] * dact.wide[s * F + i];
  }
  expert_combine<T>({}, vec(slots), vec(gates), y.mat(n, C), out.out(rows, C));
  ASSERT_EQ(difference_rounded(out.stored, combined), "") << C;
  expert_collect<T>({}, vec(slots), y.mat(n, C), router.mat(rows, C), sum.out(rows, C));
  ASSERT_EQ(difference_rounded(sum.stored, collected), "") << C;
  Floats dgates(n, 9.0F);
  expert_combine_backward<T>({}, vec(slots), vec(gates), dout.mat(rows, C), act.mat(n, F), dact.out(n, F), vec(dgates),
                             dy.out(n, C), Index(segment));
  ASSERT_EQ(difference(dgates, dots), "") << F;
  ASSERT_EQ(difference_rounded(dact.stored, want_dact), "") << F;
  ASSERT_EQ(difference_rounded(dy.stored, want_dy), "") << C;
}

TEST_P(ExpertRows, SumsOverSlotsAreTheWrittenSequence) {
  Rng rng(7);
  for (const std::size_t c : {1, 7, 16, 31, 128, 250})
    for (const std::size_t f : {1, 9, 127, 300}) {
      expect_sums_of_slots<bf16>(rng, c, f);
      expect_sums_of_slots<fp16>(rng, c, f, (f + 7) / 8);
      expect_sums_of_slots<bf16>(rng, c, f, (f + 3) / 4);
      if (HasFatalFailure()) return;
    }
}

TEST_P(ExpertRows, LossesOfLayersAreAddedInTurn) {
  Rng rng(8);
  const Floats more = uniforms(rng, 3 * 40);
  Floats losses = uniforms(rng, 31), want = losses;
  for (std::size_t i = 0; i < 31; ++i)
    for (std::size_t l = 0; l < 3; ++l) want[i] = want[i] + more[l * 40 + i];
  add_token_losses({}, mat(more, 3, 31, 40), vec(losses));
  EXPECT_EQ(difference(losses, want), "");
}

// ---- experts that are divided among ranks ----

// Rows of one rank's slots at the places of all ranks, and what a rank gets of them.
struct Placed {
  Slots sources, experts;
  Floats rows;
  Placed(const Router& r, std::size_t samples, std::size_t ranks, Index places, const Slots& slots, const Floats& x,
         std::size_t c)
      : sources(ranks * samples * at(places)), experts(sources.size()), rows(sources.size() * c) {
    expert_places({}, vec(slots), r.choices, r.tokens, r.experts / int(ranks), places, vec(sources), vec(experts));
    expert_pack({}, vec(sources), r.choices, mat(x, samples * at(r.tokens), c), RowOf::token,
                mat(rows, sources.size(), c));
  }
};

TEST_P(ExpertRows, RowsThatGoToTheirExpertsAndBackAreThoseOfOneRank) {
  Rng rng(9);
  const std::size_t c = 13, f = 9, samples = 3;
  for (const Index capacity : {0, 2, 5}) {
    for (const std::size_t ranks : {1, 2, 3, 6}) {
      const Router r{.tokens = 8, .experts = 6, .choices = 2, .capacity = capacity, .normalized = true};
      const std::size_t k = at(r.choices), own = at(r.experts) / ranks, rows = samples * at(r.tokens);
      Routed routed(r, rows);
      route({}, r, mat(logits_of(rng, {r, samples}), rows, at(r.experts)), routed.out(r));
      const Floats x = uniforms(rng, rows * c), w = uniforms(rng, at(r.experts) * f * c);
      Floats want(rows * k * f), want_dw(w.size());
      expert_product({}, vec(routed.slots), r.choices, mat(x, rows, c), RowOf::token, mat(w, at(r.experts) * f, c),
                     Trans::yes, 0, mat(want, rows * k, f));
      expert_weight_grad({}, vec(routed.slots), r.choices, r.tokens, mat(want, rows * k, f), mat(x, rows, c),
                         RowOf::token, mat(want_dw, at(r.experts) * f, c));

      const Index places = std::min<Index>(r.tokens * std::min<Index>(2, Index(own)),
                                           capacity > 0 ? capacity * Index(own) : r.tokens * 2);
      const Placed placed(r, samples, ranks, places, routed.slots, x, c);
      Floats made(placed.sources.size() * f), back(want.size(), 7.0F), dw(w.size());
      const std::size_t each = samples * at(places);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const Slots experts(placed.experts.begin() + Index(rank * each),
                            placed.experts.begin() + Index((rank + 1) * each));
        const Mat<const float> arrived{placed.rows.data() + rank * each * c, Index(each), Index(c), Index(c)};
        const Mat<const float> own_w{w.data() + rank * own * f * c, Index(own * f), Index(c), Index(c)};
        const Mat<float> out{made.data() + rank * each * f, Index(each), Index(f), Index(f)};
        expert_product({}, vec(experts), 1, arrived, RowOf::slot, own_w, Trans::yes, 0, out);
        expert_weight_grad<float>({}, vec(experts), 1, places, out, arrived, RowOf::slot,
                                  {dw.data() + rank * own * f * c, Index(own * f), Index(c), Index(c)});
      }
      expert_unpack({}, vec(placed.sources), mat(made, placed.sources.size(), f), mat(back, rows * k, f));
      ASSERT_EQ(difference(back, want), "") << ranks << " ranks, capacity " << capacity;
      ASSERT_EQ(difference(dw, want_dw), "") << ranks << " ranks, capacity " << capacity;
    }
  }
}

TEST_P(ExpertRows, PlacesAreTakenInTheOrderOfSlotsAndTheRestIsEmpty) {
  const Slots slots = {3, 0, -3, 1, 2, -1, 1, 3};  // two samples of two tokens; experts 0 and 1, then 2 and 3
  Slots sources(12), experts(12);
  expert_places({}, vec(slots), 2, 2, 2, 3, vec(sources), vec(experts));
  EXPECT_EQ(sources, (Slots{1, 3, -1, 6, -1, -1, 0, -1, -1, 4, 7, -1}));
  EXPECT_EQ(experts, (Slots{0, 1, -1, 1, -1, -1, 1, -1, -1, 0, 1, -1}));
}

TEST_P(ExpertRows, WhatIsNoExpertIsNotTaken) {
  Slots experts = {0, 1, 2, -1, -7, 1 << 30};
  expert_accept({}, 2, vec(experts));
  EXPECT_EQ(experts, (Slots{0, 1, -1, -1, -1, -1}));
}

TEST_P(ExpertRows, ChoicesAreCountedAndSoAreThoseThatFoundNoRoom) {
  const Slots slots = {3, 0, -3, 1, 2, -1, 1, 3, -3};
  Slots counts = {9, 9, 9, 9, 9, 9, 9, 9};
  count_choices({}, vec(slots), vec(counts));
  EXPECT_EQ(counts, (Slots{2, 2, 3, 2, 1, 0, 2, 0}));
  if (on_gpu()) return;
  const Slots other = {4};
  EXPECT_THROW(count_choices({}, vec(other), vec(counts)), std::logic_error);
}

TEST_P(ExpertRows, AnExpertThatDoesNotExistIsRefused) {
  if (on_gpu()) GTEST_SKIP() << "a GPU answers with a NaN";
  const Slots slots = {0, 3};
  const Floats x(2 * 4), w(3 * 4 * 5);
  Floats y(2 * 5);
  EXPECT_THROW(expert_product({}, vec(slots), 1, mat(x, 2, 4), RowOf::slot, mat(w, 12, 5), Trans::no, 0, mat(y, 2, 5)),
               std::logic_error);
}

}  // namespace
}  // namespace seeksim::kernels::test
