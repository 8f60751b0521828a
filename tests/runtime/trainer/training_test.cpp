// One rank, no world: is it GPT-2 that is trained, and do the bits depend on the definition alone?
#include <gtest/gtest.h>

#include "kernels/random.h"
#include "runtime/files/safetensors.h"
#include "runtime/trainer/trainer.h"
#include "tests/runtime/model/double_gpt2.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

// Large enough weights that every path through the model matters, biases included.
std::string shaken_weights(const Definition& d) {
  std::vector<TensorBytes> out;
  std::uint32_t number = 1000;
  for (NamedTensor t : initial_weights(d)) {
    std::vector<float> noise(t.values.size());
    kernels::fill_normal({}, {noise.data(), Index(noise.size())}, number++, 0, 0.15f, 7);
    for (std::size_t i = 0; i < noise.size(); ++i) t.values[i] += noise[i];
    out.push_back(to_bytes(t));
  }
  return write_safetensors(out);
}

void expect_gradients_of_finite_differences(TrainPlan plan) {
  plan.definition.model.layers = 2;
  plan.definition.global_batch = 5;
  plan.definition.steps = 1;
  plan.definition.initial_weights = shaken_weights(plan.definition);
  const Trained run = run_alone(plan, 0);
  DoubleGpt2 model(plan.definition.model, initial_weights(plan.definition), plan.definition.training_seed);
  const auto tokens = step_tokens(plan.definition, 0);
  EXPECT_NEAR(run.observer.steps.at(0)[0].loss, model.loss(tokens), 1e-5);
  std::uint32_t draw = 0;
  for (const NamedTensor& g : run.observer.kept_gradients.at(0)) {
    double largest = 0;
    for (const float x : g.values) largest = std::max(largest, std::fabs(double(x)));
    for (int k = 0; k < 8; ++k) {
      const std::size_t i = kernels::philox({draw++, 0, 0, 0}, 3)[0] % g.values.size();
      double& w = model.at(g.name, i);
      const double before = w, h = 1e-5;
      w = before + h;
      const double up = model.loss(tokens);
      w = before - h;
      const double down = model.loss(tokens);
      w = before;
      ASSERT_NEAR(g.values[i], (up - down) / (2 * h), 2e-5 * largest + 2e-8) << g.name << "[" << i << "]";
    }
  }
}

TEST(Gradients, OfADroppedModelAreThoseOfItsMasks) {
  for (const DropoutPlan& dropout : {DropoutPlan{0.4, 0, 0}, {0, 0.4, 0}, {0, 0, 0.4}, {0.2, 0.3, 0.1}}) {
    TrainPlan plan = tiny_plan(dropout.attention > 0);
    plan.definition.model.dropout = dropout;
    expect_gradients_of_finite_differences(plan);
  }
}

TEST(Gradients, AreThoseOfFiniteDifferencesInDouble) {
  for (const bool odd : {false, true}) {
    for (const bool tied : {true, false}) {
      TrainPlan plan = tiny_plan(odd);
      plan.definition.model.tied = tied;
      plan.definition.model.logit_scale = odd == tied;
      expect_gradients_of_finite_differences(plan);
    }
  }
}

TEST(Training, BitsDoNotDependOnTheMicroBatch) {
  for (const bool odd : {false, true}) {
    TrainPlan plan = tiny_plan(odd);
    plan.definition.model.dropout = {0.1, 0.2, 0.3};
    const Trained all_at_once = [&] {
      plan.layout.micro_batch = plan.definition.global_batch;
      return run_alone(plan);
    }();
    for (const int micro : {1, 2, 3, 4, 5, 6, 7}) {
      plan.layout.micro_batch = micro;
      const Trained run = run_alone(plan);
      EXPECT_EQ(run.outcome.state, all_at_once.outcome.state) << "micro-batches of " << micro;
      for (std::size_t i = 0; i < run.observer.steps.at(0).size(); ++i) {
        EXPECT_EQ(run.observer.steps.at(0)[i].loss, all_at_once.observer.steps.at(0)[i].loss);
        EXPECT_EQ(run.observer.steps.at(0)[i].grad_norm, all_at_once.observer.steps.at(0)[i].grad_norm);
      }
    }
  }
}

