// OpenMetrics text of a launched job, held to the rules of the format by a reader of its own.
#include "harness/processes/job_metrics.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "tests/support/processes.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

// What is wrong with a text by the rules of OpenMetrics 1.0 that matter here; empty: nothing. Samples go to `values`.
std::string wrong_with(const std::string& text, std::map<std::string, double>& values) {
  if (!text.ends_with("# EOF\n")) return "it does not end with # EOF";
  std::istringstream in(text.substr(0, text.size() - 6));
  std::map<std::string, std::string> types;
  std::set<std::string> seen;
  std::string current;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string hash, kind, name;
    if (line.starts_with("# ")) {
      words >> hash >> kind >> name;
      if (kind == "EOF") return "# EOF in the middle";
      if (kind != "TYPE" && kind != "HELP") return "another comment: " + line;
      if (name != current && !seen.insert(name).second) return "a family in two places: " + name;
      current = name;
      if (kind == "TYPE") words >> types[name];
      continue;
    }
    if (line.empty()) return "an empty line";
    const std::size_t open = line.find('{'), close = line.rfind("} ");
    if (open == std::string::npos || close == std::string::npos) return "no labels: " + line;
    name = line.substr(0, open);
    const bool counter = types[current] == "counter";
    if (name != current + (counter ? "_total" : "")) return "a sample of another family: " + name;
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return "a name with " + std::string(1, c);
    }
    bool quoted = false;
    for (std::size_t i = open; i < close; ++i) {
      if (line[i] == '\\') {
        if (std::string("\\\"n").find(line[++i]) == std::string::npos) return "an unknown escape";
      } else if (line[i] == '"') {
        quoted = !quoted;
      }
    }
    if (quoted) return "an open quote";
    std::size_t read = 0;
    const std::string number = line.substr(close + 2);
    const double value = std::stod(number, &read);
    if (read != number.size()) return "no number: " + number;
    if (counter && !(value >= 0)) return "a counter below zero";
    values[name] = value;
  }
  return "";
}

JobState running() {
  JobState state;
  state.scenario = "a \"name\"\\ of\ntwo lines";
  state.ranks = 4;
  state.ready = 3;
  state.gone = 1;
  state.attempt = 2;
  state.refused = 5;
  state.running_s = 12.5;
  return state;
}

TEST(JobMetrics, KeepTheRulesOfTheFormatAndSayWhatIsKnown) {
  std::map<std::string, double> values;
  EXPECT_EQ(wrong_with(openmetrics_text(running()), values), "") << openmetrics_text(running());
  EXPECT_EQ(values["seeksim_ranks"], 4);
  EXPECT_EQ(values["seeksim_ranks_ready"], 3);
  EXPECT_EQ(values["seeksim_ranks_gone"], 1);
  EXPECT_EQ(values["seeksim_job_restarts_total"], 2);
  EXPECT_EQ(values["seeksim_connections_refused_total"], 5);
  EXPECT_EQ(values["seeksim_job_ended"], 0);
  EXPECT_FALSE(values.contains("seeksim_job_exit_status"));
  EXPECT_FALSE(values.contains("seeksim_loss"));
}

TEST(JobMetrics, AJobThatEndedBringsItsReport) {
  JobState state = running();
  state.exit_status = 1;
  state.report = {{"steps_committed", 2u},
                  {"loss", {5.5, 5.25}},
                  {"grad_norm", {1.0, "NaN"}},
                  {"loss_scale", {65536, "Infinity"}},
                  {"checks", {{{"name", "finished"}, {"ok", true}}, {{"name", "golden"}, {"ok", false}}}}};
  std::map<std::string, double> values;
  EXPECT_EQ(wrong_with(openmetrics_text(state), values), "") << openmetrics_text(state);
  EXPECT_EQ(values["seeksim_job_exit_status"], 1);
  EXPECT_EQ(values["seeksim_steps_committed_total"], 2);
  EXPECT_EQ(values["seeksim_loss"], 5.25);
  EXPECT_TRUE(std::isnan(values["seeksim_grad_norm"]));
  EXPECT_TRUE(std::isinf(values["seeksim_loss_scale"]));
  EXPECT_EQ(values["seeksim_checks_red"], 1);
}

