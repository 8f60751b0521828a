// `seeksim run --explain`: one page about a red run, which says what is known and no more. First the operation that
// went wrong (names.h), then what was waited for, then what was injected or planted, apart from what went wrong; what a
// user would have seen; and which of the museum's mistakes show the same, in words.
//
// All of it is done in a process of its own: the run that is explained may do anything.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/explain/names.h"
#include "harness/input/json.h"
#include "harness/report/report.h"
#include "harness/run/options.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// What a run shows of itself, whatever was planted in it.
struct Signature {
  std::set<std::string> red;  // checks, without their arguments
  std::string operation;      // "backward compute" of the first operation that went wrong; empty: none is named
  std::string family;         // its tensor, without the number of its layer: "h.*.mlp.c_fc.weight"
  Mistake mistake = Mistake::unknown;
};
Signature signature_of(const Json& report, const Names& names);

// What two runs have in common, most telling first: "same checks, same operation". Empty: nothing.
std::vector<std::string> common_signs(const Signature& a, const Signature& b);

struct LikeExhibit {
  std::string file, name;
  std::vector<std::string> signs;
  Json museum;  // symptom, fix, source
};

struct Explanation {
  std::vector<std::string> red;  // "golden:bitwise: 3 of 12 weights ..."
  Names names;
  std::vector<std::string> waited;    // what the flight recorders say of who waited for whom
  std::vector<std::string> injected;  // faults that fired: what the run was given, not what went wrong
  std::vector<std::string> planted;   // a bug or a quirk that was asked for
  std::string curve;                  // what somebody who only plots the loss sees
  std::string end;                    // how the job would have ended for a user
  std::vector<LikeExhibit> exhibits;  // with most in common first, three at most
};
// Explains a scenario that was run, with its report. wall_limit_s: for each run that this takes; 0: no limit.
Explanation explain(const Scenario& scenario, const Json& report, double wall_limit_s);
std::string explanation_text(const Explanation& explanation, const Style& style);
Json explanation_json(const Explanation& explanation);

// The same in a child process; where that ends before it is through, the page says how.
RunOptions::Page explain_aside(const Scenario& scenario, const Json& report, double wall_limit_s, const Style& style);
// The first operation that went wrong, alone, likewise in a child process. Empty: nothing can be named.
RunOptions::Page name_aside(const Scenario& scenario, const Json& report, double wall_limit_s);

}  // namespace seeksim::harness
