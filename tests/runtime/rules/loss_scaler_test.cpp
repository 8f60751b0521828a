// The scaler against traces that were made by running DeepSpeed's own, against traces worked by hand, and against
// models written from the rules in another shape. The models are worth something only if they notice a wrong machine: a
// dozen of those are built here, and each must be found.
#include "runtime/rules/loss_scaler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/check.h"

namespace seeksim::runtime {
namespace {

using Machine = std::function<LossScalerState(const LossScalerPlan&, const LossScalerState&, bool)>;

const Machine kMachine = [](const LossScalerPlan& plan, const LossScalerState& state, bool overflow) {
  return next(plan, state, overflow);
};

LossScalerPlan dynamic_plan(int power, std::int64_t window, std::int64_t hysteresis, bool consecutive = false) {
  LossScalerPlan plan;
  plan.kind = LossScalerKind::dynamic;
  plan.initial_scale_power = power;
  plan.loss_scale_window = window;
  plan.hysteresis = hysteresis;
  plan.consecutive_hysteresis = consecutive;
  return plan;
}

LossScalerPlan torch_plan(double init, double growth, double backoff, std::int64_t interval) {
  LossScalerPlan plan;
  plan.kind = LossScalerKind::torch;
  plan.init_scale = init;
  plan.growth_factor = growth;
  plan.backoff_factor = backoff;
  plan.growth_interval = interval;
  return plan;
}

struct Seen {
  double scale = 0;
  std::int64_t hysteresis = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

// What a machine shows after each step ('.' good, 'X' overflow) up to the one at which it stops.
std::vector<Seen> trace(const Machine& machine, const LossScalerPlan& plan, const std::string& flags) {
  std::vector<Seen> out;
  LossScalerState state = initial_state(plan);
  for (const char flag : flags) {
    state = machine(plan, state, flag == 'X');
    if (state.stopped) break;
    out.push_back({state.scale, plan.kind == LossScalerKind::dynamic ? state.hysteresis : 0});
  }
  return out;
}

std::vector<double> scales(const LossScalerPlan& plan, const std::string& flags) {
  std::vector<double> out;
  for (const Seen& seen : trace(kMachine, plan, flags)) out.push_back(seen.scale);
  return out;
}

// ---- the reference traces ----------------------------------------------------------------------------------------

TEST(LossScaler, DeepSpeedsTrace) {
  const std::vector<Seen> expected = {{8, 2}, {8, 2}, {8, 2}, {16, 2}, {16, 1}, {16, 1}, {8, 1}, {8, 1}, {8, 1},
                                      {8, 1}, {4, 1}, {4, 1}, {4, 1},  {4, 1},  {8, 2},  {8, 1}, {4, 1}};
  EXPECT_EQ(trace(kMachine, dynamic_plan(3, 3, 2), "....X.X...X....XX"), expected);
}

TEST(LossScaler, DeepSpeedsTraceWithConsecutiveHysteresis) {
  const std::vector<Seen> expected = {{8, 2},  {8, 2},  {8, 2},  {16, 2}, {16, 1}, {16, 2}, {16, 1}, {16, 2}, {16, 2},
                                      {16, 2}, {16, 1}, {16, 2}, {16, 2}, {16, 2}, {32, 2}, {32, 1}, {16, 1}};
  EXPECT_EQ(trace(kMachine, dynamic_plan(3, 3, 2, true), "....X.X...X....XX"), expected);
}

TEST(LossScaler, OverflowAtTheMinimumStopsWithDeepSpeedsWords) {
  LossScaler scaler(dynamic_plan(3, 3, 2));
  for (const double scale : {8, 4, 2, 1}) {
    scaler.update(true);
    EXPECT_EQ(scaler.scale(), scale);
    EXPECT_EQ(scaler.stop_text(), "");
  }
  EXPECT_EQ(scaler.state().hysteresis, 1);
  const LossScalerState before = scaler.state();
  scaler.update(true);
  EXPECT_NE(scaler.stop_text().find("Current loss scale already at minimum - cannot decrease scale anymore. Exiting "
                                    "run."),
            std::string::npos);
  LossScalerState as_before = scaler.state();
  as_before.stopped = false;
  EXPECT_EQ(as_before, before) << "the exception flies before anything is counted";
  const LossScalerState stopped = scaler.state();
  scaler.update(false);
  EXPECT_EQ(scaler.state(), stopped) << "and nothing moves after it";
}

TEST(LossScaler, WithTheDefaultsTheEighteenthOverflowInARowStops) {
  LossScalerPlan plan;
  plan.kind = LossScalerKind::dynamic;
  LossScaler scaler(plan);
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 1; i < 18; ++i) {
    scaler.update(true);
    ASSERT_EQ(scaler.stop_text(), "") << i;
  }
  EXPECT_EQ(scaler.scale(), 1);
  scaler.update(true);
  EXPECT_NE(scaler.stop_text(), "");
}

TEST(LossScaler, WithoutTheExceptionItStaysAtTheMinimum) {
  LossScalerPlan plan = dynamic_plan(3, 3, 1);
  plan.raise_error_at_min_scale = false;
  plan.min_loss_scale = 3;  // not reached by halving: the scale lands on it
  EXPECT_EQ(scales(plan, "XXXX...."), (std::vector<double>{4, 3, 3, 3, 3, 3, 3, 6}));
}

TEST(LossScaler, FirstGrowthIsOneStepLaterThanTorchs) {
  EXPECT_EQ(scales(dynamic_plan(3, 3, 2), "......."), (std::vector<double>{8, 8, 8, 16, 16, 16, 32}));
  EXPECT_EQ(scales(torch_plan(8, 2, 0.5, 3), "......."), (std::vector<double>{8, 8, 16, 16, 16, 32, 32}));
}

TEST(LossScaler, GradScalersTrace) {
  EXPECT_EQ(scales(torch_plan(8, 2, 0.5, 3), "..X...X..XX..."),
            (std::vector<double>{8, 8, 4, 4, 4, 8, 4, 4, 4, 2, 1, 1, 1, 2}));
  // It has neither a minimum nor a last word.
  EXPECT_EQ(scales(torch_plan(1, 2, 0.25, 1), "XX.X"), (std::vector<double>{0.25, 0.0625, 0.125, 0.03125}));
}

TEST(LossScaler, GradScalersDefaults) {
  LossScalerPlan plan;
  plan.kind = LossScalerKind::torch;
  LossScaler scaler(plan);
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536);
}

// 10 * 1.1 is 11; 11 * 1.1 is 12.100000000000001 in double and the fp32 number nearest to it is 12.10000038...
TEST(LossScaler, GradScalerHoldsItsScaleInFp32) {
  EXPECT_EQ(scales(torch_plan(10, 1.1, 0.7, 1), "..."),
            (std::vector<double>{11, 12.1000003814697265625, 13.31000041961669921875}));
  EXPECT_EQ(initial_state(torch_plan(0.1, 2, 0.5, 1)).scale, 0.1f) << "init_scale is rounded too";
}

TEST(LossScaler, GradScalerDoesNotGrowPastFp32) {
  const double large = std::ldexp(1.0, 127);
  LossScaler scaler(torch_plan(large, 2, 0.5, 2));
  scaler.update(false);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), large);
  EXPECT_EQ(scaler.state().growth_tracker, 0) << "the interval begins anew all the same";
}