// A report that somebody else wrote, or that was cut.
TEST(JobMetrics, ReportsOfAnyShapeAreRead) {
  for (const char* report : {"null", "[]", "{}", R"({"loss": 3, "checks": {}})", R"({"loss": [], "checks": [1, null]})",
                             R"({"loss": ["x"], "grad_norm": [null], "checks": [{"ok": true}]})"}) {
    JobState state = running();
    state.report = Json::parse(report);
    std::map<std::string, double> values;
    EXPECT_EQ(wrong_with(openmetrics_text(state), values), "") << report;
  }
}

TEST(JobMetrics, TheReaderSeesWhatIsAgainstTheRules) {
  const std::string good = openmetrics_text(running());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::map<std::string, double> values;
    return wrong_with(text, values);
  };
  EXPECT_NE(with("# EOF\n", ""), "");
  EXPECT_NE(with("restarts_total", "restarts"), "");
  EXPECT_NE(with("seeksim_ranks_ready{", "seeksim_ranks{"), "");
  EXPECT_NE(with("\\\"name", "\"name"), "");
  EXPECT_NE(with("} 3\n", "} 3 4x\n"), "");
  EXPECT_NE(with("# TYPE seeksim_ranks_gone", "\n# TYPE seeksim_ranks_gone"), "");
  EXPECT_NE(with("_total{scenario=\"a \\\"name\\\"\\\\ of\\ntwo lines\"} 2", "_total{scenario=\"\"} -2"), "");
}

// ---- readers of others ---------------------------------------------------------------------------------------------

JobState ended() {
  JobState state = running();
  state.exit_status = 0;
  state.report = {{"steps_committed", 2u}, {"loss", {5.5, "NaN"}}, {"loss_scale", {65536.0}}};
  return state;
}

// It reads Prometheus' older text, in which a counter's help stands under its whole name; that is all it may miss.
TEST(JobMetrics, PromtoolReadsThem) {
  if (shell("command -v promtool").status != 0) GTEST_SKIP() << "there is no promtool (Debian's prometheus) here";
  const testing::TemporaryFolder folder;
  const auto said = [&](const std::string& text) {
    std::string other;
    std::istringstream lines(shell("sh -c 'promtool check metrics < " + folder.write("job.prom", text) + "'").text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.ends_with("_total no help text")) other += line + '\n';
    }
    return other;
  };
  EXPECT_EQ(said(openmetrics_text(running())), "");
  EXPECT_EQ(said(openmetrics_text(ended())), "");
  EXPECT_NE(said("seeksim_ranks{scenario=\"x} 4\n"), "");
  EXPECT_NE(said("# TYPE seeksim_ranks_total gauge\nseeksim_ranks_total 4\n"), "");
}

TEST(JobMetrics, PrometheusOwnParserReadsThem) {
  const char* named = std::getenv("SEEKSIM_READERS_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (shell(python + " -c 'import prometheus_client'").status != 0)
    GTEST_SKIP() << python << " has no prometheus_client; SEEKSIM_READERS_PYTHON names one that has";
  const testing::TemporaryFolder folder;
  const std::string script = folder.write("read.py", R"(import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(open(sys.argv[1]).read()):
    for sample in family.samples:
        print(family.type, sample.name, sample.labels["scenario"].count("\n"), float(sample.value))
)");
  const auto read = [&](const std::string& text) {
    return shell(python + ' ' + script + ' ' + folder.write("job.prom", text) + " 2>&1").text;
  };
  const std::string text = read(openmetrics_text(ended()));
  EXPECT_NE(text.find("gauge seeksim_ranks 1 4.0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("counter seeksim_job_restarts_total 1 2.0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("gauge seeksim_loss 1 nan\n"), std::string::npos) << text;
  EXPECT_NE(read("# TYPE seeksim_ranks gauge\nseeksim_ranks{scenario=\"\"} 4\n").find("EOF"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
