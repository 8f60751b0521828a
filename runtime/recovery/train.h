// The entry: what a launcher calls for each rank, from a fiber or from main.
#pragma once

#include "runtime/detect/observer.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/rank.h"

namespace seeksim::runtime {

enum class Ending : std::uint8_t {
  finished,  // all steps committed
  evicted,   // the others declared this rank dead or excluded it
  stopped,   // the recovery policy gave up; `why` says it
  spare      // it waited until the run was over, and was not needed
};

struct TrainOutcome {
  Ending ending = Ending::finished;
  std::string why;
  std::int64_t steps_committed = 0;
  StateDigest state;
};

// Trains. final_weights, when not null, receives the parameters under their Hugging Face names (only on the lowest
// living rank). Throws RankDied when the rank is killed; every SeamError is handled inside, by the plan's recovery
// policy.
TrainOutcome train(Rank& rank, const TrainPlan& plan, Observer& observer,
                   std::vector<NamedTensor>* final_weights = nullptr);

// The initial parameters under their Hugging Face names, without a world (for --save-initial).
std::vector<NamedTensor> initial_weights(const Definition& definition);

// Digests of the same in fp32, as StateDigest::by_tensor has them of the weights at the end.
std::vector<std::pair<std::string, std::uint64_t>> initial_digests(const Definition& definition);

// Token ids of step `step`: (global_batch, context + 1), row-major. A pure function of the definition.
std::vector<std::int32_t> step_tokens(const Definition& definition, std::int64_t step);

}  // namespace seeksim::runtime
