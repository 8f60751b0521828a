// The checks that look inside a distributed step: do ranks take part in the same collectives, hold the same replicas,
// own every element once, and need the memory and traffic that ZeRO promises. Rows of check_table.cpp; each has a
// planted bug (runtime/rules/bug.h) that turns it red.
#pragma once

#include <string>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

Finding collectives_match(const Evidence& evidence, const std::string& argument);
Finding replicas_equal(const Evidence& evidence, const std::string& argument);
Finding partition(const Evidence& evidence, const std::string& argument);
Finding memory_formula(const Evidence& evidence, const std::string& argument);
Finding model_state(const Evidence& evidence, const std::string& gigabytes);
Finding traffic_formula(const Evidence& evidence, const std::string& argument);
Finding conservation(const Evidence& evidence, const std::string& argument);
Finding one_history(const Evidence& evidence, const std::string& argument);

// Over the steps of a pipeline that were measured after the first; 0 where there are none.
double measured_bubble(const RunRecord& run);
// (p-1)/(v*m+p-1) for GPipe, 1F1B and interleaved, v pieces of the model a stage (Narayanan et al. 2021), to `percent`
// of itself. Holds where messages are free and stages cost alike.
Finding bubble_formula(const Evidence& evidence, const std::string& percent);
// Micro-batches whose activations a stage holds at a time: min(p - s, m) under 1F1B, m under GPipe.
Finding live_activations(const Evidence& evidence, const std::string& argument);

// What is wrong with an argument of model_state; empty: nothing.
std::string want_gigabytes(const std::string& text, int);

// Whether a run that did not ask has something to judge for these: collectives_match, replicas_equal, partition,
// one_history.
bool collectives_to_match(const Evidence& evidence);
bool replicas_to_compare(const Evidence& evidence);
bool shards_to_judge(const Evidence& evidence);
// Whether memory and traffic have formulas: whole models on each rank, and nothing happened but training.
bool formulas_apply(const Evidence& evidence);
bool commits_to_compare(const Evidence& evidence);

}  // namespace seeksim::harness
