// Which samples a step uses and what of them it learns: data.sampler, data.packing and "curriculum", and what they
// cannot be together with.
#pragma once

#include <string>

#include "harness/input/keys.h"
#include "harness/input/reader.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

const Keys<runtime::SamplerPlan>& sampler_keys();
const Keys<runtime::PackingPlan>& packing_keys();
const Keys<runtime::CurriculumPlan>& curriculum_keys();

bool has_sampler(const Scenario& scenario);
bool has_packing(const Scenario& scenario);
bool has_curriculum(const Scenario& scenario);

// top: the scenario. After the data and the batch.
void read_sampler(const Reader& top, Scenario& scenario);
// Packing and curriculum, when all else is read.
void read_lessons(const Reader& top, Scenario& scenario);

}  // namespace seeksim::harness
