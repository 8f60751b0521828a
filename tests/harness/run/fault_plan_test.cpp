// Fault plans: what can be written, what is enumerated and drawn, and that a run which one of them finds red is red
// again as an ordinary scenario.
#include "harness/scenario/fault_plan.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/run/fault_draws.h"
#include "harness/run/fault_places.h"
#include "harness/run/planned_run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using faults::FaultKind;

// 4 ranks that train a few numbers; `plan` and further keys as JSON text.
std::string tiny(const std::string& plan, const std::string& more = "", int stage = 0) {
  return R"({ "name": "tiny",
  "model": { "layers": 1, "width": 8, "heads": 2, "context": 4, "vocab": 16 },
  "data": { "synthetic": true }, "world": { "nodes": 2, "ranks_per_node": 2 },
  "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
                 "zero_optimization": { "stage": )" +
         std::to_string(stage) + R"( } },
  "steps": 2, "recovery": { "watchdog_s": 60 }, "checks": [ "golden:bitwise" ])" +
         more + ", \"fault_plan\": " + plan + " }";
}

Scenario loaded(const std::string& text, const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = sets;
  return load_scenario_text(text, "tiny.json", options);
}

// ---- reading -------------------------------------------------------------------------------------------------------

TEST(FaultPlan, IsReadAndWrittenBack) {
  for (
      const char* plan :
      {R"({"enumerate": {"kinds": ["rank_crash", "collective_timeout"], "ranks": [0, 2], "steps": [1], "ops": ["vote"],
            "modes": ["during"], "every": 3}, "stops": ["no copy"]})",
       R"({"enumerate": {"kinds": ["rank_crash"]}})",
       R"({"random": {"kinds": "field", "rate": {"per_node_day": 0.0065}, "acceleration": 10, "hours": 5, "runs": 4}})",
       R"({"random": {"kinds": {"rank_crash": 2, "oom": 0.5}, "rate": {"per_rank_hour": 3}, "ranks_lost_max": 0,
            "swarm": true}})",
       "{}"}) {
    const Scenario scenario = loaded(tiny(plan));
    const Scenario again = loaded(to_json(scenario).dump());
    EXPECT_EQ(again.planned, scenario.planned) << plan;
    EXPECT_EQ(again.planned.any(), std::string(plan) != "{}");
  }
}

TEST(FaultPlan, SaysWhatIsWrongWithIt) {
  const std::pair<const char*, const char*> all[] = {
      {R"({"enumerate": {"kinds": ["rank_crush"]}})", "there is no fault \"rank_crush\""},
      {R"({"enumerate": {"kinds": ["nan_inject"]}})", "nan_inject cannot be planned here"},
      {R"({"enumerate": {"kinds": ["rank_crash"], "ranks": [4]}})", "rank 4 is not in a world of 4 ranks"},
      {R"({"enumerate": {"kinds": ["rank_crash"], "steps": [2]}})", "step 2 is not among 2 steps"},
      {R"({"enumerate": {"kinds": ["rank_crash"], "ops": ["votes"]}})", "there is no operation \"votes\""},
      {R"({"random": {"kinds": {"loss_spike": 1}}})", "loss_spike cannot be planned here"},
      {R"({"random": {"kinds": {"partition": 1}}})", "partition cannot be planned here"},
      {R"({"random": {"kinds": "fields"}})", "\"fields\""},
      {R"({"enumerate": {"kinds": ["rank_crash"]}, "random": {"kinds": "field"}})", "names both"},
      {R"({"random": {"kinds": "field", "rate": {"per_run": 1, "per_node_day": 1}}})", "rate"},
  };
  for (const auto& [plan, said] : all) {
    EXPECT_NE(problems_of(tiny(plan)).find(said), std::string::npos) << plan << ": " << problems_of(tiny(plan));
  }
}

// ---- enumeration ---------------------------------------------------------------------------------------------------

