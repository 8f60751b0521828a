// ZeRO's stages give the bits of one rank in every world, micro-batch, bucket and overlap, whether the transport sums
// or the ranks do.
#include <gtest/gtest.h>

#include "tests/support/simulated_training.h"

namespace seeksim::test {
namespace {

std::string where(const TrainPlan& plan, int ranks) {
  const ZeroPlan& z = plan.layout.zero;
  return "stage " + std::to_string(z.stage) + ", " + std::to_string(ranks) + " ranks, micro-batches of " +
         std::to_string(plan.layout.micro_batch) + ", buckets of " + std::to_string(z.reduce_bucket_elements) +
         (z.overlap_comm ? ", overlap" : ", no overlap") + ", persistence " +
         std::to_string(z.persistence_threshold_elements) + ", reuse " + std::to_string(z.max_reuse_distance);
}

void expect_bits_of_one_rank(const TrainPlan& plan, int ranks, const Trained& golden, bool native,
                             std::uint64_t seed = 1) {
  const Simulated run = run_simulated(plan, world_of(ranks, native, seed));
  const std::string at = where(plan, ranks);
  ASSERT_EQ(run.world.end, sim::WorldEnd::finished) << at << "\n" << run.world.wait_for_graph;
  for (int r = 0; r < ranks; ++r) {
    ASSERT_TRUE(run.outcomes[std::size_t(r)]) << at << ": " << run.world.ranks[std::size_t(r)].what;
    ASSERT_EQ(run.outcomes[std::size_t(r)]->ending, Ending::finished)
        << at << ": " << run.outcomes[std::size_t(r)]->why << "\n"
        << run.world.wait_for_graph;
    for (std::size_t i = 0; i < golden.observer.steps.at(0).size(); ++i) {
      const StepRecord &one = golden.observer.steps.at(0)[i], &many = run.observer.steps.at(r)[i];
      ASSERT_EQ(one.loss, many.loss) << at << ", step " << i;
      ASSERT_EQ(one.grad_norm, many.grad_norm) << at << ", step " << i;
    }
    ASSERT_EQ(run.outcomes[std::size_t(r)]->state, golden.outcome.state) << at << ", rank " << r;
  }
  EXPECT_TRUE(run.observer.recovering_records.empty()) << at;
}

ZeroPlan tight_plan(int stage) {
  ZeroPlan zero = zero_plan(stage);
  zero.persistence_threshold_elements = 0;
  zero.max_reuse_distance = 0;
  return zero;
}

TEST(Zero, BitsAreThoseOfOneRankAtEveryStageWorldAndMicroBatch) {
  for (const bool odd : {false, true}) {
    TrainPlan plan = tiny_plan(odd);
    const Trained golden = run_alone(plan);
    for (const int stage : {1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
        for (const int micro : {1, 2, 3, 8}) {
          plan.layout.zero = (ranks + micro) % 2 ? zero_plan(stage) : tight_plan(stage);
          plan.layout.micro_batch = micro;
          expect_bits_of_one_rank(plan, ranks, golden, (stage + ranks + micro / 2) % 2 == 0);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Zero, BitsDoNotDependOnBucketsAndOverlap) {
  for (const bool tied : {true, false}) {
    TrainPlan plan = tiny_plan();
    plan.definition.model.layers = 2;
    plan.definition.model.tied = tied;
    const Trained golden = run_alone(plan);
    for (const int stage : {1, 2, 3}) {
      for (const int bucket : {1, 16, 256, 1000, 5000, 1000000}) {
        for (const bool overlap : {false, true}) {
          plan.layout.micro_batch = 1 + bucket % 3;
          plan.layout.zero = tight_plan(stage);
          plan.layout.zero.reduce_bucket_elements = bucket;
          plan.layout.zero.allgather_bucket_elements = bucket;
          plan.layout.zero.prefetch_elements = bucket;
          plan.layout.zero.persistence_threshold_elements = bucket == 256 ? 16 : 0;
          plan.layout.zero.max_reuse_distance = bucket == 1000 ? 4000 : 0;
          plan.layout.zero.sub_group_elements = bucket;
          plan.layout.zero.overlap_comm = overlap;
          for (const int ranks : {3, 4})
            expect_bits_of_one_rank(plan, ranks, golden, (ranks + bucket / 8) % 2 == 0, std::uint64_t(bucket));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Zero, OneRankWithoutAWorldRunsEveryStage) {
  TrainPlan plan = tiny_plan(true);
  const Trained golden = run_alone(plan, 1);
  for (const int stage : {1, 2, 3}) {
    plan.layout.zero = tight_plan(stage);
    const Trained run = run_alone(plan, 1);
    EXPECT_EQ(run.outcome.state, golden.outcome.state) << "stage " << stage;
    ASSERT_EQ(run.weights.size(), golden.weights.size());
    for (std::size_t i = 0; i < run.weights.size(); ++i) EXPECT_EQ(run.weights[i].values, golden.weights[i].values);
    for (std::size_t i = 0; i < run.weights.size(); ++i) {
      EXPECT_EQ(run.observer.kept_gradients.at(0)[i].values, golden.observer.kept_gradients.at(0)[i].values);
    }
  }
}

TEST(Zero, MoreRanksThanSamplesOrBlocksServe) {
  TrainPlan plan = tiny_plan();
  plan.definition.global_batch = 3;
  plan.definition.model.layers = 0;
  const Trained golden = run_alone(plan);
  for (const int stage : {1, 2, 3}) {
    plan.layout.zero = tight_plan(stage);
    for (const bool native : {true, false}) expect_bits_of_one_rank(plan, 8, golden, native);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// What the simulator computes in one event is accounted as what ranks would send and hold.
TEST(Zero, ANativeSumSendsAndHoldsWhatExchangesWould) {
  for (const int stage : {1, 2, 3}) {
    for (const int ranks : {2, 3, 4, 7}) {
      TrainPlan plan = tiny_plan(true);
      plan.layout.zero = tight_plan(stage);
      plan.layout.zero.reduce_bucket_elements = 1000;
      plan.layout.micro_batch = 1 + ranks % 3;
      const Simulated native = run_simulated(plan, world_of(ranks, true)),
                      sent = run_simulated(plan, world_of(ranks, false));
      const std::string at = where(plan, ranks);
      EXPECT_EQ(native.outcomes[0]->state, sent.outcomes[0]->state) << at;
      EXPECT_EQ(native.world.memory_peak_by_tag, sent.world.memory_peak_by_tag) << at;
      for (std::size_t kind = 0; kind < sent.world.comm.size(); ++kind) {
        const std::string what = at + ", " + std::string(name(OpKind(kind)));
        EXPECT_EQ(native.world.comm[kind].calls, sent.world.comm[kind].calls) << what;
        EXPECT_EQ(native.world.comm[kind].bytes_sent_per_rank_max, sent.world.comm[kind].bytes_sent_per_rank_max)
            << what;
      }
      EXPECT_GT(sent.world.comm[std::size_t(OpKind::reduce_scatter)].bytes_sent_per_rank_max, 0u) << at;
      EXPECT_NE(native.world.fingerprint, sent.world.fingerprint) << at << ": the native way was not taken";
    }
  }
}

// ---- overlap --------------------------------------------------------------------------------------------------------

sim::CommOverlap overlap_of(int stage, bool overlap_comm) {
  TrainPlan plan = tiny_plan();
  plan.definition.model.layers = 3;
  plan.layout.zero = tight_plan(stage);
  plan.layout.zero.reduce_bucket_elements = 500;
  plan.layout.zero.prefetch_elements = 5000;
  plan.layout.zero.overlap_comm = overlap_comm;
  plan.recovery.peer_copies = 0;  // they hide under the measuring of norms, whatever overlap_comm says
  plan.layout.micro_batch = 1;
  return run_simulated(plan, world_of(4)).world.overlap;
}

TEST(Zero, OverlapCommHidesCommunicationUnderCompute) {
  for (const int stage : {2, 3}) {
    const sim::CommOverlap with = overlap_of(stage, true), without = overlap_of(stage, false);
    EXPECT_GT(with.share(), without.share()) << "stage " << stage;
    EXPECT_LE(with.share(), 1.0) << "stage " << stage;
  }
}

TEST(Zero, NothingIsHiddenWhereComputeWaitsForIt) {
  for (const auto& [stage, overlap_comm] : {std::pair{0, true}, {1, true}, {2, false}}) {
    const sim::CommOverlap overlap = overlap_of(stage, overlap_comm);
    EXPECT_GT(overlap.in_flight_ns, 0) << "stage " << stage;
    EXPECT_EQ(overlap.hidden_ns, 0) << "stage " << stage;
  }
}

}  // namespace
}  // namespace seeksim::test
