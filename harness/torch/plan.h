// What a user asks of a training script: how many ranks, what breaks, what is judged. Plain values.
#pragma once

#include <string>
#include <vector>

#include "faults/plan.h"
#include "harness/scenario/scenario.h"
#include "pytorch/core/sums.h"

namespace seeksim::harness::torch {

// What the ranks write down.
struct RecordPlan {
  bool hashes = true;     // of what each collective takes and gives
  bool norms = false;     // and its norms; those of weights and gradients are always there
  bool stacks = true;     // the script's frames behind each collective
  int weights_every = 1;  // hashes of the weights that forward passes used, every this many steps; 0: never
  bool gradients = true;  // a hash of each gradient, as the optimizer gets it
  bool whole = false;     // weights and gradients that are spread over ranks are gathered for that
  int max_mib = 512;      // size limit of a rank's record
};

enum class Backend : std::uint8_t {
  seeksim,    // its own: sums in rank order, faults, every collective held against the other ranks'
  forwarded,  // the same before the script's own backend, which carries the data and adds it up
  gathered,   // the script's own carries; sums are in rank order, on the device where the tensors are
  own,        // torch's: no faults; steps, losses and weights are recorded
  count_
};
std::string_view name(Backend backend);

struct TorchPlan {
  int ranks = 2;
  double timeout_s = 300;  // how long a rank waits in a collective for the others
  double stall_s = 0;      // how long no rank may make progress; 0: follows from timeout_s
  std::uint64_t seed = 1;  // of the rules' random draws
  Backend backend = Backend::seeksim;
  pytorch::SumOrder sums = pytorch::SumOrder::canonical;
  RecordPlan record;
  std::vector<std::vector<int>> replicas;  // ranks that hold the same weights; empty: all of them

  // Without progress for so long, a run counts as hung.
  double patience_s() const { return stall_s > 0 ? stall_s : 2 * timeout_s + 10; }
};

struct TorchScenario {
  std::string file;  // empty: no file, all is as by default
  std::string name;
  std::string why;
  TorchPlan torch;
  std::vector<faults::Rule> faults;
  std::vector<CheckSpec> checks;
  Expect expect;
};

}  // namespace seeksim::harness::torch