TEST(LossScaler, NoneAndStaticNeverMove) {
  LossScalerPlan plan;
  EXPECT_EQ(scales(plan, ".X.X"), (std::vector<double>{1, 1, 1, 1}));
  plan.kind = LossScalerKind::static_scale;
  plan.loss_scale = 1000;
  EXPECT_EQ(scales(plan, ".XXX...."), std::vector<double>(8, 1000));
  plan = torch_plan(8, 2, 0.5, 1);
  plan.enabled = false;
  EXPECT_EQ(scales(plan, ".X.X"), (std::vector<double>{1, 1, 1, 1}));
}

TEST(LossScaler, UnscaleFactorIsRoundedOnce) {
  EXPECT_EQ(unscale_factor(65536), 0x1p-16f);
  EXPECT_EQ(unscale_factor(3), 0x1.555556p-2f);
}

TEST(LossScaler, WordsHoldTheWholeState) {
  LossScalerState state;
  state.scale = 0x1p-20;
  state.iteration = 17;
  state.last_overflow = -1;
  state.hysteresis = 3;
  state.growth_tracker = 5;
  state.stopped = true;
  EXPECT_EQ(from_words(to_words(state)), state);
  const LossScalerWords words = to_words(state);
  for (std::size_t i = 0; i < words.size(); ++i) {
    LossScalerWords other = words;
    other[i] ^= 1;
    EXPECT_NE(from_words(other), state) << "word " << i;
  }
}

