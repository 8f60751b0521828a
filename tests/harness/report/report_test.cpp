// Reports: the names in the JSON are a contract, JUnit is XML whatever the strings hold, people see what matters.
#include "harness/report/report.h"
#include "harness/input/json_text.h"

#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

struct Made {
  Scenario scenario = small_scenario();
  RunRecord run = good_run();
  Golden golden = golden_of(run, "key");
  Made() {
    faults::RuleStatus rule;
    rule.kind = faults::FaultKind::collective_timeout;
    rule.text = "{\"kind\": \"collective_timeout\"}";
    rule.fired = 1;
    rule.first_fired_ns = runtime::kSecond;
    rule.fired_ns = {runtime::kSecond};
    rule.ranks = {2};
    run.faults = {rule};
    run.detection.recoveries = {recovery_naming({2})};
    run.traffic.comm[std::size_t(runtime::OpKind::all_reduce)] = {8, 1000};
    run.agreement.collectives_compared = run.agreement.replica_comparisons = 1;
  }
  Evidence evidence() const { return {scenario, run, &golden, {}, {}}; }
  Json report() const { return report_json(evidence(), judge(evidence()), {}); }
};

void expect_keys(const Json& object, const std::vector<std::string>& keys, const char* of) {
  for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << of << " lacks " << key;
}

TEST(ReportJson, HasTheNamesOfTheContract) {
  const Json report = Made().report();
  expect_keys(
      report,
      {"schema",      "scenario",        "seed",      "backend", "device",     "world",     "verdict", "exit_code",
       "fingerprint", "steps_committed", "virtual_s", "wall_s",  "loss",       "grad_norm", "lr",      "loss_scale",
       "skipped",     "params_digest",   "faults",    "checks",  "recoveries", "comm",      "memory"},
      "the report");
  expect_keys(report["faults"][0], {"kind", "fired"}, "a fault");
  expect_keys(report["checks"][0], {"name", "ok", "detail"}, "a check");
  expect_keys(
      report["recoveries"][0],
      {"fault", "t_inject_s", "t_detect_s", "t_agree_s", "t_rebuild_s", "t_resumed_s", "steps_lost", "culprits"},
      "a recovery");
  expect_keys(report["comm"]["all_reduce"], {"calls", "bytes_sent_per_rank_max"}, "comm");
  expect_keys(report["memory"], {"peak_bytes_per_rank_max"}, "memory");
}

TEST(ReportJson, HoldsTheValues) {
  const Json report = Made().report();
  EXPECT_EQ(report["scenario"], "small");
  EXPECT_EQ(report["seed"], 1);
  EXPECT_EQ(report["verdict"], "pass");
  EXPECT_EQ(report["exit_code"], 0);
  EXPECT_EQ(report["steps_committed"], 4);
  EXPECT_EQ(report["virtual_s"], 10.0);
  EXPECT_EQ(report["params_digest"], "0000000000001111");
  EXPECT_EQ(report["world"]["ranks"], 4);
  for (const char* key : {"loss", "grad_norm", "lr", "loss_scale", "skipped"}) EXPECT_EQ(report[key].size(), 4u) << key;
  EXPECT_EQ(report["loss"][0], 5.5);
  const Json& recovery = report["recoveries"][0];
  EXPECT_EQ(recovery["fault"], "collective_timeout");
  EXPECT_EQ(recovery["t_inject_s"], 1.0);
  EXPECT_EQ(recovery["t_detect_s"], 2.0);
  EXPECT_EQ(recovery["t_resumed_s"], 5.0);
  EXPECT_EQ(recovery["culprits"], Json::array({2}));
}

TEST(ReportJson, FloatsKeepEveryBit) {
  Made made;
  made.run.steps[0].loss = 0.1f;
  made.run.steps[1].loss = std::nanf("");
  made.run.steps[2].loss = INFINITY;
  made.run.steps[3].lr = 1e-3 / 3;
  const Json report = Json::parse(dump(made.report()));
  EXPECT_EQ(float(report["loss"][0].get<double>()), 0.1f);
  EXPECT_EQ(report["loss"][0].get<double>(), double(0.1f));
  EXPECT_EQ(report["loss"][1], "NaN");
  EXPECT_EQ(report["loss"][2], "Infinity");
  EXPECT_EQ(report["lr"][3], 1e-3 / 3);
}

