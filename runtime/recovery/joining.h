// The way into a run that is under way: a spare or a rank that came back waits until it is taken in, and then hears
// where the run stands before it does anything in it.
#pragma once

#include <optional>

#include "runtime/decide/membership.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

// Until members enter an epoch with this rank, and one of them has handed over. Nothing: the run ended without it.
// Throws SeamError where those who took it in are gone again.
std::optional<HandOver> wait_to_join(Rank& rank, const TrainPlan& plan);

// The vote with which every world begins that ranks join. Members send the hand-over in their ballots; joining ranks
// send none. Returns the hand-over of the first member.
HandOver hand_over(Rank& rank, const TrainPlan& plan, const std::optional<HandOver>& known);

}  // namespace seeksim::runtime
