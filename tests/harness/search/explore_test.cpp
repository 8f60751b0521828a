// Exploration finds bugs that show only after a fault at the right place. A find is a scenario that fails by itself,
// and a string that replays it; a scenario without a bug stays green.
#include "harness/search/explore.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "harness/commands/explore_command.h"
#include "harness/input/problem.h"
#include "harness/loading/extensions.h"
#include "harness/loading/schedule_string.h"
#include "harness/search/explore_shares.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string tiny(const std::string& bug = "", int stage = 1) {
  Json json = Json::parse(R"({
    "name": "tiny", "model": { "layers": 1, "width": 8, "heads": 2, "context": 4, "vocab": 16 },
    "data": { "synthetic": true }, "world": { "nodes": 2, "ranks_per_node": 2 },
    "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
                   "optimizer": { "type": "AdamW", "params": { "lr": 1e-2 } } },
    "steps": 3, "recovery": { "policy": "rebuild_and_redo", "watchdog_s": 60 }, "checks": [ "golden:bitwise" ] })");
  json["deepspeed"]["zero_optimization"] = {{"stage", stage}};
  if (!bug.empty()) json["bug"] = bug;
  return json.dump();
}

struct Found {
  Ran ran;
  Json report;
};
Found explore_in(const TemporaryFolder& folder, const std::string& text, std::vector<std::string> more) {
  const std::string file = folder.write("s.json", text);
  std::vector<std::string> arguments = {
      "explore", file, "--out", folder.file("found"), "--report", folder.file("explore.json")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Found out{seeksim(arguments), {}};
  if (std::filesystem::exists(folder.file("explore.json")))
    out.report = Json::parse(read_all(folder.file("explore.json")));
  return out;
}

TEST(Explore, AHealthyScenarioStaysGreen) {
  TemporaryFolder folder;
  const Found all = explore_in(folder, tiny(), {"--cases", "40", "-j", "2"});
  EXPECT_EQ(all.ran.status, 0) << all.ran.out << all.ran.err;
  EXPECT_EQ(all.report["cases"], 80);
  EXPECT_GT(all.report["coverage"]["pairs_in_both_orders"], 2);
  EXPECT_GT(all.report["coverage"]["struck"].size(), 10u);
  EXPECT_GT(all.report["coverage"]["branches"].size(), 2u);
}

// Where an explored fault takes a rank away before the scenario's own can strike it, the own one need not fire.
TEST(Explore, AFaultOfTheScenariosOwnMayBeOvertaken) {
  TemporaryFolder folder;
  Json json = Json::parse(tiny());
  json["faults"] = Json::parse(R"([{"kind": "message_drop", "rank": 1, "step": 2}])");
  const Found all = explore_in(folder, json.dump(), {"--cases", "60", "-j", "2"});
  EXPECT_EQ(all.ran.status, 0) << all.ran.out;
  // In the scenario as it is written it fires: nothing strikes rank 1 in step 7 of 3.
  json["faults"] = Json::parse(R"([{"kind": "message_drop", "rank": 1, "step": 7}])");
  EXPECT_EQ(explore_in(folder, json.dump(), {"--cases", "20"}).ran.status, 1);
}

struct Planted {
  const char* bug;
  const char* check;
};
class ExplorePlanted : public ::testing::TestWithParam<Planted> {};

// Most of these show only after a fault at the right place.
TEST_P(ExplorePlanted, IsFoundWrittenReplayedAndShrunk) {
  TemporaryFolder folder;
  const Found all = explore_in(folder, tiny(GetParam().bug), {"--findings", "1", "--cases", "600", "--shrink"});
  ASSERT_EQ(all.ran.status, 1) << all.ran.out << all.ran.err;
  ASSERT_FALSE(all.report["found"].empty());
  const Json& found = all.report["found"][0];
  EXPECT_TRUE(found["shown"].get<bool>());
  const std::string file = found["file"], schedule = found["schedule"], shrunk = found["shrunk"];

  const Ran alone = seeksim({"run", file, "--report", folder.file("a.json")});
  const Ran replayed = seeksim({"run", file, "--schedule", schedule, "--report", folder.file("b.json")});
  EXPECT_EQ(alone.status, replayed.status);
  EXPECT_NE(alone.status, 0) << alone.out;
  EXPECT_EQ(Json::parse(read_all(folder.file("a.json")))["fingerprint"],
            Json::parse(read_all(folder.file("b.json")))["fingerprint"]);

  EXPECT_NE(seeksim({"run", shrunk}).status, 0);
  const std::string text = read_all(shrunk);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 20) << "more than a screen:\n" << text;
  Json repaired = Json::parse(text);
  repaired.erase("bug");
  const Ran fine = seeksim({"run", folder.write("fine.json", repaired.dump())});
  EXPECT_EQ(fine.status, 0) << text << fine.out;
}

