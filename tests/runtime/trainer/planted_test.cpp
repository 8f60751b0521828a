// Planted bugs as objects: where each acts, and that a run without one has points at which nothing happens.
#include "runtime/trainer/planted.h"
#include "runtime/rules/bugs.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/model/edited_gradients.h"
#include "runtime/trainer/pace.h"
#include "tests/support/trainer_parts.h"

namespace seeksim::test {
namespace {

TrainPlan with_bug(const char* name) {
  TrainPlan plan = tiny_plan();
  EXPECT_TRUE(parse(name, plan.bug)) << name;
  return plan;
}

GradientEdit edit_of(const char* bug, int rank, int micro_batch, int micro_batches) {
  const TrainPlan plan = with_bug(bug);
  GradientEdit edit;
  plant(plan, rank)->edit(edit, micro_batch, micro_batches);
  return edit;
}

TEST(Planted, WithoutABugNothingIsEdited) {
  const TrainPlan plan = tiny_plan();
  const std::unique_ptr<Planted> none = plant(plan, 1);
  GradientEdit edit;
  none->edit(edit, 0, 4);
  EXPECT_FALSE(bool(edit));
  EXPECT_EQ(none->first_sample(12), 12);
  EXPECT_EQ(none->contributes(100, 0), 100);
  EXPECT_EQ(none->rate(0.5, 3), 0.5);
  EXPECT_TRUE(none->scales_down(true, 1));
  EXPECT_FALSE(none->scales_down(false, 1));
}

TEST(Planted, ABugOfOneRankActsThereAlone) {
  EXPECT_EQ(edit_of("sample_twice", 1, 0, 4).first_block_times, 2);
  EXPECT_EQ(edit_of("sample_twice", 0, 0, 4).first_block_times, 1);
  EXPECT_EQ(edit_of("sample_twice", 1, 1, 4).first_block_times, 1) << "in the first micro-batch only";
}

TEST(Planted, ABugOfAllRanksActsOnEach) {
  for (const int rank : {0, 1, 5}) {
    EXPECT_EQ(edit_of("last_micro_batch_lost", rank, 3, 4).times, 0);
    EXPECT_EQ(edit_of("last_micro_batch_lost", rank, 2, 4).times, 1);
    EXPECT_EQ(edit_of("undivided_window", rank, 0, 4).times, 4);
  }
}

TEST(Planted, EachRowIsAnotherBugOfTheCatalogue) {
  std::set<Bug> seen;
  for (const std::span<const PlantedRow> rows : {bugs_before_vote(), bugs_from_vote_on()}) {
    for (const PlantedRow& row : rows) EXPECT_TRUE(seen.insert(row.bug).second) << name(row.bug);
  }
  EXPECT_EQ(seen.size(), 58u);
  EXPECT_FALSE(seen.contains(Bug::none));
  EXPECT_FALSE(seen.contains(Bug::skip_wait)) << "a wait is left out where it is made";
}

TEST(Planted, BugsOfCollectivesEndWithTheFirstRecovery) {
  const TrainPlan plan = with_bug("wrong_count");
  EXPECT_EQ(plant(plan, 1)->contributes(100, 0), 99);
  EXPECT_EQ(plant(plan, 1)->contributes(100, 1), 100);
}

TEST(Planted, BackwardBeforeForwardMovesTheFirstGradientUp) {
  const TrainPlan plan = with_bug("backward_before_forward");
  using Kind = InstructionKind;
  std::vector<Instruction> all = {
      {Kind::forward, 0}, {Kind::forward, 1}, {Kind::recv_gradient, 0}, {Kind::backward, 0}};
  plant(plan, 1)->instructions(all, 2);
  EXPECT_EQ(all, (std::vector<Instruction>{
                     {Kind::recv_gradient, 0}, {Kind::backward, 0}, {Kind::forward, 0}, {Kind::forward, 1}}));
}

TEST(Planted, AHastyRankVotesOnTheStepThatItHasApplied) {
  const TrainPlan plan = with_bug("commits_before_vote");
  TrainerParts parts(plan, 1, 1);
  bool asked = false;
  EXPECT_TRUE(parts.bench.planted->all_good([&] { return asked = true; }, true));
  EXPECT_FALSE(asked);
  parts.bench.progress.advance();
  parts.bench.planted->committed([&] { return parts.vote.on(Vote::step); }, parts.bench.progress);
  EXPECT_EQ(parts.control.asked.back().step, 0);
  EXPECT_EQ(parts.bench.progress.step(), 1);
}

TEST(Planted, SilenceIsConsentOnlyWhereItIsPlanted) {
  for (const char* bug : {"", "silence_is_consent"}) {
    TrainPlan plan = tiny_plan();
    if (*bug != '\0') plan = with_bug(bug);
    TrainerParts parts(plan);
    parts.control.answer = [](Agreement&) { throw SeamError(ErrorKind::fenced, Op{}, "no answer"); };
    if (*bug == '\0')
      EXPECT_THROW(parts.vote.on(Vote::step), SeamError);
    else
      EXPECT_TRUE(parts.vote.on(Vote::step));
  }
}

TEST(Planted, ARevokeThatIsHeardOfAfterTheVoteIsHeededOnlyWhereThatIsPlanted) {
  for (const bool planted : {false, true}) {
    TrainerParts parts(planted ? with_bug("commit_heeds_revoke") : tiny_plan());
    parts.control.revoked_now = true;
    if (planted)
      EXPECT_THROW(parts.vote.on(Vote::step), SeamError);
    else
      EXPECT_TRUE(parts.vote.on(Vote::step));
  }
}

}  // namespace
}  // namespace seeksim::test