TEST(FaultPlan, EveryRankHasPlacesInEveryPartOfAStep) {
  const std::vector<FaultPlace> places =
      places_of(loaded(tiny(R"({"enumerate": {"kinds": ["rank_crash"], "steps": [1]}})", "", 1)));
  std::map<int, std::set<std::string>> ops;
  std::set<std::string> rules;
  for (const FaultPlace& place : places) {
    ops[*place.rule.when.rank].emplace(name(*place.rule.when.op));
    EXPECT_TRUE(rules.insert(faults::text(place.rule)).second) << faults::text(place.rule) << " is here twice";
    EXPECT_EQ(*place.rule.when.step, 1);
  }
  ASSERT_EQ(ops.size(), 4u);
  for (const auto& [rank, seen] : ops) {
    for (const char* op : {"compute", "data_load", "reduce_scatter", "vote", "publish"})
      EXPECT_TRUE(seen.contains(op)) << op << " of rank " << rank;
  }
}

TEST(FaultPlan, OfAllStepsHasWhatComesBeforeTheFirst) {
  const std::vector<FaultPlace> places = places_of(loaded(tiny(R"({"enumerate": {"kinds": ["rank_crash"]}})")));
  std::set<std::string> before;
  for (const FaultPlace& place : places) {
    if (!place.rule.when.step) before.emplace(name(*place.rule.when.op));
  }
  EXPECT_TRUE(before.contains("comm_create"));
  EXPECT_TRUE(before.contains("allocate"));
}

TEST(FaultPlan, ThinnedHasEachNthPlace) {
  const auto count = [](const char* every) {
    return places_of(loaded(tiny(fmt::format(R"({{"enumerate": {{"kinds": ["rank_crash"], "every": {}}}}})", every))))
        .size();
  };
  EXPECT_EQ(count("7"), (count("1") + 6) / 7);
}

// Every moment at which an operation begins and one between two of them, with the control plane on either side.
TEST(FaultPlan, APartitionHasItsPlacesInTime) {
  const std::vector<FaultPlace> places =
      places_of(loaded(tiny(R"({"enumerate": {"kinds": ["partition"], "steps": [1]}})", "", 1)));
  std::map<runtime::TimeNs, std::set<int>> moments;
  for (const FaultPlace& place : places) {
    EXPECT_EQ(place.rule.sides, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
    EXPECT_TRUE(moments[*place.rule.when.at_ns].insert(*place.rule.store_side).second);
  }
  EXPECT_GT(moments.size(), 50u);
  for (const auto& [at, sides] : moments) EXPECT_EQ(sides, (std::set<int>{0, 1}));
}

struct Planned {
  Outcome outcome;
  std::string text;
  const Json& plan() const { return outcome.report["fault_plan"]; }
};
Planned run(const std::string& text, const std::vector<std::string>& sets = {}) {
  Planned planned;
  planned.outcome = run_scenario(loaded(text, sets), {}, [&](std::string_view part) { planned.text += part; });
  return planned;
}

// Thinned here; scenarios/campaigns/faults_enumerated*.json leave nothing out.
TEST(FaultPlan, ACrashAtAnyPlaceEndsWithTheBitsOfOneRank) {
  std::size_t runs = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    const Planned planned = run(tiny(
        R"({"enumerate": {"kinds": ["rank_crash"], "modes": ["before", "during", "after"], "every": 17}})", "", stage));
    EXPECT_EQ(planned.outcome.status, ExitStatus::as_expected) << planned.text;
    runs += planned.plan()["as_expected"].get<std::size_t>();
  }
  fmt::print("{} crashes, all survived\n", runs);
  EXPECT_GT(runs, 100u);
}

TEST(FaultPlan, ARankThatHangsAtAnyPlaceIsGoneWithout) {
  const Planned planned =
      run(tiny(R"({"enumerate": {"kinds": ["collective_timeout"], "modes": ["never"], "every": 2}})", "", 2));
  EXPECT_EQ(planned.outcome.status, ExitStatus::as_expected) << planned.text;
}

