// Each judge of a script's run, seen green on a good run and red on one with a planted mistake.
#include "harness/torch/judges.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/torch/blame.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using pytorch::OpName;
using testing::made_run;
using testing::MadeRank;
using testing::MadeRun;
using Step = MadeRank::Step;

const CheckResult* find(const Judgement& judgement, const std::string& name) {
  for (const CheckResult& check : judgement.checks)
    if (check.name == name) return &check;
  return nullptr;
}

// The one check that is red, and its detail.
std::string red(const TorchRun& run) {
  std::string text;
  for (const CheckResult& check : judge(run).checks)
    if (!check.ok) text += check.name + ": " + check.detail + '\n';
  return text;
}

faults::Rule rule_of(faults::FaultKind kind) {
  faults::Rule rule;
  rule.kind = kind;
  return rule;
}

TEST(TorchJudges, AGoodRunIsGreenAndEveryUnaskedJudgeLooked) {
  TorchRun run = made_run(3);
  const Judgement judgement = judge(run);
  EXPECT_EQ(red(run), "");
  EXPECT_EQ(judgement.status, ExitStatus::as_expected);
  for (const Judge& judge : judges()) {
    if (!judge.unasked || std::string(judge.name) == "faults_fired") continue;
    ASSERT_NE(find(judgement, judge.name), nullptr) << judge.name;
    EXPECT_TRUE(find(judgement, judge.name)->looked) << judge.name;
  }
}

TEST(TorchJudges, ARunThatRecordedNothingIsRed) {
  TorchRun run = made_run(2);
  run.ranks[1].record.reset();
  EXPECT_EQ(red(run), "recorded: rank 1 left no record: did it import torch?\n");
  EXPECT_EQ(judge(run).status, ExitStatus::check_failed);
  MadeRun idle(2);
  EXPECT_EQ(red(idle.run()), "recorded: rank 0 recorded no collective, no step and no loss\n");
}

TEST(TorchJudges, ARecordThatIsNoRecordIsRed) {
  harness::testing::TemporaryFolder folder;
  folder.write("rank-0.rec", "no record at all");
  TorchRun run = made_run(1);
  run.ranks = read_ranks(folder.path(), 1);
  EXPECT_NE(red(run).find("rank-0.rec"), std::string::npos) << red(run);
}

TEST(TorchJudges, TheOddOneOutOfACollectiveIsNamedWithBothPlaces) {
  const TorchRun run = made_run(3, 1, [](std::int64_t step, Step& made) {
    if (step == 2) made.sum.numel = 65;
  });
  EXPECT_EQ(red(run),
            "collectives_match: collective #3 of group 0 (step 2, backward): ranks 0 and 2 mean all_reduce fp32 sum x "
            "64 at train.py:51 main; rank 1 means all_reduce fp32 sum x 65 at train.py:51 main\n");
}

TEST(TorchJudges, RanksMayBringPartsOfOtherSizesWhereTheOperationGathersThem) {
  for (const OpName op : {OpName::all_gather, OpName::gather, OpName::scatter, OpName::all_to_all}) {
    const auto ragged = [&](int rank) {
      return [op, rank](std::int64_t, Step& made) {
        made.sum.op = op;
        made.sum.reduce = pytorch::ReduceName::none;
        made.sum.numel = 64 + rank;
      };
    };
    MadeRun run(3);
    for (int rank = 0; rank < 3; ++rank) run[rank].steps(2, ragged(rank));
    EXPECT_EQ(red(run.run()), "") << name(op);
  }
  for (const OpName op : {OpName::all_reduce, OpName::reduce, OpName::broadcast, OpName::reduce_scatter}) {
    const TorchRun run = made_run(3, 1, [op](std::int64_t, Step& made) {
      made.sum.op = op;
      made.sum.numel = 65;
    });
    EXPECT_NE(red(run).find("rank 1 means " + std::string(name(op))), std::string::npos) << name(op) << red(run);
  }
}

// Parts that do not fit are the backend's to see: it knows what each rank gives to whom.
TEST(TorchJudges, PartsThatDoNotFitAreRedByTheRanksVerdicts) {
  MadeRun run(2);
  for (int rank = 0; rank < 2; ++rank) {
    run[rank].steps(2, [rank](std::int64_t, Step& made) {
      made.sum.op = OpName::all_gather;
      made.sum.numel = 64 + rank;
    });
    run[rank].blames(pytorch::Blame::disagrees, 1, 0);
  }
  EXPECT_NE(red(run.run()).find("collectives_match: "), std::string::npos);
}

