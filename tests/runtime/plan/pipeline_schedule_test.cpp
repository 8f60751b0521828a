// Schedules against the tables of the frameworks and the formulas of the papers.
#include "runtime/plan/pipeline_schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;

PipelineShape shape(PipelineSchedule schedule, int stages, int micro_batches, int chunks = 1) {
  return {schedule, stages, micro_batches, chunks, 0};
}

std::vector<std::string> lines(const PipelineShape& p, int stage) {
  std::vector<std::string> out;
  for (const Tick& tick : stage_schedule(p, stage)) {
    std::string line;
    for (const Instruction& i : tick) line += (line.empty() ? "" : " ") + text(i);
    out.push_back(line);
  }
  return out;
}

std::string order(const PipelineShape& p, int stage) {
  std::string out;
  for (const Instruction& i : compute_order(p, stage)) out += (out.empty() ? "" : " ") + text(i);
  return out;
}

// DeepSpeed 0.19.6, TrainSchedule(micro_batches=2, stages=2), tick by tick.
TEST(PipelineSchedule, OneFOneBIsDeepSpeedsTable) {
  const PipelineShape p = shape(PipelineSchedule::one_f_one_b, 2, 2);
  EXPECT_EQ(lines(p, 0),
            (std::vector<std::string>{"load0 F0", "send_activation0", "load1 F1", "recv_gradient0 send_activation1 B0",
                                      "", "recv_gradient1 B1 reduce_tied reduce_gradients step"}));
  EXPECT_EQ(lines(p, 1),
            (std::vector<std::string>{"", "recv_activation0 load0 F0", "B0", "send_gradient0 recv_activation1 load1 F1",
                                      "B1", "send_gradient1 reduce_tied reduce_gradients step"}));
}

// The ticks compute in the order that Megatron's warm-up, steady state and drain give.
RC_GTEST_PROP(PipelineSchedule, TicksAndWarmupAgree, ()) {
  const PipelineShape p = shape(PipelineSchedule::one_f_one_b, *rc::gen::inRange(1, 9), *rc::gen::inRange(1, 20));
  for (int stage = 0; stage < p.stages; ++stage) {
    std::vector<Instruction> computing;
    for (const Tick& tick : stage_schedule(p, stage))
      for (const Instruction& i : tick)
        if (i.kind == Kind::forward || i.kind == Kind::backward) computing.push_back(i);
    RC_ASSERT(computing == compute_order(p, stage));
  }
}

TEST(PipelineSchedule, GPipeGoesForwardFirst) {
  EXPECT_EQ(order(shape(PipelineSchedule::gpipe, 3, 3), 1), "F0 F1 F2 B0 B1 B2");
}

// Megatron-LM: 2 stages, 2 chunks, 4 micro-batches: warm-up 2 (P - rank - 1) + (chunks - 1) P.
TEST(PipelineSchedule, InterleavedIsMegatronsOrder) {
  const PipelineShape p = shape(PipelineSchedule::interleaved, 2, 4, 2);
  EXPECT_EQ(order(p, 0), "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3");
  EXPECT_EQ(order(p, 1), "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3");
}

PipelineShape any_shape() {
  const auto schedule = PipelineSchedule(*rc::gen::inRange(0, int(PipelineSchedule::count_)));
  const bool interleaved = schedule == PipelineSchedule::interleaved;
  PipelineShape p = shape(schedule, *rc::gen::inRange(interleaved ? 2 : 1, 7), *rc::gen::inRange(1, 20));
  if (interleaved) p.chunks = *rc::gen::inRange(2, 4);
  return p;
}

// Every micro-batch goes once through every piece; what is sent is received; no stage waits for ever.
RC_GTEST_PROP(PipelineSchedule, EveryListRunsToItsEnd, ()) {
  const PipelineShape p = any_shape();
  RC_PRE(problem(p).empty());
  const PipelineTimes times = pipeline_times(p);
  const bool split = p.schedule == PipelineSchedule::zero_bubble;
  int sent = 0, received = 0;
  for (int stage = 0; stage < p.stages; ++stage) {
    RC_ASSERT(times.stages[stage].size() == std::size_t(p.micro_batches * p.chunks * (split ? 3 : 2)));
    std::vector<Instruction> seen = compute_order(p, stage);
    std::sort(seen.begin(), seen.end(), [](const Instruction& a, const Instruction& b) {
      return std::tuple(a.kind, a.chunk, a.micro_batch) < std::tuple(b.kind, b.chunk, b.micro_batch);
    });
    RC_ASSERT(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
    for (const Tick& tick : stage_schedule(p, stage)) {
      for (const Instruction& i : tick) {
        sent += i.kind == Kind::send_activation || i.kind == Kind::send_gradient;
        received += i.kind == Kind::recv_activation || i.kind == Kind::recv_gradient;
      }
    }
  }
  RC_ASSERT(sent == received);
  RC_ASSERT(sent == 2 * (p.stages * p.chunks - 1) * p.micro_batches);
}

TEST(PipelineSchedule, BubblesAreTheFormulas) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int m = 1; m <= 24; ++m) {
      for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
        EXPECT_DOUBLE_EQ(pipeline_times(shape(schedule, stages, m)).bubble(), double(stages - 1) / (m + stages - 1));
      // With enough micro-batches, p - 1 of 3 m + (p - 1) (F + I - W) units are waiting.
      if (m >= stages) {
        EXPECT_EQ(pipeline_times(shape(PipelineSchedule::zero_bubble, stages, m)).end, 3 * m + stages - 1);
      }
      for (int chunks = 2; chunks <= 4 && stages > 1 && m % stages == 0; ++chunks) {
        EXPECT_DOUBLE_EQ(pipeline_times(shape(PipelineSchedule::interleaved, stages, m, chunks)).bubble(),
                         double(stages - 1) / (chunks * m + stages - 1));
      }
    }
  }
}

