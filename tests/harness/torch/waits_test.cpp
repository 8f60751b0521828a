// Who kept the others waiting: by when each rank came to its collectives.
#include <gtest/gtest.h>

#include "harness/torch/collectives.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using testing::CallState;
using testing::made_run;
using testing::StepPhase;

constexpr std::int64_t kMillisecond = 1'000'000;

// Three ranks, four collectives 100 ms apart; rank 0 comes on time, rank 1 a tenth of a millisecond later, rank 2 by
// what each collective says.
TorchRun three_ranks(const std::vector<std::int64_t>& late_ms) {
  TorchRun run = made_run(3);
  for (int rank = 0; rank < 3; ++rank) {
    auto& calls = run.ranks[std::size_t(rank)].record->calls;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::int64_t late_ns = rank == 2 ? late_ms.at(i) * kMillisecond : rank * kMillisecond / 10;
      calls[i].started_ns = std::int64_t(i + 1) * 100 * kMillisecond + late_ns;
      if (i == 3) calls[i].phase = StepPhase::optimizer;
    }
  }
  return run;
}

TEST(TorchWaits, TheRankThatComesLastIsNamedWithWhatItCosts) {
  const Waits waits = waits_of(three_ranks({0, 20, 40, 30}));
  ASSERT_EQ(waits.ranks.size(), 3U);
  EXPECT_EQ(waits.collectives, 4U);
  EXPECT_EQ(waits.slowest(), 2);
  EXPECT_EQ(waits.ranks[2].last, 3U);
  EXPECT_NEAR(waits.ranks[2].kept_s, 0.090 - 3 * 0.0001, 1e-9) << "from when the second last one came";
  EXPECT_NEAR(waits.ranks[2].kept_in_s.at(StepPhase::backward), 0.060 - 2 * 0.0001, 1e-9);
  EXPECT_NEAR(waits.ranks[2].kept_in_s.at(StepPhase::optimizer), 0.030 - 0.0001, 1e-9);
  EXPECT_NEAR(waits.ranks[0].waited_s, 0.090 + 0.0001, 1e-9);
  EXPECT_NEAR(waits.span_s, 0.330, 1e-9);
  EXPECT_EQ(sentence(waits),
            "rank 2 kept the others waiting longest: 0.09 of 0.33 s, in 3 of 4 collectives (backward 0.06 s, optimizer "
            "0.03 s)");
}

TEST(TorchWaits, WhoComesWithinAMillisecondHasComeWithTheOthers) {
  const Waits waits = waits_of(three_ranks({0, 1, 0, 1}));
  EXPECT_EQ(waits.slowest(), -1);
  EXPECT_EQ(sentence(waits), "ranks came together to 4 collectives");
}

TEST(TorchWaits, ACollectiveThatSomebodyDidNotEndDoesNotCount) {
  TorchRun run = three_ranks({0, 20, 40, 30});
  run.ranks[1].record->calls[2].state = CallState::failed;
  run.ranks[0].record->calls.pop_back();
  const Waits waits = waits_of(run);
  EXPECT_EQ(waits.collectives, 2U);
  EXPECT_NEAR(waits.ranks[2].kept_s, 0.0199, 1e-9);
}

// What happens before the first step is the start of the job.
TEST(TorchWaits, StartsAndRunsOfOneRankSayNothing) {
  TorchRun run = three_ranks({0, 20, 40, 30});
  for (RankRun& rank : run.ranks)
    for (pytorch::CallEntry& call : rank.record->calls) call.phase = StepPhase::init;
  EXPECT_EQ(sentence(waits_of(run)), "");
  EXPECT_EQ(sentence(waits_of(made_run(1))), "");
}

}  // namespace
}  // namespace seeksim::harness::torch
