// What became of a script's run in which faults struck, held against the run that nothing disturbed.
#pragma once

#include <optional>
#include <string>

#include "harness/torch/explore/places.h"
#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

enum class CaseEnd : std::uint8_t {
  not_struck,  // no fault found what it was to strike
  unnoticed,   // the same bits
  ended,       // its ranks ended with an error, as they should
  went_on,     // and the script went on from a checkpoint, with the same bits
  gave_up,     // a checkpoint was damaged, and the script said that it cannot go on
  red,
  count_
};
std::string_view name(CaseEnd end);

struct CaseVerdict {
  CaseEnd end = CaseEnd::unnoticed;
  std::string check;  // red: a judge, or "same_bits", "ends", "resumed", "recovers"
  std::string why;
};

// Of the run in which they struck. CaseEnd::ended: where it has a checkpoint, it is to be resumed.
CaseVerdict verdict_of(const TorchRun& undisturbed, const TorchRun& disturbed, Promise promise);
// Of a run that went on, and that faults broke off again; empty: its ranks ended as they should, and it may go on once
// more.
std::optional<CaseVerdict> verdict_of_broken_again(const TorchRun& run);
// Whether it came so far that its first checkpoint has to be whole.
bool has_saved(const TorchRun& undisturbed, const TorchRun& disturbed);
// Of the run that went on. failed: why there is none; empty: there is.
CaseVerdict verdict_of_resumed(const TorchRun& undisturbed, const TorchRun& disturbed, const TorchRun* resumed,
                               const std::string& failed, Promise promise);

}  // namespace seeksim::harness::torch
