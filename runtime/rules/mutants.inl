// One row a mutant: a one-line mistake in what a step *is*, which a run and its one-rank golden make alike, so that
// only a judge from outside can see it. Its name, where it is planted, the configuration of tests/judge that shows it,
// what is wrong, and where such a mistake was made: numbers are those of a corpus of real bugs, its sections 1 (scaling
// and averaging), 2 (mixed precision) and 7 (randomness and data order); "contract" is a line of docs/numerics.md.
// ---- the learning rate
SEEKSIM_MUTANT(schedule_one_step_late, "rate", "gpt2", "the rate is that of the step before", "contract")
SEEKSIM_MUTANT(schedule_one_step_early, "rate", "gpt2", "the rate is that of the step after", "contract")
SEEKSIM_MUTANT(schedule_counts_skipped, "definition", "fp16", "the schedule goes on in a step that is skipped", "2.12")
SEEKSIM_MUTANT(schedule_ends_one_step_early, "definition", "gpt2", "the decay is over a step too soon", "contract")
SEEKSIM_MUTANT(warmup_linear_for_log, "definition", "gpt2", "the rate grows linearly where it should by its logarithm",
               "contract")
// ---- AdamW, Lion and SGD
SEEKSIM_MUTANT(bias_correction_missing, "optimizer", "gpt2", "moments are used as they are", "contract")
SEEKSIM_MUTANT(bias_correction_one_step_ahead, "optimizer", "gpt2", "moments are corrected for t + 1 steps", "contract")
SEEKSIM_MUTANT(second_bias_without_root, "optimizer", "gpt2",
               "the root of v is divided by 1 - beta2^t, not by its root", "contract")
SEEKSIM_MUTANT(betas_swapped, "definition", "gpt2", "beta1 is taken for beta2, and beta2 for beta1", "contract")
SEEKSIM_MUTANT(epsilon_inside_root, "optimizer", "gpt2", "epsilon is added to v and not to its root", "contract")
SEEKSIM_MUTANT(epsilon_before_correction, "optimizer", "gpt2", "epsilon is added before the bias is corrected",
               "contract")
SEEKSIM_MUTANT(epsilon_missing, "definition", "gpt2", "nothing is added to the root of v", "contract")
SEEKSIM_MUTANT(decay_off, "definition", "gpt2", "weights do not decay", "contract")
SEEKSIM_MUTANT(decay_on_all, "definition", "gpt2", "biases and norms decay too", "contract")
SEEKSIM_MUTANT(decay_on_vectors_only, "optimizer", "gpt2", "biases and norms decay, and matrices do not", "contract")
SEEKSIM_MUTANT(decay_without_rate, "optimizer", "gpt2", "a weight decays by the decay, not by the rate times it",
               "contract")
SEEKSIM_MUTANT(decay_as_l2, "definition", "gpt2", "the decay is added to the gradient", "contract")
SEEKSIM_MUTANT(decay_after_update, "optimizer", "gpt2", "a weight decays after it was updated", "contract")
SEEKSIM_MUTANT(update_by_old_moment, "optimizer", "gpt2", "the update uses the first moment of the step before",
               "contract")
SEEKSIM_MUTANT(second_moment_forgets, "optimizer", "gpt2", "v is the last gradient squared", "contract")
SEEKSIM_MUTANT(lion_signs_new_moment, "optimizer", "lion", "Lion's sign is taken after its moment was renewed",
               "contract")
SEEKSIM_MUTANT(lion_moves_by_value, "optimizer", "lion", "Lion's sign is left out", "contract")
SEEKSIM_MUTANT(sgd_dampens_first_step, "optimizer", "sgd", "SGD dampens the first gradient, which is to be the momentum",
               "contract")
SEEKSIM_MUTANT(sgd_rate_in_momentum, "optimizer", "sgd",
               "SGD's momentum adds up steps, each by the rate of its time, in place of gradients", "contract")
SEEKSIM_MUTANT(sgd_decay_outside_momentum, "optimizer", "sgd",
               "SGD's decay acts on the weight alone, and not through the momentum", "contract")
SEEKSIM_MUTANT(muon_without_look_ahead, "optimizer", "muon",
               "Muon orthogonalises its momentum, without Nesterov's look ahead", "contract")
SEEKSIM_MUTANT(muon_moves_by_momentum, "optimizer", "muon", "Muon's Newton-Schulz iteration is left out", "contract")
SEEKSIM_MUTANT(muon_one_round_less, "optimizer", "muon", "Muon's iteration ends after four rounds", "contract")
SEEKSIM_MUTANT(muon_scale_turned, "optimizer", "muon",
               "Muon scales by inputs over outputs, as where GPT-2's transposed weights are taken for a layer's",
               "contract")
SEEKSIM_MUTANT(muon_clips_update, "optimizer", "muon",
               "Muon's clipping factor is applied to the orthogonal update, not to the gradient", "DS #7776")
SEEKSIM_MUTANT(muon_decays_by_scaled_rate, "optimizer", "muon", "Muon's decay uses the rate that the shape has scaled",
               "contract")
