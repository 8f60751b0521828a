// Studies as files: what is wrong with them is said at once; what they find reaches the screen, CSV, JSON and pictures.
#include "harness/campaign/study_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <pugixml.hpp>

#include "harness/campaign/incident_log.h"
#include "harness/campaign/picture.h"
#include "harness/campaign/study_report.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/loading/reference.h"
#include "tests/campaign/studies.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness::campaign {
namespace {

using namespace testing;
using harness::testing::Ran;
using harness::testing::read_all;
using harness::testing::TemporaryFolder;

const std::string kStudies = seeksim::paths::source_dir() + "/scenarios/studies/";

// One key a line, so that tests can name lines.
const char* const kSmall = R"({
"name": "small",
"seeds": 4, "hours": 200, "step_s": 10,
"cluster": {"nodes": 32, "nodes_per_rack": 4},
"spares": {"hot": 1},
"failures": [{"cause": "node", "arrivals": {"mtbf_hours": 300}, "repair_hours": 5}],
"checkpoints": [{"to": "storage", "every_s": 600, "blocks_s": 5, "read_s": 5}],
"recovery": {"detect_s": 30}
})";

std::string problems_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    load_study_text(text, "s.json", sets);
  } catch (const BadInput& bad) {
    std::string all;
    for (const Problem& problem : bad.problems()) all += problem.text() + '\n';
    return all;
  }
  return "";
}

TEST(StudyFile, AllProblemsAreSaidAtOnceWithTheirLines) {
  EXPECT_EQ(problems_of(kSmall), "");
  const std::string said = problems_of(
      kSmall, {"cluster.noodes=3", "hours=-1", "checkpoints.0.to=tape", "failures.0.arrivals.per_node_day=2",
               "recovery.policy=rebuild", R"(published=[{"what":"goodputt","least":1,"most":0,"source":"x"}])"});
  for (const char* part : {"noodes", "hours", "tape", "mtbf_hours and per_node_day", "rebuild_s", "goodputt",
                           "Did you mean \"goodput\"", "--set hours=-1", "is less than least"})
    EXPECT_NE(said.find(part), std::string::npos) << part << " in\n" << said;
}

TEST(StudyFile, WhatCannotBeTogetherIsSaid) {
  const auto says = [](const std::string& set, const char* part) {
    const std::string said = problems_of(kSmall, {set});
    EXPECT_NE(said.find(part), std::string::npos) << set << " gives\n" << said;
  };
  says("failures.0.unit=switch", "has no unit");
  says(R"(failures.1={"cause":"node","arrivals":{"mtbf_hours":1}})", "here twice");
  says("failures=[]", "nothing fails");
  says("recovery={}", "nobody says when it is noticed");
  says("failures.0.arrivals.mtbf_hours=0.00001", "failures of a campaign");
  says("checkpoints.0.every_steps=5", "one of every_s and every_steps");
  says("checkpoints.0.write_s=1", "ends before");
  says(R"(failures.0.detect_s={"distribution":"uniform","least":5,"most":1})", "is less than least");
  says(R"(failures.0.detect_s={"distribution":"weibull","shape":2})", "mean: is missing");
  says("incidents=nowhere.csv", "nowhere.csv");
  says("cluster.nodes_per_replica=64", "more than all nodes");
}

TEST(StudyFile, EveryShippedStudyLoadsAndTheSchemaIsThatOfTheRows) {
  for (const char* name : {"llama3_54_days", "meta_rsc_16k", "meta_rsc_4k", "megascale", "byterobust", "young_daly_16k",
                           "spares_and_intervals"})
    EXPECT_NO_THROW(load_study(kStudies + name + ".json", {})) << name;
  EXPECT_EQ(read_all(kStudies + "study.schema.json"), schema_text(study_schema()))
      << "seeksim list study_schema > scenarios/studies/study.schema.json";
}

// ---- the incident log ----------------------------------------------------------------------------------------------

