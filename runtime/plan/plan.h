// TrainPlan: everything that defines a training run, as plain values. harness/ fills it from a scenario; runtime/ reads
// it. What may decide a bit of the weights stands apart from what may not: a golden is keyed by `Definition` alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/compression_plan.h"
#include "runtime/plan/curriculum_plan.h"
#include "runtime/plan/evaluation_plan.h"
#include "runtime/plan/experts_plan.h"
#include "runtime/plan/local_sgd_plan.h"
#include "runtime/plan/offload_plan.h"
#include "runtime/plan/packing_plan.h"
#include "runtime/plan/parallel_plan.h"
#include "runtime/plan/placement.h"
#include "runtime/plan/provenance_plan.h"
#include "runtime/plan/quantised_plan.h"
#include "runtime/plan/sampler_plan.h"
#include "runtime/plan/staleness_plan.h"
#include "runtime/rules/bug.h"
#include "runtime/rules/fp8_scaling.h"
#include "runtime/rules/loss_scaler.h"
#include "runtime/rules/quirks.h"
#include "runtime/seams/buffer.h"
#include "runtime/seams/time.h"

namespace seeksim::runtime {

class ModelFamily;

// Shares of values that are set to zero while training, each at random by (seed, step, global sample, place): never by
// rank, so that neither the split nor a recomputation changes which (docs/numerics.md#r1). 0: off.
struct DropoutPlan {
  double embedding = 0;  // what goes into the first layer
  double attention = 0;  // attention's probabilities
  double residual = 0;   // what a branch adds to the residual stream
  bool any() const { return embedding > 0 || attention > 0 || residual > 0; }
  friend bool operator==(const DropoutPlan&, const DropoutPlan&) = default;
};

struct ModelPlan {
  std::string family = "gpt2";             // or "llama", or a name that a user has given
  std::shared_ptr<const ModelFamily> own;  // of that name (family.h); null: built in
  int layers = 4;
  int width = 64;
  int heads = 8;
  int context = 64;
  int vocab = 256;
  bool tied = true;                 // the head shares wte
  bool logit_scale = false;         // a scalar parameter that multiplies the logits, from 1 on
  std::vector<std::string> frozen;  // names of parameters that are not trained
  double init_stddev = 0.02;        // residual projections: stddev / sqrt(2 * layers), as GPT-2 and llm.c
  double norm_eps = 1e-5;
  DropoutPlan dropout;
  bool fused_attention = false;  // by blocks of keys, keeping no probabilities (kernels/fused_attention.h)
  // A sample's gradient of a weight is the tree over the chains of 8 segments of its tokens, so that ranks may have
  // tokens of their own; false: one chain over all of them.
  bool segmented_gradients = false;
  // Llama only.
  int kv_heads = 0;           // heads of keys and values, each shared by heads / kv_heads queries; 0: as many as heads
  int ffn = 0;                // width inside the mlp; 0: 8/3 of the width, rounded up to a multiple of 8
  double rope_theta = 10000;  // of rotary positions
  ExpertsPlan experts;        // in place of the mlp; on: each is as wide as ffn says

