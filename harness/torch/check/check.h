// "Is my training script right?": the script as it is, and once for each switch that ought not to matter.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
#include "harness/torch/check/switches.h"
#include "harness/torch/compare.h"

namespace seeksim::harness::torch {

inline constexpr const char* kCheckSchema = "seeksim-torch-check-1";

struct CheckRequest {
  std::vector<std::string> command;  // behind --: a script (.py) and its arguments; {dir}: a folder for its checkpoints
  std::vector<std::string> only;     // --only: switches; empty: all
  std::string resume;                // --resume: arguments with which the script goes on from {dir}; empty: none
  std::optional<int> np;             // --np
  std::string python;                // --python
  std::string out;                   // --out: the runs, each in a folder; empty: a temporary one that goes again
  bool quiet = false;                // nothing but the result is printed
  Style style;
};

// What became of one line: a judge of the script as it is, or a switch.
struct CheckLine {
  enum class State { good, red, not_applicable };
  std::string name;
  State state = State::good;
  std::string demand;  // "bits"; empty: a judge
  std::string text;    // what was found, or why it does not apply
  std::optional<RunComparison> found;
};

// Runs it and tells each line as it is known. Status 1 where a line is red. Throws BadInput: no script, an unknown
// switch, or the script fails by itself.
Outcome run_check(const CheckRequest& request, const Print& print);

// A line for people, and all of them for programs.
std::string line_text(const CheckLine& line, const Style& style);
Json check_json(const CheckRequest& request, int ranks, const std::string& torch, const std::vector<CheckLine>& lines);
// "2 of 14 lines are red: samples, np; 10 do not apply"
std::string check_sentence(const std::vector<CheckLine>& lines);
// The last line for people: "PASS train: 31 lines hold"; FAIL; STOPPED where the command was asked to stop.
std::string last_line(ExitStatus status, const std::string& name, const std::string& sentence, const Style& style);

// The line of a switch from the run with nothing turned and the one with it turned. allowed: what other orders of sums
// and other roundings move; null: neither could be measured, so that no distance is too far.
CheckLine judged(const Switch& turned, const TorchRun& plain, const TorchRun& run, const Allowance* allowed);

}  // namespace seeksim::harness::torch
