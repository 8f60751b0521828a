// deepspeed.tensorboard and deepspeed.csv_monitor: files of metrics in the places that DeepSpeed would write them to.
#pragma once

#include "harness/input/keys.h"
#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<Monitor>& monitor_keys();

// A note tells where files go, or why there will be none.
void read_monitors(const Reader& deepspeed, Scenario& scenario);
// Adds the monitors that are on.
void write_monitors(const Scenario& scenario, Json& deepspeed);

}  // namespace seeksim::harness