TEST(LossScaler, ProblemsNameTheKey) {
  const auto first = [](const LossScalerPlan& plan) {
    const std::vector<std::string> found = problems(plan);
    return found.empty() ? std::string("none") : found.front().substr(0, found.front().find(' '));
  };
  EXPECT_EQ(first(dynamic_plan(16, 1000, 2)), "none");
  EXPECT_EQ(first(dynamic_plan(128, 1000, 2)), "initial_scale_power");
  EXPECT_EQ(first(dynamic_plan(16, 0, 2)), "loss_scale_window");
  EXPECT_EQ(first(dynamic_plan(16, 1000, 0)), "hysteresis");
  LossScalerPlan plan = dynamic_plan(16, 1000, 2);
  plan.min_loss_scale = 0;
  EXPECT_EQ(first(plan), "min_loss_scale");
  plan = dynamic_plan(16, 1000, 2);
  plan.loss_scale = 128;
  EXPECT_EQ(first(plan), "loss_scale");
  plan.kind = LossScalerKind::static_scale;
  EXPECT_EQ(first(plan), "none");
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    plan.loss_scale = bad;
    EXPECT_EQ(first(plan), "loss_scale") << bad;
    EXPECT_THROW(LossScaler{plan}, CheckError);
  }
  EXPECT_EQ(first(torch_plan(65536, 2, 0.5, 2000)), "none");
  EXPECT_EQ(first(torch_plan(1e39, 2, 0.5, 2000)), "init_scale");
  EXPECT_EQ(first(torch_plan(65536, 1, 0.5, 2000)), "growth_factor");
  EXPECT_EQ(first(torch_plan(65536, 2, 1, 2000)), "backoff_factor");
  EXPECT_EQ(first(torch_plan(65536, 2, 0.5, 0)), "growth_interval");
}

// ---- the models --------------------------------------------------------------------------------------------------

// DeepSpeed's rules by the length of the present run of good steps, instead of by iteration numbers.
std::vector<Seen> dynamic_model(const LossScalerPlan& p, const std::string& flags) {
  std::vector<Seen> out;
  double scale = std::ldexp(1.0, p.initial_scale_power);
  std::int64_t left = p.hysteresis, good_run = 0;
  for (const char flag : flags) {
    const bool bad = flag == 'X', tolerated = bad && p.hysteresis != 1 && left != 1;
    if (bad && !tolerated && scale == p.min_loss_scale && p.raise_error_at_min_scale) return out;
    if (bad && !tolerated) scale = scale / 2 < p.min_loss_scale ? p.min_loss_scale : scale / 2;
    if (tolerated) left -= 1;
    good_run = bad ? 0 : good_run + 1;
    // The first step of a run of good ones never grows; each window of steps after it ends in a growth.
    const bool grows = good_run > 1 && (good_run - 1) % p.loss_scale_window == 0;
    if (grows) scale = scale + scale;
    if (grows || (!bad && p.consecutive_hysteresis)) left = p.hysteresis;
    out.push_back({scale, left});
  }
  return out;
}

// GradScaler's rules from the whole history: the scale's factors in order, each rounded to fp32.
std::vector<Seen> torch_model(const LossScalerPlan& p, const std::string& flags) {
  std::vector<Seen> out;
  for (std::size_t n = 1; n <= flags.size(); ++n) {
    float scale = static_cast<float>(p.init_scale);
    std::size_t since = 0;  // where counting began
    for (std::size_t i = 0; i < n; ++i) {
      const bool bad = flags[i] == 'X', full = i + 1 - since == std::size_t(p.growth_interval);
      if (!bad && !full) continue;
      since = i + 1;
      const auto moved = static_cast<float>(double{scale} * (bad ? p.backoff_factor : p.growth_factor));
      if (bad || moved <= std::numeric_limits<float>::max()) scale = moved;
    }
    out.push_back({scale, 0});
  }
  return out;
}

struct Case {
  LossScalerPlan plan;
  std::string flags;
};

void showValue(const Case& c, std::ostream& os) {
  os << (c.plan.kind == LossScalerKind::torch ? "torch" : "dynamic") << " power " << c.plan.initial_scale_power
     << " window " << c.plan.loss_scale_window << " hysteresis " << c.plan.hysteresis << " consecutive "
     << c.plan.consecutive_hysteresis << " minimum " << c.plan.min_loss_scale << " raise "
     << c.plan.raise_error_at_min_scale << " init " << c.plan.init_scale << " growth " << c.plan.growth_factor
     << " backoff " << c.plan.backoff_factor << " interval " << c.plan.growth_interval << " flags " << c.flags;
}

