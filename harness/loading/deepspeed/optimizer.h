// DeepSpeed's "optimizer" and "scheduler": read with its defaults, refused where this version has nothing like it,
// written back.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// section: "deepspeed".
void read_optimizer(const Reader& section, Scenario& scenario);
void read_scheduler(const Reader& section, Scenario& scenario);  // after the optimizer, whose rate it may end at

Json optimizer_json(const runtime::OptimizerPlan& plan);
// For a plan that comes from "scheduler", not from a table of rates.
Json scheduler_json(const runtime::SchedulerPlan& plan);

}  // namespace seeksim::harness
