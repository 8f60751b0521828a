// How long a step of a transformer takes: products by their shapes, attention, what moves through memory, collectives
// of tensor ways, pipeline bubbles, the exchange of gradients and parameters, the optimizer.
#pragma once

#include <string>
#include <vector>

#include "harness/calibration/collective_times.h"
#include "harness/calibration/platform.h"

namespace seeksim::harness::calibration {

inline constexpr double kBf16 = 2, kFp32 = 4;  // bytes

struct ModelShape {
  int layers = 1, width = 1, heads = 1, key_heads = 1, hidden = 4, vocab = 1;
  bool gated = false;  // three products in the mlp, as in Llama
  int sequence = 1;    // tokens of a sample
  bool tied = false;   // the head has the embedding's weights; counts in memory alone

  double layer_parameters() const;
  // Operations of a sample, forward and backward; attention counts all pairs of positions (harness/oracles/flops.h).
  double sample_flops() const;
};

enum class Recompute { none, selective, full };
// What data-parallel ranks share: nothing, the optimizer's state (ZeRO-1, ZeRO-2), parameters too (ZeRO-3, FSDP).
enum class Shards { none, optimizer, parameters };

struct StepLayout {
  int gpus = 1, tensor = 1, pipeline = 1, context = 1;
  int chunks = 1;       // pieces of the model a stage (interleaved schedule)
  int micro_batch = 1;  // samples
  int batch = 1;        // samples of a step, all ranks together
  bool sequence_parallel = false;
  Recompute recompute = Recompute::none;
  Shards shards = Shards::optimizer;
  int moments = 2;  // of the optimizer, in fp32: each is read and written
  // Of memory alone:
  int shard_group = 0;                // ranks that share one copy (HSDP, MiCS); 0: all
  int second_shards = 0;              // ranks of a group that shares parameters once more (hpZ); 0: none do
  bool stays_whole = false;           // from forward to backward, where parameters are shared
  bool gradients_shared = false;      // where parameters are not (ZeRO-2)
  bool gradients_in_16_bits = false;  // where parameters have 16 bits
  bool compiled_loss = false;         // no copy of the logits in fp32 (torch.compile)

  int data() const { return gpus / (tensor * pipeline * context); }
  double micro_batches() const { return double(batch) / data() / micro_batch; }
};

// Where a step's time goes, in microseconds; of the stage that is busiest.
struct StepTime {
  double layers_us = 0;    // products, attention, memory, of all micro-batches
  double tensor_us = 0;    // collectives of tensor and context ways that are not hidden
  double sharded_us = 0;   // waiting for parameters, and what hiding that wait costs compute
  double head_us = 0;      // logits and loss
  double sends_us = 0;     // messages between stages that are not hidden
  double bubble_us = 0;    // stages that have nothing to do
  double exchange_us = 0;  // gradients and parameters of data-parallel ranks that is not hidden
  double update_us = 0;    // the optimizer
  double other_us = 0;

  double us() const;
};

// A collective that a step makes, alone.
struct StepCollective {
  const char* of;  // what travels: "gradients", "a layer's parameters"
  Collective what = Collective::all_reduce;
  double bytes = 0;
  Group group;
};

// A mistake that a test plants.
enum class StepMistake { none, no_bubbles, products_of_any_shape_alike };

StepTime step_time(const ModelShape& model, const StepLayout& layout, const Platform& platform,
                   StepMistake mistake = StepMistake::none);
std::vector<StepCollective> step_collectives(const ModelShape& model, const StepLayout& layout,
                                             const Platform& platform);
// Model FLOPs utilisation, of the GPUs' dense peak in bf16.
double mfu(const ModelShape& model, const StepLayout& layout, const Platform& platform, double step_us);

}  // namespace seeksim::harness::calibration