TEST(Training, EverythingThatDefinesARunDecidesItsBits) {
  const TrainPlan plan = tiny_plan();
  const std::uint64_t digest = run_alone(plan).outcome.state.params;
  auto differs = [&](auto change) {
    TrainPlan other = plan;
    change(other.definition);
    return run_alone(other).outcome.state.params != digest;
  };
  EXPECT_FALSE(differs([](Definition&) {}));
  EXPECT_TRUE(differs([](Definition& d) { d.training_seed = 2; }));
  EXPECT_TRUE(differs([](Definition& d) { d.model.tied = false; }));
  EXPECT_TRUE(differs([](Definition& d) { d.model.logit_scale = true; }));
  EXPECT_TRUE(differs([](Definition& d) { d.model.dropout.embedding = 0.1; }));
  EXPECT_TRUE(differs([](Definition& d) { d.model.dropout.attention = 0.1; }));
  EXPECT_TRUE(differs([](Definition& d) { d.model.dropout.residual = 0.1; }));
  EXPECT_TRUE(differs([](Definition& d) { d.model.frozen = {"wpe.weight"}; }));
  EXPECT_TRUE(differs([](Definition& d) { d.optimizer.lr = 2e-3; }));
  EXPECT_TRUE(differs([](Definition& d) { d.optimizer.weight_decay = 0.02; }));
  EXPECT_TRUE(differs([](Definition& d) { d.optimizer.decay_all = true; }));
  EXPECT_TRUE(differs([](Definition& d) { d.optimizer.type = "Adam"; }));
  EXPECT_TRUE(differs([](Definition& d) { d.gradient_clipping = 0.5; }));
  EXPECT_TRUE(differs([](Definition& d) { d.global_batch = 9; }));
  EXPECT_TRUE(differs([](Definition& d) { d.scheduler.type = "WarmupLR"; }));
}

TEST(Training, LossFallsOnTheCorpus) {
  TrainPlan plan;
  ModelPlan& m = plan.definition.model;
  m.layers = 2, m.width = 32, m.heads = 4, m.context = 32;
  plan.definition.data.bytes = read_file("golden/corpus.txt");
  plan.definition.global_batch = 16;
  plan.definition.steps = 60;
  plan.definition.optimizer.lr = 5e-3;
  plan.definition.gradient_clipping = 1;
  plan.layout.micro_batch = 16;
  const Trained run = run_alone(plan);
  const auto& steps = run.observer.steps.at(0);
  EXPECT_NEAR(steps.front().loss, std::log(256.0), 0.1);
  EXPECT_LT(steps.back().loss, 3.3f);
}

TEST(Training, AModelWithoutLayersTrainsToo) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 0;
  EXPECT_EQ(run_alone(plan).outcome.ending, Ending::finished);
}

TEST(Training, ANonFiniteGradientSkipsTheStepAndHoldsTheSchedule) {
  TrainPlan plan = tiny_plan();
  plan.definition.scheduler.type = "WarmupLR";
  plan.definition.scheduler.warmup_type = "linear";
  std::vector<TensorBytes> weights;
  for (NamedTensor t : initial_weights(plan.definition)) {
    if (t.name == "ln_f.bias") t.values[3] = std::numeric_limits<float>::infinity();
    weights.push_back(to_bytes(t));
  }
  plan.definition.initial_weights = write_safetensors(weights);
  const Trained run = run_alone(plan);
  EXPECT_EQ(run.outcome.ending, Ending::finished);
  EXPECT_EQ(run.outcome.state.optimizer_steps, 0);
  EXPECT_EQ(run.outcome.state.data_position, 3 * plan.definition.global_batch);
  for (const StepRecord& step : run.observer.steps.at(0)) {
    EXPECT_TRUE(step.skipped);
    EXPECT_EQ(step.lr, 0);
  }
  TrainPlan untouched = plan;
  untouched.definition.steps = 0;
  EXPECT_EQ(run.outcome.state.params, run_alone(untouched).outcome.state.params);
}

