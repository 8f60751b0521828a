// "faults": the rules of a scenario. Keys, kinds and limits come from the catalogue of faults/, nothing is listed
// twice.
#pragma once

#include <vector>

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// The keys of one rule.
const Keys<faults::Rule>& rule_keys();

// nodes: launch rank -> node; empty when the world itself is wrong (places are not checked then). more: whether a kind
// takes a key that the catalogue does not give it; null: none does.
using MoreKeys = bool (*)(faults::FaultKind kind, std::string_view key);
std::vector<faults::Rule> read_faults(const Reader& scenario, const std::vector<int>& nodes, MoreKeys more = nullptr);

// Tokens that faults put into batches are those of the vocabulary.
void check_tokens(const Reader& top, const Scenario& scenario);

Json to_json(const faults::Rule& rule);

}  // namespace seeksim::harness