TEST(TorchJudges, ACollectiveThatARankLeavesOutIsRed) {
  const TorchRun run = made_run(2, 1, [](std::int64_t step, Step& made) { made.call = step < 3; });
  EXPECT_EQ(
      red(run),
      "collectives_match: rank 1 never called all_reduce #4 of group 0 (step 3, backward), which rank 0 called at "
      "train.py:51 main\n");
}

// Ranks 0 and 2 wait for rank 1 in step 2, and say so.
TorchRun run_with_a_missing_rank(pytorch::Blame blame) {
  MadeRun made(3);
  for (const int rank : {0, 1, 2}) {
    made[rank].steps(3, [&](std::int64_t step, Step& step_made) {
      if (step != 2) return;
      step_made.done = false;
      step_made.sum.state = rank == 1 ? pytorch::CallState::created : pytorch::CallState::failed;
    });
  }
  made[0].blames(blame, 1, 8.0);
  made[2].blames(blame, 1, 8.004);
  TorchRun run = made.run();
  run.ranks[1].stack =
      "Current thread 0x1 (most recent call first):\n  File \"/v/lib/python3.11/site-packages/torch/a.py\", "
      "line 3 in backward\n  File \"train.py\", line 48 in main\n";
  for (const int rank : {0, 2}) run.job.processes[std::size_t(rank)].ending.status = 1;
  run.job.processes[1].ended_by_us = true;
  run.job.processes[1].ending = {true, 0, 9};
  run.job.stopped = Stopped::after_a_failure;
  return run;
}

TEST(TorchJudges, ARankThatNeverJoinsIsNamedAndTheStatusIsNoProgress) {
  TorchRun run = run_with_a_missing_rank(pytorch::Blame::did_not_join);
  EXPECT_EQ(red(run),
            "no_hang: rank 1 did not join all_reduce #3 of group 0 (step 2, backward); ranks 0 and 2 waited 8.0 s. It "
            "had joined 2 collectives of the group; it is alive and stands at train.py:48 main\n");
  EXPECT_EQ(judge(run).status, ExitStatus::no_progress);
  run.scenario.expect = {Expect::What::check_fails, "no_hang"};
  run.scenario.checks = {{"culprit", "1"}};
  EXPECT_EQ(judge(run).status, ExitStatus::as_expected);
  run.scenario.checks = {{"culprit", "2"}};
  EXPECT_EQ(judge(run).status, ExitStatus::check_failed);
}

TEST(TorchJudges, ADeathThatWasNoticedIsNoHang) {
  TorchRun run = run_with_a_missing_rank(pytorch::Blame::is_dead);
  run.job.processes[1] = {1, {true, 0, 9}, false, 0.5, ""};
  run.job.processes[0].after_s = run.job.processes[2].after_s = 0.6;
  EXPECT_EQ(red(run).substr(0, 70), "finished: rank 1 ended by signal 9 (Killed) after 0.5 s; rank 1 died b");
  EXPECT_EQ(judge(run).status, ExitStatus::check_failed);
}

TEST(TorchJudges, AHangThatNoRankNoticesIsSeenInTheRecords) {
  MadeRun made(2);
  made[0].steps(3, [](std::int64_t step, Step& one) {
    if (step == 2) one.done = false, one.sum.state = pytorch::CallState::started;
  });
  made[1].steps(2);
  TorchRun run = made.run();
  run.job.stopped = Stopped::no_progress;
  run.job.why = "no rank recorded, printed or computed anything for 26 s";
  for (ProcessRun& process : run.job.processes) process.ended_by_us = true;
  EXPECT_NE(red(run).find("no_hang: rank 1 did not join all_reduce #3 of group 0 (step 2, backward)"),
            std::string::npos)
      << red(run);
  EXPECT_EQ(judge(run).status, ExitStatus::no_progress);
}

TEST(TorchJudges, AReplicaThatDriftsIsNamedWithStepParameterAndGradient) {
  const TorchRun run = made_run(4, 2, [](std::int64_t step, Step& made) {
    if (step == 1) made.gradient += 5;
    if (step >= 2) made.weight += 7;
  });
  EXPECT_EQ(red(run),
            "replicas_equal: step 2: head.weight [8,8]: rank 2 differs from ranks 0, 1 and 3 (1 of 1 weights of that "
            "step). The gradient of head.weight differed already as the optimizer got it in step 1\n");
}