TEST(ReportJson, LinksAreNamedAsChecksNameThem) {
  Made made;
  made.run.detection.recoveries = {recovery_naming({1, 0}, {{1, 0}})};
  made.run.detection.recoveries[0].resumed_ns = -1;
  const Json recovery = made.report()["recoveries"][0];
  EXPECT_EQ(recovery["culprits"], Json::array({"link:1->0"}));
  EXPECT_TRUE(recovery["t_resumed_s"].is_null()) << "it never did";
}

TEST(ReportJson, ARecoveryGoesToTheFaultThatItsCulpritHad) {
  Made made;
  faults::RuleStatus later = made.run.faults[0];
  later.kind = faults::FaultKind::straggler;
  later.ranks = {3};
  later.first_fired_ns = later.fired_ns[0] = runtime::kSecond + 5;
  made.run.faults.push_back(later);
  EXPECT_EQ(made.report()["recoveries"][0]["fault"], "collective_timeout");
  made.run.faults[0].first_fired_ns = made.run.faults[0].fired_ns[0] = 9 * runtime::kSecond;  // after it was noticed
  EXPECT_EQ(made.report()["recoveries"][0]["fault"], "straggler");
  made.run.faults.clear();
  EXPECT_TRUE(made.report()["recoveries"][0]["fault"].is_null());
}

TEST(ReportJson, SeveralRunsStandInOneFrame) {
  const Json one = Made().report();
  EXPECT_EQ(whole_report({one}, ExitStatus::as_expected), one);
  const Json two = whole_report({one, one}, ExitStatus::check_failed);
  EXPECT_EQ(two["runs"].size(), 2u);
  EXPECT_EQ(two["exit_code"], 1);
  EXPECT_EQ(two["schema"], kReportSchema);
}

TEST(ReportJson, InvalidUtf8IsReplaced) {
  EXPECT_NO_THROW(Json::parse(dump(failure_json("a\xff", ExitStatus::bad_input, {"b\xc0"}))));
}

// ---- JUnit ---------------------------------------------------------------------------------------------------------

// Enough XML to know that it is well formed: tags nest, attributes are quoted, '<' and '&' are escaped.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  std::size_t i = xml.rfind("<?xml", 0) == 0 ? xml.find("?>") + 2 : 0;
  for (; i < xml.size(); ++i) {
    if (static_cast<unsigned char>(xml[i]) < 0x20 && xml[i] != '\n' && xml[i] != '\t') return false;
    if (xml[i] == '&') {
      const std::string entity = xml.substr(i, xml.find(';', i) - i + 1);
      if (entity != "&lt;" && entity != "&gt;" && entity != "&amp;" && entity != "&quot;" && entity != "&apos;" &&
          entity != "&#10;" && entity != "&#9;")
        return false;
    }
    if (xml[i] != '<') continue;
    bool in_quotes = false;
    std::size_t end = i + 1;
    for (; end < xml.size() && (in_quotes || xml[end] != '>'); ++end) {
      if (xml[end] == '"') in_quotes = !in_quotes;
      if (xml[end] == '<') return false;
    }
    if (end == xml.size()) return false;
    const std::string tag = xml.substr(i + 1, end - i - 1);
    const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" /", tag[0] == '/') - (tag[0] == '/'));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

TEST(JUnit, IsWellFormedWhateverTheStringsHold) {
  ASSERT_TRUE(well_formed("<?xml version=\"1.0\"?><a><b c=\"&lt;\"/></a>"));
  ASSERT_FALSE(well_formed("<a><b></a>"));
  Made made;
  made.scenario.name = "a\"<b>&'\x01\xff\n";
  made.scenario.checks = {{"culprit", "<&>"}};
  made.run.detection.recoveries[0].diagnosis.text = "]]> \"quoted\" \x02";
  const Json failure = failure_json("f\xc3.json", ExitStatus::bad_input, {"<&\n\x03>"});
  const std::string xml = junit_xml({made.report(), failure});
  EXPECT_TRUE(well_formed(xml)) << xml;
  EXPECT_NE(xml.find("<error message="), std::string::npos);
}

