// Placement: where parameters, gradients and optimizer state live. The ZeRO stages are values of it, not engines: the
// trainer asks "are gradients sharded?", never "is this stage 2?". No value of anything here decides a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace seeksim::runtime {

enum class Place : std::uint8_t {
  replicated,  // every rank holds all of it
  sharded      // every rank holds its ShardInfo of it
};

struct Placement {
  Place parameters = Place::replicated;
  Place gradients = Place::replicated;
  Place optimizer = Place::replicated;
  friend bool operator==(const Placement&, const Placement&) = default;
};

// Stage 0: all replicated; 1: optimizer state sharded; 2: gradients too; 3: parameters too.
Placement placement_of(int stage);

class PlacementRule;  // layout/placement_rule.h

// DeepSpeed's "zero_optimization", with the defaults of 0.19.6. Sizes are elements.
struct ZeroPlan {
  int stage = 0;
  std::int64_t reduce_bucket_elements = 500'000'000;     // gradients that travel together, stages 1 to 3
  std::int64_t allgather_bucket_elements = 500'000'000;  // parameters that are published together, stages 1 and 2
  bool overlap_comm = false;  // gradients (and gathers ahead) travel while compute goes on; else it waits for them
  bool contiguous_gradients = true;                       // no effect here: buckets are always contiguous
  bool reduce_scatter = true;                             // no effect here: gradients always go to their owner only
  bool round_robin_gradients = false;                     // no effect here: shards are contiguous in the flat space
  std::int64_t sub_group_elements = 1'000'000'000;        // the optimizer's launches cover at most so many, stage 3
  std::int64_t prefetch_elements = 50'000'000;            // gathered ahead of use, stage 3; so do the four below
  std::int64_t persistence_threshold_elements = 100'000;  // smaller parameters stay gathered
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t max_reuse_distance = 1'000'000'000;
  std::int64_t hpz_partition =
      1;  // stage 3: ranks of a group that keeps all parameters once more, for backward; 1: none

  // Without sharding: gradients that travel together while backward goes on, as DDP's buckets do. 0: all of them at
  // once, after it.
  std::int64_t ddp_bucket_elements = 0;
  std::int64_t ddp_first_bucket_elements = 0;  // of the first one

  std::string own_placement;                  // the name of `rule`
  std::shared_ptr<const PlacementRule> rule;  // where shards end; null: as even as can be
  Placement placement() const { return placement_of(stage); }
};

// The defaults of a stage: overlap_comm is on at stage 3 only.
ZeroPlan zero_plan(int stage);

}  // namespace seeksim::runtime
