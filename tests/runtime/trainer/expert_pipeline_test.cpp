// Layers of experts on the stages of a pipeline: the bits of one rank, whatever the schedule and whoever has the
// experts of a stage; what travels between stages; and mistakes that are seen.
#include <gtest/gtest.h>

#include "runtime/rules/bugs.h"
#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

// Four layers, so that four stages have one each, or two of them two pieces.
TrainPlan piped_experts(int expert = 1, int pipeline = 2) {
  TrainPlan plan = tiny_plan();
  ModelPlan& m = plan.definition.model;
  m.family = "llama", m.tied = false;
  m.layers = 4, m.kv_heads = 1, m.ffn = 12;
  m.experts = {.count = 4, .per_token = 2, .capacity_factor = 1, .normalized = true, .balance = 0.1, .z = 0.01};
  plan.definition.global_batch = 7;
  plan.layout.micro_batch = 1;
  plan.layout.parallel.expert = expert;
  plan.layout.parallel.pipeline = pipeline;
  return plan;
}

void use(TrainPlan& plan, PipelineSchedule schedule) {
  plan.layout.parallel.schedule = schedule;
  plan.layout.parallel.virtual_stages = schedule == PipelineSchedule::interleaved ? 2 : 1;
}

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                           PipelineSchedule::interleaved, PipelineSchedule::zero_bubble};

TEST(ExpertPipeline, BitsAreThoseOfOneRankUnderEverySchedule) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
    TrainPlan plan = piped_experts();
    plan.definition.precision.compute = type;
    plan.definition.global_batch = 8;
    const Trained golden = run_alone(undivided(plan));
    for (const PipelineSchedule schedule : kSchedules) {
      use(plan, schedule);
      for (const int stage : {0, 1, 2, 3}) {
        for (const auto& [replicas, expert] : {std::pair{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
          plan.layout.zero.stage = stage;
          plan.layout.parallel.expert = expert;
          EXPECT_EQ(unlike_one_rank(plan, 2 * replicas, golden), "")
              << int(type) << ", " << name(schedule) << ", stage " << stage << ", " << replicas
              << " ranks a stage in groups of " << expert;
        }
      }
    }
  }
}

TEST(ExpertPipeline, StagesInTheMiddlePassLossesOn) {
  for (const int pipeline : {3, 4}) {
    TrainPlan plan = piped_experts(2, pipeline);
    const Trained golden = run_alone(undivided(plan));
    for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble}) {
      use(plan, schedule);
      EXPECT_EQ(unlike_one_rank(plan, 2 * pipeline, golden), "") << pipeline << ' ' << name(schedule);
    }
  }
}

TEST(ExpertPipeline, ActivationsComputedAgainSendTokensWhereTheyWent) {
  TrainPlan plan = piped_experts(2);
  plan.definition.model.dropout.residual = 0.2;
  const Trained golden = run_alone(undivided(plan));
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble}) {
    use(plan, schedule);
    for (const int every : {1, 2}) {
      plan.layout.checkpointing.every = every;
      EXPECT_EQ(unlike_one_rank(plan, 8, golden), "") << name(schedule) << ' ' << every;
    }
  }
}

// Of a batch of 3 the fourth rank of a stage has none: it works for the others' tokens all the same.
TEST(ExpertPipeline, ARankWithoutSamplesWorksForItsGroup) {
  TrainPlan plan = piped_experts(2);
  plan.definition.global_batch = 3;
  const Trained golden = run_alone(undivided(plan));
  for (const int stage : {0, 1, 2, 3}) {
    plan.layout.zero.stage = stage;
    EXPECT_EQ(unlike_one_rank(plan, 8, golden), "") << stage;
  }
}

// Without losses of routers nothing goes with the activations; with them, a float a token for each layer so far.
TEST(ExpertPipeline, LossesGoWithTheActivations) {
  const auto sent = [](double balance, int pipeline) {
    TrainPlan plan = piped_experts(1, pipeline);
    plan.definition.model.experts.balance = balance;
    plan.definition.model.experts.z = 0;
    const Simulated run = run_simulated(plan, world_of(pipeline));
    return run.world.comm[std::size_t(OpKind::send_activation)].bytes_sent_per_rank_max;
  };
  const TrainPlan plan = piped_experts();
  const ModelPlan& m = plan.definition.model;
  const std::size_t tokens = std::size_t(plan.definition.steps * plan.definition.global_batch * m.context);
  EXPECT_EQ(sent(0, 2), tokens * std::size_t(m.width) * sizeof(float));
  EXPECT_EQ(sent(0.1, 2), tokens * std::size_t(m.width + 2) * sizeof(float));
  EXPECT_EQ(sent(0.1, 4), tokens * std::size_t(m.width + 3) * sizeof(float));
}

TEST(ExpertPipeline, MistakesAreSeen) {
  const Trained golden = run_alone(undivided(piped_experts()));
  for (const Bug bug : {Bug::router_losses_of_last_stage, Bug::router_losses_left_behind, Bug::router_losses_by_stages,
                        Bug::arrivals_of_last_micro_batch, Bug::experts_divided_by_group, Bug::experts_of_own_samples,
                        Bug::combined_in_anothers_order}) {
    for (const int stage : {0, 3}) {
      TrainPlan plan = piped_experts(2);
      plan.layout.zero.stage = stage;
      plan.bug = PlantedBug{bug};
      EXPECT_NE(unlike_one_rank(plan, 8, golden), "") << int(bug) << ", stage " << stage;
    }
  }
}

// One stage has all losses, and one micro-batch in flight cannot be taken for another.
TEST(ExpertPipeline, WithOneStageTheyAreNone) {
  const Trained golden = run_alone(undivided(piped_experts()));
  for (const Bug bug : {Bug::router_losses_of_last_stage, Bug::router_losses_left_behind, Bug::router_losses_by_stages,
                        Bug::arrivals_of_last_micro_batch}) {
    TrainPlan plan = piped_experts(2, 1);
    plan.bug = PlantedBug{bug};
    EXPECT_EQ(unlike_one_rank(plan, 4, golden), "") << int(bug);
  }
}

TEST(ExpertPipeline, AnExpertOfAStageIsOnceInAGroup) {
  const auto bytes = [](int expert, int pipeline) {
    return run_simulated(piped_experts(expert, pipeline), world_of(4 * pipeline))
        .world.memory_peak_by_tag[std::size_t(MemoryTag::optimizer)];
  };
  EXPECT_LT(bytes(4, 2), bytes(2, 2));
  EXPECT_LT(bytes(2, 2), bytes(2, 1));
}

}  // namespace
}  // namespace seeksim::test