TEST(JUnit, AnExpectedRedCheckIsNoFailure) {
  Made made;
  made.scenario.expect = {Expect::What::check_fails, "culprit"};
  EXPECT_NE(junit_xml({made.report()}).find("failures=\"1\""), std::string::npos) << "it holds, and should not";
  made.run.detection.recoveries = {recovery_naming({1})};
  const std::string xml = junit_xml({made.report()});
  EXPECT_NE(xml.find("failures=\"0\""), std::string::npos) << xml;
  made.scenario.expect = {};
  EXPECT_NE(junit_xml({made.report()}).find("failures=\"2\""), std::string::npos) << "the check and the verdict";
}

// ---- for people ----------------------------------------------------------------------------------------------------

TEST(ReportText, TellsOfWorkersThatTrainApart) {
  Made made;
  EXPECT_EQ(header_text(made.scenario, {}).find("train apart"), std::string::npos);
  made.scenario.train.definition.local_sgd = {.workers = 4, .every = 8, .outer = {}};
  EXPECT_NE(header_text(made.scenario, {}).find("  workers   4 train apart; an outer step every 8 steps\n"),
            std::string::npos);
}

TEST(ReportText, TellsTheStoryAndTheChecks) {
  Made made;
  made.run.events = {{runtime::kSecond, 2, "faults.0 fires"}};
  const std::string header = header_text(made.scenario, {});
  EXPECT_EQ(header.rfind("small  seed 1, training seed 1\n", 0), 0u) << "seeds come first";
  EXPECT_NE(header.find("faults.0  {\"kind\": \"collective_timeout\", \"rank\": 2"), std::string::npos);
  const std::string text = story_text(made.evidence(), judge(made.evidence()), {});
  std::size_t at = 0;
  for (const char* part :
       {"1.000000 s  rank 2: faults.0 fires",
        "2.000000 s  rank 0 detected: ", "3.000000 s  agreed: somebody did something",
        "4.000000 s  rebuilt the group: epoch 1 with 3 ranks", "5.000000 s  resumed: step 1",
        "loss      5.5 -> 2.5 in 4 steps", "  ok    finished", "  ok    culprit:2", "PASS small: "}) {
    const std::size_t found = text.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << " is missing, or out of order, in\n" << text;
    at = found;
  }
  EXPECT_EQ(text.find('\033'), std::string::npos) << "no colour unless asked for";
}

TEST(ReportText, ALossThatRisesTenfoldIsANote) {
  Made made;
  const auto told = [&] { return story_text(made.evidence(), judge(made.evidence()), {}); };
  EXPECT_EQ(told().find("the loss rose"), std::string::npos);
  made.run.steps[3].loss = made.run.steps[2].loss * 9;
  EXPECT_EQ(told().find("the loss rose"), std::string::npos);
  made.run.steps[3].loss = made.run.steps[2].loss * 20;
  EXPECT_NE(told().find("note      the loss rose"), std::string::npos) << told();
}

TEST(ReportText, ShowsWhoWaitsForWhomAtADeadlock) {
  Made made;
  made.run.end = sim::WorldEnd::deadlock;
  made.run.wait_for_graph = "rank 0 waits for rank 1\nrank 1 waits for rank 0";
  const std::string text = story_text(made.evidence(), judge(made.evidence()), {});
  EXPECT_NE(text.find("    rank 1 waits for rank 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("NO PROGRESS small: deadlock"), std::string::npos) << text;
}

TEST(ReportText, RedIsSaidInWords) {
  Made made;
  made.run.detection.recoveries = {recovery_naming({1})};
  const std::string text = story_text(made.evidence(), judge(made.evidence()), {});
  EXPECT_NE(text.find("  FAIL  culprit:2"), std::string::npos) << text;
  EXPECT_NE(text.find("FAIL small: failed: culprit:2"), std::string::npos) << text;
}

}  // namespace
}  // namespace seeksim::harness