// Without copies of its shard the run has to stop, and may only where the plan says so.
TEST(FaultPlan, MayStopForTheReasonsThatItNames) {
  const std::string plan = R"({"enumerate": {"kinds": ["rank_crash"], "steps": [1], "ops": ["vote"]}, "stops": [%]})";
  const auto with = [&](const std::string& words) {
    std::string text = plan;
    text.replace(text.find('%'), 1, words);
    return run(tiny(text, "", 1), {"recovery.peer_copies=0"});
  };
  const Planned allowed = with("\"copy\""), forbidden = with(""), other = with("\"on fire\"");
  EXPECT_EQ(allowed.outcome.status, ExitStatus::as_expected) << allowed.text;
  EXPECT_EQ(allowed.plan()["stops"]["copy"], 4) << allowed.text;
  EXPECT_EQ(forbidden.outcome.status, ExitStatus::check_failed) << forbidden.text;
  EXPECT_EQ(other.outcome.status, ExitStatus::check_failed) << other.text;
}

TEST(FaultPlan, ARedRunIsRedAgainAsAnOrdinaryScenario) {
  TemporaryFolder folder;
  const std::string text =
      tiny(R"({"enumerate": {"kinds": ["rank_crash"], "ranks": [0], "steps": [1], "ops": ["vote"]}})",
           R"(, "bug": "commits_before_vote")");
  RunOptions options;
  options.files.out = folder.path();
  const Outcome outcome = run_scenario(loaded(text), options, [](std::string_view) {});
  EXPECT_EQ(outcome.status, ExitStatus::check_failed);
  EXPECT_TRUE(outcome.report["fault_plan"]["red_checks"].contains("one_history")) << outcome.report.dump(2);
  const Scenario red = load_scenario(folder.file("red.json"));
  EXPECT_FALSE(red.planned.any());
  EXPECT_EQ(red.faults.size(), 1u);
  EXPECT_EQ(run_scenario(red, {}, [](std::string_view) {}).status, ExitStatus::check_failed);
}

TEST(FaultPlan, WithoutAPlaceIsRed) {
  const Planned planned = run(tiny(R"({"enumerate": {"kinds": ["rank_crash"], "ops": ["storage_rename"]}})"));
  EXPECT_EQ(planned.outcome.status, ExitStatus::check_failed) << planned.text;
}

// ---- drawing -------------------------------------------------------------------------------------------------------

constexpr runtime::TimeNs kHour = 3600 * runtime::kSecond;

TEST(RandomFaults, AreTheSameForTheSameSeedOnly) {
  const std::string text = tiny(R"({"random": {"kinds": {"rank_crash": 1, "link_drop": 1, "straggler": 1},
                                 "rate": {"per_run": 5}, "ranks_lost_max": 100}})");
  const auto texts = [&](const char* seed, int number) {
    std::string all;
    for (const faults::Rule& rule : draw_faults(loaded(text, {std::string("seed=") + seed}), number, kHour))
      all += faults::text(rule) + '\n';
    return all;
  };
  EXPECT_EQ(texts("7", 0), texts("7", 0));
  EXPECT_NE(texts("7", 0), texts("7", 1));
  EXPECT_NE(texts("7", 0), texts("8", 0));
}

// 4 ranks x 0.5 an hour x 100 h = 200 in the mean; over 400 runs the mean is off by 0.7 (one sigma). Waiting times of a
// Poisson process have the mean 0.5 h and as much deviation.
TEST(RandomFaults, ArriveAsAPoissonProcess) {
  const Scenario scenario = loaded(
      tiny(R"({"random": {"kinds": {"rank_crash": 1}, "rate": {"per_rank_hour": 0.5}, "ranks_lost_max": 100000}})"));
  double sum = 0, gaps = 0, squares = 0, n = 0;
  for (int number = 0; number < 400; ++number) {
    const std::vector<faults::Rule> rules = draw_faults(scenario, number, 100 * kHour);
    sum += double(rules.size());
    double before = 0;
    for (const faults::Rule& rule : rules) {
      const double at = double(*rule.when.at_ns) / double(kHour);
      gaps += at - before;
      squares += (at - before) * (at - before);
      before = at;
      ++n;
    }
  }
  EXPECT_NEAR(sum / 400, 200, 3);
  const double mean = gaps / n, deviation = std::sqrt(squares / n - mean * mean);
  EXPECT_NEAR(mean, 0.5, 0.01);  // the last gap of each run is cut off, which takes some
  EXPECT_NEAR(deviation / mean, 1, 0.04);
}

