// JUnit, as CI systems read it: a suite a scenario, a case a check. Made from the JSON reports, so that it cannot
// disagree.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/report/report.h"

namespace seeksim::harness {
namespace {

// XML 1.0 has no way to write most control characters, and wants UTF-8: what does not fit becomes '?'.
std::string xml(const std::string& raw) {
  // Through JSON's replacement of invalid UTF-8, without its quotes and escapes.
  const std::string text =
      Json::parse(Json(raw).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&apos;";
        break;
      case '\n':
        out += "&#10;";
        break;
      case '\t':
        out += "&#9;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return out;
}

std::string testcase(const std::string& suite, const std::string& name, const char* outcome,
                     const std::string& message) {
  std::string out = fmt::format("    <testcase classname=\"{}\" name=\"{}\"", xml(suite), xml(name));
  if (outcome == nullptr) return out + "/>\n";
  return out + fmt::format(">\n      <{} message=\"{}\"/>\n    </testcase>\n", outcome, xml(message));
}

struct Suite {
  std::string cases;
  int tests = 0, failures = 0, errors = 0;
};

// A row as one line: what was set, and why it is red.
std::string row_name(const Json& row) {
  std::string name = fmt::format("row {}", row.value("row", 0));
  const Json settings = row.value("settings", Json::object());
  for (const auto& [key, value] : settings.items()) {
    name += fmt::format(" {}={}", key, value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return name;
}

std::string row_message(const Json& row) {
  std::string message = row.value("sentence", "");
  const auto add = [&](const std::string& line) { message += (message.empty() ? "" : "\n") + line; };
  for (const Json& check : row.value("checks", Json::array())) {
    if (!check.value("ok", false)) add(check.value("name", "?") + ": " + check.value("detail", ""));
  }
  for (const Json& problem : row.value("problems", Json::array())) add(problem.get<std::string>());
  add(row.value("command", ""));
  return message;
}

// A sweep: a case a row.
Suite suite_of_rows(const Json& report) {
  Suite suite;
  for (const Json& row : report["rows"]) {
    const int status = row.value("exit_code", 4);
    const char* outcome = status == 0 ? nullptr : status == 1 ? "failure" : "error";
    suite.cases += testcase(report.value("scenario", "?"), row_name(row), outcome, row_message(row));
    suite.failures += status == 1;
    suite.errors += status >= 2;
    ++suite.tests;
  }
  return suite;
}

// The verdict is a case of its own: an expected red check is not a failure, a missing one is.
Suite suite_of(const Json& report) {
  Suite suite;
  const std::string name = report.value("scenario", "?");
  const int status = report.value("exit_code", 4);
  for (const Json& check : report.value("checks", Json::array())) {
    const bool red = !check.value("ok", false) && status != 0;
    suite.cases += testcase(name, check.value("name", "?"), red ? "failure" : nullptr, check.value("detail", ""));
    suite.failures += red;
    ++suite.tests;
  }
  std::string message = report.value("sentence", "");
  for (const Json& problem : report.value("problems", Json::array())) {
    message += (message.empty() ? "" : "\n") + problem.get<std::string>();
  }
  const bool error = status >= 2;
  suite.cases += testcase(name, "verdict", status == 0 ? nullptr : error ? "error" : "failure", message);
  suite.failures += status == 1;
  suite.errors += error;
  ++suite.tests;
  return suite;
}

}  // namespace

std::string junit_xml(const std::vector<Json>& reports) {
  std::string suites;
  int tests = 0, failures = 0, errors = 0;
  for (const Json& report : reports) {
    const Suite suite = report.contains("rows") ? suite_of_rows(report) : suite_of(report);
    suites += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\">\n{}  </testsuite>\n",
        xml(report.value("scenario", "?")), suite.tests, suite.failures, suite.errors, report.value("wall_s", 0.0),
        suite.cases);
    tests += suite.tests;
    failures += suite.failures;
    errors += suite.errors;
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"seeksim\" tests=\"{}\" failures=\"{}\" "
      "errors=\"{}\">\n{}</testsuites>\n",
      tests, failures, errors, suites);
}

}  // namespace seeksim::harness
