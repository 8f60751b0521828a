// One history, from commits reported by hand.
#include "harness/record/commits.h"

#include <gtest/gtest.h>

namespace seeksim::harness {
namespace {

runtime::StepRecord step(std::int64_t number, std::uint32_t epoch = 0) {
  runtime::StepRecord record;
  record.step = number;
  record.epoch = epoch;
  record.lr = 0.5;
  record.data_position = 8 * (number + 1);
  record.optimizer_steps = number + 1;
  return record;
}

std::string first(const Commits& commits) {
  return commits.findings().wrong.empty() ? "" : commits.findings().wrong.front();
}

TEST(Commits, OfAllRanksAlikeAreOneHistory) {
  Commits commits(3);
  for (int s = 0; s < 100; ++s) {
    for (int rank = 0; rank < 3; ++rank) commits.committed(rank, step(s));
  }
  EXPECT_EQ(first(commits), "");
  EXPECT_EQ(commits.findings().commits, 300u);
  EXPECT_EQ(commits.findings().compared, 200u);
}

TEST(Commits, TwiceAreNamed) {
  Commits commits(2);
  for (int s = 0; s < 3; ++s) commits.committed(1, step(s));
  commits.committed(1, step(2, 1));
  EXPECT_EQ(first(commits), "rank 1 commits step 2 again, in epoch 1");
}

TEST(Commits, ThatLeaveOneOutAreNamed) {
  Commits commits(2);
  commits.committed(0, step(4));  // the first report may be of any step: the rank joined
  commits.committed(0, step(6));
  EXPECT_EQ(first(commits), "rank 0 commits step 6, and never committed step 5");
}

TEST(Commits, InTwoEpochsAreTwoHalves) {
  Commits commits(4);
  commits.committed(0, step(3, 1));
  commits.committed(2, step(3, 2));
  EXPECT_EQ(first(commits), "step 3 on rank 2 and rank 0: epoch 2 and 1");
}

TEST(Commits, OfAPartOfTheMembersAreNamed) {
  Commits commits(3);
  commits.recovering(0, 0, 5);
  commits.recovering(2, 0, 5);
  EXPECT_EQ(first(commits), "");
  commits.recovering(1, 0, 6);
  EXPECT_EQ(
      first(commits),
      "step 5 is committed by a part of the members: when epoch 0 ended, rank 1 was at step 6 and rank 0 at step 5");
}

TEST(Commits, WithAnythingElseThatDiffersAreNamed) {
  const std::pair<void (*)(runtime::StepRecord&), const char*> all[] = {
      {[](runtime::StepRecord& r) { r.data_position = 7; }, "data position 7 and 8"},
      {[](runtime::StepRecord& r) { r.optimizer_steps = 3; }, "Adam's step 3 and 1"},
      {[](runtime::StepRecord& r) { r.lr = 0.25; }, "learning rate 0.25 and 0.5"},
      {[](runtime::StepRecord& r) { r.loss_scale = 2; }, "loss scale 2 and 1"},
      {[](runtime::StepRecord& r) { r.skipped = true; }, "skipped true and false"}};
  for (const auto& [edit, said] : all) {
    Commits commits(2);
    commits.committed(0, step(0));
    runtime::StepRecord other = step(0);
    edit(other);
    commits.committed(1, other);
    EXPECT_EQ(first(commits), std::string("step 0 on rank 1 and rank 0: ") + said);
  }
}

TEST(Commits, AfterARollbackThatWasToldAreNoSecondOnes) {
  Commits commits(2);
  for (int s = 0; s < 3; ++s) {
    for (int rank = 0; rank < 2; ++rank) commits.committed(rank, step(s));
  }
  for (int rank = 0; rank < 2; ++rank) commits.goes_on_at(rank, 1);
  for (int s = 1; s < 5; ++s) {
    for (int rank = 0; rank < 2; ++rank) commits.committed(rank, step(s, 1));
  }
  EXPECT_EQ(first(commits), "");
}

}  // namespace
}  // namespace seeksim::harness
