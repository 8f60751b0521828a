// The mean of weights against an emulation that shares none of its code: the weights after each step come from a run of
// so many steps, and these few lines take their mean. Then what a mean cannot be together with.
#include <fmt/format.h>

#include <cmath>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using Handed = std::vector<runtime::NamedTensor>;

constexpr int kMeanSteps = 4;
constexpr double kMeanDecay = 0.75;

// Step 2 is not applied. precision: a part of the deepspeed section.
std::string text_with_mean(int steps, int ranks, int stage, const std::string& precision, bool mean) {
  return fmt::format(
      R"({{ "name": "emulated",
  "model": {{ "layers": 1, "width": 34, "heads": 2, "context": 8, "vocab": 61, "frozen": ["wpe.weight"] }},
  "data": {{ "synthetic": true }}, "world": {{ "nodes": 1, "ranks_per_node": {} }},
  "deepspeed": {{ "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, {}
                 "zero_optimization": {{ "stage": {} }},
                 "optimizer": {{ "type": "SGD", "params": {{ "lr": 0.1, "momentum": 0.9 }} }} }},
  "batch_arithmetic": "by_samples", {} "steps": {} }})",
      ranks, precision, stage, mean ? fmt::format(R"("ema": {{ "decay": {}, "save": true }},)", kMeanDecay) : "",
      steps);
}

Handed handed_out(const std::string& text) {
  Scenario scenario = load_scenario_text(text, "emulated.json");
  scenario.train.definition.skip_steps = {2};
  SimulationOptions options;
  options.keep_final_weights = true;
  Simulation simulation(scenario, options);
  const RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  return run.training.final_weights;
}

// The weights that training begins with: a step that moves nothing.
Handed weights_at_first(const std::string& precision) {
  std::string text = text_with_mean(1, 1, 0, precision, false);
  const std::string rate = R"("lr": 0.1)";
  return handed_out(text.replace(text.find(rate), rate.size(), R"("lr": 0)"));
}

// After each step that is applied the mean goes a quarter of the way to the weights, as fp32 numbers do.
Handed emulated_mean(const std::string& precision, int steps) {
  Handed mean = weights_at_first(precision);
  for (int step = 0; step < steps; ++step) {
    if (step == 2) continue;
    const Handed after = handed_out(text_with_mean(step + 1, 1, 0, precision, false));
    for (std::size_t t = 0; t < mean.size(); ++t) {
      for (std::size_t i = 0; i < mean[t].values.size(); ++i) {
        float& m = mean[t].values[i];
        const float apart = after[t].values[i] - m;
        m = std::fmaf(float(1.0 - kMeanDecay), apart, m);
      }
    }
  }
  return mean;
}

void expect_same_means(const Handed& got, const Handed& want, const std::string& about) {
  ASSERT_EQ(got.size(), want.size()) << about;
  for (std::size_t t = 0; t < got.size(); ++t) EXPECT_EQ(got[t].values, want[t].values) << about << ", " << got[t].name;
}

constexpr const char* kOfMeans[] = {"", R"("bf16": { "enabled": true },)",
                                    R"("bf16": { "enabled": true, "bf16_master_weights_and_grads": true },)"};

TEST(EmaEmulation, IsTheMeanThatTheDefinitionSaysOnAnyNumberOfRanksAtEveryStage) {
  for (const char* precision : kOfMeans) {
    const Handed want = emulated_mean(precision, kMeanSteps);
    for (const int stage : {0, 1, 2, 3})
      for (const int ranks : {1, 3})
        expect_same_means(handed_out(text_with_mean(kMeanSteps, ranks, stage, precision, true)), want,
                          fmt::format("{}, stage {}, {} ranks", precision, stage, ranks));
  }
}

TEST(EmaEmulation, IsNotTheWeightsAndASkippedStepDoesNotMoveIt) {
  const Handed last = handed_out(text_with_mean(kMeanSteps, 1, 0, "", false));
  const Handed mean = handed_out(text_with_mean(kMeanSteps, 2, 1, "", true));
  EXPECT_NE(mean[0].values, last[0].values);
  expect_same_means(handed_out(text_with_mean(3, 2, 1, "", true)), handed_out(text_with_mean(2, 2, 1, "", true)),
                    "step 2 is skipped");
}

TEST(EmaLoading, RefusesByName) {
  const auto problems_with = [](const std::string& more) {
    return problems_of(small_text(), {"faults=[]", R"(checks=["golden:bitwise"])", "ema.decay=0.9", more});
  };
  EXPECT_EQ(problems_with("seed=1"), "");
  const std::pair<const char*, const char*> rows[] = {
      {"ema.decay=1", "1 is out of range"},
      {"ema.decay=0", "0 is out of range"},
      {R"(ema={"save":true})", "the key \"decay\" is missing"},
      {R"(local_sgd={"workers":4,"every":2})", "not supported: a mean of weights with local SGD"},
      {"numerics=fast", "not supported: a mean of weights in a run of fast arithmetic"},
      {"stochastic_rounding=true", "only bf16 weights without fp32 masters are rounded at random"},
  };
  for (const auto& [set, message] : rows) {
    const std::string problems = problems_with(set);
    EXPECT_NE(problems.find(message), std::string::npos) << set << ":\n" << problems;
  }
}

}  // namespace
}  // namespace seeksim::harness
