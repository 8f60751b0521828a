#include "harness/loading/deepspeed/deepspeed_keys.h"

#include "harness/loading/deepspeed/activation_checkpointing.h"
#include "harness/loading/deepspeed/monitors.h"
#include "harness/loading/deepspeed/offload.h"
#include "harness/loading/deepspeed/precision.h"
#include "harness/loading/deepspeed/zero.h"

namespace seeksim::harness {
namespace {

using namespace shapes;

// An object with these keys and no others, as pydantic reads it for DeepSpeed.
Shape closed(const std::vector<std::pair<const char*, Shape>>& keys) {
  return object_with(keys).with("additionalProperties", false);
}

// A section that only watches.
Shape monitor(std::vector<std::pair<const char*, Shape>> keys) {
  keys.insert(keys.begin(), {"enabled", flag()});
  return closed(keys);
}

Shape compile_shape() {
  std::vector<std::pair<const char*, Shape>> keys;
  for (const char* name :
       {"deepcompile", "autoep_non_moe", "free_activation", "offload_activation", "offload_activation_pin_memory",
        "offload_opt_states", "double_buffer", "symmetric_memory", "debug_log", "offload_parameters",
        "sync_before_reduce", "sync_after_reduce", "sync_before_allgather", "sync_after_allgather",
        "keep_int_input_tensors", "keep_all_input_tensors"})
    keys.emplace_back(name, flag());
  keys.emplace_back("free_activation_threshold", integer());
  keys.emplace_back("passes", list(text()).or_null());
  return closed(keys);
}

const Keys<Scenario>& optimizer_params_keys() {
  static const Keys<Scenario> keys = {
      {"lr", by_hand, number().least(0).standard(0.001), kBits, "Learning rate."},
      {"betas", by_hand, list(number().least(0).below(1)).entries(2, 2).standard(Json::array({0.9, 0.999})), kBits,
       "Decay rates of the two moments; of Lion's update, and of its one moment. Muon: 0.9 and 0.95."},
      {"eps", by_hand, number().least(0).standard(1e-08), kBits,
       "Added to the root of the second moment; not with Lion."},
      {"momentum", by_hand, number().least(0).below(1), kBits,
       "Muon: of its matrices (default: 0.95). SGD (default: 0): of all; 0: no state is kept."},
      {"dampening", by_hand, number().least(0).most(1).standard(0), kBits,
       "SGD: what the momentum takes in of a gradient is 1 less this, but for the first one, which it takes whole."},
      {"nesterov", by_hand, flag().standard(false), kBits, "SGD: the step looks ahead by the momentum."},
      {"maximize", by_hand, flag().standard(false), kNoBit, "SGD: only false."},
      {"muon_lr", by_hand, number().least(0), kBits, "Muon: the rate of its matrices (default: lr; without one 0.02)."},
      {"adam_lr", by_hand, number().least(0), kBits,
       "Muon: the rate of what is left to AdamW (default: lr; without one 0.0003)."},
      {"ns_method", by_hand, choice({"standard", "gram"}).standard("standard"), kNoBit, "Muon: only \"standard\"."},
      {"per_head_muon", by_hand, flag().standard(false), kNoBit, "Muon: only false."},
      {"weight_decay", by_hand, number().least(0).standard(0), kBits,
       "Decoupled decay (0.01 by default with torch_adam, as torch has it); of SGD part of the gradient."},
      {"bias_correction", by_hand, flag().standard(true), kBits,
       "false: moments are used as they are, and the first steps are long."},
      {"adam_w_mode", by_hand, flag().standard(true), kBits, "false: decay enters the gradient (L2), for type Adam."},
      {"torch_adam", by_hand, flag().standard(false), kBits, "torch's default for weight_decay; otherwise no effect."},
      {"amsgrad", by_hand, flag().standard(false), kNoBit, "Only false: DeepSpeed's Adam refuses it too."},
      {"fused", by_hand, flag(), kNoBit, "No effect here."},
      {"foreach", by_hand, flag().or_null(), kNoBit, "No effect here."},
      {"capturable", by_hand, flag(), kNoBit, "No effect here."},
      {"set_grad_none", by_hand, flag(), kNoBit, "No effect here."},
      {"fp32_optimizer_states", by_hand, flag(), kNoBit, "No effect: moments are fp32."},
      {"max_grad_norm", by_hand, number(), kNoBit, "Refused by DeepSpeed: use gradient_clipping."},
  };
  return keys;
}

const Keys<Scenario>& optimizer_keys() {
  static const Keys<Scenario> keys = {
      {"type", by_hand, text().required(), kBits, "AdamW, Adam, Lion, Muon or SGD."},
      {"legacy_fusion", by_hand, flag(), kNoBit, "No effect here."},
      {"params", by_hand, optimizer_params_keys().shape(), kBits, "The optimizer's numbers."},
  };
  return keys;
}

const Keys<Scenario>& scheduler_params_keys() {
  static const Keys<Scenario> keys = {
      {"warmup_min_lr", by_hand, number().least(0).standard(0), kBits, "Where the warm-up begins."},
      {"warmup_max_lr", by_hand, number().least(0), kBits, "Where the warm-up ends (default: the optimizer's lr)."},
      {"warmup_num_steps", by_hand, integer(1).standard(1000), kBits, "Steps of warm-up; at least 2 are taken."},
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
      {"train_batch_size", by_hand, integer().or_null(), kBits,
       "Samples a step, over all ranks: micro-batch * accumulation * ranks."},
      {"train_micro_batch_size_per_gpu", by_hand, integer().or_null(), kNoBit, "Samples a rank holds at once."},
      {"gradient_accumulation_steps", by_hand, integer().or_null(), kNoBit,
       "Micro-batches a rank adds up before a step."},
      {"optimizer", by_hand, optimizer_keys().shape(), kBits,
       "AdamW (decoupled decay); Adam, which in DeepSpeed is AdamW too unless params.adam_w_mode is false; Lion (one "
       "moment); Muon, which takes the matrices of layers as wholes; or SGD, which is torch's."},
      {"scheduler", by_hand, scheduler_keys().shape(), kBits,
       "The learning rate over the steps. Without one it is constant."},
      {"gradient_clipping", by_hand, number().least(0).standard(1), kBits,
       "Largest norm of the whole gradient; 0: off. DeepSpeed 0.19.8's default is 1."},
      {"zero_optimization", by_hand, zero_keys().shape(), kNoBit,
       "ZeRO stages 0 to 3. Stage, buckets and switches change where and when work is done and what it costs, never a "
       "bit."},
      {"fp16", by_hand, fp16_keys().shape(), kBits,
       "Half precision: parameters and activations in fp16, fp32 masters, loss scaling with DeepSpeed's state "
       "machine."},
      {"bf16", by_hand, bf16_keys().shape(), kBits,
       "bfloat16: parameters and activations in bf16, fp32 masters unless bf16_master_weights_and_grads."},
      {"gradient_allreduce_op", by_hand, choice({"mean", "sum"}).standard("mean"), kNoBit,
       "Only mean in this version."},
      {"communication_data_type", by_hand, choice({"fp32", "fp16", "bf16"}).or_null(), kNoBit,
       "Only fp32 in this version."},
      {"seq_parallel_communication_data_type", by_hand, choice({"fp32", "fp16", "bf16"}).or_null(), kNoBit,
       "No effect here."},
      {"data_types", by_hand, data_types_keys().shape(), kBits, "How reduced gradients are held."},
      {"data_efficiency", by_hand, object_with({{"enabled", flag()}}), kNoBit,
       "Not supported: only \"enabled\": false."},
      {"hybrid_engine", by_hand,
       closed({{"enabled", flag()},
               {"max_out_tokens", integer(1)},
               {"inference_tp_size", integer()},
               {"release_inference_cache", flag()},
               {"pin_parameters", flag()},
               {"tp_gather_partition_size", integer()},
               {"enable_cuda_graph", flag()}}),
       kNoBit, "Not supported: only \"enabled\": false."},
      {"torch_autocast", by_hand, object_with({{"enabled", flag()}}), kNoBit,
       "Not supported: only \"enabled\": false."},
      {"tensor_parallel", by_hand, object(), kNoBit, "Not supported: only autotp_size 0 or 1. See world.tensor."},
      {"sequence_parallel_size", by_hand, integer(1), kNoBit, "Not supported: only 1."},
      {"expert_parallel", by_hand, object_with({{"enabled", flag()}}), kNoBit,
       "Not supported: only \"enabled\": false."},
      {"weight_quantization", by_hand, object(), kNoBit, "Not supported."},
      {"datastates_ckpt", by_hand, object(), kNoBit, "Not supported."},
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
      {"use_data_before_expert_parallel_", by_hand, flag(), kNoBit, "No effect here."},
      {"activation_checkpointing", by_hand, activation_checkpointing_keys().shape(), kNoBit,
       "Activations that are computed again in backward. Never changes a bit."},
      {"pipeline", by_hand, object(), kNoBit, "No effect without pipeline stages."},
      {"aio", by_hand, aio_keys().shape(), kNoBit, "How files are read and written (offload to nvme)."},
      {"checkpoint", by_hand, object(), kNoBit, "No effect here: \"checkpoint\" of the scenario writes checkpoints."},
      {"disable_python_gc", by_hand, flag(), kNoBit, "No effect here."},
      {"log_level", by_hand, text(), kNoBit, "No effect here."},
      {"vocabulary_size", by_hand, integer().or_null(), kNoBit, "No effect here."},
      {"allgather_size", by_hand, number(), kNoBit, "allgather_bucket_size, beside \"zero_optimization\": true."},
      {"tensorboard", by_hand, monitor_keys().shape(), kNoBit,
       "Train/Samples/lr, train_loss and, in fp16, loss_scale by samples, as TensorBoard's event files."},
      {"wandb", by_hand, monitor({{"group", text().or_null()}, {"team", text().or_null()}, {"project", text()}}),
       kNoBit, "No effect here."},
      {"comet", by_hand,
       monitor({{"samples_log_interval", integer()},
                {"project", text().or_null()},
                {"workspace", text().or_null()},
                {"api_key", text().or_null()},
                {"experiment_name", text().or_null()},
                {"experiment_key", text().or_null()},
                {"online", flag().or_null()},
                {"mode", text().or_null()}}),
       kNoBit, "No effect here."},
      {"csv_monitor", by_hand, monitor_keys().shape(), kNoBit,
       "The same as files of columns step (samples) and value: Train_Samples_lr.csv and so on."},
      {"comms_logger", by_hand,
       monitor({{"prof_all", flag()}, {"prof_ops", list(text())}, {"verbose", flag()}, {"debug", flag()}}), kNoBit,
       "No effect here."},
      {"flops_profiler", by_hand, object(), kNoBit, "No effect here."},
      {"timers", by_hand, object(), kNoBit, "No effect here."},
      {"autotuning", by_hand, object(), kNoBit, "No effect here."},
      {"compile", by_hand, compile_shape(), kNoBit, "No effect here."},
  };
  return keys;
}

}  // namespace seeksim::harness