TEST(PipelineSchedule, LiveActivations) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (int m = 1; m <= 12; ++m) {
      const PipelineTimes times = pipeline_times(shape(PipelineSchedule::one_f_one_b, stages, m));
      for (int s = 0; s < stages; ++s) EXPECT_EQ(times.live_activations[s], std::min(stages - s, m));
      const PipelineTimes split = pipeline_times(shape(PipelineSchedule::zero_bubble, stages, m));
      EXPECT_LE(*std::max_element(split.live_activations.begin(), split.live_activations.end()), stages);
      const PipelineTimes all = pipeline_times(shape(PipelineSchedule::gpipe, stages, m));
      EXPECT_EQ(all.live_activations, std::vector<int>(std::size_t(stages), m));
    }
  }
}

TEST(PipelineSchedule, ImpossibleOnesAreRefusedWithTheReason) {
  EXPECT_NE(problem(shape(PipelineSchedule::one_f_one_b, 0, 1)), "");
  EXPECT_NE(problem(shape(PipelineSchedule::gpipe, 2, 0)), "");
  EXPECT_NE(problem(shape(PipelineSchedule::gpipe, 2, 2, 2)), "");
  EXPECT_NE(problem(shape(PipelineSchedule::interleaved, 2, 2, 1)), "");
  EXPECT_NE(problem(shape(PipelineSchedule::interleaved, 4, 6, 2)), "");  // 2 in the last group
  EXPECT_THROW(stage_schedule(shape(PipelineSchedule::gpipe, 2, 0), 0), std::invalid_argument);
}

// A stage that sends its first gradient only after a forward which needs that gradient's receiver to move.
TEST(PipelineSchedule, AnOrderThatCannotWorkIsNamed) {
  const PipelineShape p = shape(PipelineSchedule::gpipe, 2, 2);
  std::vector<std::vector<Tick>> lists = {stage_schedule(p, 0), stage_schedule(p, 1)};
  std::swap(lists[0][1], lists[0][2]);  // stage 0: F0, B0, F1; stage 1 wants F1 before it goes back
  try {
    pipeline_times(p, lists);
    FAIL() << "it ran to its end";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(),
                 "the stages wait for each other:\n  stage 0 waits in recv_gradient0\n  stage 1 waits in "
                 "recv_activation1");
  }
}

TEST(PipelineSchedule, Partitions) {
  EXPECT_EQ(partition_uniform(10, 4), (std::vector<int>{0, 3, 6, 8, 10}));
  EXPECT_EQ(partition_uniform(2, 4), (std::vector<int>{0, 1, 2, 2, 2}));
  EXPECT_EQ(partition_balanced({1, 1, 1, 9, 1, 1}, 3), (std::vector<int>{0, 3, 4, 6}));
}

// No cut into as many parts has a smaller largest part, and every part has a layer where there are enough.
RC_GTEST_PROP(PipelineSchedule, BalancedPartsAreAsSmallAsCanBe, ()) {
  const auto weights = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 20));
  RC_PRE(!weights.empty() && weights.size() < 9);
  const int n = int(weights.size()), parts = *rc::gen::inRange(1, n + 1);
  const auto largest = [&](const std::vector<int>& bounds) {
    std::int64_t most = 0;
    for (std::size_t i = 1; i < bounds.size(); ++i) {
      most = std::max(most,
                      std::accumulate(weights.begin() + bounds[i - 1], weights.begin() + bounds[i], std::int64_t(0)));
    }
    return most;
  };
  const std::vector<int> bounds = partition_balanced(weights, parts);
  RC_ASSERT(int(bounds.size()) == parts + 1);
  for (int i = 0; i < parts; ++i) RC_ASSERT(bounds[i] < bounds[i + 1]);
  RC_ASSERT(bounds.front() == 0);
  RC_ASSERT(bounds.back() == n);
  for (int cuts = 0; cuts < 1 << (n - 1); ++cuts) {  // every other way
    if (__builtin_popcount(unsigned(cuts)) != parts - 1) continue;
    std::vector<int> other = {0};
    for (int i = 0; i < n - 1; ++i)
      if (cuts >> i & 1) other.push_back(i + 1);
    other.push_back(n);
    RC_ASSERT(largest(bounds) <= largest(other));
  }
}

}  // namespace
}  // namespace seeksim::runtime
