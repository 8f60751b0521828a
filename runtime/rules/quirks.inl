// One row a quirk: its name as scenarios write it, whose it is, what it does and what seeksim does instead, at which
// point of a step and on what it acts, and where it was read. quirks.h makes of it the enum, quirks.cpp the catalogue;
// what it does stands in the function of its point in quirks.cpp. DS: deepspeedai/DeepSpeed, PT: pytorch/pytorch.
SEEKSIM_QUIRK(
    ds_stage0_scaler, .framework = "DeepSpeed 0.19.6, fp16 without ZeRO",
    .does =
        "the loss scale halves at every overflow, without hysteresis, and stays at its minimum without an error: "
        "such a run can skip for ever",
    .instead = "one scaler at every stage, that of ZeRO 1 to 3", .point = QuirkPoint::plan,
    .edits = "hysteresis 1, consecutive_hysteresis false, raise_error_at_min_scale false",
    .source = "DS runtime/fp16/fused_optimizer.py _update_scale; DS #1958")
SEEKSIM_QUIRK(ds_old_default_clipping, .framework = "DeepSpeed before 2026-06-23",
              .does = "a configuration without gradient_clipping does not clip",
              .instead = "it clips at 1.0, the default of DeepSpeed 0.19.6", .point = QuirkPoint::plan,
              .edits = "the default of gradient_clipping", .source = "DS #8068 (442166559), runtime/constants.py")
SEEKSIM_QUIRK(
    experts_by_micro_batch, .framework = "DeepSpeed 0.19.8 (MoE), Megatron-LM, Hugging Face transformers",
    .does =
        "an expert's capacity and the shares of the balancing loss are counted over what a rank has in one micro-batch: "
        "another micro-batch size is another training",
    .instead = "both are counted over a sample, or over as many as model.routing_samples says", .point = QuirkPoint::plan,
    .edits = "samples that are counted together: those of a micro-batch", .by_micro_batch = true,
    .source = "DS deepspeed/moe/sharded_moe.py top1gating, topkgating; Megatron-LM moe_utils.py; transformers "
              "load_balancing_loss_func")
SEEKSIM_QUIRK(
    ds_stage0_stray_adam_step, .framework = "DeepSpeed 0.19.6, fp16 without ZeRO",
    .does =
        "one optimizer step with zero gradients before training: Adam's bias correction is one step ahead and "
        "every decaying weight has decayed once",
    .instead = "Adam's first step is its first", .point = QuirkPoint::initial_state,
    .edits = "Adam's step count (1) and the weights (one decoupled decay)",
    .source = "DS runtime/fp16/fused_optimizer.py initialize_optimizer_states; DS #966")
SEEKSIM_QUIRK(
    ds_stage0_unscaled_loss, .framework = "DeepSpeed 0.19.6, fp16 without ZeRO",
    .does =
        "the loss is not scaled, but the gradient is divided by the scale: too small by the scale, which Adam "
        "without clipping hides",
    .instead = "what is multiplied in is divided out", .point = QuirkPoint::loss, .edits = "the factor at the loss (1)",
    .source = "DS runtime/engine.py backward; DS #8393; its bf16 twin DS #7839")
SEEKSIM_QUIRK(
    mean_of_micro_batch_means, .framework = "DeepSpeed 0.19.6; Hugging Face Trainer before its fix",
    .does =
        "each micro-batch's loss is the mean of its own tokens, and those are averaged over micro-batches and "
        "ranks: tokens of short micro-batches weigh more",
    .instead = "one denominator: all tokens of the step", .point = QuirkPoint::loss,
    .edits = "the weight of each token", .split_dependent = true, .rival = "denominator",
    .source = "DS runtime/engine.py; transformers #34191")
