// Exploring of scripts, on runs made by hand: where faults can strike, each verdict seen green and red, and what is
// left of a finding that was made simpler.

#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <set>

#include "harness/torch/check/folder_of_runs.h"
#include "harness/torch/explore/case_verdict.h"
#include "harness/torch/explore/places.h"
#include "harness/torch/explore/simpler.h"
#include "harness/torch/faults.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using faults::FaultKind;
using faults::Mode;
using testing::MadeRank;
using testing::MadeRun;
using Step = MadeRank::Step;

// Six steps on two ranks, saved in step 2 by rank 0.
TorchRun undisturbed() {
  MadeRun made(2);
  for (int rank = 0; rank < 2; ++rank) made[rank].steps(6);
  made[0].sees(pytorch::SightKind::saved, "step-2.pt", "", 2);
  return made.run();
}

// `steps` steps from `first` on, in which a fault fired on rank 1; `change` on rank 1.
TorchRun struck(int steps, const MadeRank::Change& change = {}, std::int64_t first = 0) {
  MadeRun made(2);
  for (int rank = 0; rank < 2; ++rank) {
    made[rank].steps(steps, [&](std::int64_t step, Step& one) {
      one.weight += std::uint64_t(first);
      one.gradient += std::uint64_t(first);
      one.loss -= 0.25 * double(first);
      if (rank == 1 && change) change(step, one);
    });
  }
  made[1].fires(0);
  TorchRun run = made.run();
  faults::Rule rule;
  rule.kind = FaultKind::pause;
  run.scenario.faults = {rule};
  return run;
}

void ends(TorchRun& run, int rank, int status) { run.job.processes[std::size_t(rank)].ending.status = status; }

TEST(TorchPlaces, EachDrawIsAFaultThatScriptsCanBeGiven) {
  const TorchRun run = undisturbed();
  const Places places(run, true);
  std::set<std::string> drawn;
  sim::Random random(7, sim::Stream::partial);
  EXPECT_EQ(places.rows().size(), explored_faults().size()) << "each finds a place in it";
  for (const ExploredFault* row : places.rows()) {
    for (int i = 0; i < 20; ++i) {
      const std::vector<faults::Rule> rules = places.draw(*row, random);
      ASSERT_FALSE(rules.empty()) << faults::name(row->kind);
      EXPECT_EQ(promise_of(rules), row->promise) << faults::name(row->kind);
      for (const faults::Rule& rule : rules) {
        for (const faults::Problem& problem : problems_in_torch(rule, 2))
          ADD_FAILURE() << faults::text(rule) << ": " << problem.key << ' ' << problem.what;
        EXPECT_LT(rule.when.step.value_or(0), 6);
        drawn.insert(faults::text(rule));
      }
    }
  }
  EXPECT_GT(drawn.size(), explored_faults().size() * 4);
}

TEST(TorchPlaces, AScriptIsBrokenAgainInItsFirstSteps) {
  const TorchRun run = undisturbed();
  const Places places(run, true);
  sim::Random random(7, sim::Stream::partial);
  std::set<FaultKind> kinds;
  for (int i = 0; i < 60; ++i) {
    const std::vector<faults::Rule> rules = places.draw_again(random);
    ASSERT_EQ(rules.size(), 1U);
    EXPECT_EQ(rules[0].when.attempt, 1);
    EXPECT_LT(rules[0].when.step.value_or(9), 2);
    EXPECT_EQ(promise_of(rules), Promise::ends);
    EXPECT_TRUE(problems_in_torch(rules[0], 2).empty()) << faults::text(rules[0]);
    kinds.insert(rules[0].kind);
  }
  EXPECT_EQ(kinds.size(), 3U);
}

// A launcher starts a job again by itself, and so takes the rules of all starts.
TEST(TorchPlaces, EachStartGetsItsRules) {
  TorchScenario scenario;
  for (const std::optional<int> attempt : {std::optional<int>(), std::optional<int>(0), std::optional<int>(1)}) {
    faults::Rule rule;
    rule.kind = FaultKind::pause;
    rule.when.attempt = attempt;
    scenario.faults.push_back(rule);
  }
  const auto left = [&](const std::string& word, int attempt) {
    return of_attempt(scenario, {word}, attempt).faults.size();
  };
  EXPECT_EQ(left("train.py", 0), 2U);
  EXPECT_EQ(left("train.py", 1), 1U);
  EXPECT_EQ(left("train.py", 2), 0U);
  EXPECT_EQ(left("torchrun", 0), 3U);
  EXPECT_EQ(left("torchrun", 1), 0U);
}