TEST(Training, ClippingLimitsTheNormAsTorchDoes) {
  EXPECT_EQ(gradient_factor({}, {.norm = 1e9f}, 0).factor, 1.0f);
  EXPECT_EQ(gradient_factor({}, {.norm = 0.5f}, 1.0).factor, 1.0f);
  EXPECT_EQ(gradient_factor({}, {.norm = 3.0f}, 1.5).factor, 1.5f / (3.0f + 1e-6f));
}

TEST(Training, RunningOutOfMemoryEndsWithTheReason) {
  OneRank world;
  world.device.capacity_bytes = 20000;
  KeepingObserver observer;
  const TrainOutcome outcome = train(world.rank, tiny_plan(), observer);
  EXPECT_EQ(outcome.ending, Ending::stopped);
  EXPECT_NE(outcome.why.find("out_of_memory"), std::string::npos) << outcome.why;
}

TEST(Training, WeightsThatDoNotFitAreToldAndCrashNothing) {
  TrainPlan plan = tiny_plan();
  plan.definition.initial_weights = write_safetensors({{"wte.weight", DType::f32, {1}, "1234"}});
  const Simulated run = run_simulated(plan, world_of(2));
  for (const sim::RankEnd& end : run.world.ranks) {
    EXPECT_EQ(end.how, sim::RankEnd::How::threw);
    EXPECT_NE(end.what.find("missing: wpe.weight [8, 16]"), std::string::npos) << end.what;
  }
}

// What faults match and reports say comes from these.
TEST(Training, EveryLaunchSaysWhereInTheStepItStands) {
  OneRank world;
  world.device.queue.keep = true;
  KeepingObserver observer;
  const TrainPlan plan = tiny_plan();
  train(world.rank, plan, observer);
  std::uint64_t sequence = 0;
  std::map<Phase, int> phases;
  for (const Op& op : world.device.queue.ops) {
    ASSERT_EQ(op.rank, 0);
    ASSERT_STRNE(op.tensor, "");
    ASSERT_NE(std::string(op.site).find(".cpp:"), std::string::npos) << op.site;
    const bool in_a_step = op.step >= 0 && op.step < plan.definition.steps;
    ASSERT_TRUE(in_a_step || op.phase == Phase::init) << describe(op);
    const bool in_micro_batch = op.phase == Phase::data || op.phase == Phase::forward || op.phase == Phase::backward;
    ASSERT_EQ(op.micro_batch >= 0, in_micro_batch) << describe(op);
    ASSERT_EQ(op.kind == OpKind::data_load, op.phase == Phase::data);
    const bool fold = std::string(op.site).starts_with("communicator.cpp");  // on the communication queue, elsewhere
    if (!fold) {
      ASSERT_EQ(op.sequence, ++sequence) << describe(op);
    }
    ++phases[op.phase];
  }
  for (const Phase p :
       {Phase::init, Phase::data, Phase::forward, Phase::backward, Phase::grad_reduce, Phase::optimizer}) {
    EXPECT_GT(phases[p], 0) << name(p);
  }
}

TEST(Training, FinalWeightsAreThoseOfTheDigest) {
  TrainPlan plan = tiny_plan();
  const Trained run = run_alone(plan);
  std::vector<TensorBytes> weights;
  for (const NamedTensor& t : run.weights) weights.push_back(to_bytes(t));
  TrainPlan again = plan;
  again.definition.initial_weights = write_safetensors(weights);
  again.definition.steps = 0;
  EXPECT_EQ(run_alone(again).outcome.state.params, run.outcome.state.params);
}

}  // namespace
}  // namespace seeksim::test
