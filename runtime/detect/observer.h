// What a run reports to its observer: one call a committed step, one a stage of a recovery. The harness turns these
// into the report; the runtime never formats anything for people.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/optimizer.h"
#include "runtime/detect/diagnosis.h"
#include "runtime/files/named_tensor.h"
#include "runtime/launch/provenance.h"
#include "runtime/layout/shard.h"
#include "runtime/plan/plan.h"
#include "runtime/seams/recorder.h"

namespace seeksim::runtime {

struct StepRecord {
  std::int64_t step = 0;
  float loss = 0;
  float grad_norm = 0;
  double lr = 0;               // the one that was applied
  double loss_scale = 1;       // that was used
  std::int64_t nonfinite = 0;  // elements of the gradients that this rank measured: all, or its shard's
  bool skipped = false;        // non-finite gradient: nothing was applied
  TimeNs committed_ns = 0;
  std::uint32_t epoch = 0;           // in which it was voted for
  std::int64_t data_position = 0;    // samples consumed, with this step's
  std::int64_t optimizer_steps = 0;  // Adam's t, after this step
};

// One recovery as one rank lived it.
struct RecoveryRecord {
  std::uint32_t epoch = 0;  // that ended
  std::int64_t step = 0;    // that was under way
  ErrorKind error = ErrorKind::count_;
  Op op;  // in which this rank noticed
  std::string detail;
  Diagnosis diagnosis;
  std::vector<int> dead;    // did not answer the agreement
  std::vector<int> silent;  // of these, whose heartbeats had stopped
  std::vector<int> evicted;
  std::vector<int> survivors;
  TimeNs detected_ns = 0;
  TimeNs agreed_ns = 0;
  TimeNs rebuilt_ns = 0;
  TimeNs resumed_ns = 0;  // the step that was under way is committed
  std::int64_t steps_lost = 0;
  std::string layout;  // what the memory ladder changed; empty: it was not asked
};

// A rank whose score was below the limit for some steps in a row. All members find the same.
struct StragglerRecord {
  std::int64_t step = 0;  // the last of them
  int rank = -1;
  double score = 1;  // in that step: fastest / own
  int steps = 0;     // in a row
  bool leaves = false;
};

// Loss or gradient norm far above the mean of the last steps. All members find the same.
struct DivergenceRecord {
  std::int64_t step = 0;
  const char* what = "";  // "loss" or "gradient norm"
  double value = 0;
  double mean = 0;                  // of the window
  std::int64_t undoes_change = -1;  // the step of the change that is rolled back for it; -1: none
};

// Where in a step two runs of a micro-batch were compared.
struct RerunFind {
  std::int64_t micro_batch = -1;
  const char* parameter = "";  // whose gradient; of two that are computed together the first; "loss"
};

// What came of running each micro-batch of a step twice, on one rank.
struct RerunRecord {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;
  std::int64_t micro_batches = 0;      // that were run twice
  std::int64_t ranges = 0;             // of the gradient space, of which both digests were compared
  std::optional<RerunFind> differs;    // the first with other bits: the hardware erred
  std::optional<RerunFind> nonfinite;  // the first with the same bits and values that are not finite: they are genuine
};

// The loss of the held-out samples, as one rank that has it tells it.
struct EvaluationRecord {
  std::int64_t steps = 0;  // committed, whose weights were used
  std::uint32_t epoch = 0;
  float loss = 0;  // mean over all tokens of all held-out samples
  TimeNs at_ns = 0;
};

// Which samples of the data set a micro-batch loads, where there is one.
struct SamplesRecord {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;         // of the world
  Index first = 0;                 // place of the first one in the step's batch
  std::vector<std::int64_t> rows;  // of the data set, place by place
};

// What became of the gradients that a rank compressed in a step.
struct CompressionRecord {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;
  std::int64_t elements = 0;  // of all its groups
  // Elements whose sent and kept parts do not add up, exactly, to the gradient and what was kept before.
  std::int64_t unconserved = 0;
  std::int64_t bytes = 0;  // of all its groups, compressed
};

// Where choices of experts are counted: those of a rank's tokens in a committed step.
struct ChoicesRecord {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;
  std::vector<std::int32_t> layers;  // with experts, of this rank
  // (layers, 2 E): of each layer the choices of each expert, then those of them that found no room.
  std::vector<std::int64_t> counts;
};

// Where gradients come late: which of a worker's gradients an applied step was made of.
struct LateRecord {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;
  std::int64_t worker = 0;
  std::int64_t clock = 0;          // applied steps before this one
  std::vector<std::int64_t> made;  // by clock, as they stood in the worker's places
};

// Where workers train apart: what a rank's workers hold after a committed step.
struct WorkersRecord {
  std::int64_t step = 0;
  std::uint32_t epoch = 0;
  bool met = false;                    // an outer step followed it
  bool moved = false;                  // it was applied, at a rate above 0
  std::int64_t first = 0;              // the first worker that is here
  std::uint64_t outer = 0;             // digest of the weights of the last outer step, as workers compute with them
  std::vector<std::uint64_t> workers;  // the same of each worker's own
};

// Digests of what a rank holds at the end; equal on all ranks and to the golden's.
struct StateDigest {
  std::uint64_t params = 0;
  std::uint64_t optimizer = 0;
  std::int64_t data_position = 0;    // samples consumed
  std::int64_t optimizer_steps = 0;  // Adam's t
  double loss_scale = 1;
  std::vector<std::pair<std::string, std::uint64_t>> by_tensor;  // parameter digests, registration order
  friend bool operator==(const StateDigest&, const StateDigest&) = default;
};

// What one rank holds of what must be equal after a step: on all ranks, or on an owner and the keepers of its copies.
struct ReplicaRecord {
  std::int64_t step = 0;  // committed, and its parameters published
  int part = 0;           // of the model: stage * tensor ways + way. Only those of one part hold the same
  std::uint32_t epoch = 0;
  std::uint64_t training_seed = 0;
  double lr = 0;
  double loss_scale = 1;
  std::int64_t optimizer_steps = 0;
  std::int64_t data_position = 0;
  // Parameters that every rank holds: all of them, or (stage 3) those that stay gathered as one.
  std::vector<std::pair<const char*, std::uint64_t>> parameters;
  // The ones among them that tensor parallelism does not split: equal on all ways of a stage.
  int ways = 1;
  std::vector<std::pair<const char*, std::uint64_t>> on_all_ways;
  // Digests of the own shard, and of copies of other ranks' shards.
  static constexpr std::array<const char*, 4> kOfShard = {"parameters", "first moments", "second moments",
                                                          "the mean of weights"};
  using OfShard = std::array<std::uint64_t, 4>;
  std::optional<OfShard> own;
  int shard = -1;                               // its number, where other shard groups hold it too
  std::vector<std::pair<int, OfShard>> copies;  // by the owner's launch rank
};

// The shards that one rank really uses in an epoch.
struct ShardRecord {
  std::uint32_t epoch = 0;
  int part = 0;     // of the model: stage * tensor ways + way
  int members = 0;  // of the shard group, or of all the data axis
  int position = 0;
  int group = 0;                     // number of the shard group
  ShardInfo own;                     // of the flat space
  std::vector<Index> elements;       // held for it: parameters, gradients, and of each kind of moments
  std::vector<ShardInfo> gradients;  // of the gradient space: its shard, its part of the head's share, the loss
  // Copies that are kept here, by the owner's position.
  std::vector<std::pair<int, ShardInfo>> copies;
};

// How a rank goes through a step of a pipeline, reported when a world is made.
struct PipelineRecord {
  std::uint32_t epoch = 0;
  int stage = 0;
  int micro_batches = 0;       // a step, of its replica
  std::vector<int> in_flight;  // by piece of the model: micro-batches whose activations are held at a time, at most
};

// What became of a checkpoint, as one rank saw it: complete, or given up.
struct CheckpointRecord {
  std::int64_t step = 0;  // steps that it holds
  bool complete = false;
  std::string why;         // it was given up; empty on ranks that only heard of it
  TimeNs began_ns = 0;     // the state was about to be copied
  TimeNs snapshot_ns = 0;  // training could go on
  TimeNs ended_ns = 0;
  std::uint64_t bytes = 0;  // of this rank's file
};

// Ranks that came into a run, reported by each member of the epoch that begins with them.
struct JoinRecord {
  std::uint32_t epoch = 0;
  std::int64_t step = 0;  // the first one that they take part in
  std::vector<int> ranks;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void step_committed(int rank, const StepRecord& record) = 0;
  // All `steps` steps are made, and checkpoints saved. What follows gathers what the ranks hold, for whoever wants to
  // see it.
  virtual void trained(int /*rank*/, std::int64_t /*steps*/, TimeNs /*now*/) {}
  // Values of the result were searched for poison (poison.h): where it was found; empty: nowhere. at_source: in what
  // the step began with, and not only in what came of it.
  virtual void looked_for_poison(int /*rank*/, Index /*values*/, const std::string& /*found*/, bool /*at_source*/) {}
  // A rank failed, or heard of a failure, and has not given anything up yet: the time to look at its flight
  // recorder. ballot: its vote in the agreement to come.
  virtual void failed(int /*rank*/, std::uint32_t /*epoch*/, const Recorder&, const Ballot&) {}
  virtual void recovering(int rank, const RecoveryRecord& so_far) = 0;  // agreed: who is to blame, who goes on
  virtual void recovered(int rank, const RecoveryRecord& record) = 0;
  // Goes on after `steps` steps, from a checkpoint: later ones, if there were any, are undone.
  virtual void rolled_back(int /*rank*/, std::int64_t /*steps*/) {}
  virtual void checkpoint(int /*rank*/, const CheckpointRecord&) {}
  virtual void layout(int /*rank*/, const Layout&) {}  // in use from here on: at the start, and after want of memory
  // Asked before a step: should its reduced, unscaled, unclipped gradients be handed out?
  virtual bool wants_gradients(int rank, std::int64_t step) = 0;
  virtual void gradients(int rank, std::int64_t step, std::vector<NamedTensor> gradients) = 0;
  // Asked before each step, and after the last one: should the state with which it begins be handed out? By a rank that
  // holds the whole model, unsharded; by no other. Weights are the fp32 masters where there are any, moments those of
  // what is trained.
  virtual bool wants_state(int /*rank*/, std::int64_t /*step*/) { return false; }
  virtual void state(int /*rank*/, std::int64_t /*step*/, std::vector<NamedTensor> /*weights*/,
                     std::vector<NamedTensor> /*first*/, std::vector<NamedTensor> /*second*/) {}
  // The first value of a step that is not finite, as this rank saw it, and what operations wrote, where that is logged.
  virtual void nonfinite_born(int, std::int64_t, const NonFiniteBirth&) {}
  // left_out: how many more there were than are kept.
  virtual void ranges(int, std::int64_t, std::vector<RangeLogEntry>, std::uint64_t /*left_out*/) {}
  // Where micro-batches are run twice: what came of it, before the vote, in each attempt at a step.
  virtual void rerun(int, const RerunRecord&) {}
  // An evaluation is over; again, where a recovery makes it anew.
  virtual void evaluated(int /*rank*/, const EvaluationRecord&) {}
  // Where there is a data set: a micro-batch is about to be loaded; again, where a recovery makes its step anew.
  virtual void samples(int /*rank*/, const SamplesRecord&) {}
  // Where gradients are compressed: in each committed step.
  virtual void compressed(int, const CompressionRecord&) {}
  // Where choices of experts are counted: in each committed step, of each rank that had tokens.
  virtual void choices(int, const ChoicesRecord&) {}
  // Where gradients come late: of each worker, in each step that is applied.
  virtual void late(int, const LateRecord&) {}
  // Where workers train apart: after each committed step, if replicas are wanted.
  virtual void workers(int, const WorkersRecord&) {}
  // Without fp32 masters: of the last step on this rank's shard, how many updates there were and were lost in rounding.
  virtual void stagnation(int, std::int64_t, const kernels::Stagnation&) {}
  // Records to hold against each other cost a digest of what they speak of; only who asks for them gets them.
  virtual bool wants_replicas(int) { return false; }
  virtual void replica(int, const ReplicaRecord&) {}
  virtual void shards(int, const ShardRecord&) {}
  virtual void pipeline(int, const PipelineRecord&) {}
  // Where stragglers are looked for: the scores of all members in each step, reported by the lowest member; and the
  // ranks found too slow, reported by all.
  virtual void scores(std::int64_t /*step*/, const std::vector<int>& /*ranks*/, const std::vector<double>&) {}
  virtual void straggler(int /*rank*/, const StragglerRecord&) {}
  virtual void diverged(int /*rank*/, const DivergenceRecord&) {}
  virtual void joined(int /*rank*/, const JoinRecord&) {}
};

}  // namespace seeksim::runtime
