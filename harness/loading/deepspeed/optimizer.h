// DeepSpeed's "optimizer" and "scheduler": read with its defaults, refused where this version has nothing like it,
// written back.
#pragma once

#include <string>
#include <string_view>

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Names as a ds_config.json has them.
bool is_built_optimizer(const std::string& type);
bool is_built_scheduler(const std::string& type);
// ASCII only.
std::string lower(std::string_view text);

// section: "deepspeed".
void read_optimizer(const Reader& section, Scenario& scenario);
void read_scheduler(const Reader& section, Scenario& scenario);  // after the optimizer, whose rate it may end at

Json optimizer_json(const runtime::OptimizerPlan& plan);
// For a plan that comes from "scheduler", not from a table of rates.
Json scheduler_json(const runtime::SchedulerPlan& plan);

}  // namespace seeksim::harness
