// What is told already. A hunt counts the cases that a finding explains, and does not tell it again; what a framework
// is known to refuse is not drawn.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/torch/hunt/draw.h"

namespace seeksim::harness::torch {

struct KnownFinding {
  std::string name;                                      // of its page in docs/findings; of --known: the case
  std::map<std::string, std::vector<std::string>> when;  // what it needs: one of these values of each feature
};

// Those of docs/findings, a row for each form. A release without the mistake is green there, so that the row says
// nothing.
const std::vector<KnownFinding>& known_findings();
// Features that a framework refuses together with an error (docs/torch-findings.md).
const std::vector<Refusal>& known_refusals();
// What --known names. Throws BadInput.
KnownFinding known_by(const std::string& text);
// One that a hunt found.
KnownFinding known_by(const Case& found);

// Whether the case has what the finding needs.
bool covers(const KnownFinding& known, const Case& drawn);
// Whether the finding explains this case, which is red: without what it needs the case is not. red: runs a case.
bool explains(const KnownFinding& known, const Case& drawn, const std::function<bool(const Case&)>& red);

}  // namespace seeksim::harness::torch
