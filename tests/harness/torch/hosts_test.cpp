// What the first host makes of what the others give: names, clocks, and what is missing.
#include <gtest/gtest.h>

#include "harness/input/problem.h"
#include "harness/torch/blame.h"
#include "harness/torch/judges.h"
#include "tests/harness/torch/made_run.h"

namespace seeksim::harness::torch {
namespace {

using testing::MadeRank;
using testing::MadeRun;

constexpr std::int64_t kHour_ns = 3'600'000'000'000;

std::string detail_of(const TorchRun& run, const std::string& name) {
  for (const CheckResult& check : judge(run).checks)
    if (check.name == name) return (check.ok ? "ok: " : "red: ") + check.detail;
  return "";
}

// Ranks 0 and 1 on host 0, ranks 2 and 3 on host 1; `who` of them leave records and, of their last step, a verdict on
// those whom blamed() names.
TorchRun two_hosts(const std::vector<int>& who, pytorch::Blame blame,
                   const std::function<std::vector<int>(int)>& blamed) {
  MadeRun made(4);
  for (int rank = 0; rank < 4; ++rank) {
    made[rank].steps(4, [](std::int64_t step, MadeRank::Step& one) {
      if (step != 3) return;
      one.done = false;
      one.sum.state = pytorch::CallState::failed;
    });
    for (const int other : blamed(rank)) made[rank].blames(blame, other, 5.0);
  }
  TorchRun run = made.run();
  run.hosts = {{"node1", {0, 1}, "", 0}, {"node2", {2, 3}, "", 0}};
  for (RankRun& rank : run.ranks) {
    rank.host = rank.rank / 2;
    if (std::find(who.begin(), who.end(), rank.rank) == who.end()) rank.record.reset();
  }
  for (ProcessRun& process : run.job.processes) {
    process.host = process.rank / 2;
    process.ending.status = 1;
  }
  return run;
}
std::vector<int> the_other_host(int rank) { return rank < 2 ? std::vector<int>{2, 3} : std::vector<int>{0, 1}; }

TEST(TorchHosts, ACulpritIsNamedWithItsHost) {
  const TorchRun run = two_hosts({0, 1, 2, 3}, pytorch::Blame::is_dead,
                                 [](int rank) { return rank == 3 ? std::vector<int>{} : std::vector<int>{3}; });
  EXPECT_NE(detail_of(run, "finished").find("rank 3 on host 1 (node2) died before all_reduce #4"), std::string::npos)
      << detail_of(run, "finished");
  EXPECT_EQ(detail_of(run, "recorded").substr(0, 4), "ok: ");
  EXPECT_NE(detail_of(run, "recorded").find("of 4 ranks on 2 hosts"), std::string::npos);
}

TEST(TorchHosts, RecordsThatDidNotComeAreRed) {
  TorchRun run = two_hosts({0, 1}, pytorch::Blame::unreachable, the_other_host);
  run.hosts[1] = {"node2", {}, "nothing has come from it for 20 s", 0};
  add_lost_ranks(run);
  EXPECT_EQ(run.hosts[1].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(detail_of(run, "recorded"),
            "red: 2 of 4 ranks on 1 of 2 hosts were seen; host 1 (node2): nothing has come from it for 20 s");
  EXPECT_EQ(detail_of(run, "no_hang"),
            "red: ranks 2 and 3 on host 1 (node2) could not be reached in all_reduce #4 of group 0 (step 3, backward); "
            "ranks 0 and 1 waited 5.0 s");
  EXPECT_EQ(judge(run).status, ExitStatus::no_progress);
}

TEST(TorchHosts, WhereEachSideBlamesTheOtherTheLinkIsNamed) {
  const TorchRun run = two_hosts({0, 1, 2, 3}, pytorch::Blame::unreachable, the_other_host);
  EXPECT_EQ(detail_of(run, "no_hang"),
            "red: host 0 (node1) and host 1 (node2) could not reach each other in all_reduce #4 of group 0 (step 3, "
            "backward); ranks waited 5.0 s");
}

TEST(TorchHosts, TimesAreThoseOfTheFirstHostsClock) {
  MadeRun made(2);
  for (int rank = 0; rank < 2; ++rank) made[rank].steps(2);
  const TorchRun before = made.run();
  write_hosts(made.folder.path(), {{"node1", {0}, "", 0}, {"node2", {1}, "", kHour_ns}});
  const std::vector<RankRun> after = read_ranks(made.folder.path(), 2);
  EXPECT_EQ(after[1].host, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const pytorch::RankRecord &was = *before.ranks[std::size_t(rank)].record, &is = *after[std::size_t(rank)].record;
    const std::int64_t back = rank * kHour_ns;
    EXPECT_EQ(is.now.started_ns, was.now.started_ns - back);
    EXPECT_EQ(is.calls[1].created_ns, was.calls[1].created_ns - back);
    EXPECT_EQ(is.calls[1].finished_ns, 0);  // not yet, there as here
    EXPECT_EQ(is.losses[1].time_ns, was.losses[1].time_ns - back);
    EXPECT_EQ(is.steps[1].time_ns, was.steps[1].time_ns - back);
  }
  const std::string file = made.folder.write("hosts.json", R"({"hosts": [{"ranks": "all"}]})");
  EXPECT_THROW(read_ranks(made.folder.path(), 2), BadInput);
}

TEST(TorchHosts, WhatAnotherHostSaysOfItsJobArrives) {
  TorchRun run;
  run.scenario.torch.ranks = 4;
  run.hosts = {{"node1", {0, 1}, "", 0}, {"node2", {}, "", 0}};
  JobRun theirs;
  ProcessRun process;
  process.rank = 3;
  process.ending = {true, 0, 9};
  process.after_s = 2.5;
  process.last_words = "ValueError: no";
  theirs.processes = {process};
  theirs.stopped = Stopped::no_progress;
  theirs.why = "nobody did anything";
  const std::string said = summary_text(theirs, {2, 3, 3, 1, -1, 4});  // some of which cannot be
  add_summary(run, 1, said);
  ASSERT_EQ(run.job.processes.size(), 1u);
  EXPECT_EQ(run.job.processes[0].host, 1);
  EXPECT_EQ(run.job.processes[0].ending.signal, 9);
  EXPECT_EQ(run.job.processes[0].last_words, "ValueError: no");
  EXPECT_EQ(run.hosts[1].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(run.job.stopped, Stopped::no_progress);
  EXPECT_EQ(run.job.why, "host 1 (node2): nobody did anything");
  // Whatever it says, it is no more than that host's problem.
  for (std::size_t cut = 0; cut < said.size(); ++cut) {
    TorchRun other;
    other.scenario.torch.ranks = 4;
    other.hosts = {{"node1", {}, "", 0}, {"node2", {}, "", 0}};
    add_summary(other, 1, said.substr(0, cut));
    EXPECT_NE(other.hosts[1].problem, "") << cut;
    EXPECT_TRUE(other.job.processes.empty());
  }
}

}  // namespace
}  // namespace seeksim::harness::torch
