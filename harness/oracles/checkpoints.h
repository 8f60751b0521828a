// Checks about checkpoints on disk, and about starts of the job.
#pragma once

#include <string>

#include "harness/oracles/evidence.h"

namespace seeksim::harness {

// Whatever has a manifest after the run is whole; and there is at least one.
Finding checkpoints_valid(const Evidence& evidence, const std::string& unused);
// The checkpoint that `at_end` asks for is complete. Judged where a rank finished.
bool last_checkpoint_to_judge(const Evidence& evidence);
Finding saved_at_end(const Evidence& evidence, const std::string& unused);
Finding restarts(const Evidence& evidence, const std::string& wanted);
// By recoveries within a job and by starts of the job.
Finding steps_lost(const Evidence& evidence, const std::string& limit);

}  // namespace seeksim::harness