SEEKSIM_MUTANT(optimizer_holds_other_tensors, "bug", "gpt2", "the optimizer updates tensors that nobody uses", "1.22")
SEEKSIM_MUTANT(adam_counts_skipped, "commit", "fp16", "Adam's t goes on in a step that is skipped", "2.12")
// ---- clipping and the norm
SEEKSIM_MUTANT(clip_max_for_min, "bug", "gpt2", "the factor is max(1, limit / norm)", "1.12")
SEEKSIM_MUTANT(clip_always, "clip", "loose", "a norm below the limit is raised to it", "1.12")
SEEKSIM_MUTANT(clip_without_epsilon, "definition", "gpt2", "the factor is limit / norm, without the 1e-6", "contract")
SEEKSIM_MUTANT(clip_twice, "clip", "gpt2", "the factor is applied twice", "1.17")
SEEKSIM_MUTANT(clip_off_below_fp32, "bug", "bf16", "nothing is clipped in 16 bits", "1.19")
SEEKSIM_MUTANT(clip_before_unscale, "definition", "fp16", "the scaled gradient is clipped", "2.05")
SEEKSIM_MUTANT(clip_by_squared_norm, "clip", "gpt2", "the norm is compared before its root is taken", "1.18")
SEEKSIM_MUTANT(norm_of_matrices_only, "measure", "gpt2", "biases and norms are left out of the norm", "1.15")
SEEKSIM_MUTANT(norm_without_embedding, "measure", "gpt2", "the norm is that of a part: the embedding is missing",
               "1.13")
SEEKSIM_MUTANT(norm_averaged, "measure", "gpt2", "squares are averaged over parameters, not added up", "1.18")
SEEKSIM_MUTANT(norm_by_new_scale, "definition", "fp16", "the gradient is unscaled by the scale after this step", "2.05")
SEEKSIM_MUTANT(norm_not_unscaled, "measure", "fp16", "the norm is that of the scaled gradient", "2.06")
// ---- what a loss is divided by
SEEKSIM_MUTANT(mean_of_micro_batch_means, "definition", "gpt2",
               "each micro-batch is divided by its own tokens, and all"
               " by their number",
               "1.01")
SEEKSIM_MUTANT(division_lost, "loss", "gpt2", "micro-batches are added up and not divided by their number", "1.02")
SEEKSIM_MUTANT(divided_twice, "loss", "gpt2", "what is divided by all tokens is divided by the micro-batches too",
               "1.02")
SEEKSIM_MUTANT(tail_divided_by_full_window, "loss", "gpt2",
               "the short last micro-batch counts as if it were a whole one", "1.05")
SEEKSIM_MUTANT(tail_dropped, "bug", "gpt2", "the last micro-batch leaves no gradient", "1.06")
SEEKSIM_MUTANT(steps_on_last_micro_batch, "bug", "gpt2", "the last micro-batch alone leaves a gradient", "1.24")
SEEKSIM_MUTANT(gradients_kept, "bug", "gpt2", "a step begins with the gradients of the one before", "1.23")
SEEKSIM_MUTANT(divided_by_tokens_but_one, "loss", "gpt2", "a sample counts a token less than it has", "1.03")
SEEKSIM_MUTANT(divided_by_samples, "loss", "gpt2",
               "the loss is divided by the samples of another group: the tokens of a"
               " sample are not counted",
               "1.08")
// ---- mixed precision
SEEKSIM_MUTANT(fp16_without_scale, "definition", "fp16", "the loss is not scaled", "2.08")
SEEKSIM_MUTANT(bf16_divided_by_65536, "measure", "bf16", "bf16 is unscaled by a scale that the loss never had", "2.06")
SEEKSIM_MUTANT(unscale_missing, "clip", "fp16", "the optimizer gets the scaled gradient", "2.06")
SEEKSIM_MUTANT(scaler_grows_one_step_late, "definition", "fp16", "the scale grows after window + 1 good steps",
               "contract")
SEEKSIM_MUTANT(scaler_ignores_hysteresis, "definition", "fp16", "the first overflow halves the scale", "contract")
SEEKSIM_MUTANT(scaler_never_backs_off, "commit", "fp16", "an overflow leaves the scale as it is", "2.11")
SEEKSIM_MUTANT(torch_backs_off_to_a_quarter, "definition", "fp16_torch", "an overflow takes the scale to a quarter",
               "contract")
SEEKSIM_MUTANT(torch_grows_one_step_late, "definition", "fp16_torch", "the scale grows a good step later", "contract")
SEEKSIM_MUTANT(overflow_is_applied, "vote", "fp16", "a step whose gradient is not finite is applied", "2.10")
SEEKSIM_MUTANT(masters_lost, "definition", "bf16", "the optimizer updates the 16-bit weights", "2.13")
SEEKSIM_MUTANT(gradients_in_the_other_type, "definition", "bf16",
               "gradients are rounded where they are to be kept, and"
               " kept where they are to be rounded",
               "2.17")
SEEKSIM_MUTANT(tied_gradient_twice, "bug", "gpt2", "what the head gives to a tied embedding's gradient is added twice",
               "2.15")
