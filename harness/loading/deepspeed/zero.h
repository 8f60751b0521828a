// DeepSpeed's "zero_optimization": stage, buckets and switches. They change where and when work is done, never a bit.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<Scenario>& zero_keys();

// section: "deepspeed".
void read_zero(const Reader& section, Scenario& scenario);
// What DeepSpeed refuses together with ZeRO, in its words.
void refuse_with_zero(const Reader& section);
// What of "zero_optimization" acts at the plan's stage.
Json zero_json(const runtime::ZeroPlan& plan);

// Whether a key of zero_optimization acts at a stage, and how a note names one that does not, with the reason.
bool acts_at_stage(const std::string& key, int stage);
std::string idle_zero_key(const std::string& key, int stage);

}  // namespace seeksim::harness