TEST(RandomFaults, KeepWithinTheBudget) {
  const Scenario scenario = loaded(tiny(
      R"({"random": {"kinds": {"rank_crash": 1, "message_drop": 1}, "rate": {"per_run": 20}, "ranks_lost_max": 2}})"));
  int crashes = 0, others = 0;
  for (const faults::Rule& rule : draw_faults(scenario, 0, kHour))
    ++(rule.kind == FaultKind::rank_crash ? crashes : others);
  EXPECT_EQ(crashes, 2);
  EXPECT_GT(others, 2);
}

TEST(RandomFaults, OfASwarmLeaveKindsOut) {
  const Scenario scenario = loaded(tiny(R"({"random": {"kinds": {"message_drop": 1, "message_corrupt": 1, "oom": 1},
                                         "rate": {"per_run": 30}, "swarm": true}})"));
  std::map<std::size_t, int> kinds;  // runs by how many kinds came
  for (int number = 0; number < 200; ++number) {
    std::set<FaultKind> seen;
    for (const faults::Rule& rule : draw_faults(scenario, number, kHour)) seen.insert(rule.kind);
    ++kinds[seen.size()];
  }
  for (const std::size_t n : {0, 1, 2, 3}) EXPECT_GT(kinds[n], 5) << n << " kinds";
}

TEST(RandomFaults, OfTheFieldHaveItsWeights) {
  const Scenario scenario =
      loaded(tiny(R"({"random": {"kinds": "field", "rate": {"per_run": 4190}, "ranks_lost_max": 1000000}})"));
  std::map<FaultKind, double> seen;
  for (const faults::Rule& rule : draw_faults(scenario, 0, kHour)) seen[rule.kind] += 0.1;
  for (const auto& [kind, weight] : field_weights())
    EXPECT_NEAR(seen[kind], weight, 4 * std::sqrt(weight / 10) + 1) << name(kind);
}

TEST(RandomFaults, EveryRunOfThemIsSurvived) {
  const Planned planned = run(tiny(R"({"random": {"kinds": {"rank_crash": 1, "collective_timeout": 1, "link_drop": 1,
      "slow_link": 1, "straggler": 1, "message_drop": 1, "message_corrupt": 1, "oom": 1}, "rate": {"per_run": 2},
      "swarm": true, "runs": 100}})"));
  EXPECT_EQ(planned.outcome.status, ExitStatus::as_expected) << planned.text;
  EXPECT_EQ(planned.plan()["runs"], 100);
}

TEST(RandomFaults, DrawnOnceAreAnOrdinaryRun) {
  TemporaryFolder folder;
  RunOptions options;
  options.files.out = folder.path();
  const std::string text = tiny(R"({"random": {"kinds": {"rank_crash": 1}, "rate": {"per_run": 9}}})");
  const Outcome outcome = run_scenario(loaded(text), options, [](std::string_view) {});
  EXPECT_EQ(outcome.status, ExitStatus::as_expected) << outcome.report.dump(2);
  ASSERT_EQ(outcome.report["faults"].size(), 1u);
  const Scenario again = load_scenario(folder.file("scenario.json"));
  EXPECT_EQ(again.faults.size(), 1u);
  const Outcome twice = run_scenario(again, {}, [](std::string_view) {});
  EXPECT_EQ(twice.report["fingerprint"], outcome.report["fingerprint"]);
}

}  // namespace
}  // namespace seeksim::harness
