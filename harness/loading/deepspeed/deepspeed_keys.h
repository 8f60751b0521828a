// The keys of DeepSpeed's configuration that are accepted, one row each.
#pragma once

#include "harness/input/keys.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<Scenario>& deepspeed_keys();

}  // namespace seeksim::harness
