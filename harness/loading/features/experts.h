// Experts: which of the model's keys fit each other, and what a run with experts cannot do yet.
#pragma once

#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// Holds the keys of "model" that speak of experts against each other; normalize_gates is read here.
void settle_experts(const Reader& model, runtime::ModelPlan& of);
// And slabs of an expert against its width.
void check_expert_sums(const Reader& model, const runtime::ModelPlan& plan);
// Over how many samples the routing is counted: as the model says, or a quirk. Before the step is cut.
void settle_routing(const Reader& top, Scenario& scenario);
// Whether the choices of experts are counted, since an alarm is about them.
void settle_counting(const Reader& top, Scenario& scenario);
// Reports what a model with experts cannot be together with, once all is read.
void check_experts(const Reader& top, const Scenario& scenario);

}  // namespace seeksim::harness
