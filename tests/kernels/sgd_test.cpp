// SGD against its definition, one number at a time, on every target and in every type; against values from elsewhere;
// and the mistakes that would be made in it, each seen.

#include <cmath>

#include "kernels/optimizer.h"
#include "tests/kernels/half.h"

namespace seeksim::kernels::test {
namespace {

class Sgd : public OnEveryIsa {};
SEEKSIM_ON_EVERY_ISA(Sgd);

constexpr OptimizerRule kRules[] = {OptimizerRule::sgd, OptimizerRule::momentum, OptimizerRule::nesterov};

OptimizerStep sgd(OptimizerRule rule, float decay) {
  return {.rule = rule,
          .lr = 5e-2F,
          .beta1 = 0.9F,
          .one_minus_beta1 = 0.8F,
          .weight_decay = decay,
          .grad_factor = 0.73F,
          .decoupled = false};
}

enum class Mistake { none, decay_outside, dampens_nothing, looks_back, rate_inside };

// docs/optimizers.md, "SGD".
void one_element(const OptimizerStep& s, float grad, float& p, float& m, Mistake mistake = Mistake::none) {
  float g = grad * s.grad_factor;
  if (s.weight_decay != 0 && mistake != Mistake::decay_outside) g = fma1(s.weight_decay, p, g);
  if (s.weight_decay != 0 && mistake == Mistake::decay_outside) p = fma1(-(s.lr * s.weight_decay), p, p);
  float step = g;
  if (s.rule != OptimizerRule::sgd) {
    const float old = m, taken = mistake == Mistake::rate_inside ? s.lr * g : g;
    m = fma1(s.beta1, m, (mistake == Mistake::dampens_nothing ? 1.0F : s.one_minus_beta1) * taken);
    step = m;
    if (s.rule == OptimizerRule::nesterov) step = fma1(s.beta1, mistake == Mistake::looks_back ? old : m, taken);
  }
  p = mistake == Mistake::rate_inside ? p - step : fma1(-s.lr, step, p);
}

Vec<float> moment(OptimizerRule rule, Floats& m) { return moments_of(rule) == 1 ? vec(m) : Vec<float>{}; }

// Empty when three steps of the kernel are three steps of the definition with that mistake.
std::string apart(OptimizerRule rule, std::size_t n, float decay, Mistake mistake) {
  Rng rng(n);
  Floats grad = wilds(rng, n, 4), p = wilds(rng, n, 6), m = wilds(rng, n, 6), want_p = p, want_m = m;
  for (int t = 0; t < 3; ++t) {
    optimize({}, sgd(rule, decay), vec(grad), vec(p), moment(rule, m), {});
    for (std::size_t i = 0; i < n; ++i) one_element(sgd(rule, decay), grad[i], want_p[i], want_m[i], mistake);
  }
  const std::string of_p = difference(p, want_p);
  return of_p.empty() ? difference(m, want_m) : of_p;
}

TEST_P(Sgd, IsTheWrittenSequence) {
  for (const OptimizerRule rule : kRules)
    for (const std::size_t n : {1, 7, 15, 16, 17, 100, 1000})
      for (const float decay : {0.0F, 0.1F}) ASSERT_EQ(apart(rule, n, decay, Mistake::none), "") << n << ' ' << decay;
}

TEST_P(Sgd, EachMistakeInItIsSeen) {
  for (const Mistake mistake :
       {Mistake::decay_outside, Mistake::dampens_nothing, Mistake::looks_back, Mistake::rate_inside})
    EXPECT_NE(apart(OptimizerRule::nesterov, 1000, 0.1F, mistake), "") << int(mistake);
}

template <class T, class G>
void expect_copying(OptimizerRule rule, std::size_t n, float decay) {
  Rng rng(n);
  const auto held = draw<T>(rng, n, 9, false);
  Floats p = tames(rng, n), m = tames(rng, n), want_p = p, want_m = m;
  Tensor<T> copy(Floats(n, 3.0F));
  Vec<const G> grad;
  if constexpr (std::is_same_v<G, float>) {
    grad = vec(held.wide);
  } else {
    grad = held.vec();
  }
  optimize_copying<T, G>({}, sgd(rule, decay), grad, vec(p), moment(rule, m), {}, copy.out());
  for (std::size_t i = 0; i < n; ++i) one_element(sgd(rule, decay), held.wide[i], want_p[i], want_m[i]);
  ASSERT_EQ(difference(p, want_p), "") << n;
  ASSERT_EQ(difference(m, want_m), "") << n;
  ASSERT_EQ(difference_rounded(copy.stored, want_p), "") << n;
}

template <class T, class G>
void expect_rounding(OptimizerRule rule, std::size_t n, float decay) {
  Rng rng(n);
  auto held = draw<T>(rng, n, 9, false), p = draw<T>(rng, n, 9, false);
  Floats m = tames(rng, n), want_p = p.wide, want_m = m;
  Vec<const G> grad;
  if constexpr (std::is_same_v<G, float>) {
    grad = vec(held.wide);
  } else {
    grad = held.vec();
  }
  Stagnation counts{5, 6};
  optimize_rounding<T, G>({}, sgd(rule, decay), grad, p.out(), moment(rule, m), {}, {&counts, 1});
  for (std::size_t i = 0; i < n; ++i) one_element(sgd(rule, decay), held.wide[i], want_p[i], want_m[i]);
  ASSERT_EQ(difference(m, want_m), "") << n;
  ASSERT_EQ(difference_rounded(p.stored, want_p), "") << n;
  ASSERT_GT(counts.changes, 5) << n;
}

TEST_P(Sgd, In16BitsMastersAreCopiedAndParametersWithoutThemRounded) {
  for (const OptimizerRule rule : kRules) {
    for (const std::size_t n : {1, 15, 16, 17, 100, 1000}) {
      for (const float decay : {0.0F, 0.1F}) {
        expect_copying<bf16, float>(rule, n, decay);
        expect_copying<bf16, bf16>(rule, n, decay);
        expect_copying<fp16, float>(rule, n, decay);
        expect_copying<fp16, fp16>(rule, n, decay);
        expect_rounding<bf16, float>(rule, n, decay);
        expect_rounding<bf16, bf16>(rule, n, decay);
        expect_rounding<fp16, float>(rule, n, decay);
        expect_rounding<fp16, fp16>(rule, n, decay);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Four steps by torch.optim.SGD of PyTorch 2.15 (foreach=False), lr 0.05, weight_decay 0.1, from torch.randn after
// manual_seed(5): with momentum 0.9 and dampening 0.2; with Nesterov's of 0.8; without. Products round there where they
// do not here.
const Floats kStart = {-0.4867807626724243F, -0.6038215756416321F,  -0.5580962300300598F,
                       0.6675242781639099F,  -0.19741509854793549F, 1.9427834749221802F};
const std::vector<Floats> kGrads = {{-1.4017020463943481F, -0.7625571489334106F, 0.6312134265899658F,
                                     -0.899135172367096F, -0.5577934384346008F, 0.6907187700271606F},
                                    {0.2224585860967636F, -0.666225254535675F, 0.6846421957015991F, 0.5740016102790833F,
                                     -0.5828827023506165F, 0.7679415345191956F},
                                    {0.057092659175395966F, -1.189374566078186F, -0.5658848881721497F,
                                     -0.8326537609100342F, 0.901448667049408F, 0.2115711271762848F},
                                    {0.447927862405777F, -0.6088235378265381F, 0.23894619941711426F,
                                     0.4698884189128876F, -1.9540048837661743F, -0.5587331056594849F}};
struct FromTorch {
  OptimizerRule rule;
  float momentum, dampening;
  Floats p, m;
};
const std::vector<FromTorch> kFromTorch = {{OptimizerRule::momentum,
                                            0.9F,
                                            0.2F,
                                            {-0.27534112334251404F, -0.2639269232749939F, -0.6839600205421448F,
                                             0.776704728603363F, -0.02210872806608677F, 1.6722807884216309F},
                                            {-0.590607762336731F, -2.478299379348755F, 0.5102109313011169F,
                                             -0.29966580867767334F, -1.7410823106765747F, 1.2409734725952148F}},
                                           {OptimizerRule::nesterov,
                                            0.8F,
                                            0,
                                            {-0.31119200587272644F, -0.15154536068439484F, -0.6850204467773438F,
                                             0.7553544640541077F, 0.055691514164209366F, 1.6413739919662476F},
                                            {-0.18532055616378784F, -2.5054144859313965F, 0.3590273857116699F,
                                             -0.07269483804702759F, -1.928727388381958F, 0.9803757667541504F}},
                                           {OptimizerRule::sgd,
                                            0,
                                            0,
                                            {-0.44432756304740906F, -0.43168503046035767F, -0.5957925915718079F,
                                             0.688075602054596F, -0.08431629836559296F, 1.8495947122573853F},
                                            {}}};

TEST_P(Sgd, IsNearWhatPyTorchMakes) {
  for (const FromTorch& want : kFromTorch) {
    Floats p = kStart, m(p.size(), 0.0F);
    OptimizerStep step = sgd(want.rule, 0.1F);
    step.grad_factor = 1;
    step.beta1 = want.momentum;
    for (std::size_t t = 0; t < kGrads.size(); ++t) {
      step.one_minus_beta1 = t == 0 ? 1.0F : 1.0F - want.dampening;
      optimize({}, step, vec(kGrads[t]), vec(p), moment(want.rule, m), {});
    }
    for (std::size_t i = 0; i < p.size(); ++i) {
      EXPECT_NEAR(p[i], want.p[i], 8 * 0x1p-24F * (1 + std::fabs(want.p[i]))) << i;
      if (want.m.empty()) continue;
      EXPECT_NEAR(m[i], want.m[i], 8 * 0x1p-24F * (1 + std::fabs(want.m[i]))) << i;
    }
  }
}

}  // namespace
}  // namespace seeksim::kernels::test
