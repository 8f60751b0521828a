// What a sweep's rows look like to people and to other tools: the table, comma-separated values, JSON lines.
#include "harness/report/rows_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/report/sweep_table.h"
#include "harness/verdict/figures.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// The small scenario without its fault, with keys of its own.
std::string with_keys(const std::string& keys) {
  const std::string text = small_text();
  return text.substr(0, text.find("  \"faults\"")) + "  " + keys + " }\n";
}

Scenario swept_scenario(const std::string& keys = "\"checks\": []") {
  return load_scenario_text(with_keys(R"("sweep": { "steps": [1, 2], "decay": ["all"] }, )" + keys), "s.json");
}

RowResult row_of(std::size_t number, ExitStatus status, Json figures = {}) {
  RowResult row;
  row.number = number;
  row.settings = {{"steps", std::to_string(number)}, {"decay", "\"all\""}};
  row.command = "seeksim run s.json --row " + std::to_string(number);
  row.outcome.status = status;
  row.outcome.report = {{"verdict", name(status)}, {"exit_code", code(status)}};
  if (!figures.empty()) row.outcome.report["figures"] = std::move(figures);
  return row;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(SweepTable, HasAxesVerdictAndTheFiguresOfTheChecks) {
  const Scenario base =
      swept_scenario(R"("checks": [ { "model_state_gb": 1 }, { "goodput_at_least": 0.1 }, "memory_formula" ])");
  SweepResult sweep{base, 2, {}, {}, {}, 0};
  const Json seen = {{"model_state_gb", 120.0004}, {"goodput", 0.4567}, {"peak_bytes", 1536}, {"failures", 2}};
  const Json other = {{"model_state_gb", 1.875}, {"goodput", nullptr}, {"peak_bytes", 3}, {"failures", 0}};
  sweep.rows = {row_of(0, ExitStatus::as_expected, seen), row_of(1, ExitStatus::check_failed, other)};
  EXPECT_EQ(table_of(sweep, false, {}),
            "  row  steps  decay  verdict  goodput  failures  peak_bytes  model_state_gb\n"
            "    0      0    all  pass      45.7 %         2     1.5 KiB             120\n"
            "    1      1    all  FAIL           -         0         3 B           1.875\n");
}

TEST(SweepTable, HasTheFiguresThatTheScenarioShows) {
  const Scenario base = swept_scenario(R"("checks": [ "memory_formula" ], "show": [ "goodput" ])");
  SweepResult sweep{base, 1, {}, {}, {}, 0};
  sweep.rows = {row_of(0, ExitStatus::as_expected, {{"goodput", 0.5}, {"peak_bytes", 1536}})};
  EXPECT_EQ(table_of(sweep, false, {}),
            "  row  steps  decay  verdict  goodput\n"
            "    0      0    all  pass        50 %\n");
}

TEST(SweepTable, OfManyRowsHasTheRedOnesAndTheEnds) {
  const Scenario base = swept_scenario();
  SweepResult sweep{base, 60, {}, {}, {}, 0};
  for (std::size_t i = 0; i < 60; ++i)
    sweep.rows.push_back(row_of(i, i == 30 ? ExitStatus::check_failed : ExitStatus::as_expected));
  const std::vector<std::string> some = lines_of(table_of(sweep, false, {}));
  ASSERT_EQ(some.size(), 1u + 7u + 2u) << table_of(sweep, false, {});
  EXPECT_EQ(some[4], "  ... 27 more rows (--all)");
  EXPECT_NE(some[5].find("FAIL"), std::string::npos);
  EXPECT_EQ(some[6], "  ... 26 more rows (--all)");
  EXPECT_EQ(lines_of(table_of(sweep, true, {})).size(), 61u);
}

TEST(SweepTable, LeavesOutFiguresThatHaveNoRoomAndNamesThem) {
  Scenario base = swept_scenario();
  for (const char* check : {"goodput_at_least", "young_daly", "slowdown_at_least", "overlap_at_least", "bubble_formula",
                            "memory_formula", "model_state_gb", "traffic_formula", "recoveries"})
    base.checks.push_back({check, ""});
  SweepResult sweep{base, 1, {}, {}, {}, 0};
  sweep.rows = {row_of(0, ExitStatus::as_expected)};
  const std::vector<std::string> lines = lines_of(table_of(sweep, false, {}));
  EXPECT_LE(lines[0].size(), 100u);
  EXPECT_EQ(lines.back().find("  no room for "), 0u) << lines.back();
  EXPECT_NE(lines.back().find("sent_bytes"), std::string::npos);
}

TEST(SweepTable, AxesThatAreTooWideShareAColumn) {
  Scenario base = swept_scenario();
  SweepResult sweep{base, 1, {}, {}, {}, 0};
  sweep.rows = {row_of(0, ExitStatus::as_expected, {{"loss", 2.5}})};
  sweep.rows[0].settings.clear();
  for (int i = 0; i < 9; ++i) {
    const std::string key = "model.a_key_with_a_long_name_" + std::to_string(i);
    base.sweep.blocks.front().push_back({key, {}});
    sweep.rows[0].settings.emplace_back(key, std::to_string(i));
  }
  const std::vector<std::string> lines = lines_of(table_of(sweep, false, {}));
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_NE(lines[0].find("settings"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("a_key_with_a_long_name_0=0 "), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("..."), std::string::npos) << lines[1];
}

TEST(Figures, AreThoseOfTheChecksElseThreeOfAllRuns) {
  EXPECT_EQ(shown_figures(swept_scenario()), (std::vector<std::string>{"loss", "peak_bytes", "virtual_s"}));
  EXPECT_EQ(shown_figures(swept_scenario(R"("checks": [ { "young_daly": 10 }, "loss_falls" ])")),
            (std::vector<std::string>{"loss", "lost", "young_daly", "interval_s", "best_interval_s", "failures"}));
}

TEST(Figures, OfARunAreItsNumbers) {
  const Scenario scenario = small_scenario();
  RunRecord run = good_run();
  run.memory.peak = 5000;
  run.detection.recoveries.resize(2);
  run.detection.recoveries[1].steps_lost = 3;
  const Json figures = figures_json(Evidence{scenario, run, nullptr, std::nullopt, {}});
  EXPECT_EQ(figures["loss"], double(run.steps.back().loss));
  EXPECT_EQ(figures["steps"], 4);
  EXPECT_EQ(figures["peak_bytes"], 5000);
  EXPECT_EQ(figures["recoveries"], 2);
  EXPECT_EQ(figures["steps_lost"], 3);
  EXPECT_TRUE(figures["goodput"].is_null()) << "no step was measured apart";
  EXPECT_TRUE(figures["bubble"].is_null()) << "there is no pipeline";
  run.has_values = false;
  EXPECT_TRUE(figures_json(Evidence{scenario, run, nullptr, std::nullopt, {}})["loss"].is_null());
}

TEST(RowsFile, QuotesWhatSeparatesAndLeavesOutWhatIsNotThere) {
  const Json red = {{"name", "culprit:2"}, {"ok", false}, {"detail", ""}};
  const Json report = {{"scenario", "a"},
                       {"rows",
                        {{{"row", 0},
                          {"settings", {{"world.nodes", 2}, {"checks", "[\"x\",\"y\"]"}}},
                          {"verdict", "fail"},
                          {"exit_code", 1},
                          {"figures", {{"loss", 3.5}}},
                          {"checks", {red}},
                          {"wall_s", 0.25},
                          {"command", "seeksim run a.json"}}}}};
  const Json other = {{"scenario", "b"}, {"verdict", "pass"}, {"exit_code", 0}};
  const std::vector<std::string> lines = lines_of(rows_as_csv({report, other}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].find("scenario,row,world.nodes,checks,verdict,exit_code,loss,grad_norm,"), 0u) << lines[0];
  EXPECT_EQ(lines[1].find("a,0,2,\"[\"\"x\"\",\"\"y\"\"]\",fail,1,3.5,,"), 0u) << lines[1];
  EXPECT_NE(lines[1].find(",0.25,culprit:2,seeksim run a.json\r"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2].find("b,,,,pass,0,"), 0u) << lines[2];
  EXPECT_EQ(std::count(lines[0].begin(), lines[0].end(), ','), std::count(lines[2].begin(), lines[2].end(), ','));
  const std::vector<std::string> objects = lines_of(rows_as_json_lines({report, other}));
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(Json::parse(objects[0])["settings"]["world.nodes"], 2);
  EXPECT_EQ(Json::parse(objects[0])["failed"], Json::array({"culprit:2"}));
  EXPECT_TRUE(Json::parse(objects[1])["row"].is_null());
}

// Figure 1 of the ZeRO paper, on the screen and in a file.
TEST(SweepRuns, TheZeroPapersTableComesOutOfIt) {
  const TemporaryFolder folder;
  const Ran ran = seeksim({"run", seeksim::paths::source_dir() + std::string("/scenarios/memory/zero_table_7_5b.json"),
                           "--csv", folder.file("rows.csv"), "--json-lines", folder.file("rows.jsonl")});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  std::vector<std::string> states;
  for (const std::string& line : lines_of(ran.out)) {
    std::istringstream words(line);
    std::string row, stage, verdict, state;
    if (words >> row >> stage >> verdict >> state && verdict == "pass") states.push_back(stage + ": " + state);
  }
  EXPECT_EQ(states, (std::vector<std::string>{"0: 120", "1: 31.41", "2: 16.64", "3: 1.879"})) << ran.out;
  EXPECT_EQ(lines_of(read_all(folder.file("rows.csv"))).size(), 5u);
  const Json last = Json::parse(lines_of(read_all(folder.file("rows.jsonl"))).at(3));
  EXPECT_NEAR(last["figures"]["model_state_gb"].get<double>(), 1.9, 0.05);
}

}  // namespace
}  // namespace seeksim::harness
