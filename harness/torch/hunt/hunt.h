// `seeksim torch hunt`: trainings by chance in DDP, FSDP and DeepSpeed, each held to the same training by hand.
#pragma once

#include <string>
#include <vector>

#include "harness/report/outcome.h"
#include "harness/report/report.h"
#include "harness/torch/hunt/state.h"
#include "harness/torch/hunt/trial.h"

namespace seeksim::harness::torch {

struct HuntRequest {
  std::string budget = "60s";        // --budget
  int cases = 0;                     // --cases: end after so many; 0: by time alone
  int findings = 0;                  // --findings: end after so many different ones; 0: go on
  std::uint64_t seed = 1;            // --seed
  std::vector<std::string> only;     // --only: values of features
  std::string one;                   // --case: this one, and no other
  std::vector<std::string> known;    // --known: cases of more findings that are not told again
  bool again = false;                // --again: those of docs/findings are told, too
  std::vector<std::string> imports;  // --import: modules that the ranks' process imports before they start
  std::string python;                // --python
  std::string out;     // --out: hunt.json, findings and the runs that show them; empty: a temporary folder
  bool quiet = false;  // nothing but the result is printed
  Style style;
};

// Draws cases and runs them as long as there is time; goes on where an earlier hunt with the same --out ended. Status 1
// where there is a finding. Throws BadInput.
Outcome hunt(const HuntRequest& request, const Print& print);

// For people: what is hunted in; what became of one case; a finding; the counts at the end.
std::string head_text(const HuntOf& of);
std::string verdict_text(const Case& drawn, const TrialVerdict& verdict, const Style& style);
std::string finding_text(const HuntFinding& found, const Style& style);
std::string counts_text(const HuntState& state, const Coverage& coverage);
// "3 findings in 120 cases"
std::string hunt_sentence(const HuntState& state, bool interrupted);

}  // namespace seeksim::harness::torch
