#include "harness/loading/deepspeed/deepspeed_keys.h"

#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/deepspeed/zero.h"

namespace seeksim::harness {
namespace {

using namespace shapes;

const Keys<Scenario>& optimizer_params_keys() {
  static const Keys<Scenario> keys = {
      {"lr", by_hand, number().least(0).standard(0.001), kBits, "Learning rate."},
      {"betas", by_hand, list(number().least(0).below(1)).entries(2, 2).standard(Json::array({0.9, 0.999})), kBits,
       "Decay rates of the two moments."},
      {"eps", by_hand, number().least(0).standard(1e-08), kBits, "Added to the root of the second moment."},
      {"weight_decay", by_hand, number().least(0).standard(0), kBits,
       "Decoupled decay (0.01 by default with torch_adam, as torch has it)."},
      {"bias_correction", by_hand, flag().standard(true), kNoBit, "Only true in this version."},
      {"adam_w_mode", by_hand, flag().standard(true), kBits, "false: decay enters the gradient (L2), for type Adam."},
      {"torch_adam", by_hand, flag().standard(false), kBits, "torch's default for weight_decay; otherwise no effect."},
      {"amsgrad", by_hand, flag().standard(false), kNoBit, "Only false in this version."},
      {"fused", by_hand, flag(), kNoBit, "No effect here."},
      {"max_grad_norm", by_hand, number(), kNoBit, "Refused by DeepSpeed: use gradient_clipping."},
  };
  return keys;
}

const Keys<Scenario>& optimizer_keys() {
  static const Keys<Scenario> keys = {
      {"type", by_hand, text().required(), kBits, "AdamW or Adam."},
      {"legacy_fusion", by_hand, flag(), kNoBit, "No effect here."},
      {"params", by_hand, optimizer_params_keys().shape(), kBits, "The optimizer's numbers."},
  };
  return keys;
}

const Keys<Scenario>& scheduler_params_keys() {
  static const Keys<Scenario> keys = {
      {"warmup_min_lr", by_hand, number().least(0).standard(0), kBits, "Where the warm-up begins."},
      {"warmup_max_lr", by_hand, number().least(0), kBits, "Where the warm-up ends (default: the optimizer's lr)."},
      {"warmup_num_steps", by_hand, integer(0).standard(1000), kBits, "Steps of warm-up; at least 2 are taken."},
      {"warmup_type", by_hand, choice({"log", "linear"}).standard("log"), kBits, "Shape of the warm-up."},
      {"total_num_steps", by_hand, integer(1), kBits, "Where the decay ends (WarmupDecayLR, WarmupCosineLR)."},
      {"warmup_min_ratio", by_hand, number().least(0).standard(0), kBits, "WarmupCosineLR: start, as a share of lr."},
      {"cos_min_ratio", by_hand, number().least(0).standard(0.0001), kBits, "WarmupCosineLR: end, as a share of lr."},
      {"last_batch_iteration", by_hand, integer().standard(-1), kNoBit, "Only -1 here."},
  };
  return keys;
}

const Keys<Scenario>& scheduler_keys() {
  static const Keys<Scenario> keys = {
      {"type", by_hand, text().required(), kBits, "WarmupLR, WarmupDecayLR or WarmupCosineLR."},
      {"params", by_hand, scheduler_params_keys().shape(), kBits, "The schedule's numbers."},
  };
  return keys;
}

}  // namespace

const Keys<Scenario>& deepspeed_keys() {
  static const Keys<Scenario> keys = {
      {"train_batch_size", by_hand, integer(), kBits,
       "Samples a step, over all ranks: micro-batch * accumulation * ranks."},
      {"train_micro_batch_size_per_gpu", by_hand, integer(), kNoBit, "Samples a rank holds at once."},
      {"gradient_accumulation_steps", by_hand, integer(), kNoBit, "Micro-batches a rank adds up before a step."},
      {"optimizer", by_hand, optimizer_keys().shape(), kBits,
       "AdamW (decoupled decay), or Adam, which in DeepSpeed is AdamW too unless params.adam_w_mode is false."},
      {"scheduler", by_hand, scheduler_keys().shape(), kBits,
       "The learning rate over the steps. Without one it is constant."},
      {"gradient_clipping", by_hand, number().least(0).standard(1), kBits,
       "Largest norm of the whole gradient; 0: off. DeepSpeed 0.19.6's default is 1."},
      {"zero_optimization", by_hand, zero_keys().shape(), kNoBit,
       "ZeRO stages 0 to 3. Stage, buckets and switches change where and when work is done and what it costs, never a "
       "bit."},
      {"fp16", by_hand, fp16_keys().shape(), kBits,
       "Half precision: parameters and activations in fp16, fp32 masters, loss scaling with DeepSpeed's state "
       "machine."},
      {"bf16", by_hand, bf16_keys().shape(), kBits,
       "bfloat16: parameters and activations in bf16, fp32 masters unless bf16_master_weights_and_grads."},
      {"amp", by_hand, object_with({{"enabled", flag()}}), kNoBit, "Apex. Not supported: only \"enabled\": false."},
      {"gradient_allreduce_op", by_hand, choice({"mean", "sum"}).standard("mean"), kNoBit,
       "Only mean in this version."},
      {"communication_data_type", by_hand, choice({"fp32", "fp16", "bf16"}).or_null(), kNoBit,
       "Only fp32 in this version."},
      {"seq_parallel_communication_data_type", by_hand, choice({"fp32", "fp16", "bf16"}).or_null(), kNoBit,
       "No effect here."},
      {"data_types", by_hand, data_types_keys().shape(), kBits, "How reduced gradients are held."},
      {"elasticity", by_hand, object_with({{"enabled", flag()}}), kNoBit, "Not supported: only \"enabled\": false."},
      {"data_efficiency", by_hand, object_with({{"enabled", flag()}}), kNoBit,
       "Not supported: only \"enabled\": false."},
      {"curriculum_learning", by_hand, object_with({{"enabled", flag()}}), kNoBit,
       "Not supported: only \"enabled\": false."},
      {"progressive_layer_drop", by_hand, object_with({{"enabled", flag()}}), kNoBit,
       "Not supported: only \"enabled\": false."},
      {"eigenvalue", by_hand, object_with({{"enabled", flag()}}), kNoBit, "Not supported: only \"enabled\": false."},
      {"hybrid_engine", by_hand, object_with({{"enabled", flag()}}), kNoBit, "Not supported: only \"enabled\": false."},
      {"sparse_gradients", by_hand, flag().standard(false), kNoBit, "Only false in this version."},
      {"sparse_attention", by_hand, object(), kNoBit, "Not supported."},
      {"compression_training", by_hand, object(), kNoBit, "Not supported."},
      {"quantize_training", by_hand, object(), kNoBit, "Not supported."},
      {"prescale_gradients", by_hand, flag(), kNoBit,
       "No effect: sums here are exact in the sense of docs/numerics.md."},
      {"gradient_predivide_factor", by_hand, number().above(0), kNoBit, "No effect, as prescale_gradients."},
      {"disable_allgather", by_hand, flag(), kNoBit, "No effect here."},
      {"steps_per_print", by_hand, integer().or_null(), kNoBit, "No effect here."},
      {"wall_clock_breakdown", by_hand, flag(), kNoBit, "No effect here."},
      {"memory_breakdown", by_hand, flag(), kNoBit, "No effect here."},
      {"dump_state", by_hand, flag(), kNoBit, "No effect here."},
      {"dataloader_drop_last", by_hand, flag(), kNoBit, "No effect here."},
      {"managed_gradient_accumulation", by_hand, flag(), kNoBit, "No effect here."},
      {"zero_allow_untested_optimizer", by_hand, flag(), kNoBit, "No effect here."},
      {"zero_force_ds_cpu_optimizer", by_hand, flag(), kNoBit, "No effect here."},
      {"graph_harvesting", by_hand, flag(), kNoBit, "No effect here."},
      {"use_node_local_storage", by_hand, flag(), kNoBit, "No effect here."},
      {"use_data_before_expert_parallel_", by_hand, flag(), kNoBit, "No effect here."},
      {"activation_checkpointing", by_hand, activation_checkpointing_keys().shape(), kNoBit,
       "Activations that are computed again in backward. Never changes a bit."},
      {"pipeline", by_hand, object(), kNoBit, "No effect without pipeline stages."},
      {"aio", by_hand, aio_keys().shape(), kNoBit, "How files are read and written (offload to nvme)."},
      {"checkpoint", by_hand, object(), kNoBit, "No effect: no checkpoints in this version."},
      {"nebula", by_hand, object(), kNoBit, "No effect here."},
      {"tensorboard", by_hand, object(), kNoBit, "No effect here."},
      {"wandb", by_hand, object(), kNoBit, "No effect here."},
      {"comet", by_hand, object(), kNoBit, "No effect here."},
      {"csv_monitor", by_hand, object(), kNoBit, "No effect here."},
      {"comms_logger", by_hand, object(), kNoBit, "No effect here."},
      {"flops_profiler", by_hand, object(), kNoBit, "No effect here."},
      {"timers", by_hand, object(), kNoBit, "No effect here."},
      {"autotuning", by_hand, object(), kNoBit, "No effect here."},
      {"compile", by_hand, object(), kNoBit, "No effect here."},
  };
  return keys;
}

}  // namespace seeksim::harness