TEST(TorchCase, AScriptThatIsBrokenAgainHasToEndAgain) {
  TorchRun run = struck(2);
  ends(run, 0, 1);
  run.job.processes[1].ending.signal = SIGKILL;
  EXPECT_FALSE(verdict_of_broken_again(run).has_value());
  run.job.stopped = Stopped::no_progress;
  run.job.processes[0].ended_by_us = true;
  ASSERT_TRUE(verdict_of_broken_again(run).has_value());
  EXPECT_EQ(verdict_of_broken_again(run)->check, "ends");
  const TorchRun other = struck(3, [](std::int64_t step, Step& one) { one.weight += step >= 1 ? 9 : 0; });
  ASSERT_TRUE(verdict_of_broken_again(other).has_value());
  EXPECT_EQ(verdict_of_broken_again(other)->check, "replicas_equal");
}

TEST(TorchPlaces, WhatAScriptDoesNotDoIsNotStruck) {
  MadeRun made(1);
  made[0].steps(2, [](std::int64_t, Step& step) { step.call = false; });
  const TorchRun run = made.run();
  const Places none(run, true);
  for (const ExploredFault* row : none.rows()) {
    EXPECT_NE(row->where, ExploredFault::Where::collective) << faults::name(row->kind);
    EXPECT_NE(row->where, ExploredFault::Where::link);
    EXPECT_NE(row->where, ExploredFault::Where::save);
  }
  const TorchRun whole = undisturbed();
  const Places without(whole, false);
  for (const ExploredFault* row : without.rows())
    EXPECT_NE(row->promise, Promise::goes_on) << "there is no checkpoint to go on from";
}

