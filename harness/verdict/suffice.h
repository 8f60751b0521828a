// Whether a run that stopped cleanly should have gone on. A stop is the right end where too much is lost, and wrong
// where the survivors suffice. The runtime decides that itself, so an independent judge checks it. It looks only at the
// faults that struck, at the ranks that are gone, and at the scenario's promises (recovery.peer_copies, attempts_max).
//
// It speaks only where nothing excuses the stop: policy rebuild_and_redo, a world of data parallelism alone, faults of
// ranks, links, messages and pace, fewer recoveries than attempts, and a golden that reaches its last step.
#pragma once

#include <string>

#include "harness/verdict/checks.h"

namespace seeksim::harness {

// Why the survivors would have sufficed, as a sentence; empty: nothing is to be said against the stop.
std::string would_have_sufficed(const Evidence& evidence);

}  // namespace seeksim::harness
