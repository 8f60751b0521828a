// FinalState: what a rank holds when its run is over: digests of the whole state and, on the lowest rank, the weights.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "runtime/detect/observer.h"
#include "runtime/trainer/records.h"
#include "runtime/trainer/tensors.h"
#include "runtime/trainer/whole_tensors.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

class FinalState final : public VoteRider {
 public:
  FinalState(Workbench& bench, Tensors& tensors, World& world, WholeTensors& whole, const Records& records)
      : bench_(bench), tensors_(tensors), world_(world), whole_(whole), records_(records) {}

  // Gathers what is not all on this rank. Collective. Counts when all have heard of it: conclude().
  StateDigest gather();
  void conclude(StateDigest gathered) { concluded_ = std::move(gathered); }
  bool concluded() const { return concluded_.has_value(); }

  // Digests of what is sharded are there after conclude() only. published: the last step's parameters are with all.
  StateDigest state(bool published) const;
  std::vector<NamedTensor> weights() const;

  // Of workers that train apart no rank holds more than its own: digests of theirs travel with the last vote.
  void tell(Vote about, Ballot& own) override;
  void hear(Vote about, const Agreement& agreement, bool all_good) override;

 private:
  StateDigest standing() const;
  void add_flat_state(StateDigest& state) const;

  Workbench& bench_;
  Tensors& tensors_;
  World& world_;
  WholeTensors& whole_;
  const Records& records_;
  std::optional<StateDigest> concluded_;
  std::vector<float> final_weights_;      // of the whole model, on the lowest rank
  std::vector<std::int64_t> of_workers_;  // digests of weights and moments of all
};

}  // namespace seeksim::runtime
