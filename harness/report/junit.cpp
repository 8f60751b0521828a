// JUnit, as CI systems read it: a suite a scenario, a case a check. Made from the JSON reports, so that it cannot
// disagree.
#include <fmt/format.h>

#include <pugixml.hpp>
#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "harness/report/report.h"

namespace seeksim::harness {
namespace {

// XML 1.0 has no way to write most control characters, and wants UTF-8: what does not fit becomes '?'.
std::string plain(const std::string& raw) {
  // Through JSON's replacement of invalid UTF-8, without its quotes and escapes.
  std::string text = Json::parse(Json(raw).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') c = '?';
  }
  return text;
}

void set(pugi::xml_node node, const char* attribute, const std::string& text) {
  node.append_attribute(attribute).set_value(plain(text).c_str());
}

// One element of the file, and what it adds up to: a suite, or all suites.
struct Counts {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  void add(const Counts& other) {
    tests += other.tests;
    failures += other.failures;
    errors += other.errors;
    skipped += other.skipped;
  }
  void write(pugi::xml_node node) const {
    node.append_attribute("tests").set_value(tests);
    node.append_attribute("failures").set_value(failures);
    node.append_attribute("errors").set_value(errors);
    node.append_attribute("skipped").set_value(skipped);
  }
};

class Suite {
 public:
  Suite(pugi::xml_node node, std::string name) : node_(node), name_(std::move(name)) {}
  // outcome: "failure", "error" or "skipped"; null: it passed. wall_s: below zero, unknown.
  void add(const std::string& test, const char* outcome, const std::string& message, double wall_s = -1) {
    pugi::xml_node one = node_.append_child("testcase");
    set(one, "classname", name_);
    set(one, "name", test);
    if (wall_s >= 0) set(one, "time", fmt::format("{:.3f}", wall_s));
    ++counts.tests;
    if (outcome == nullptr) return;
    set(one.append_child(outcome), "message", message);
    const std::string_view which = outcome;
    ++(which == "error" ? counts.errors : which == "skipped" ? counts.skipped : counts.failures);
  }
  Counts counts;

 private:
  pugi::xml_node node_;
  std::string name_;
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

const char* outcome_of(int status) { return status == 0 ? nullptr : status == 1 ? "failure" : "error"; }

// A sweep: a case a row.
void add_rows(const Json& report, Suite& suite) {
  for (const Json& row : report["rows"])
    suite.add(row_name(row), outcome_of(row.value("exit_code", 4)), row_message(row), row.value("wall_s", -1.0));
}

// The verdict is a case of its own: an expected red check is not a failure, a missing one is.
void add_checks(const Json& report, Suite& suite) {
  const int status = report.value("exit_code", 4);
  for (const Json& check : report.value("checks", Json::array())) {
    const bool red = !check.value("ok", false) && status != 0;
    const char* outcome = check.value("skipped", false) ? "skipped" : red ? "failure" : nullptr;
    suite.add(check.value("name", "?"), outcome, check.value("detail", ""));
  }
  std::string message = report.value("sentence", "");
  for (const Json& problem : report.value("problems", Json::array())) {
    message += (message.empty() ? "" : "\n") + problem.get<std::string>();
  }
  suite.add("verdict", outcome_of(status), message, report.value("wall_s", -1.0));
}

Counts add_suite(const Json& report, pugi::xml_node suites) {
  const std::string name = report.value("scenario", "?");
  pugi::xml_node node = suites.append_child("testsuite");
  Suite suite(node, name);
  report.contains("rows") ? add_rows(report, suite) : add_checks(report, suite);
  set(node, "name", name);
  suite.counts.write(node);
  set(node, "time", fmt::format("{:.3f}", report.value("wall_s", 0.0)));
  return suite.counts;
}

}  // namespace

std::string junit_xml(const std::vector<Json>& reports) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  set(declaration, "version", "1.0");
  set(declaration, "encoding", "UTF-8");
  pugi::xml_node suites = document.append_child("testsuites");
  Counts all;
  for (const Json& report : reports) all.add(add_suite(report, suites));
  set(suites, "name", "seeksim");
  all.write(suites);
  std::ostringstream out;
  document.save(out, "  ");
  return out.str();
}

}  // namespace seeksim::harness
