// The first difference of two runs, or of a run and its golden: step, operation, micro-batch, rank, tensor, element and
// leaf, with both bit patterns; and the way there, from the fault that was injected to the loss that people see.
//
// Both are run once for their steps, once more with a digest of what each operation read and wrote (sim/value_log.h),
// and once to keep the bits of the first that differs. Operations are the same ones where they do the same with the
// same samples of a step, whatever rank, micro-batch or time that is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

// One side of it.
struct Sight {
  int rank = -1;
  runtime::Op op;
  TimeNs at_ns = 0;
  std::uint64_t entry = 0;  // in the rank's log
};

struct OpDifference {
  Sight a, b;
  std::string buffer, tag;
  bool read = false;  // it differed already when the operation read it: nothing that is logged wrote it
  runtime::ElementType type = runtime::ElementType::f32;
  std::int64_t element = -1;  // of what the operation touched there; -1: the bits were not kept
  std::int64_t elements = 0;
  std::string bits_a, bits_b;  // hexadecimal
  std::string value_a, value_b;
  std::int64_t first_sample = -1, samples = 0;  // of the step, that the operation is about; -1: of all, or of none
  std::int64_t leaf = -1;                       // the sample whose value it is; -1: it is no single sample's
};

struct Difference {
  bool any = false;
  std::int64_t step = -1;          // the first that differs; -1: only what is there after the last one
  std::string what;                // "loss 1.5 and 1.6; gradients": what of the step differs
  std::optional<OpDifference> op;  // the first operation
  std::vector<std::string> chain;  // from the cause to what is seen, one line each
  std::uint64_t compared = 0;      // entries
  std::uint64_t differing = 0;     //   of these
};

// As people read it, each line behind `margin`; and as the reports have it.
std::string difference_text(const OpDifference& op, const std::string& margin);
Json difference_json(const OpDifference& op);

// What to hold a scenario against where no other is named: one rank, and the same micro-batches as far as it can, so
// that most operations have their like.
Scenario golden_like(const Scenario& scenario);

// Runs both with their faults and bugs. Throws BadInput where they cannot be compared.
Difference difference_of(const Scenario& a, const Scenario& b, double wall_limit_s);

}  // namespace seeksim::harness