SEEKSIM_QUIRK(
    mean_of_rank_means, .framework = "torch DistributedDataParallel and most loops around it",
    .does = "each rank divides by the tokens that it has, then ranks are averaged: tokens on short ranks weigh more",
    .instead = "one denominator: all tokens of the step", .point = QuirkPoint::loss,
    .edits = "the weight of each token", .split_dependent = true, .rival = "denominator",
    .source = "transformers #34242, #34373; torchtitan #2206")
SEEKSIM_QUIRK(ds_accumulates_in_parameter_type, .framework = "DeepSpeed 0.19.6, ZeRO 2",
              .does = "micro-batches are added up in the parameters' type, whatever data_types.grad_accum_dtype says",
              .instead = "fp32 until the root, rounded there once if asked for", .point = QuirkPoint::accumulation,
              .edits = "the type of the accumulator", .split_dependent = true,
              .source = "DS runtime/zero/stage_1_and_2.py; DS #4083 for ZeRO 1")
SEEKSIM_QUIRK(
    ds_divides_before_sum, .framework = "DeepSpeed 0.19.6, ZeRO 1 to 3",
    .does =
        "each rank's gradient is divided by the world's size before the sum: in fp16 small values vanish, and "
        "1/3 is rounded",
    .instead = "no rank knows the world's size: one factor at the root", .point = QuirkPoint::reduction,
    .edits = "the factors before and after the sum over ranks: 1/world, 1", .split_dependent = true, .rival = "average",
    .source = "DS runtime/zero/stage_1_and_2.py average_tensor, runtime/comm/coalesced_collectives.py")
SEEKSIM_QUIRK(ds_stage0_divides_after_sum, .framework = "DeepSpeed 0.19.6 without ZeRO",
              .does = "the sum over ranks is divided by the world's size: in fp16 the sum can overflow first",
              .instead = "no rank knows the world's size: one factor at the root", .point = QuirkPoint::reduction,
              .edits = "the factors before and after the sum over ranks: 1, 1/world", .split_dependent = true,
              .rival = "average", .source = "DS runtime/engine.py allreduce_bucket")
SEEKSIM_QUIRK(
    fsdp_fp16_divides_twice, .framework = "torch FSDP2, fp16",
    .does = "a power of two near the root of the world's size is divided out before the sum, the rest after it",
    .instead = "no rank knows the world's size: one factor at the root", .point = QuirkPoint::reduction,
    .edits = "the factors before and after the sum over ranks", .split_dependent = true, .rival = "average",
    .source = "PT torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py _get_gradient_divide_factors")
SEEKSIM_QUIRK(
    ds_bf16_unchecked, .framework = "DeepSpeed 0.19.6, ZeRO 3; ZeRO 1 and 2 before 2026-06-26",
    .does =
        "bf16 gradients are not checked: the norm of a NaN is -1, which means no clipping, and one infinity ends "
        "as NaN in weights and moments",
    .instead = "a non-finite gradient skips the step in every precision", .point = QuirkPoint::overflow_check,
    .edits = "whether gradients are checked",
    .source = "DS runtime/zero/stage3.py; DS #8035 (f0253c866), #4512 (244040c18)")
SEEKSIM_QUIRK(ds_fp32_unchecked, .framework = "DeepSpeed 0.19.6, ZeRO 1 to 3",
              .does = "fp32 gradients are never checked",
              .instead = "a non-finite gradient skips the step in every precision", .point = QuirkPoint::overflow_check,
              .edits = "whether gradients are checked",
              .source = "DS runtime/zero/stage_1_and_2.py step, runtime/zero/stage3.py")
SEEKSIM_QUIRK(
    torch_found_inf_local, .framework = "torch GradScaler over sharded gradients",
    .does =
        "found_inf is never reduced over ranks: the ranks that see the infinity skip, the others step, and scales "
        "and weights part",
    .instead = "one vote over all ranks", .point = QuirkPoint::vote, .edits = "whose flag decides",
    .split_dependent = true, .source = "PT torch/amp/grad_scaler.py; the same in ZeRO 1 until DS #7580")
