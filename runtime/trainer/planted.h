// Planted: the named points of a step at which a planted bug can do something else than what is right. Each part of the
// trainer calls its points unconditionally, and here each is a no-op. A bug is a class that overrides one of them
// (planted_before_vote.cpp, planting.cpp); plant() makes the one that the plan asks for on this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/launch/any_vec.h"
#include "runtime/launch/launcher.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/pipeline_schedule.h"
#include "runtime/plan/plan.h"
#include "runtime/samples/sampler.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class Model;
class Partition;
class Progress;
class Reduction;
class Tensors;
class World;
struct Batch;
struct Bucket;
struct GradientEdit;
struct InFlight;
struct Workbench;

// Where the samples of a step begin, in samples of the training.
struct SamplePosition {
  std::int64_t position = 0;
  std::int64_t began_at = 0;  // position of the checkpoint that the run began with; 0: with none
  int members = 1;            // that share the batch
  const Sampler& sampler;
};

class Planted {
 public:
  virtual ~Planted() = default;

  // ---- passes
  virtual PipelineSchedule schedule(PipelineSchedule planned) const { return planned; }
  virtual void instructions(std::vector<Instruction>& /*of_a_step*/, int /*micro_batches*/) const {}
  // The step whose batch is fetched, of a run that began at a checkpoint of step `began_at`.
  virtual std::int64_t step_of_batch(std::int64_t step, std::int64_t /*began_at*/) const { return step; }
  virtual std::int64_t first_sample(std::int64_t first) const { return first; }
  // The same of a data set: where the step's samples begin, and the order that they have.
  virtual std::int64_t position(const SamplePosition& at) { return at.position; }
  virtual Sampler sampler(const Sampler& planned) const { return planned; }
  // The step whose share of each sample is learned; and of how many tokens the loss is the mean: `learned` of `all`.
  virtual std::int64_t step_of_curriculum(std::int64_t step, std::int64_t /*began_at*/) const { return step; }
  // What a micro-batch of packed samples, with such shares of the step's samples and of its tokens, is weighted with.
  virtual float weight_of_tokens(double /*of_samples*/, double /*of_tokens*/) const { return 1; }
  virtual Index tokens_of_mean(Index learned, Index /*all*/) const { return learned; }
  virtual std::uint64_t dropout_seed(std::uint64_t seed) const { return seed; }
  // The gradients that a micro-batch leaves.
  virtual void edit(GradientEdit& /*edit*/, int /*micro_batch*/, int /*micro_batches*/) const {}

  // ---- evaluation
  // Whether this rank evaluates; after the last step, or before another one.
  virtual bool evaluates(bool /*after_the_last*/) const { return true; }
  virtual bool evaluates_with_dropout() const { return false; }
  // What this rank's held-out losses are multiplied by: own of all samples are its, one of `members` ranks.
  virtual float evaluation_factor(Index /*own*/, Index /*all*/, int /*members*/) const { return 1; }
  // A micro-batch has gone forward, and its loss is computed.
  virtual void evaluated(Workbench&, Tensors&, Model&, const Batch&) {}

  // ---- messages between stages
  virtual void sending_gradient(Launcher& /*compute*/, InFlight&, Index /*samples*/, int /*micro_batches*/) const {}
  virtual AnyVec to_send(AnyVec values) const { return values; }
  virtual bool sends_again(int /*micro_batch*/) const { return false; }

  // ---- reduction. epoch: bugs of collectives end with the first recovery, so that a run can go on after it.
  // true: the bug has done, or left out, what the all-reduce should have done.
  virtual bool replaces_all_reduce(Workbench&, Tensors&, const World&, Reduction&) { return false; }
  virtual Index contributes(Index elements, std::uint32_t /*epoch*/) const { return elements; }
  virtual void all_reduced(Workbench&, Tensors&) {}
  virtual void order(std::vector<Bucket>& /*buckets*/, std::uint32_t /*epoch*/) const {}
  virtual bool adds_tied_twice() const { return false; }
  virtual bool leaves_tied_apart() const { return false; }

  // ---- measurement
  // Norms of the first parameter of this rank's shard, just measured by its host.
  virtual void first_norms_at_home(Launcher& /*host*/, VecView<float> /*norms*/) const {}
  // own: elements of this rank's shard.
  virtual bool leaves_out_norms(std::uint32_t /*epoch*/, Index /*own*/) const { return false; }
  // norms: of all blocks, before they are folded. own: the elements of this rank's shard.
  virtual void folding_norms(Launcher&, const Partition&, ShardInfo /*own*/, VecView<float> /*norms*/) const {}

  // ---- the commit point
  virtual Agreement agree(ControlPlane& control, const Op& op, const Ballot& ballot, TimeNs deadline) const {
    return control.agree(op, op.epoch, ballot, deadline);
  }
  virtual void agreed(const ControlPlane&, const Op& /*of_the_vote*/) const {}
  // Whether all members find the step good, by their vote. fine_here: this rank has seen no overflow in it.
  virtual bool all_good(const std::function<bool()>& vote, bool /*fine_here*/) const { return vote(); }
  // The step is applied and counted. vote: on the step that is under way.
  virtual void committed(const std::function<bool()>& /*vote*/, Progress&) const {}

  // ---- update
  virtual double rate(double lr, std::int64_t /*step*/) const { return lr; }
  virtual double clipping_limit(double limit) const { return limit; }
  virtual float clipping(float factor, double /*limit*/, float /*norm*/) const { return factor; }
  virtual void clipped(Workbench&, Tensors&, int /*way*/, float /*factor*/) const {}
  virtual bool loses_update() const { return false; }
  virtual void updated(Tensors&, std::int64_t /*step*/) const {}
  // Whether the loss scale takes a step for an overflow.
  virtual bool scales_down(bool skipped, std::int64_t /*step*/) const { return skipped; }

  // ---- publication. lo, hi: the elements of a bucket. steps: that are committed.
  virtual void publishing(Tensors&, Index /*lo*/, Index /*hi*/, std::int64_t /*steps*/) {}
  virtual void published_bucket(Tensors&) {}
  virtual void published(Tensors&, std::int64_t /*steps*/) const {}

  // ---- worlds
  virtual void connecting(Progress&, std::uint32_t /*epoch*/) const {}
  // What a rank that joins is brought: parameters, moments, masters.
  virtual void bringing(std::vector<AnyVec>& /*state*/) const {}
  virtual std::int64_t steps_of_joiner(std::int64_t steps) const { return steps; }
};

}  // namespace seeksim::runtime
