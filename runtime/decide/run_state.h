// RunState: where a run stands, beside its tensors. What a checkpoint's manifest holds, and what a rank that joins is
// told: every field decides how the run goes on, and leaving one out turns a test red
// (tests/runtime/checkpoint/checkpoint_test.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/samples/sampler.h"

namespace seeksim::runtime {

struct RunState {
  std::int64_t contract_version = 0;  // of the numerics: other bits otherwise
  std::uint64_t definition = 0;       // digest of what decides the bits; another run's state is refused
  std::int64_t step = 0;              // steps that are committed
  std::int64_t data_position = 0;     // samples that are used up
  SamplerState sampler;               // where the data set's order stands; zeros where there is none
  std::uint64_t training_seed = 0;
  std::int64_t optimizer_steps = 0;  // Adam's t, which the schedule follows too
  LossScalerState scaler;
  SkipState skips;
  std::vector<Fp8State> fp8;                  // of each tensor that is cast to 8 bits; empty: none is scaled by history
  std::vector<std::int64_t> dropped_batches;  // that no step uses, found bad on the way
  std::vector<std::int64_t> undone_changes;   // steps of changes that were rolled back, ascending
  std::uint32_t epoch = 0;                    // in which it was written; not compared
  friend bool operator==(const RunState&, const RunState&) = default;
};

// A digest of everything in the definition that decides a bit of the first so many steps; how many there are to be
// decides none. So a run may go on from a checkpoint with a change that begins there.
std::uint64_t definition_digest(const Definition& definition, std::int64_t steps);

}  // namespace seeksim::runtime