TEST(IncidentLog, IsReadInAnyOrderOfLinesAndColumns) {
  const IncidentLog log = read_incidents(
      "# ours\nnode,what,hours,cause,repair_hours\r\n3,x,10.5,\"GPU, \"\"lost\"\"\",24\r\n0,,2,,\n", "log.csv", 8);
  ASSERT_TRUE(log.problems.empty()) << log.problems[0].text();
  ASSERT_EQ(log.incidents.size(), 2u);
  EXPECT_EQ(log.incidents[0].at_ns, TimeNs(2) * 3600 * kS);
  EXPECT_EQ(log.incidents[0].repair_ns, 0);
  EXPECT_EQ(log.incidents[1].cause, "GPU, \"lost\"");
  EXPECT_EQ(log.incidents[1].repair_ns, TimeNs(24) * 3600 * kS);
}

TEST(IncidentLog, BadLinesAreNamedAndBounded) {
  const auto said = [](const std::string& text) {
    std::string all;
    for (const Problem& problem : read_incidents(text, "log.csv", 8).problems) all += problem.text() + '\n';
    return all;
  };
  const std::string bad = said("hours,node\n1,8\n-1,2\nnan,2\n1e300,2\n3,1.5\n4,\"2\n5,2\n,\n");
  for (const int line : {2, 3, 4, 5, 6, 7, 9})
    EXPECT_NE(bad.find("log.csv:" + std::to_string(line) + ":"), std::string::npos) << line << " in\n" << bad;
  EXPECT_EQ(bad.find("log.csv:8:"), std::string::npos);
  EXPECT_NE(said("").find("no line names the columns"), std::string::npos);
  EXPECT_NE(said("time,host\n1,2\n").find("no column hours"), std::string::npos);
  std::string many = "hours,node\n";
  for (int i = 0; i < 10'000; ++i) many += "x,y\n";
  EXPECT_LT(std::count(many.begin(), many.end(), '\n') - 9'900, std::int64_t(said(many).size()));
  EXPECT_LT(said(many).size(), 20'000u);
  EXPECT_NE(said(many).find("more bad lines"), std::string::npos);
}

// ---- what comes of it ----------------------------------------------------------------------------------------------

TEST(Study, ReachesScreenCsvJsonAndPictures) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", kSmall);
  const Ran ran = harness::testing::seeksim(
      {"study", file, "--set", R"(sweep={"spares.hot":[0,2],"checkpoints.0.every_s":[300,600,1200]})", "--csv",
       folder.file("s.csv"), "--json", folder.file("s.out.json"), "--pictures", folder.file("pictures"), "-j", "2"});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("time_adds_up"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("PASS small: 6 policies"), std::string::npos) << ran.out;
  const std::string csv = read_all(folder.file("s.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
  EXPECT_EQ(csv.rfind("spares.hot,checkpoints.0.every_s,campaigns,goodput,goodput_low,goodput_high,", 0), 0u);
  const Json json = parse_json(read_all(folder.file("s.out.json")), "s.out.json").value;
  ASSERT_EQ(json["policies"].size(), 6u);
  for (const Json& policy : json["policies"]) {
    ASSERT_EQ(policy["campaigns"].size(), 4u);
    double sum = 0;
    for (const auto& [name, share] : policy["time"].items()) sum += share["mean"].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_LE(policy["figures"]["goodput"]["low"], policy["figures"]["goodput"]["mean"]);
  }
  for (const char* picture : {"pictures/goodput.svg", "pictures/lost.svg", "pictures/survival.svg"}) {
    pugi::xml_document svg;
    ASSERT_TRUE(svg.load_string(read_all(folder.file(picture)).c_str())) << picture;
    EXPECT_GT(svg.select_nodes("//rect | //circle | //path").size(), 5u) << picture;
  }
}

// What forked processes send is what one process makes; policies of one study meet the same failures.
TEST(Study, IsTheSameInOneProcessAndInSeveral) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", kSmall);
  const std::vector<std::string> sets = {R"(sweep={"checkpoints.0.every_s":[300,1200]})"};
  const StudyResult one = run_study(file, sets, 1), three = run_study(file, sets, 3);
  ASSERT_EQ(one.policies.size(), 2u);
  for (std::size_t p = 0; p < 2; ++p) {
    ASSERT_EQ(three.policies[p].campaigns.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(to_json(one.policies[p].campaigns[i]), to_json(three.policies[p].campaigns[i]));
  }
  EXPECT_GT(one.policies[0].campaigns[0].interruptions, 5);
  EXPECT_EQ(what_is_wrong(campaign_from(to_json(one.policies[0].campaigns[0]))), "");
}

// A prediction outside of what was published is red, and so is a formula that is far off.
TEST(Study, APublishedFigureThatIsMissedIsRed) {
  const TemporaryFolder folder;
  const std::string file = folder.write("s.json", kSmall);
  const auto status = [&](const std::string& published) {
    return harness::testing::seeksim({"study", file, "--set", "published=[" + published + "]", "-j", "1"}).status;
  };
  EXPECT_EQ(status(R"({"what":"goodput","least":0.5,"most":1,"source":"x"})"), 0);
  EXPECT_EQ(status(R"({"what":"goodput","least":0.999,"most":1,"source":"x"})"), 1);
  EXPECT_EQ(harness::testing::seeksim({"study", file, "--set", "young_daly=0.001", "-j", "1"}).status, 1);
  EXPECT_EQ(harness::testing::seeksim({"study", file, "--set", "hours=x"}).status, 2);
  EXPECT_EQ(harness::testing::seeksim({"study", folder.file("none.json")}).status, 2);
}

// Time that does not add up is a bug of seeksim's, whatever else holds.
TEST(Study, TimeThatDoesNotAddUpIsABug) {
  const TemporaryFolder folder;
  StudyResult result = run_study(folder.write("s.json", kSmall), {}, 1);
  EXPECT_EQ(status_of(result), ExitStatus::as_expected);
  result.policies[0].wrong = "seed 1: planted";
  EXPECT_EQ(status_of(result), ExitStatus::bug);
  EXPECT_NE(study_tail(result, {}).find("planted"), std::string::npos);
}

TEST(Statistics, IntervalsHoldTheMean) {
  EXPECT_NEAR(t_quantile(10), 2.228, 0.01);
  EXPECT_NEAR(t_quantile(30), 2.042, 0.003);
  EXPECT_NEAR(t_quantile(1000), 1.962, 0.001);
  const Estimated e = estimated({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(e.mean, 2.5);
  EXPECT_NEAR(e.high - e.mean, 3.182 * std::sqrt(5.0 / 3 / 4), 1e-9);
  EXPECT_DOUBLE_EQ(estimated({7}).low, 7);
}

// ---- what others published -----------------------------------------------------------------------------------------

class PublishedStudy : public ::testing::TestWithParam<const char*> {};

TEST_P(PublishedStudy, IsReproduced) {
  const StudyResult result = run_study(kStudies + GetParam() + ".json", {"seeds=5", "best_interval=false"}, 1);
  EXPECT_EQ(status_of(result), ExitStatus::as_expected) << study_tail(result, {});
}
INSTANTIATE_TEST_SUITE_P(All, PublishedStudy,
                         ::testing::Values("llama3_54_days", "meta_rsc_16k", "meta_rsc_4k", "megascale", "byterobust",
                                           "young_daly_16k"));

TEST(PublishedStudies, AreRedWhereACostIsForgotten) {
  const auto status = [](const char* name, std::vector<std::string> sets) {
    sets.emplace_back("seeds=5");
    sets.emplace_back("best_interval=false");
    return status_of(run_study(kStudies + name + ".json", sets, 1));
  };
  EXPECT_EQ(status("meta_rsc_16k", {"recovery.restart_s=0"}), ExitStatus::check_failed);
  EXPECT_EQ(status("meta_rsc_16k", {"checkpoints.0.every_s=1800", "sweep=[]"}), ExitStatus::check_failed);
  EXPECT_EQ(status("llama3_54_days", {"recovery.agree_s=0", "recovery.restart_s=0"}), ExitStatus::check_failed);
  EXPECT_EQ(status("byterobust", {"recovery.agree_s=1800"}), ExitStatus::check_failed);
  EXPECT_EQ(status("megascale", {"recovery.agree_s=3000"}), ExitStatus::check_failed);
}

}  // namespace
}  // namespace seeksim::harness::campaign
