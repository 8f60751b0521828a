// What a supervisor keeps of a run that stopped or is red: enough to see what happened and to run it again.
#pragma once

#include <string>

#include "harness/report/report.h"

namespace seeksim::harness {

// scenario.json (with the seed), run.json (seed, commit, exit status, why it stopped), story.txt, analysis.json and one
// flight recorder dump a living rank. Throws BadInput.
void write_bundle(const std::string& folder, const Evidence& evidence, const Judgement& judgement,
                  const std::string& story);
// Whether there is something to keep.
bool wants_bundle(const Judgement& judgement);

// One analysis a failure, in order; at last of a run that ended without an agreement.
Json analyses_json(const RunRecord& run);

}  // namespace seeksim::harness
