// A run is replayed to the bit by the string that it printed; a string that is damaged, old or of another scenario is
// refused with a reason.
#include <gtest/gtest.h>
//
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/loading/schedule_string.h"
#include "harness/run/run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// A rank dies, and a check that cannot hold makes the run red.
Json dying(const std::string& schedule) {
  Json json = Json::parse(small_text());
  json["faults"] = Json::parse(R"([{"kind": "rank_crash", "rank": 2, "step": 1, "op": "all_reduce"}])");
  json["checks"] = {"no_recovery"};
  json["schedule"] = Json::parse(schedule);
  return json;
}

const char* const kSchedules[] = {
    R"({})",
    R"({"strategy": "first"})",
    R"({"strategy": "random"})",
    R"({"strategy": "pct", "changes": 4, "horizon": 2000})",
    R"({"strategy": "swarm", "slow": [{"rank": 1, "queue": "compute", "doublings": 3}]})",
    R"({"strategy": "first", "deviations": [[3, 1], [40, 2]]})",
};

Json report_of(const std::string& file, const TemporaryFolder& folder, std::vector<std::string> more,
               Ran* ran = nullptr) {
  std::vector<std::string> arguments = {"run", file, "--report", folder.file("report.json")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ran result = seeksim(arguments);
  if (ran != nullptr) *ran = result;
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  return Json::parse(read_all(folder.file("report.json")));
}

TEST(ScheduleString, ARedRunPrintsItAndIsReplayedByIt) {
  for (const char* schedule : kSchedules) {
    TemporaryFolder folder;
    Json json = dying(schedule);
    json["seed"] = 5;
    const std::string file = folder.write("s.json", json.dump());
    Ran ran;
    const Json first = report_of(file, folder, {}, &ran);
    const std::string text = first["schedule"]["string"];
    EXPECT_NE(ran.out.find("--schedule " + text), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("faults.0 on rank 2 at "), std::string::npos) << ran.out;
    ASSERT_EQ(first["fault_decisions"].size(), 1u);
    EXPECT_EQ(first["fault_decisions"][0]["rank"], 2);

    // The file has no schedule and another seed: both come with the string.
    json.erase("schedule");
    json["seed"] = 77;
    const std::string bare = folder.write("bare.json", json.dump());
    const Json again = report_of(bare, folder, {"--schedule", text});
    EXPECT_EQ(again["fingerprint"], first["fingerprint"]) << schedule;
    EXPECT_EQ(again["schedule"], first["schedule"]) << schedule;
    EXPECT_EQ(again["virtual_s"], first["virtual_s"]) << schedule;
    EXPECT_NE(report_of(bare, folder, {})["fingerprint"], first["fingerprint"]) << schedule;
  }
}

// What was decided is a schedule itself.
TEST(ScheduleString, TheChoicesOfARunAreAScheduleThatReplaysIt) {
  for (const char* strategy : {"random", "pct", "swarm"}) {
    TemporaryFolder folder;
    Json json = dying("{}");
    json["schedule"]["strategy"] = strategy;
    const Json first = report_of(folder.write("s.json", json.dump()), folder, {});
    ASSERT_GT(first["schedule"]["choices"].size(), 10u);
    json["schedule"] = {{"strategy", "first"}, {"deviations", first["schedule"]["choices"]}};
    const Json again = report_of(folder.write("t.json", json.dump()), folder, {});
    EXPECT_EQ(again["fingerprint"], first["fingerprint"]) << strategy;
  }
}

sim::Schedule any_schedule() {
  sim::Schedule schedule;
  schedule.strategy = sim::Strategy(*rc::gen::inRange(1, int(sim::Strategy::count_)));
  if (schedule.strategy == sim::Strategy::pct) {
    schedule.changes = *rc::gen::inRange<std::uint32_t>(0, 100);
    schedule.horizon = *rc::gen::inRange<std::uint64_t>(1, 1 << 30);
  }
  std::uint64_t decision = 0;
  for (int n = *rc::gen::inRange(0, 20); n > 0; --n) {
    decision += *rc::gen::inRange<std::uint64_t>(1, 100'000);
    schedule.deviations.push_back({decision, *rc::gen::inRange<std::uint32_t>(0, 500)});
  }
  for (int n = *rc::gen::inRange(0, 4); n > 0; --n)
    schedule.slow.push_back({*rc::gen::inRange(0, 1000), sim::SlowQueue::Which(*rc::gen::inRange(0, 5)),
                             *rc::gen::inRange(1, sim::kDoublingsMax + 1)});
  return schedule;
}

RC_GTEST_PROP(ScheduleStringProperty, ReadsBack, ()) {
  Scenario scenario;
  scenario.identity = *rc::gen::arbitrary<std::uint32_t>();
  scenario.world.seed = *rc::gen::inRange<std::uint64_t>(0, std::uint64_t(1) << 53);
  scenario.world.schedule = any_schedule();
  Scenario other;
  other.identity = scenario.identity;
  other.world.ranks_per_node = 1'000'000;  // a string that slows a rank which is not there is refused
  apply_schedule(schedule_string(scenario), other);
  RC_ASSERT(other.world.seed == scenario.world.seed);
  RC_ASSERT(other.world.schedule == scenario.world.schedule);
}

std::string refusal(const std::string& text, const Scenario& scenario) {
  Scenario other = scenario;
  try {
    apply_schedule(text, other);
  } catch (const BadInput& bad) {
    return bad.problems().front().text();
  }
  return "";
}

TEST(ScheduleString, IsRefusedWithAReason) {
  Scenario scenario = load_scenario_text(small_text(), "s.json");
  scenario.world.schedule.strategy = sim::Strategy::pct;
  const std::string text = schedule_string(scenario);
  EXPECT_EQ(refusal(text, scenario), "");
  EXPECT_NE(refusal("", scenario).find("no schedule"), std::string::npos);
  EXPECT_NE(refusal(text.substr(0, text.size() - 1), scenario).find("no schedule"), std::string::npos);
  EXPECT_NE(
      refusal(schedule_string(scenario, sim::kDecisionsVersion + 1), scenario).find("numbers decisions otherwise"),
      std::string::npos);
  LoadOptions options;
  options.sets = {"steps=3"};
  EXPECT_NE(refusal(text, load_scenario_text(small_text(), "s.json", options)).find("another scenario"),
            std::string::npos);
  // Its name, its reason and its seed are not what it is.
  options.sets = {"name=other", "why=because", "seed=9"};
  EXPECT_EQ(refusal(text, load_scenario_text(small_text(), "s.json", options)), "");
  int unnoticed = 0, tried = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    for (const char c : {'0', '7', 'k', 'z'}) {
      std::string damaged = text;
      if (damaged[i] == c) continue;
      damaged[i] = c;
      ++tried;
      unnoticed += refusal(damaged, scenario).empty();
    }
  }
  EXPECT_LE(unnoticed, tried / 50);
}

TEST(ScheduleString, WrongKeysAreTold) {
  const auto told = [](const std::string& schedule) { return problems_of(small_text(), {"schedule=" + schedule}); };
  EXPECT_NE(told(R"({"deviations":[[1,1]]})").find("does not number its decisions"), std::string::npos);
  EXPECT_NE(told(R"({"strategy":"first","deviations":[[2,1],[1,1]]})").find("comes after a later one"),
            std::string::npos);
  EXPECT_NE(told(R"({"slow":[{"rank":9,"queue":"compute"}]})").find("there is no rank 9"), std::string::npos);
  EXPECT_NE(told(R"({"strategy":"luck"})"), "");
  const Ran both = seeksim({"run", "s.json", "--seed", "1", "--schedule", "1abc"});
  EXPECT_EQ(both.status, 2);
  EXPECT_NE(both.err.find("Leave --seed out"), std::string::npos) << both.err;
}

TEST(ScheduleString, StandsInTheScenario) {
  Json json = Json::parse(small_text());
  json["schedule"] = Json::parse(kSchedules[4]);
  const Scenario scenario = load_scenario_text(json.dump(), "s.json");
  const Scenario again = load_scenario_text(to_json(scenario).dump(), "s.json");
  EXPECT_EQ(again.world.schedule, scenario.world.schedule);
  EXPECT_EQ(again.identity, scenario.identity);
}

}  // namespace
}  // namespace seeksim::harness
