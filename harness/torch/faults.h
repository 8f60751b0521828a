// Which rows of the catalogue of faults a training script can be given, and what of each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "faults/plan.h"

namespace seeksim::harness::torch {

// One row a kind that applies. All others are refused, and say so.
struct TorchFault {
  faults::FaultKind kind;
  std::vector<std::string_view> keys;  // of a rule, beside `kind`
  std::vector<faults::Mode> modes;     // empty: it has none
  std::vector<faults::Site> sites;     // empty: it has none
  std::string_view what;               // what happens to the script's process, for people
};
const std::vector<TorchFault>& torch_faults();

// The rule with the place in memory that scripts have, where it names none.
faults::Rule as_in_torch(faults::Rule rule);

// What keeps a rule from being injected into a script of `ranks` ranks; the key that is wrong, and why.
std::vector<faults::Problem> problems_in_torch(const faults::Rule& rule, int ranks);

// Whether a rule about a script may have this key.
bool is_key_in_torch(faults::FaultKind kind, std::string_view key);

// Whether the rule, where it fires, keeps its rank out of a collective for good.
bool keeps_out(const faults::Rule& rule);

}  // namespace seeksim::harness::torch
