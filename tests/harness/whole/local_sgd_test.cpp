// Local SGD against an emulation that shares none of its code. With betas of 0 Adam remembers nothing from step to
// step, so what a worker does between two outer steps is a plain run of one rank on the worker's batches, from the
// weights that the outer step made; and the outer step is these few lines over plain vectors. Then what the algorithm
// comes to where it has to be ordinary training, and what it cannot be together with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/files/safetensors.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using runtime::NamedTensor;
using Weights = std::vector<NamedTensor>;

constexpr int kWorkers = 4, kBatch = 16, kEvery = 3, kRounds = 3;

std::string text_of(int batch, int steps, int ranks, const std::string& optimizer, const std::string& more) {
  return fmt::format(
      R"({{ "name": "emulated",
  "model": {{ "layers": 1, "width": 34, "heads": 2, "context": 8, "vocab": 61 }},
  "data": {{ "synthetic": true }}, "world": {{ "nodes": 1, "ranks_per_node": {} }},
  "deepspeed": {{ "train_batch_size": {}, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": 0.5,
                 "optimizer": {} }},
  "batch_arithmetic": "by_samples", {} "steps": {} }})",
      ranks, batch, optimizer, more, steps);
}

constexpr const char* kForgetful =
    R"({ "type": "Adam", "params": { "lr": 1e-2, "betas": [0, 0], "weight_decay": 0.1 } })";
constexpr const char* kAdamW = R"({ "type": "AdamW", "params": { "lr": 1e-2, "weight_decay": 0.1 } })";

RunRecord run_of(Scenario scenario) {
  SimulationOptions options;
  options.keep_final_weights = true;
  Simulation simulation(scenario, options);
  RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  return run;
}
RunRecord run_of(const std::string& text) { return run_of(load_scenario_text(text, "emulated.json")); }

// What worker `worker` makes of these weights in a round: a run of its own, of every fourth batch.
Weights after_round(const Weights& from, int worker, int round) {
  const std::string text = text_of(kBatch / kWorkers, kEvery, 1, kForgetful, "");
  Scenario scenario = load_scenario_text(text, "emulated.json");
  runtime::Definition& d = scenario.train.definition;
  for (int batch = 0; batch < kWorkers * kEvery * kRounds; ++batch) {
    if (batch % kWorkers != worker || batch < kWorkers * kEvery * round) d.drop_batches.push_back(batch);
  }
  std::vector<runtime::TensorBytes> tensors;
  for (const NamedTensor& tensor : from) tensors.push_back(runtime::to_bytes(tensor));
  if (!from.empty()) d.initial_weights = runtime::write_safetensors(tensors);
  return run_of(scenario).training.final_weights;
}

// How an outer step is made. nesterov: else plain momentum.
struct Outer {
  const char* type;
  float lr;
  float momentum;
};

// The weights after so many rounds, worker after worker; velocity by tensor.
Weights emulated(const Outer& outer, int rounds) {
  Weights weights = run_of(text_of(kBatch / kWorkers, 1, 1, R"({ "type": "Adam", "params": { "lr": 0 } })", ""))
                        .training.final_weights;
  std::vector<std::vector<float>> velocity;
  for (const NamedTensor& tensor : weights) velocity.emplace_back(tensor.values.size(), 0.0F);
  for (int round = 0; round < rounds; ++round) {
    std::vector<Weights> of;
    for (int worker = 0; worker < kWorkers; ++worker) of.push_back(after_round(weights, worker, round));
    for (std::size_t t = 0; t < weights.size(); ++t) {
      for (std::size_t i = 0; i < weights[t].values.size(); ++i) {
        float& own = weights[t].values[i];
        const auto at = [&](int worker) { return of[std::size_t(worker)][t].values[i]; };
        if (std::string(outer.type) == "average") {
          own = ((at(0) + at(1)) + (at(2) + at(3))) / kWorkers;
          continue;
        }
        const float gradient = (((own - at(0)) + (own - at(1))) + ((own - at(2)) + (own - at(3)))) / kWorkers;
        float& v = velocity[t][i];
        const float kept = outer.momentum * v;
        v = kept + gradient;
        const float ahead = outer.momentum * v;
        const float direction = std::string(outer.type) == "nesterov" ? gradient + ahead : v;
        const float move = outer.lr * direction;
        own -= move;
      }
    }
  }
  return weights;
}

void expect_same(const Weights& got, const Weights& want, const std::string& about) {
  ASSERT_EQ(got.size(), want.size()) << about;
  for (std::size_t t = 0; t < got.size(); ++t) EXPECT_EQ(got[t].values, want[t].values) << about << ", " << got[t].name;
}

std::string keys_of(const Outer& outer, int workers = kWorkers, int every = kEvery) {
  const std::string rate = std::string(outer.type) == "average"
                               ? ""
                               : fmt::format(R"(, "lr": {}, "momentum": {})", outer.lr, outer.momentum);
  return fmt::format(R"("local_sgd": {{ "workers": {}, "every": {}, "outer": {{ "type": "{}"{} }} }},)", workers, every,
                     outer.type, rate);
}

const Outer kOuters[] = {{"average", 0, 0}, {"sgd", 0.5F, 0.75F}, {"nesterov", 0.75F, 0.5F}};

