// What a run looks like to people (text), to programs (JSON; the names are a contract) and to CI (JUnit).
#pragma once

#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/input/problem.h"
#include "harness/verdict/checks.h"

namespace seeksim::harness {

inline constexpr const char* kReportSchema = "seeksim-report-1";

struct Style {
  bool colour = false;
  std::string bold(const std::string& text) const { return paint(text, "1"); }
  std::string good(const std::string& text) const { return paint(text, "32"); }
  std::string bad(const std::string& text) const { return paint(text, "1;31"); }
  std::string faint(const std::string& text) const { return paint(text, "2"); }
  std::string paint(const std::string& text, const char* code) const {
    return colour ? "\033[" + std::string(code) + 'm' + text + "\033[0m" : text;
  }
};

// Before the run: name, seeds, everything drawn or derived.
std::string header_text(const Scenario& scenario, const Style& style);
// After it: the story in virtual time, the losses, the checks, the verdict.
std::string story_text(const Evidence& evidence, const Judgement& judgement, const Style& style);

// How to see this run again, to the bit; and what was decided about faults, for readers who do not run it.
std::string replay_text(const Evidence& evidence, const Style& style);

// What to do about a bug in seeksim.
std::string report_a_bug(const Scenario& scenario);

struct ReportExtras {
  std::string backend = "sim";
  std::string device = "cpu";
  double wall_s = 0;  // of everything, golden included
};
Json report_json(const Evidence& evidence, const Judgement& judgement, const ReportExtras& extras);
// A scenario that could not be run: the same frame with verdict "bad_input" and problems[], or "bug".
Json failure_json(const std::string& scenario, ExitStatus status, const std::vector<std::string>& problems);

// One report, or {"schema", "exit_code", "runs": [...]} for several.
Json whole_report(const std::vector<Json>& reports, ExitStatus status);
std::string junit_xml(const std::vector<Json>& reports);

}  // namespace seeksim::harness