INSTANTIATE_TEST_SUITE_P(Bugs, ExplorePlanted,
                         ::testing::Values(Planted{"redoes_committed_step", "one_history"},
                                           Planted{"stale_copy", "golden:bitwise"},
                                           Planted{"stale_messages_taken", "golden:bitwise"},
                                           Planted{"skip_wait:step_abandoned", "no_races"}),
                         [](const auto& one) {
                           std::string name = one.param.bug;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

// Nothing is wrong with any number; only that the run ends is.
TEST(Explore, AStopThoughACopyIsLeftIsAFinding) {
  TemporaryFolder folder;
  Json json = Json::parse(tiny("first_copy_only"));
  json["world"] = {{"nodes", 4}, {"ranks_per_node", 1}};
  json["recovery"]["peer_copies"] = 2;
  json["fault_plan"]["random"] = {{"ranks_lost_max", 2}, {"kinds", {{"rank_crash", 1}}}, {"rate", {{"per_run", 2}}}};
  const Found all = explore_in(folder, json.dump(), {"--findings", "1", "--cases", "600", "--shrink"});
  ASSERT_EQ(all.ran.status, 1) << all.ran.out << all.ran.err;
  EXPECT_EQ(all.report["found"][0]["check"], "finished");
  EXPECT_NE(all.ran.out.find("it should have continued: "), std::string::npos) << all.ran.out;
  json.erase("bug");
  const Found fine = explore_in(folder, json.dump(), {"--cases", "200"});
  EXPECT_EQ(fine.ran.status, 0) << fine.ran.out;
}

TEST(Explore, TheSameSeedDrawsTheSameCases) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", tiny());
  const ExploreOptions options;
  const Explored explored = load_explored(file, {}, options);
  const Golden golden = run_golden(explored.scenario, "", 10);
  Explorer first(explored, &golden, options, 0), second(explored, &golden, options, 0),
      other(explored, &golden, options, 1);
  int differ = 0;
  for (int i = 0; i < 15; ++i) {
    ExploreCase a = *first.draw(), b = *second.draw(), c = *other.draw();
    EXPECT_EQ(case_document(explored, a, nullptr), case_document(explored, b, nullptr)) << i;
    differ += case_document(explored, a, nullptr) != case_document(explored, c, nullptr);
    first.run(std::move(a));
    const std::uint64_t fingerprint = first.record().fingerprint;
    second.run(std::move(b));
    EXPECT_EQ(second.record().fingerprint, fingerprint) << i;
    other.run(std::move(c));
  }
  EXPECT_GE(differ, 14) << "the share of another process is another one";
}

TEST(Explore, EnumerationSaysWhenItIsComplete) {
  TemporaryFolder folder;
  Json json = Json::parse(tiny());
  json["world"] = {{"nodes", 1}, {"ranks_per_node", 2}};
  json["steps"] = 1;
  json["checks"] = Json::array();
  json["numerics"] = "shapes";
  const Found part = explore_in(folder, json.dump(), {"--strategy", "enumerate", "--cases", "5"});
  EXPECT_FALSE(part.report["complete"].get<bool>());
  EXPECT_NE(part.ran.out.find("the time was up"), std::string::npos) << part.ran.out;
  const Found all = explore_in(folder, json.dump(), {"--strategy", "enumerate"});
  EXPECT_EQ(all.ran.status, 0) << all.ran.out;
  EXPECT_TRUE(all.report["complete"].get<bool>());
  EXPECT_GT(all.report["cases"], 100);
}

// A process that ends in the middle of a case is a finding, reported like any other.
TEST(Explore, AProcessThatCrashesIsAFinding) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", tiny()), told = folder.file("explore.json");
  const std::string command = "ulimit -t 1; '" + paths::program() + "' explore '" + file +
                              "' -j 1 --budget 200s --out '" + folder.file("found") + "' --report '" + told +
                              "' >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  const Json report = Json::parse(read_all(told));
  ASSERT_EQ(report["found"].size(), 1u);
  EXPECT_EQ(report["found"][0]["check"], "crash");
  EXPECT_TRUE(std::filesystem::exists(report["found"][0]["file"].get<std::string>()));
}

