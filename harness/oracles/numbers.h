// The checks about what numbers do: which steps were skipped, how the loss scale moved, where a value that is not
// finite was born, what rounding loses, where the loss leaps; and which samples they come from. Rows of
// check_table.cpp.
#pragma once

#include <string>
#include <vector>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

Finding skipped(const Evidence& evidence, const std::string& steps);
Finding loss_scale(const Evidence& evidence, const std::string& path);
Finding born(const Evidence& evidence, const std::string& where);
Finding stagnates(const Evidence& evidence, const std::string& share);
Finding tracks_fp32(const Evidence& evidence, const std::string& tolerance);
Finding evaluations(const Evidence& evidence, const std::string& argument);
bool evaluations_to_judge(const Evidence& evidence);  // unasked
Finding samples_once(const Evidence& evidence, const std::string& argument);
bool samples_to_judge(const Evidence& evidence);  // unasked
Finding spikes(const Evidence& evidence, const std::string& steps);

// Whether these steps are those that are wanted, which `what` says.
Finding same_steps(const std::vector<std::int64_t>& seen, const std::string& wanted, const char* what);

// For people, one line; empty where nothing was evaluated. And for the report.
std::string evaluations_text(const RunRecord& run);
Json evaluations_json(const RunRecord& run);

// What is wrong with an argument; empty: nothing.
std::string want_steps(const std::string& text, int);
std::string want_numbers(const std::string& text, int);
std::string want_birth(const std::string& text, int);

// The first birth of a run: the earliest step, then what comes first in a step. Null: none was seen.
const Birth* first_birth(const RunRecord& run);
// "'gelu' wrote element 17 of 'gelu' (fp32) on rank 2 in step 3, micro-batch 1, layer 1, forward; ..."
std::string birth_text(const Birth& birth);
Json birth_json(const Birth& birth);
Json sight_json(const runtime::TensorSight& sight);

}  // namespace seeksim::harness
