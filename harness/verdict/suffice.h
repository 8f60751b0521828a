// Whether a run that stopped cleanly should have gone on. A stop is the right end where too much is lost, and an
// excuse where what is left suffices; the runtime says which itself, so something else has to judge it. This looks
// only at what struck, at who is gone, and at what the scenario promises (recovery.peer_copies, attempts_max).
//
// Said only where nothing excuses the stop: policy rebuild_and_redo, a world of data parallelism alone, faults of
// ranks, links, messages and pace, fewer recoveries than attempts, and a golden that reaches its last step.
#pragma once

#include <string>

#include "harness/verdict/checks.h"

namespace seeksim::harness {

// Why the survivors would have sufficed, as a sentence; empty: nothing is to be said against the stop.
std::string would_have_sufficed(const Evidence& evidence);

}  // namespace seeksim::harness