// A case that also crashes alone is reported so. It is not shrunk: that would end this process.
TEST(Explore, AnAbortIsRunOnceMoreByItself) {
  OwnCheck check;
  check.name = "aborts_where_a_rank_is_gone";
  check.summary = "a check with a mistake of its own";
  check.look = [](const Evidence& e, const std::string&) {
    for (const RankRecord& rank : e.run.ranks) {
      if (rank.how == RankRecord::How::died) std::abort();
    }
    return good("nobody died");
  };
  add_check(check);
  TemporaryFolder folder;
  Json json = Json::parse(tiny());
  json["checks"].push_back(check.name);
  const Found all = explore_in(folder, json.dump(), {"--findings", "1", "--cases", "200", "-j", "1", "--shrink"});
  EXPECT_EQ(all.ran.status, 1) << all.ran.out;
  ASSERT_EQ(all.report["found"].size(), 1u);
  EXPECT_EQ(all.report["found"][0]["check"], "crash");
  EXPECT_TRUE(all.report["found"][0]["shown"]);
}

// Two ranks of three are taken away: what is left cannot be compared, which is no bug.
TEST(Explore, ACheckWithNothingToLookAtIsCountedAndNotRed) {
  TemporaryFolder folder;
  Json json = Json::parse(tiny("", 0));
  json["world"] = {{"nodes", 1}, {"ranks_per_node", 2}};
  json["checks"].push_back("ranks_agree");
  const Found all = explore_in(folder, json.dump(), {"--cases", "60", "-j", "1"});
  EXPECT_EQ(all.ran.status, 0) << all.ran.out;
  EXPECT_GT(all.report["unjudged"].value("ranks_agree", 0), 0) << all.report;
  EXPECT_NE(all.ran.out.find("not judged, nothing to look at: ranks_agree"), std::string::npos) << all.ran.out;
}

// The golden leaves out the batches that the scenario's own spike makes the run leave out. A rank that dies meanwhile
// may take the spike away, and nothing is left out: the two are different trainings.
TEST(Explore, AGoldenOfAnotherTrainingIsNotJudged) {
  TemporaryFolder folder;
  Json json = Json::parse(read_all(paths::source_dir() + "/scenarios/numbers/divergence_rollback.json"));
  json["checks"] = {"golden:bitwise"};
  json["faults"].push_back(
      Json::parse(R"({"kind": "rank_crash", "rank": 3, "step": 18, "op": "data_load", "phase": "data", "call": 2})"));
  const std::string file = folder.write("s.json", json.dump());
  const Ran ran = seeksim({"run", file});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("looked at nothing: the golden leaves out batches 16, 17, 18"), std::string::npos) << ran.out;
  // Without the spike's golden it is judged, and a difference is seen.
  json["golden"] = {{"drop_batches", {17}}};
  json["steps"] = 24;
  json["faults"] = Json::parse(R"([{"kind": "loss_spike", "step": 18, "count": 8}])");
  const Ran other = seeksim({"run", folder.write("t.json", json.dump())});
  EXPECT_EQ(other.status, 1);
  EXPECT_EQ(other.out.find("the golden leaves out"), std::string::npos) << other.out;
}

// The golden skips the step of the NaN. A recovery that redoes that step meets no NaN: it strikes once.
TEST(Explore, ASkippedStepThatIsRedoneIsNotJudged) {
  TemporaryFolder folder;
  Json json = Json::parse(tiny());
  json["golden"] = {{"skip_steps", {1}}};
  json["faults"] =
      Json::parse(R"([{"kind": "nan_inject", "site": "gradient", "rank": 2, "step": 1, "micro_batch": 0}])");
  EXPECT_EQ(seeksim({"run", folder.write("s.json", json.dump())}).status, 0);
  json["faults"].push_back(Json::parse(R"({"kind": "rank_crash", "rank": 1, "step": 1, "op": "vote"})"));
  const Ran redone = seeksim({"run", folder.write("t.json", json.dump())});
  EXPECT_NE(redone.out.find("the golden skips step 1, which this run did again"), std::string::npos) << redone.out;
  json["faults"] = Json::array();
  const Ran never = seeksim({"run", folder.write("u.json", json.dump())});
  EXPECT_NE(never.out.find("step 1 was applied, which the golden skips"), std::string::npos) << never.out;
}

TEST(Explore, FaultsThatChangeNumbersInSilenceAreLeftOut) {
  TemporaryFolder folder;
  Json json = Json::parse(tiny());
  json["faults"] = Json::parse(R"([{"kind": "message_drop", "rank": 1, "step": 2},
    {"kind": "bit_flip", "site": "parameter", "rank": 3, "step": 1, "micro_batch": 0, "bit": 22},
    {"kind": "nan_inject", "site": "gradient", "rank": 2, "step": 1, "micro_batch": 0}])");
  json["expect"] = {{"check_fails", "golden:bitwise"}};
  const Found all = explore_in(folder, json.dump(), {"--cases", "20"});
  EXPECT_EQ(all.ran.status, 0) << all.ran.out;
  EXPECT_NE(all.ran.out.find("faults.1 is left out: bit_flip changes numbers"), std::string::npos) << all.ran.out;
  EXPECT_NE(all.ran.out.find("faults.2 is left out: nan_inject"), std::string::npos) << all.ran.out;
  EXPECT_EQ(all.ran.out.find("faults.0 is left out"), std::string::npos) << all.ran.out;
}