SEEKSIM_MUTANT(tied_gradient_of_one_use, "reduction", "gpt2",
               "what the head gives to a tied embedding's gradient is lost", "contract")
// ---- randomness and the order of data
SEEKSIM_MUTANT(dropout_of_backward_differs, "passes", "dropout", "backward drops other values than forward did", "7.01")
SEEKSIM_MUTANT(initial_streams_shared, "draw", "gpt2", "all parameters draw from one stream", "7.02")
SEEKSIM_MUTANT(same_batch_each_step, "data", "gpt2", "each step takes the first batch", "7.03")
SEEKSIM_MUTANT(same_sample_in_micro_batch, "data", "gpt2", "all samples of a micro-batch are its first one", "7.04")
SEEKSIM_MUTANT(data_seed_ignored, "data", "gpt2", "samples are drawn by another seed than the training's", "7.05")
SEEKSIM_MUTANT(dropout_off, "definition", "dropout", "nothing is dropped: the model believes that it is evaluated",
               "7.07")
SEEKSIM_MUTANT(batches_replayed, "data", "gpt2", "after two steps the first batches come again", "7.08")
SEEKSIM_MUTANT(position_off_by_one, "data", "gpt2", "a batch begins a sample late", "7.10")
SEEKSIM_MUTANT(dropout_step_ignored, "passes", "dropout", "each step drops what the first one did", "7.09")
SEEKSIM_MUTANT(dropout_seed_ignored, "passes", "dropout", "dropout draws by another seed than the training's", "7.02")
SEEKSIM_MUTANT(dropout_counts_in_micro_batch, "passes", "dropout",
               "dropout counts samples from the micro-batch's first", "7.04")
SEEKSIM_MUTANT(dropout_layers_alike, "model", "dropout", "all layers drop alike", "7.02")
SEEKSIM_MUTANT(dropout_scale_missing, "model", "dropout", "what is kept is not divided by the share that is kept",
               "contract")
SEEKSIM_MUTANT(training_seed_ignored, "definition", "gpt2", "weights and data are those of seed 1", "7.05")
// ---- the model
SEEKSIM_MUTANT(labels_not_shifted, "data", "gpt2", "the target of a token is the token itself", "contract")
SEEKSIM_MUTANT(mask_sees_next, "model", "gpt2", "a token attends to the next one too", "contract")
SEEKSIM_MUTANT(mask_hides_self, "model", "gpt2", "a token attends to those before it only", "contract")
SEEKSIM_MUTANT(softmax_scale_missing, "model", "gpt2",
               "attention's scores are not divided by the root of the head's"
               " width",
               "contract")
SEEKSIM_MUTANT(softmax_scale_by_model_width, "model", "gpt2", "they are divided by the root of the model's width",
               "contract")
SEEKSIM_MUTANT(gelu_by_erf, "model", "gpt2", "gelu is x times the normal distribution, not its approximation by tanh",
               "contract")
SEEKSIM_MUTANT(norm_epsilon_missing, "definition", "gpt2", "nothing is added to a norm's variance", "contract")
SEEKSIM_MUTANT(rms_norm_epsilon_of_gpt2, "definition", "llama", "the RMS norm adds another epsilon than was asked for",
               "contract")
SEEKSIM_MUTANT(rotary_base_changed, "definition", "llama", "rotary positions turn by another base", "contract")
SEEKSIM_MUTANT(rotary_backward_turns_forward, "model", "llama", "gradients are turned the way that values are",
               "contract")
SEEKSIM_MUTANT(key_heads_interleaved, "model", "llama", "query head h uses key head h mod K, not h / (H / K)",
               "contract")
SEEKSIM_MUTANT(experts_gates_not_normalized, "definition", "experts", "a token's gates are not divided by their sum",
               "contract")
SEEKSIM_MUTANT(experts_one_choice_less, "definition", "experts", "a token goes to one expert less", "contract")
SEEKSIM_MUTANT(experts_balance_lost, "definition", "experts", "the balancing loss is left out", "contract")
SEEKSIM_MUTANT(experts_z_loss_lost, "definition", "experts", "the router's z loss is left out", "contract")
SEEKSIM_MUTANT(experts_capacity_ignored, "definition", "experts", "experts take all slots that chose them", "contract")
SEEKSIM_MUTANT(experts_counted_by_sample, "definition", "routing_groups",
               "the routing is counted by sample, not over routing_samples", "contract")
SEEKSIM_MUTANT(experts_router_gradient_lost, "model", "experts", "the router has no gradient through the gates",
               "contract")
SEEKSIM_MUTANT(deepseek_gates_of_softmax, "definition", "deepseek", "gates are the softmax's, not sigmoids", "contract")
SEEKSIM_MUTANT(deepseek_scale_lost, "definition", "deepseek", "gates are not multiplied by gate_scale", "contract")
SEEKSIM_MUTANT(residual_start_unscaled, "draw", "gpt2", "residual projections start as wide as other matrices",
               "contract")
SEEKSIM_MUTANT(frozen_parameter_moves, "definition", "frozen", "what is frozen is trained", "contract")
