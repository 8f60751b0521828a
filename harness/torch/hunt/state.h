// What a hunt knows so far, kept in hunt.json: the next one with the same folder goes on from there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/torch/hunt/draw.h"

namespace seeksim::harness::torch {

inline constexpr const char* kHuntSchema = "seeksim-torch-hunt-1";

struct HuntFinding {
  std::string key;     // signature()
  Case drawn;          // as plain as it stays red
  Case first;          // as it was drawn
  int number = 0;      // of the case that found it
  int times = 1;       // cases that it explains
  bool shown = false;  // it was red again, as it is told
  std::string check, text, where, expected, why;
  std::string script;  // file
};

using Versions = std::map<std::string, std::string>;  // of packages

// What a hunt is of: another one of these takes another folder.
struct HuntOf {
  std::string torch;    // its version
  Versions frameworks;  // of those that are there
  std::uint64_t seed = 1;
  std::vector<std::string> only, imports;
  friend bool operator==(const HuntOf&, const HuntOf&) = default;
};

struct HuntState {
  HuntOf of;
  int number = 0;  // of the next case
  int runs = 0;    // of scripts, those that shrink and measure included
  double wall_s = 0, processor_s = 0;
  std::map<std::string, int> ends;   // cases, by how they ended; "known": red, and told before
  std::map<std::string, int> known;  // findings that were told before: how many cases each explains
  std::vector<Refusal> refusals;
  std::vector<HuntFinding> found;
};

Json to_json(const HuntState& state, const Coverage& coverage);
// Fills both from what to_json() wrote. Throws BadInput where the file is of another hunt, or of no hunt.
void load_state(const std::string& file, HuntState& state, Coverage& coverage);

}  // namespace seeksim::harness::torch
