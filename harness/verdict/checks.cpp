#include "harness/verdict/checks.h"

#include <fmt/format.h>

#include <set>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/scenario/variants.h"

namespace seeksim::harness {
namespace {

std::deque<CheckInfo>& table() {
  static std::deque<CheckInfo> all = built_in_checks();
  return all;
}

const CheckInfo* find(const std::string& name) {
  for (const CheckInfo& row : table()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// The argument of {name: argument} in canonical form.
std::string canonical(const Json& argument) {
  if (argument.is_string()) return argument.get<std::string>();
  if (!argument.is_array()) return argument.dump();
  if (argument.empty()) return "none";
  std::string text;
  for (const Json& one : argument) text += (text.empty() ? "" : ",") + one.dump();
  return text;
}

}  // namespace

const std::deque<CheckInfo>& check_catalogue() { return table(); }

void add_to_catalogue(CheckInfo check) { table().push_back(std::move(check)); }

CheckProblem read_check(const Json& written, int ranks, CheckSpec& spec) {
  if (written.is_string()) {
    const std::string text = written.get<std::string>();
    const std::size_t colon = text.find(':');
    spec.name = text.substr(0, colon);
    spec.argument = colon == std::string::npos ? "" : text.substr(colon + 1);
  } else {
    spec.name = written.begin().key();
    spec.argument = canonical(written.begin().value());
  }
  const CheckInfo* row = find(spec.name);
  if (row == nullptr) {
    std::vector<std::string> known;
    for (const CheckInfo& one : table()) known.emplace_back(one.name);
    return {fmt::format("there is no check {}", in_quotes(spec.name)), did_you_mean(spec.name, known)};
  }
  const std::string wrong = row->wrong(spec.argument, ranks);
  if (wrong.empty()) return {};
  return {fmt::format("{} {}", spec.name, wrong),
          row->argument[0] ? fmt::format("For example {}:{}.", spec.name, row->argument) : ""};
}

CheckResult judge(const CheckSpec& check, const Evidence& evidence) {
  const CheckInfo* row = find(check.name);
  if (row == nullptr) return {check.text(), false, "there is no such check"};
  Finding finding = row->judge(evidence, check.argument);
  if (!finding.looked) finding.detail = "looked at nothing: " + finding.detail;
  return {check.text(), finding.ok && finding.looked, std::move(finding.detail), finding.looked};
}

std::vector<const CheckInfo*> judged_unasked(const Evidence& evidence) {
  std::set<std::string> listed;
  for (const CheckSpec& check : evidence.scenario.checks) listed.insert(check.name);
  std::vector<const CheckInfo*> rows;
  for (const CheckInfo& row : table()) {
    if (row.unasked && !listed.contains(row.name) && row.unasked(evidence)) rows.push_back(&row);
  }
  return rows;
}

Needs needs(const Scenario& scenario) {
  Needs all = Needs::nothing;
  for (const CheckSpec& check : scenario.checks) {
    if (const CheckInfo* row = find(check.name); row != nullptr) all = all | row->needs;
    if (check.text() == "golden:gradients") all = all | Needs::gradients;
  }
  if (scenario.drawn_faults > 0) all = all | Needs::step;
  if (is_fast(scenario)) all = all | Needs::contract;
  if (scenario.train.definition.quirks.any()) all = all | Needs::no_quirks;
  return all;
}

bool needs_golden(const Scenario& scenario) { return has(needs(scenario), Needs::golden); }
bool needs_gradients(const Scenario& scenario) { return has(needs(scenario), Needs::gradients); }

}  // namespace seeksim::harness
