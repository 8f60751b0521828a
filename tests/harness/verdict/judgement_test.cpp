// The verdict on a whole run, made by hand: what passes, what is red, what no progress and what a bug.
#include "harness/verdict/checks.h"

#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using How = RankRecord::How;

faults::RuleStatus fired_times(std::uint64_t times) {
  faults::RuleStatus status;
  status.fired = times;
  return status;
}

struct Verdict {
  Scenario scenario = small_scenario();
  RunRecord run = good_run();
  Golden golden = golden_of(run, "key");
  Verdict() {
    run.agreement.collectives_compared = run.agreement.replica_comparisons = 1;
    run.faults = {fired_times(1)};
    run.detection.recoveries = {recovery_naming({2})};
  }
  Judgement judged() const { return judge(Evidence{scenario, run, &golden, {}, {}}); }
};

TEST(Verdict, PassesWhenAllHolds) {
  const Judgement j = Verdict().judged();
  EXPECT_EQ(j.status, ExitStatus::as_expected) << j.sentence;
  EXPECT_EQ(j.verdict, "pass");
  EXPECT_EQ(j.checks.front().name, "finished");
  EXPECT_EQ(j.checks.back().name, "faults_fired") << "made though nobody asked";
}

TEST(Verdict, IsRedWhenAFaultNeverFired) {
  Verdict v;
  v.run.faults = {fired_times(0)};
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed);
}

TEST(Verdict, IsRedWhenStepsAreMissing) {
  Verdict v;
  v.scenario.train.definition.steps = 5;
  v.scenario.checks.clear();
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed);
  v.scenario.train.definition.steps = 4;
  EXPECT_EQ(v.judged().status, ExitStatus::as_expected);
  v.run.ranks[1].how = How::running;
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed);
}

TEST(Verdict, IsRedWhenNobodyIsLeft) {
  Verdict v;
  v.scenario.checks.clear();
  for (RankRecord& rank : v.run.ranks) rank.how = How::died;
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed);
  EXPECT_EQ(v.judged().stopped, "no rank survived");
}

TEST(Verdict, SaysNoProgress) {
  Verdict v;
  v.run.end = sim::WorldEnd::deadlock;
  EXPECT_EQ(v.judged().status, ExitStatus::no_progress);
  EXPECT_EQ(v.judged().verdict, "no_progress");
  v.run.end = sim::WorldEnd::out_of_wall_time;
  EXPECT_EQ(v.judged().status, ExitStatus::no_progress);
}

TEST(Verdict, BlamesItselfWhenARankThrew) {
  Verdict v;
  v.run.end = sim::WorldEnd::failed;
  v.run.ranks[1].how = How::threw;
  v.run.ranks[1].why = "check failed";
  EXPECT_EQ(v.judged().status, ExitStatus::bug);
  v.scenario.expect = {Expect::What::stops, "check"};
  EXPECT_EQ(v.judged().status, ExitStatus::bug) << "a bug is never as expected";
}

TEST(Verdict, ExpectsAParticularRedCheck) {
  Verdict v;
  v.scenario.expect = {Expect::What::check_fails, "culprit:2"};
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed) << "it holds";
  v.run.detection.recoveries = {recovery_naming({1})};
  EXPECT_EQ(v.judged().status, ExitStatus::as_expected);
  v.scenario.expect.argument = "culprit";
  EXPECT_EQ(v.judged().status, ExitStatus::as_expected) << "the name without argument will do";
  v.run.ranks[3].state.params ^= 1;
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed) << "others are red too";
}

TEST(Verdict, ExpectsAStop) {
  Verdict v;
  v.scenario.checks = {{"culprit", "2"}};
  v.scenario.expect = {Expect::What::stops, "Policy"};
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed) << "it finished";
  for (RankRecord& rank : v.run.ranks) {
    rank.how = How::stopped;
    rank.why = "the recovery policy is to stop";
  }
  EXPECT_EQ(v.judged().status, ExitStatus::as_expected);
  v.scenario.expect.argument = "quorum";
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed) << "for another reason";
  v.scenario.expect.argument = "policy";
  v.run.detection.recoveries.clear();
  EXPECT_EQ(v.judged().status, ExitStatus::check_failed) << "listed checks still count";
  v.scenario.checks.clear();
  v.run.end = sim::WorldEnd::deadlock;
  v.scenario.expect.argument = "deadlock";
  EXPECT_EQ(v.judged().status, ExitStatus::as_expected);
  v.scenario.expect.argument = "policy";
  EXPECT_EQ(v.judged().status, ExitStatus::no_progress);
}

TEST(Checks, ObjectAndStringFormsAreTheSame) {
  const std::vector<std::pair<Json, std::string>> table = {
      {Json{{"recoveries", 1}}, "recoveries:1"},
      {Json{{"culprit", 5}}, "culprit:5"},
      {Json{{"culprit", "link:1->0"}}, "culprit:link:1->0"},
      {Json{{"evicted", Json::array({2, 5})}}, "evicted:2,5"},
      {Json{{"evicted", Json::array()}}, "evicted:none"},
      {Json{{"finishes_within_virtual_s", 1.5}}, "finishes_within_virtual_s:1.5"},
  };
  for (const auto& [json, text] : table) {
    CheckSpec spec, same;
    EXPECT_EQ(read_check(json, 8, spec).what, "");
    EXPECT_EQ(spec.text(), text);
    EXPECT_EQ(read_check(Json(text), 8, same).what, "");
    EXPECT_EQ(spec, same);
  }
}

}  // namespace
}  // namespace seeksim::harness