TEST(LocalSgdEmulation, EachRoundIsWhatTheAlgorithmSaysOnAnyNumberOfRanks) {
  for (const Outer& outer : kOuters) {
    for (const int rounds : {1, kRounds}) {
      const Weights want = emulated(outer, rounds);
      for (const int ranks : {1, 2, 3, 4}) {
        const RunRecord run = run_of(text_of(kBatch, rounds * kEvery, ranks, kForgetful, keys_of(outer)));
        expect_same(run.training.final_weights, want,
                    fmt::format("{}, {} rounds, {} ranks", outer.type, rounds, ranks));
      }
    }
  }
}

TEST(LocalSgdEmulation, SeesAnotherMomentum) {
  const Weights one = emulated({"nesterov", 0.75F, 0.5F}, 2), other = emulated({"nesterov", 0.75F, 0.25F}, 2);
  EXPECT_NE(one[0].values, other[0].values);
}

// ---- where it is ordinary training ---------------------------------------------------------------------------------

TEST(LocalSgd, OneWorkerThatIsAveragedIsOrdinaryTrainingBitForBit) {
  for (const int every : {1, 3}) {
    const RunRecord plain = run_of(text_of(kBatch, 6, 1, kAdamW, ""));
    const RunRecord one = run_of(text_of(kBatch, 6, 1, kAdamW, keys_of(kOuters[0], 1, every)));
    expect_same(one.training.final_weights, plain.training.final_weights, fmt::format("every {}", every));
    for (std::size_t step = 0; step < plain.steps.size(); ++step) {
      EXPECT_EQ(one.steps[step].loss, plain.steps[step].loss);
      EXPECT_EQ(one.steps[step].grad_norm, plain.steps[step].grad_norm);
    }
  }
}

// Adam with a large epsilon and no memory is plain SGD: each weight moves by lr / eps of its gradient. A mean of
// weights that moved by their gradients is then a step by the mean gradient.
TEST(LocalSgd, WithPlainSgdAndAnOuterStepAfterEachInnerOneIsDataParallelTrainingUpToRounding) {
  const char* const sgd =
      R"({ "type": "Adam", "params": { "lr": 1e5, "betas": [0, 0], "eps": 1e6, "weight_decay": 0 } })";
  const auto text = [&](int every, bool local) {
    std::string all = text_of(kBatch, 6, 4, sgd, local ? keys_of(kOuters[0], kWorkers, every) : "");
    const std::string clipping = R"("gradient_clipping": 0.5)";  // by a worker's own norm, which is another training
    return all.replace(all.find(clipping), clipping.size(), R"("gradient_clipping": 0)");
  };
  const auto distance = [](const Weights& a, const Weights& b) {
    float most = 0;
    for (std::size_t t = 0; t < a.size(); ++t)
      for (std::size_t i = 0; i < a[t].values.size(); ++i)
        most = std::max(most, std::fabs(a[t].values[i] - b[t].values[i]));
    return most;
  };
  const Weights plain = run_of(text(0, false)).training.final_weights;
  const float moved = distance(
      plain, run_of(text_of(4, 1, 1, R"({ "type": "Adam", "params": { "lr": 0 } })", "")).training.final_weights);
  EXPECT_GT(moved, 1e-2F);
  EXPECT_LT(distance(run_of(text(1, true)).training.final_weights, plain), 2e-6F);
  EXPECT_GT(distance(run_of(text(3, true)).training.final_weights, plain),
            2e-5F);  // three steps apart are another training
}

// ---- what it cannot be together with -------------------------------------------------------------------------------

TEST(LocalSgdLoading, RefusesByName) {
  const auto problems_with = [](const std::string& more) {
    return problems_of(small_text(), {"faults=[]", R"(checks=["golden:bitwise"])",
                                      R"(local_sgd={"workers":4,"every":2,"outer":{"type":"nesterov"}})", more});
  };
  EXPECT_EQ(problems_with("seed=1"), "");
  const std::pair<const char*, const char*> rows[] = {
      {"local_sgd.workers=3", "8 samples a step for 3 workers: a worker has to have a power of two of them"},
      {"local_sgd.workers=2", "4 ranks for 2 workers: a worker is one rank or less"},
      {"local_sgd.every=0", "0 is out of range"},
      {"local_sgd.outer.type=adam", "\"adam\" is not one of"},
      {"local_sgd.outer.momentum=1", "1 is out of range"},
      {R"(local_sgd={"every":4})", "the key \"workers\" is missing"},
      {"deepspeed.zero_optimization.stage=1", "not supported: local SGD with ZeRO 1 to 3"},
      {"world.pipeline=2", "not supported: local SGD with a model or samples that are cut"},
      {R"(compression={"method":"sign","groups":4})", "not supported: compressed gradients with local SGD"},
      {R"(quirks=["ds_old_default_clipping"])", "not supported: local SGD with quirks"},
      {"recovery.memory_ladder=true", "not supported: local SGD with the memory ladder"},
      {"recovery.spares=1", "not supported: local SGD with spares"},
      {"recovery.grow=true", "not supported: local SGD in a run that admits ranks"},
      {R"(data.packing={"separator":0})", "not supported: local SGD with packed samples"},
      {R"(checks=["conservation"])", "conservation counts the samples in one gradient"},
      {R"(evaluation={"samples":4,"every_steps":3})", "there is no one model to evaluate"},
  };
  for (const auto& [set, message] : rows) {
    const std::string problems = problems_with(set);
    EXPECT_NE(problems.find(message), std::string::npos) << set << ":\n" << problems;
  }
}

}  // namespace
}  // namespace seeksim::harness
