// What the ranks of a script's run did when, as spans: for a trace and for a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/torch/run_record.h"

namespace seeksim::harness::torch {

// Times are nanoseconds since the first rank's record began.
struct PhaseSpan {
  pytorch::StepPhase phase = pytorch::StepPhase::init;
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};
struct CallSpan {
  const pytorch::CallEntry* call = nullptr;
  std::int64_t begin_ns = 0, end_ns = 0;  // in a collective that never ended: until the rank's last sign
  int waits_for = -1;                     // who came last; -1: this rank did, or nobody knows
  std::int64_t waited_until_ns = 0;       // when it came
};
struct StepSpan {
  std::int64_t step = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
};
// Something at an instant.
struct Moment {
  enum class What : std::uint8_t { fault, verdict } what = What::fault;
  std::int64_t at_ns = 0;
  std::string text;
};
struct RankSpans {
  int rank = 0;
  std::vector<PhaseSpan> phases;
  std::vector<StepSpan> steps;
  std::vector<CallSpan> calls;  // in the order in which they began
  std::vector<Moment> moments;
  std::int64_t end_ns = 0;  // its last sign
};

// Of the ranks that left a record; what points into it lives as long as the run does.
std::vector<RankSpans> spans_of(const TorchRun& run);

}  // namespace seeksim::harness::torch