SEEKSIM_QUIRK(
    ds_partition_norm, .framework = "DeepSpeed 0.19.6, ZeRO 1 and 2",
    .does =
        "slices' norms in fp64, squares summed on each rank, then in fp32 over ranks in the order of partitions; "
        "-1 stands for a norm that is not finite",
    .instead = "one tree over blocks of the flat parameters, in fp32, the same at every split",
    .point = QuirkPoint::norm, .edits = "the norm", .split_dependent = true,
    .source = "DS runtime/zero/stage_1_and_2.py get_grad_norm_direct, scaled_global_norm")
SEEKSIM_QUIRK(
    ds_unscales_by_new_scale, .framework = "DeepSpeed 0.19.6",
    .does =
        "the scale is updated before the gradient is unscaled, and the new one divides: in a step that grows the "
        "scale an unclipped gradient is halved",
    .instead = "the scale that multiplied the loss divides the gradient", .point = QuirkPoint::unscale_clip,
    .edits = "the factor of the gradient: used scale / new scale",
    .source = "DS runtime/zero/stage_1_and_2.py step, runtime/zero/stage3.py, runtime/fp16/fused_optimizer.py")
SEEKSIM_QUIRK(ds_stage3_norm_by_new_scale, .framework = "DeepSpeed 0.19.6, ZeRO 3; ZeRO 1 and 2 before their fix",
              .does = "the norm that is reported is divided by the new scale: half of what it was in a step that grows",
              .instead = "the norm of the gradient as it was", .point = QuirkPoint::unscale_clip,
              .edits = "the reported norm",
              .source = "DS runtime/zero/stage3.py; DS #2686, fixed at ZeRO 1 and 2 by #2695 (fe728e3ed)")
SEEKSIM_QUIRK(
    ds_clip_on_combined_scale, .framework = "DeepSpeed 0.19.6, ZeRO 1 to 3 and fp16 without ZeRO",
    .does =
        "the gradient is multiplied by 1 / max(1, (norm + 1e-6) / limit): the same number as seeksim's, rounded "
        "twice",
    .instead = "min(1, limit / (norm + 1e-6))", .point = QuirkPoint::unscale_clip, .edits = "the clip coefficient",
    .rival = "clip", .source = "DS runtime/zero/stage_1_and_2.py unscale_and_clip_grads")
SEEKSIM_QUIRK(llmc_clip_without_epsilon, .framework = "llm.c f1e2ace6",
              .does = "limit / norm where norm > limit, without an epsilon", .instead = "min(1, limit / (norm + 1e-6))",
              .point = QuirkPoint::unscale_clip, .edits = "the clip coefficient", .rival = "clip",
              .source = "karpathy/llm.c train_gpt2.cu")
SEEKSIM_QUIRK(
    torch_clips_before_unscale, .framework = "torch, a loop that clips without unscale_",
    .does = "the limit is compared with the scaled norm: with a scale of 65536 almost every step is clipped to nothing",
    .instead = "unscale, then clip", .point = QuirkPoint::unscale_clip,
    .edits = "the norm that is clipped and reported: times the scale", .rival = "clip",
    .source = "PT docs notes/amp_examples; torch/amp/grad_scaler.py unscale_")
SEEKSIM_QUIRK(torch_schedule_counts_skipped, .framework = "torch, a loop that always calls scheduler.step()",
              .does = "the schedule advances on skipped steps: the rate warms up though nothing was applied",
              .instead = "the schedule counts applied steps", .point = QuirkPoint::schedule,
              .edits = "the count that the learning rate is a function of", .source = "accelerate #4242")
SEEKSIM_QUIRK(accelerate_schedule_times_world, .framework = "Hugging Face Accelerate @16cb6eb8",
              .does = "the wrapped scheduler steps as many times a step as there are processes",
              .instead = "once a step", .point = QuirkPoint::schedule,
              .edits = "the count that the learning rate is a function of: times world", .split_dependent = true,
              .source = "accelerate docs/source/concept_guides/performance.md")