rc::Gen<Case> random_case(LossScalerKind kind) {
  return rc::gen::exec([kind] {
    Case c;
    c.plan.kind = kind;
    c.plan.initial_scale_power = *rc::gen::inRange(0, 12);
    c.plan.loss_scale_window = *rc::gen::inRange(1, 7);
    c.plan.hysteresis = *rc::gen::inRange(1, 5);
    c.plan.consecutive_hysteresis = *rc::gen::arbitrary<bool>();
    c.plan.min_loss_scale = *rc::gen::element(1.0, 0.25, 3.0, 16.0);
    c.plan.raise_error_at_min_scale = *rc::gen::arbitrary<bool>();
    c.plan.init_scale = *rc::gen::element(65536.0, 1.0, 0.1, 12345.678, 1e38);
    c.plan.growth_factor = *rc::gen::element(2.0, 1.1, 1.5, 3.7);
    c.plan.backoff_factor = *rc::gen::element(0.5, 0.7, 0.1);
    c.plan.growth_interval = *rc::gen::inRange(1, 7);
    const int often = *rc::gen::inRange(1, 10);  // of 10 steps, so many are good
    const int steps = *rc::gen::inRange(1, 48);
    for (int i = 0; i < steps; ++i) c.flags += *rc::gen::inRange(0, 10) < often ? '.' : 'X';
    return c;
  });
}

bool agrees(const Machine& machine, const Case& c) {
  const bool torch = c.plan.kind == LossScalerKind::torch;
  return trace(machine, c.plan, c.flags) == (torch ? torch_model(c.plan, c.flags) : dynamic_model(c.plan, c.flags));
}

constexpr int kCasesAtOnce = 25;  // of each of rapidcheck's 100 runs

TEST(LossScalerProperty, DeepSpeedsMachineIsTheModels) {
  EXPECT_TRUE(rc::check([] {
    for (int i = 0; i < kCasesAtOnce; ++i) RC_ASSERT(agrees(kMachine, *random_case(LossScalerKind::dynamic)));
  }));
}

TEST(LossScalerProperty, GradScalersMachineIsTheModels) {
  EXPECT_TRUE(rc::check([] {
    for (int i = 0; i < kCasesAtOnce; ++i) RC_ASSERT(agrees(kMachine, *random_case(LossScalerKind::torch)));
  }));
}

// ---- wrong machines ----------------------------------------------------------------------------------------------

struct WrongScaler {
  const char* name;
  LossScalerKind kind;
  Machine machine;
};

// Each does one thing wrong and leaves the rest to the right machine.
std::vector<WrongScaler> wrong_scalers() {
  using Plan = LossScalerPlan;
  using State = LossScalerState;
  const LossScalerKind dynamic = LossScalerKind::dynamic, torch = LossScalerKind::torch;
  return {
      {"growth one good step too early", dynamic,
       [](const Plan& p, State s, bool bad) {
         if (bad) return next(p, s, bad);
         s.last_overflow -= 1;
         State n = next(p, s, bad);
         n.last_overflow += 1;
         return n;
       }},
      {"window one step too long", dynamic,
       [](Plan p, const State& s, bool bad) {
         p.loss_scale_window += 1;
         return next(p, s, bad);
       }},
      {"growth counted on a skipped step", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         n.last_overflow = s.last_overflow;
         return n;
       }},
      {"a tolerated overflow does not end the run of good steps", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (bad && n.scale == s.scale && n.hysteresis < s.hysteresis) n.last_overflow = s.last_overflow;
         return n;
       }},
      {"skipped steps are not counted as iterations", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (bad) n.iteration = s.iteration;
         return n;
       }},
      {"hysteresis refilled by every good step", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (!bad) n.hysteresis = p.hysteresis;
         return n;
       }},
      {"hysteresis not refilled by a growth", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (!bad && !p.consecutive_hysteresis) n.hysteresis = s.hysteresis;
         return n;
       }},
      {"hysteresis refilled by a halving", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (n.scale < s.scale) n.hysteresis = p.hysteresis;
         return n;
       }},
      {"a tolerated overflow halves too", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (n.hysteresis < s.hysteresis) n.scale = std::max(n.scale / 2, p.min_loss_scale);
         return n;
       }},
      {"stops when the minimum is reached, not at the overflow after it", dynamic,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         n.stopped = n.stopped || (n.scale < s.scale && n.scale == p.min_loss_scale && p.raise_error_at_min_scale);
         return n;
       }},
      {"falls below the minimum", dynamic,
       [](Plan p, const State& s, bool bad) {
         p.min_loss_scale = 0;
         return next(p, s, bad);
       }},
      {"tracker goes on after an overflow", torch,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (bad) n.growth_tracker = s.growth_tracker;
         return n;
       }},
      {"growth counted on a skipped step", torch,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (bad) n.growth_tracker = 1;
         return n;
       }},
      {"interval one step too long, as DeepSpeed's first", torch,
       [](Plan p, const State& s, bool bad) {
         p.growth_interval += 1;
         return next(p, s, bad);
       }},
      {"product made in fp32", torch,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         const float factor = static_cast<float>(bad ? p.backoff_factor : p.growth_factor);
         if (n.scale != s.scale) n.scale = static_cast<float>(s.scale) * factor;
         return n;
       }},
      {"scale kept in double", torch,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (n.scale != s.scale) n.scale = s.scale * (bad ? p.backoff_factor : p.growth_factor);
         return n;
       }},
      {"grows to infinity", torch,
       [](const Plan& p, const State& s, bool bad) {
         State n = next(p, s, bad);
         if (!bad && n.growth_tracker == 0) n.scale = static_cast<float>(s.scale * p.growth_factor);
         return n;
       }},
  };
}