TEST(TorchJudges, RanksThatHoldOtherPartsOfAModelAreNotCompared) {
  TorchRun run = made_run(4, 2, [](std::int64_t, Step& made) { made.weight += 7; });
  EXPECT_NE(red(run), "");
  run.scenario.torch.replicas = {{0, 1}, {2}, {3}};
  EXPECT_EQ(red(run), "");
}

TEST(TorchJudges, ALossThatIsNoNumberIsRed) {
  const TorchRun run = made_run(2, 1, [](std::int64_t step, Step& made) {
    if (step == 3) made.loss = std::numeric_limits<double>::quiet_NaN();
  });
  EXPECT_EQ(red(run),
            "losses_finite: rank 1: the loss of step 3, micro-batch 0, is nan\n"
            "finite: rank 1: its loss in step 3, micro-batch 0 was the first that was not finite\n");
}

TEST(TorchJudges, TheBirthOfANaNIsNamedByRankStepAndCollective) {
  const TorchRun run = made_run(2, 1, [](std::int64_t step, Step& made) {
    made.sum.nonfinite_in = step == 1;
    if (step >= 2) made.weight_norm = std::numeric_limits<double>::quiet_NaN();
  });
  EXPECT_EQ(red(run),
            "finite: rank 1: what it gave to all_reduce #2 of group 0 (step 1, backward) was the first that was not "
            "finite\n");
}

TEST(TorchJudges, ANaNThatComesWithASumIsNamedWhereItWasGiven) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  MadeRun made(2);
  // Rank 0 comes first to the sum, waits for rank 1, and gets its NaN.
  made[0].steps(4, [](std::int64_t step, Step& one) {
    if (step == 1) one.sum.finished_ns = pytorch::monotonic_ns() + 1'000'000'000;
    if (step >= 2) one.weight_norm = kNaN;
  });
  made[1].steps(4, [](std::int64_t step, Step& one) {
    if (step == 1) one.loss = kNaN;
    if (step >= 2) one.weight_norm = kNaN;
  });
  EXPECT_EQ(find(judge(made.run()), "finite")->detail,
            "rank 1: its loss in step 1, micro-batch 0 was the first that was not finite");
}

TEST(TorchJudges, TheFirstStepWhoseLossIsNotFiniteIsNamedWhicheverRankHasIt) {
  MadeRun made(2);
  for (const int rank : {0, 1})
    made[std::size_t(rank)].steps(4, [rank](std::int64_t step, Step& one) {
      if (step >= 2 - rank) one.loss = std::nan("");
    });
  EXPECT_EQ(find(judge(made.run()), "losses_finite")->detail, "rank 1: the loss of step 1, micro-batch 0, is nan");
}

TEST(TorchJudges, AnOverflowWhoseStepIsSkippedIsToldAndNotRed) {
  const TorchRun run = made_run(2, 1, [](std::int64_t step, Step& made) { made.sum.nonfinite_in = step == 1; });
  EXPECT_EQ(red(run), "");
  EXPECT_NE(find(judge(run), "finite")->detail.find("stayed finite"), std::string::npos);
}

// In the last step no later weight shows what became of it; the gradients that the optimizer got do.
TEST(TorchJudges, WhatASumHadAndNoGradientHasIsToldAndNotRed) {
  const auto last_step = [](double gradient_norm) {
    return made_run(2, 1, [=](std::int64_t step, Step& made) {
      made.sum.nonfinite_in = step == 3;
      if (step == 3) made.gradient_norm = gradient_norm;
    });
  };
  EXPECT_EQ(red(last_step(1)), "");
  EXPECT_NE(find(judge(last_step(1)), "finite")->detail.find("stayed finite"), std::string::npos);
  EXPECT_NE(red(last_step(std::nan(""))).find("finite: rank 1: what it gave to all_reduce #4"), std::string::npos);
}

TEST(TorchJudges, AMinimumThatBeginsWithInfinityIsNoMistake) {
  const TorchRun run = made_run(2, 1, [](std::int64_t, Step& made) {
    made.sum.nonfinite_in = true;
    made.sum.reduce = pytorch::ReduceName::min;
  });
  EXPECT_EQ(find(judge(run), "finite")->ok, true);
}