  bool llama() const { return family == "llama"; }
  int key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int hidden() const { return !llama() ? 4 * width : ffn > 0 ? ffn : (8 * width + 23) / 24 * 8; }
  // Width inside the mlp of a layer without experts.
  int dense_hidden() const {
    if (!experts.on()) return hidden();
    return experts.dense_ffn > 0 ? experts.dense_ffn : hidden() * (experts.per_token + experts.shared);
  }
};

struct DataPlan {
  std::string text;                 // path of a text file, read as bytes; empty: synthetic
  std::string bytes;                // its content, loaded by the harness (the runtime opens no files for it)
  bool synthetic = false;           // tokens from Philox
  std::int64_t held_out_bytes = 0;  // at the end of the text, which no step reads; evaluations do
  std::vector<std::int32_t>
      tokens;  // given samples of context + 1 tokens each, taken in order and over again; empty: none
  SamplerPlan sampler;
  PackingPlan packing;
};

struct OptimizerPlan {
  std::string type = "AdamW";  // AdamW (decoupled decay), Adam (L2), Lion, Muon, SGD: optimizer_kinds.h
  double lr = 1e-3;
  double momentum = 0.95;  // of Muon's matrices; of SGD, which keeps nothing where it is 0
  double adamw_rate = 1;   // the rate of what Muon leaves to AdamW, over that of its matrices
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool bias_correction = true;  // of both moments; false: they are used as they are
  bool decay_all = false;       // false: matrices only, as GPT-2 is trained; true: as DeepSpeed's groups do
  double dampening = 0;         // SGD
  bool nesterov = false;        // SGD
  double ema_decay = 0;         // of the mean of weights that is kept beside them; 0: none
  bool saves_mean = false;      // the run hands out that mean in place of its last weights
};

struct SchedulerPlan {
  std::string type;  // empty: constant lr; WarmupLR, WarmupDecayLR, WarmupCosineLR
  double warmup_min_lr = 0;
  double warmup_max_lr = 1e-3;
  std::int64_t warmup_num_steps = 1000;
  std::int64_t total_num_steps = 0;
  std::string warmup_type = "log";  // log | linear
  double warmup_min_ratio = 0;      // WarmupCosineLR
  double cos_min_ratio = 1e-4;
  std::vector<double> table;  // type "table": the rate of each applied step; the last one holds from then on
};

// The types in which a model is trained. All three may be one of f32, f16, bf16.
struct PrecisionPlan {
  ElementType compute = ElementType::f32;  // parameters and activations; arithmetic inside an operation is fp32
  ElementType gradients =
      ElementType::f32;              // how reduced gradients are held: rounded once, at the root (docs/numerics.md#r4)
  bool master_weights = true;        // fp32 weights that the optimizer updates; false: it updates the 16-bit ones
  bool stochastic_rounding = false;  // of bf16 weights without masters
  friend bool operator==(const PrecisionPlan&, const PrecisionPlan&) = default;
};

// A change of the configuration in the middle of a training. What it does not name stays as it was.
struct Change {
  std::int64_t step = 1;                    // the first one whose update it is in force for
  std::optional<double> lr_scale;           // times the rate that the schedule gives
  std::optional<double> gradient_clipping;  // 0: off
  friend bool operator==(const Change&, const Change&) = default;
};

// Everything that may decide a bit of the result.
struct Definition {
  std::uint64_t training_seed = 1;
  ModelPlan model;
  DataPlan data;
  OptimizerPlan optimizer;
  SchedulerPlan scheduler;
  PrecisionPlan precision;
  LossScalerPlan scaler;
  CompressionPlan compression;                 // of gradients between ranks
  LocalSgdPlan local_sgd;                      // workers with weights of their own
  StalenessPlan staleness;                     // workers whose gradients come late
  Fp8Plan fp8;                                 // of the operands of linear layers
  QuantisedWeightsPlan quantised;              // of weights that are gathered (stage 3)
  QuantisedGradientsPlan quantised_gradients;  // of gradients that are scattered (stages 2 and 3)
  Quirks quirks;                               // what is done as another framework does it
  double gradient_clipping = 0;                // 0: off
  std::vector<Change> changes;                 // by step, each step once
  int global_batch = 32;                       // samples a step
  std::int64_t steps = 20;
  std::vector<std::int64_t> skip_steps;    // that are not applied, as if their gradients were not finite
  std::vector<std::int64_t> drop_batches;  // global batches, counted from 0, that no step uses: the next one serves
  std::string initial_weights;             // bytes of a safetensors file; empty: drawn from the seed
  CurriculumPlan curriculum;
  EvaluationPlan evaluation;  // decides no bit of the weights, but which losses a golden has

