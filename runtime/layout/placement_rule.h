// A placement of one's own: where ZeRO's shards end.
#pragma once

#include "runtime/layout/parameters.h"

namespace seeksim::runtime {

class PlacementRule {
 public:
  virtual ~PlacementRule() = default;

  // The trained element with which shard number `shard` of `shards` begins, 0 < shard < shards, in
  // [0, parameters.trainable_size()] and not before the shard in front. A shard may be empty. It is taken to the
  // nearest bound of the norm's blocks (docs/numerics.md#r5), so that a rank computes whole blocks. Depends on nothing
  // but its arguments, since ranks ask by themselves, and again after each change of the world.
  virtual Index begin(const Parameters& parameters, int shard, int shards) const = 0;
};

}  // namespace seeksim::runtime
