// `seeksim run --explain`: one page about a red run. What is red; the first thing that differs from what it should be;
// what caused it; what a user would have seen of it; and which of the museum's mistakes look alike.
//
// Likeness is a sum over what two runs show, never over what was planted in them: the checks that are red, how the run
// ended, the phase, kind and memory of the first operation that differs, whether the loss curve shows it, and the
// setting. A shortlist is chosen by the exhibits' own descriptions, and those are run to see the rest.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/explain/diff.h"
#include "harness/input/json.h"
#include "harness/report/report.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// What a run shows of itself.
struct Signature {
  std::set<std::string> red;      // checks, without their arguments
  std::string end;                // "finished", "stopped", "stuck"
  std::string phase, kind, tag;   // of the first operation that differs from the golden's; empty: none does
  bool curve = false;             // the loss curve shows it
  std::set<std::string> setting;  // "stage 2", "fp16", "pipeline", ...
};
Signature signature_of(const Scenario& scenario, const Json& report, const Difference& difference, bool curve);

// 0 to 1, and in words what is alike: "the same checks are red; it begins in backward".
struct Likeness {
  double score = 0;
  std::string why;
};
Likeness likeness(const Signature& a, const Signature& b);

struct LikeExhibit {
  std::string file, name;
  Likeness how;
  Json museum;  // symptom, fix, source
};

struct Explanation {
  std::vector<std::string> red;       // "golden:bitwise: 3 of 12 weights ..."
  Difference difference;              // from the golden; any == false where there is none, or nothing to compare
  std::string no_difference;          // why it was not looked for; empty: it was
  std::vector<std::string> causes;    // planted, injected, or what the flight recorders say
  std::string curve;                  // what a plot of the loss alone shows
  std::string end;                    // how the job would have ended for a user
  std::vector<LikeExhibit> exhibits;  // the most alike first, three at most
};
// Explains a scenario that was run, with its report. wall_limit_s: for each run that this takes; 0: no limit.
Explanation explain(const Scenario& scenario, const Json& report, double wall_limit_s);
std::string explanation_text(const Explanation& explanation, const Style& style);
Json explanation_json(const Explanation& explanation);

}  // namespace seeksim::harness