TEST(TorchJudges, AFaultThatNeverFiresIsRed) {
  MadeRun made(2);
  made[0].steps(4);
  made[1].steps(4);
  made[1].fires(1);
  TorchRun run = made.run();
  run.scenario.faults = {rule_of(faults::FaultKind::rank_crash), rule_of(faults::FaultKind::bit_flip)};
  EXPECT_EQ(red(run), "faults_fired: faults.0 never fired: {\"kind\": \"rank_crash\"}\n");
  run.scenario.faults[0] = run.scenario.faults[1];
  run.scenario.faults.resize(1);
  EXPECT_NE(red(run), "");
}

TEST(TorchJudges, AFaultThatNamesWhatNoRankHasGetsAHint) {
  TorchRun run = made_run(2);
  faults::Rule rule = rule_of(faults::FaultKind::nan_inject);
  rule.site = faults::Site::parameter;
  rule.when.tensor = "head.wieght";
  run.scenario.faults = {rule};
  EXPECT_NE(red(run).find("; no rank has a parameter \"head.wieght\". Did you mean \"head.weight\"?"),
            std::string::npos)
      << red(run);
  run.scenario.faults[0].when.tensor = "head.weight";
  EXPECT_EQ(red(run).find("no rank has"), std::string::npos) << red(run);
  run.scenario.faults[0].site = faults::Site::activation;
  run.scenario.faults[0].when.tensor = "heat";
  const std::string module = "no rank has a module with weights that is called ";
  EXPECT_NE(red(run).find(module + "\"heat\". Did you mean \"head\"?"), std::string::npos) << red(run);
  run.scenario.faults[0].when.tensor = "head.weight";
  EXPECT_NE(red(run).find(module + "\"head.weight\". Did you mean \"head\"?"), std::string::npos) << red(run);
  run.scenario.faults[0].site = faults::Site::parameter;
  run.scenario.faults[0].when.tensor = "head";
  EXPECT_NE(red(run).find("no rank has a parameter \"head\". Did you mean \"head.weight\"?"), std::string::npos)
      << red(run);
  run.scenario.faults = {rule_of(faults::FaultKind::oom)};
  run.scenario.faults[0].when.tensor = "head";
  EXPECT_EQ(red(run).find("no rank has"), std::string::npos) << red(run);
}

TEST(TorchJudges, AFaultInAStepThatNobodyCameToGetsAHint) {
  TorchRun run = made_run(2);
  run.scenario.faults = {rule_of(faults::FaultKind::rank_crash)};
  run.scenario.faults[0].when.step = 4;
  EXPECT_NE(red(run).find("; the run ended before step 4: it made 4 steps, counted from 0"), std::string::npos)
      << red(run);
  run.scenario.faults[0].when.rank = 1;
  EXPECT_NE(red(run).find("; rank 1 ended before step 4"), std::string::npos) << red(run);
  run.scenario.faults[0].when.step = 3;
  EXPECT_EQ(red(run).find("ended before"), std::string::npos) << red(run);
}

TEST(TorchJudges, LossesThatRiseAreRedWhereAskedFor) {
  TorchRun run = made_run(2);
  run.scenario.checks = {{"loss_falls", ""}};
  EXPECT_EQ(red(run), "");
  run = made_run(2, 0, [](std::int64_t step, Step& made) { made.loss = 1 + 3 * double(step); });
  run.scenario.checks = {{"loss_falls", ""}};
  EXPECT_EQ(red(run), "loss_falls: 2.5 in the first quarter of 4 steps, 6.625 in the last\n");
}

TEST(TorchJudges, AScriptThatFailsLaterIsRedAndKeepsItsWords) {
  TorchRun run = made_run(2);
  run.job.processes[1].ending.status = 7;
  run.job.processes[1].after_s = 3;
  run.job.processes[1].last_words = "ValueError: no more data";
  EXPECT_EQ(red(run), "finished: rank 1 ended with status 7 after 3.0 s: ValueError: no more data\n");
}

TEST(TorchJudges, AnExpectedFailureThatDoesNotComeIsRed) {
  TorchRun run = made_run(2);
  run.scenario.expect = {Expect::What::check_fails, "replicas_equal"};
  const Judgement judgement = judge(run);
  EXPECT_EQ(judgement.status, ExitStatus::check_failed);
  EXPECT_EQ(judgement.sentence, "replicas_equal was expected to fail, and holds");
}

}  // namespace
}  // namespace seeksim::harness::torch