TEST(TorchPlaces, TheSameSeedDrawsTheSame) {
  const TorchRun run = undisturbed();
  const Places places(run, true);
  const auto draw = [&](std::uint64_t seed) {
    sim::Random random(seed, sim::Stream::partial);
    std::string all;
    for (const ExploredFault* row : places.rows())
      for (const faults::Rule& rule : places.draw(*row, random)) all += faults::text(rule);
    return all;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(TorchCase, TimeChangesNothing) {
  const TorchRun whole = undisturbed();
  EXPECT_EQ(verdict_of(whole, struck(6), Promise::same_bits).end, CaseEnd::unnoticed);
  const TorchRun other = struck(6, [](std::int64_t step, Step& one) { one.weight += step >= 3 ? 9 : 0; });
  CaseVerdict verdict = verdict_of(whole, other, Promise::same_bits);
  EXPECT_EQ(verdict.check, "replicas_equal") << verdict.why;
  const TorchRun shorter = struck(5);
  verdict = verdict_of(whole, shorter, Promise::same_bits);
  EXPECT_EQ(verdict.check, "same_bits") << verdict.why;
  TorchRun failed = struck(3);
  ends(failed, 1, 1);
  EXPECT_EQ(verdict_of(whole, failed, Promise::same_bits).end, CaseEnd::red) << "a slow rank has to be survived";
}

TEST(TorchCase, AllRanksHaveToEnd) {
  const TorchRun whole = undisturbed();
  TorchRun run = struck(3);
  ends(run, 0, 1);
  run.job.processes[1].ending.signal = SIGKILL;
  EXPECT_EQ(verdict_of(whole, run, Promise::ends).end, CaseEnd::ended);
  ends(run, 0, 0);
  CaseVerdict verdict = verdict_of(whole, run, Promise::ends);
  EXPECT_EQ(verdict.check, "ends");
  EXPECT_EQ(verdict.why, "rank 0 ended with status 0 after 3 of 6 steps");
  run.job.stopped = Stopped::no_progress;
  run.job.processes[0].ended_by_us = true;
  run.job.why = "no rank recorded, printed or computed anything for 50 s";
  verdict = verdict_of(whole, run, Promise::ends);
  EXPECT_EQ(verdict.check, "ends");
  EXPECT_EQ(verdict.why, run.job.why);
}

// The others have ended, and only a launcher could end the rank that hangs.
TEST(TorchCase, ARankThatHangsAloneIsNoFinding) {
  TorchRun run = struck(6);
  run.job.stopped = Stopped::no_progress;
  run.job.processes[1].ended_by_us = true;
  run.job.processes[1].ending.signal = SIGTERM;
  EXPECT_EQ(verdict_of(undisturbed(), run, Promise::ends).check, "ends") << "a pause is over some time";
  run.scenario.faults[0].kind = FaultKind::collective_timeout;
  run.scenario.faults[0].mode = Mode::never;
  run.scenario.faults[0].when.rank = 0;
  EXPECT_EQ(verdict_of(undisturbed(), run, Promise::ends).check, "ends") << "it is not the rank that hangs";
  run.scenario.faults[0].when.rank = 1;
  EXPECT_EQ(verdict_of(undisturbed(), run, Promise::ends).end, CaseEnd::ended);
}

TEST(TorchCase, RanksThatDifferedBeforeTheEndAreRed) {
  TorchRun run = struck(3, [](std::int64_t step, Step& one) { one.weight += step >= 1 ? 9 : 0; });
  ends(run, 0, 1);
  ends(run, 1, 1);
  EXPECT_EQ(verdict_of(undisturbed(), run, Promise::ends).check, "replicas_equal");
}

TEST(TorchCase, ASurvivedFaultLeavesTheSameBits) {
  const TorchRun whole = undisturbed();
  EXPECT_EQ(verdict_of(whole, struck(6), Promise::ends).end, CaseEnd::unnoticed);
  EXPECT_EQ(verdict_of(whole, struck(5), Promise::ends).check, "same_bits") << "a step was swallowed";
}

TEST(TorchCase, WhatDoesNotFireIsNotJudged) {
  TorchRun run = struck(6);
  for (RankRun& rank : run.ranks) rank.record->faults.clear();
  EXPECT_EQ(verdict_of(undisturbed(), run, Promise::same_bits).end, CaseEnd::not_struck);
}

TEST(TorchCase, WhatGoesOnHasTheSameBits) {
  const TorchRun whole = undisturbed(), broken = struck(5);
  const auto end_of = [&](const TorchRun* resumed, const std::string& failed, Promise promise) {
    return verdict_of_resumed(whole, broken, resumed, failed, promise);
  };
  const TorchRun right = struck(3, {}, 3);
  EXPECT_EQ(end_of(&right, "", Promise::ends).end, CaseEnd::went_on) << end_of(&right, "", Promise::ends).why;
  const TorchRun wrong = struck(
      3, [](std::int64_t, Step& one) { one.loss += 1; }, 3);
  TorchRun both = wrong;
  EXPECT_EQ(end_of(&wrong, "", Promise::ends).check, "recovers");
  const TorchRun scratch = struck(6);
  EXPECT_EQ(end_of(&scratch, "", Promise::ends).check, "resumed") << "it had saved";
  EXPECT_EQ(end_of(&scratch, "", Promise::goes_on).end, CaseEnd::went_on) << "its only checkpoint was damaged";
  EXPECT_EQ(end_of(nullptr, "rank 0 ended with status 1", Promise::ends).check, "resumed");
  EXPECT_EQ(end_of(nullptr, "rank 0 ended with status 1", Promise::goes_on).end, CaseEnd::gave_up);
}

TEST(TorchSimpler, KeepsTheFaultThatDoesIt) {
  faults::Rule guilty, other;
  guilty.kind = FaultKind::rank_crash;
  guilty.when.rank = 1;
  guilty.when.step = 3;
  guilty.when.call = 4;
  guilty.when.op = runtime::OpKind::all_reduce;
  other.kind = FaultKind::pause;
  int runs = 0, took = 0;
  const auto fails = [&](const std::vector<faults::Rule>& rules) {
    ++runs;
    for (const faults::Rule& rule : rules)
      if (rule.kind == FaultKind::rank_crash && rule.when.op) return true;  // only in this operation
    return false;
  };
  const std::vector<faults::Rule> left = simpler({other, guilty}, 8, fails, took);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].kind, FaultKind::rank_crash);
  EXPECT_FALSE(left[0].when.call) << "which of them does not matter";
  EXPECT_TRUE(left[0].when.op) << "the operation does";
  EXPECT_EQ(took, runs);
  took = 0;
  EXPECT_EQ(simpler({other, guilty}, 0, fails, took).size(), 2u) << "no run is left for it";
}

}  // namespace
}  // namespace seeksim::harness::torch