  // Samples of a part of a step whose gradient stays apart: of a compressed group, or of a worker. 1 where there are
  // none, so that any cut is one of whole parts.
  std::int64_t part_samples() const {
    if (staleness.on()) return staleness.samples(global_batch);
    return local_sgd.on() ? local_sgd.samples(global_batch) : compression.group_samples(global_batch);
  }
  // A part is a node of this level of the tree over the step's samples: sums go no higher.
  int part_level() const {
    if (staleness.on()) return staleness.level(global_batch);
    return local_sgd.on() ? local_sgd.level(global_batch) : compression.group_level(global_batch);
  }
};

// How the work is laid out. Never changes a bit.
struct Layout {
  int micro_batch = 2;             // samples a micro-batch at most
  int evaluation_micro_batch = 0;  // the same in an evaluation; 0: as in training
  ZeroPlan zero;                   // what is sharded, and how it travels
  OffloadPlan offload;             // what is kept off the device
  CheckpointingPlan checkpointing;
  ParallelPlan parallel;  // stages and tensor ways
};

// What a run computes. shapes: no values at all, only sizes, order and time, for worlds too large to compute. fast:
// products and sums over ranks as vendors make them, bounded instead of exact (kernels/fast.h).
enum class Numerics : std::uint8_t { exact, shapes, fast };

enum class RecoveryPolicy : std::uint8_t {
  stop,
  retry_step,               // all members again; a death ends the run
  rebuild_and_redo,         // with the survivors, from peers' copies where state is sharded
  restart_from_checkpoint,  // with the survivors or, after the job ended, with all: from the newest valid checkpoint
};

// Checkpoints in files (checkpoint_writer.h). With a path, rebuild_and_redo falls back on them when a shard is lost.
struct CheckpointPlan {
  std::string path;              // folder; empty: there are none
  std::int64_t every_steps = 0;  // 0: only at the end, on notice and where something asks for one
  int keep = 2;                  // complete ones; older ones are removed
  bool async = true;             // written behind, from a snapshot in host memory; false: training waits for it
  bool at_end = false;
  bool node_local = false;  // each node has files of its own under the path; false: all see the same
  bool resume = false;      // begin with the newest valid one, where there is one
  bool on() const { return !path.empty(); }
};

// Which ranks are too slow. Score = fastest rank's busy time / own (NVRx): 1 is the best.
struct StragglerPlan {
  bool on = false;
  double score_below = 0.7;
  int steps = 5;       // in a row, until a rank is called one
  bool evict = false;  // and leaves
};

// Loss or gradient norm beyond a multiple of their mean over the last steps (ByteRobust: 5 times).
struct DivergencePlan {
  bool on = false;
  double factor = 5;
  std::int64_t window_steps = 20;   // of the mean; nothing is judged before it is full
  std::int64_t rollback_steps = 0;  // go back to a checkpoint at least so far; 0: stop
  std::int64_t drop_batches = 1;    // from the first step that is undone on: never used again
};

// When a run leaves the range of its divergence rule soon after a change of its configuration (Definition::changes),
// it goes back to the checkpoint before the change, and goes on without it.
struct RollbackPlan {
  bool on = false;
  std::int64_t steps = 100;  // so soon
};

class RecoveryRule;

struct RecoveryPlan {
  RecoveryPolicy policy = RecoveryPolicy::rebuild_and_redo;
  std::string own_policy;                    // the name of `rule`
  std::shared_ptr<const RecoveryRule> rule;  // decides instead; `policy` is its mechanism then
  TimeNs watchdog_ns = 600 * kSecond;        // on every operation
  TimeNs agree_ns = 30 * kSecond;            // a rank that has not answered by then is dead
  int peer_copies = 1;  // rebuild_and_redo at ZeRO 1 to 3: of each shard's state, on ranks of other nodes if possible
  int spares = 0;       // the last ranks of the world wait until a member is lost
  bool grow = false;    // ranks that join are admitted at the next commit
  int ranks_min = 1;    // with fewer members than these the run stops
  StragglerPlan straggler;
  DivergencePlan divergence;
  RollbackPlan rollback;
  bool save_on_notice = true;  // a rank gets notice to leave: all save, and go on without it
  // How often a supervisor restarts the job when all processes are gone.
  int restarts_max = 0;
  TimeNs restart_ns = 60 * kSecond;  // until the next one's processes stand
  // Ranks send heartbeats to the control plane, which declares a silent rank dead. 0: no heartbeats.
  TimeNs heartbeat_ns = 0;
  TimeNs heartbeat_timeout_ns = 5 * kSecond;
  SkipPlan skip;                                   // when to stop a run that only skips
  bool rerun_and_compare = false;                  // do each micro-batch twice: other bits are a hardware fault
  bool memory_ladder = false;                      // out of memory: all take the next layout that needs less
  int storage_attempts_max = 4;                    // of one read or write of a file, then it has failed
  TimeNs storage_backoff_ns = 100 * kMillisecond;  // before the second; doubled before each further one
  int attempts_max = 8;                            // recoveries without a committed step in between, then stop
};

struct TrainPlan {
  Definition definition;
  Layout layout;
  RecoveryPlan recovery;
  CheckpointPlan checkpoint;
  ProvenancePlan provenance;
  PlantedBug bug;
  Numerics numerics = Numerics::exact;
  bool tf32 = false;              // fast: operands of fp32 products are rounded to TF32
  bool tagged_gradients = false;  // instead of gradients, sums of tags that tell which samples are in them
  bool counts_choices = false;    // of experts, for the observer

  // Samples of a micro-batch of an evaluation, at most.
  int evaluated_at_once() const {
    const int given = layout.evaluation_micro_batch;
    return std::min(given > 0 ? given : layout.micro_batch, definition.evaluation.samples);
  }
  // Samples for whose activations a rank has room.
  int samples_at_once() const {
    return std::max(std::min(layout.micro_batch, definition.global_batch), evaluated_at_once());
  }
};

}  // namespace seeksim::runtime