TEST(LossScalerProperty, FindsEveryWrongMachine) {
  constexpr std::uint64_t kCases = 400;
  for (const WrongScaler& mutant : wrong_scalers()) {
    const rc::Gen<Case> cases = random_case(mutant.kind);
    int found = 0;
    for (std::uint64_t seed = 0; seed < kCases; ++seed) {
      const Case c = cases(rc::Random(seed), rc::kNominalSize).value();
      ASSERT_TRUE(agrees(kMachine, c)) << "the right machine, seed " << seed;
      found += agrees(mutant.machine, c) ? 0 : 1;
    }
    EXPECT_GE(found, 4) << mutant.name << ": too rarely seen to be sure of it";
  }
}

// ---- when to stop ------------------------------------------------------------------------------------------------

SkipState after(const std::string& flags, double scale = 1) {
  SkipState state;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    const bool skipped = flags[i] == 'X';
    state = next(state, {.step = std::int64_t(i), .skipped = skipped, .scale = scale, .nonfinite = skipped ? 7 : 0});
    if (skipped) scale /= 2;
  }
  return state;
}

TEST(SkipPolicy, CountsTheRunThatIsUnderWay) {
  const SkipState state = after(".XX.XXX", 64);
  EXPECT_EQ(state.steps, 7);
  EXPECT_EQ(state.skipped, 5);
  EXPECT_EQ(state.consecutive, 3);
  EXPECT_EQ(state.first_step, 4);
  EXPECT_EQ(state.last_step, 6);
  EXPECT_EQ(state.first_scale, 16);
  EXPECT_EQ(state.last_scale, 4);
  EXPECT_EQ(after(".XX.XXX.").consecutive, 0);
}

TEST(SkipPolicy, StopsAtTheLimitAndNotBefore) {
  EXPECT_EQ(stop_text({.stop_after = 3}, after("XX.XX.XX")), "") << "not in a row";
  EXPECT_EQ(stop_text({.stop_after = 3}, after(".XX")), "");
  EXPECT_NE(stop_text({.stop_after = 3}, after(".XXX")), "");
  EXPECT_EQ(stop_text({.stop_after = 3}, after(".XXX.")), "") << "a good step ends the run";
  EXPECT_EQ(stop_text({.stop_after = 0}, after(std::string(1000, 'X'))), "") << "0: skip for ever";
}

TEST(SkipPolicy, TextSaysWhatWasSeen) {
  const std::string text = stop_text({.stop_after = 3}, after(".XX.XXX", 64));
  for (const char* part :
       {"steps 4 to 6", "3 in a row", "the limit is 3", "5 of 7 steps", "from 16 to 4", "7 gradient elements"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  SkipState state;
  for (const std::int64_t nonfinite : {9, 2, 30})
    state = next(state, {.step = 5, .skipped = true, .scale = 1, .nonfinite = nonfinite});
  const std::string other = stop_text({.stop_after = 1}, state);
  EXPECT_NE(other.find("was 1 all the time"), std::string::npos) << other;
  EXPECT_NE(other.find("2 to 30 gradient elements"), std::string::npos) << other;
}

}  // namespace
}  // namespace seeksim::runtime
