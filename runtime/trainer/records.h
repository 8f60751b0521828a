// Records: what a rank reports about a step, so that ranks can be compared: digests of all that should be equal
// elsewhere, the shards that it uses, and, where they are asked for, gradients and poison.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runtime/detect/observer.h"
#include "runtime/trainer/commit_vote.h"
#include "runtime/trainer/measurement.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/whole_tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class Records {
 public:
  Records(Workbench& bench, Tensors& tensors, World& world, WholeTensors& whole)
      : bench_(bench), tensors_(tensors), world_(world), whole_(whole) {}

  // A new world: the shards that this rank uses in it.
  void shards();

  // ---- in the order of a step
  // Gives the observer the state with which the next step begins, if it wants it. Waits for what is pending.
  void state();
  // Asks the observer whether it wants the step's gradients.
  void begin_step();
  // Brings them together, where they are not all here.
  void gather_gradients();
  // Looks for unwritten memory in all that this rank holds for good and in what it gathered; in_gradients: in the
  // step's gradients too.
  PoisonFound look_for_poison(bool in_gradients);
  // Digests of what this rank holds for good, to the recorder, before the step is counted.
  void digests();
  void gradients(std::int64_t step);
  // The record of the step that has just been counted, with the loss scale that it was computed with.
  const StepRecord& step_committed(const StepResult& result, bool applied, double lr);
  // Where choices of experts are counted: those of the step that has just been counted, by own micro-batch.
  void choices(std::int64_t step, Buffer* counts, std::span<const SampleRange> micro_batches) const;
  // What it holds that others hold too. Nothing may be pending.
  void replica();
  // Where workers train apart, digests of what each has.
  void workers() const;

  // Digests of all parameters, where every rank holds them.
  using Digests = std::vector<std::pair<const char*, std::uint64_t>>;
  Digests replicated_digests() const;

 private:
  std::vector<AnyVec> held() const;
  void stagnation() const;
  void list_shards(ReplicaRecord& record) const;
  void list_what_all_ways_hold(ReplicaRecord& record) const;
  ReplicaRecord::OfShard digests_of(const ShardState& state) const;

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  WholeTensors& whole_;
  bool hands_out_ = false;         // the gradients of this step
  std::vector<float> handed_out_;  // reduced gradients, unscaled, of the whole model
  Digests replicated_;             // of all parameters, where all are replicated
  StepRecord committed_;           // the last one
};

}  // namespace seeksim::runtime