TEST(Explore, SharesAddUp) {
  ExploreResult mine, other;
  ToldByKey told, others;
  mine.cases = 3;
  mine.found["a"].times = 2;
  told["a"].file = "mine";
  other.cases = 4;
  other.red = 3;
  other.complete = false;
  other.found["a"].times = other.found["b"].times = 1;
  other.found["b"].why = "why";
  others["a"].file = others["b"].file = "other";
  take_share(text_of_share(other, others), mine, told);
  EXPECT_EQ(mine.cases, 7u);
  EXPECT_EQ(mine.red, 3u);
  EXPECT_FALSE(mine.complete);
  EXPECT_EQ(mine.found.at("a").times, 3u);
  EXPECT_EQ(mine.found.at("b").why, "why");
  EXPECT_EQ(told.at("a").file, "mine");
  EXPECT_EQ(told.at("b").file, "other");
}

TEST(Explore, TakesItsShareFromTheLauncher) {
  const auto as = [](std::vector<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    const LaunchedAs launched = launched_as();
    for (const auto& [name, value] : variables) ::unsetenv(name);
    return std::vector<int>{launched.rank, launched.size, launched.beside};
  };
  EXPECT_EQ(as({}), (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(as({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
            (std::vector<int>{3, 8, 2}));
  EXPECT_EQ(as({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}), (std::vector<int>{1, 4, 1}));
  EXPECT_EQ(as({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}}), (std::vector<int>{5, 6, 1}));
  EXPECT_EQ(as({{"SLURM_PROCID", "nonsense"}, {"SLURM_NTASKS", "6"}}), (std::vector<int>{0, 6, 1}));
}

TEST(Explore, FindingsAreToldApartByWhatTheySayNotByTheirNumbers) {
  EXPECT_EQ(finding_key("golden:bitwise", "step 3: loss 1.25 instead of 7"),
            finding_key("golden:bitwise", "step 11: loss 0.5 instead of 123"));
  EXPECT_NE(finding_key("golden:bitwise", "step 3: loss"), finding_key("golden:bitwise", "step 3: norm"));
  EXPECT_NE(finding_key("golden:bitwise", "step 3"), finding_key("one_history", "step 3"));
}

TEST(Explore, BudgetsAndStrategiesAreRead) {
  EXPECT_EQ(budget_s("90"), 90);
  EXPECT_EQ(budget_s("1.5m"), 90);
  EXPECT_EQ(budget_s("2h"), 7200);
  EXPECT_EQ(budget_s("endless"), kEndless);
  for (const char* wrong : {"", "s", "-3", "0", "5 minutes", "1d"}) EXPECT_THROW(budget_s(wrong), BadInput) << wrong;
  EXPECT_THROW(explore_strategy("luck"), BadInput);
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", tiny());
  const Ran wrong = seeksim({"explore", file, "--strategy", "pcd", "--out", folder.file("found")});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("pct"), std::string::npos) << wrong.err;
}

TEST(Coverage, CountsPairsOfOperationsAndTheirOrders) {
  Coverage coverage;
  const auto op = [](int rank, runtime::OpKind kind) {
    runtime::Op made;
    made.rank = rank;
    made.kind = kind;
    return made;
  };
  using enum runtime::OpKind;
  coverage.see(op(0, vote));
  coverage.see(op(1, agree));
  EXPECT_EQ(coverage.add_run({}, {}, ""), 1u);
  EXPECT_EQ(coverage.pairs(), 1u);
  EXPECT_EQ(coverage.pairs_in_both_orders(), 0u);
  coverage.see(op(1, agree));
  coverage.see(op(1, vote));  // one rank's own order says nothing
  coverage.see(op(0, vote));  // nor does the same operation
  EXPECT_EQ(coverage.add_run({}, {}, ""), 0u);
  coverage.see(op(1, agree));
  coverage.see(op(0, vote));
  EXPECT_EQ(coverage.add_run({}, {}, "no copy is left"), 2u);
  EXPECT_EQ(coverage.pairs_in_both_orders(), 1u);
  EXPECT_EQ(coverage.branches().size(), 1u);
  Coverage sum;
  sum.add(coverage.json());
  sum.add(coverage.json());
  EXPECT_EQ(sum.pairs_in_both_orders(), 1u);
  EXPECT_EQ(sum.branches().begin()->second, 2u);
}

}  // namespace
}  // namespace seeksim::harness
