// One row a planted bug: its name as scenarios write it, what is wrong while it is on, and the check that must turn
// red. bugs.h makes of it the enum, and bugs.cpp the catalogue. "rank 1" and "step 1" are where a scenario plants it by
// default.
SEEKSIM_BUG(skip_wait, "one wait for an event is left out: skip_wait:<edge>", "no_races")
SEEKSIM_BUG(early_release, "rank 1 gives a gathered module's memory back while it is in use (stage 3)", "no_races")
SEEKSIM_BUG(unwritten_memory, "rank 1 never writes its own part of the parameters that it gathers (stage 3)",
            "no_poison")
SEEKSIM_BUG(activation_never_written,
            "rank 1 leaves out the activation function of its first layer, whose result the next product reads",
            "no_poison")
SEEKSIM_BUG(drifting_replica, "from step 1 on, rank 1's copy of one parameter is off by its last bit", "replicas_equal")
SEEKSIM_BUG(drifting_lr, "from step 1 on, rank 1's learning rate is off by its last bit", "replicas_equal")
SEEKSIM_BUG(stale_publish,
            "from step 1 on, rank 1 keeps the old parameters of the first bucket that is published (stages 1 and 2)",
            "replicas_equal")
SEEKSIM_BUG(overlapping_shards, "the second shard begins a block early (stages 1 to 3)", "partition")
SEEKSIM_BUG(gap_in_shards, "the second shard begins an element late (stages 1 and 2)", "partition")
SEEKSIM_BUG(muon_cuts_matrices,
            "shards end inside of matrices, and each owner orthogonalises the part that it has (Muon, stages 1 to 3)",
            "partition")
SEEKSIM_BUG(muon_each_micro_batch,
            "Muon's momentum advances with each micro-batch of a step, not once a step (Muon, stage 3)", "golden")
SEEKSIM_BUG(swapped_buckets, "rank 1 reduces two buckets of equal size in the other order (stage 1)",
            "collectives_match")
SEEKSIM_BUG(wrong_count, "rank 1 brings an element less to the all-reduce (stage 0) or publish (1 and 2)",
            "collectives_match")
SEEKSIM_BUG(skipped_collective, "rank 1 leaves a reduction out (stages 0 and 1)", "collectives_match")
SEEKSIM_BUG(kept_gathered, "gathered parameters are never given back (stage 3)", "memory_formula")
SEEKSIM_BUG(full_optimizer_state, "every rank keeps the moments of all parameters (stages 1 to 3)", "memory_formula")
SEEKSIM_BUG(gather_twice, "each module is gathered again when it is used (stage 3)", "traffic_formula")
SEEKSIM_BUG(sample_twice, "rank 1 counts the first samples of its first micro-batch twice", "conservation")
SEEKSIM_BUG(sample_lost, "rank 1 leaves the first samples of its first micro-batch out", "conservation")
SEEKSIM_BUG(wrong_weight, "rank 1 divides by its own number of micro-batches", "conservation")
SEEKSIM_BUG(experts_count_micro_batch,
            "an expert's capacity and its share in the balancing loss are counted over a micro-batch, not by sample",
            "golden")
SEEKSIM_BUG(capacity_of_one_sample,
            "an expert takes as many choices of several samples as of one (model.routing_samples, capacity_factor)",
            "golden")
SEEKSIM_BUG(experts_divided_by_group,
            "gradients of experts are divided by the ranks of an expert group too (world.expert)", "conservation")
SEEKSIM_BUG(experts_of_own_samples,
            "rank 1 adds up its experts' gradients over its own samples alone, without its group's (world.expert)",
            "conservation")
SEEKSIM_BUG(combined_in_anothers_order,
            "what the experts of a rank have made is taken for that of the next rank of the group (world.expert)",
            "golden")
SEEKSIM_BUG(experts_scattered_over_all,
            "gradients of experts are gathered in a group as all others are, and so those of other ranks' experts are "
            "added to them (world.expert, stages 2 and 3)",
            "golden")
SEEKSIM_BUG(router_losses_of_last_stage,
            "the loss that is reported has the routers' losses of the last stage's layers alone (pipeline)", "golden")
SEEKSIM_BUG(router_losses_left_behind,
            "routers of all stages but the last get no gradient from their losses, which only the last stage begins with "
            "(pipeline)",
            "golden")
SEEKSIM_BUG(router_losses_by_stages, "gradients of the routers' losses are divided by the number of stages (pipeline)",
            "golden")
SEEKSIM_BUG(arrivals_of_last_micro_batch,
            "where rows came from is kept for the micro-batch that went forward last, not for each in flight (pipeline, "
            "world.expert)",
            "golden")
SEEKSIM_BUG(out_of_step_in_group,
            "rank 1 goes forward with all its micro-batches first, which the other ranks of its expert group do not "
            "(pipeline, world.expert)",
            "no_recovery")
SEEKSIM_BUG(router_gradient_of_each_way,
            "the router's gradient is added up over tensor ways, each of which has all of it (experts, world.tensor)",
            "golden")
SEEKSIM_BUG(gates_before_ways_sum,
            "rank 1 multiplies what its slabs of experts make by the gates before the sum over tensor ways too "
            "(experts, world.tensor)",
            "golden")
SEEKSIM_BUG(gate_gradient_of_own_slabs,
            "each tensor way takes the gradient of gates from its own slabs of experts alone (experts, world.tensor)",
            "replicas_equal")
SEEKSIM_BUG(slabs_to_next_expert,
            "rank 1 takes gradients of its slabs of an expert for those of the next expert (experts, world.tensor)",
            "golden")
SEEKSIM_BUG(experts_norm_of_first_way,
            "the gradient norm has of experts the slabs of the first tensor way alone (experts, world.tensor)", "golden")
SEEKSIM_BUG(router_gradient_lost, "rank 1 gives the router no gradient through the gates", "golden")
SEEKSIM_BUG(sigmoid_gates_undivided, "the chosen sigmoid gates of a token are not divided by their sum", "golden")
SEEKSIM_BUG(gates_scaled_twice, "gates are multiplied by gate_scale by the router, and by the layer again", "golden")
SEEKSIM_BUG(shared_expert_scaled, "what the shared expert adds is multiplied by gate_scale, as gates are", "golden")
SEEKSIM_BUG(shared_gradient_lost, "rank 1 gives a layer's input no gradient through the shared expert", "golden")
SEEKSIM_BUG(rank_seeded_dropout, "each rank drops values by a seed of its own", "golden")
SEEKSIM_BUG(
    offload_drops_accumulation,
    "of gradients accumulated on the host only the last micro-batch's are kept (optimizer offload, stages 2 and 3)",
    "conservation")
SEEKSIM_BUG(offload_miscounts_first_step,
            "the same in the first step only, as if its micro-batches were counted wrongly", "conservation")
SEEKSIM_BUG(
    offload_keeps_first_gradients,
    "of gradients accumulated on the host only the first micro-batch's are kept (optimizer offload, stages 2 and 3)",
    "conservation")
SEEKSIM_BUG(offload_norm_leaves_one_out,
            "rank 1 leaves a parameter out of the norm that its host measures (optimizer offload)", "golden")
SEEKSIM_BUG(
    offload_waits_elsewhere,
    "the event after the copy of updated parameters to the device is recorded on the host's queue (optimizer offload "
    "to nvme)",
    "no_races")
SEEKSIM_BUG(
    offload_tail_squared,
    "the host's optimizer squares the first moments of the elements behind the last whole vector (optimizer offload "
    "to cpu)",
    "golden")
SEEKSIM_BUG(
    swap_files_shared,
    "files of ranks have no rank in their path, so that ranks of a node write over each other's (optimizer offload to "
    "nvme)",
    "no_recovery")
SEEKSIM_BUG(swap_forgets_place,
            "each piece of the optimizer's state decays as the first one does (optimizer offload to nvme)", "golden")
SEEKSIM_BUG(
    short_reads_taken,
    "a read that brings fewer bytes than were asked for is taken for a whole one (optimizer offload to nvme, with "
    "nvme_short_read)",
    "golden")
SEEKSIM_BUG(checkpoint_freed_early,
            "rank 1 gives the input of a segment back while it is copied to the host (checkpointing on the host)",
            "no_races")
SEEKSIM_BUG(pinned_freed_early,
            "rank 1 gives pinned memory back while it is copied to the device (checkpointing on the host)", "no_races")
SEEKSIM_BUG(offload_reads_old_generation,
            "from step 2 on, rank 1 reads the optimizer's state from the older files (optimizer offload to nvme)",
            "replicas_equal")
SEEKSIM_BUG(staging_reused_early,
            "rank 1 reads into staging memory before its updated parameters have left (optimizer offload to nvme)",
            "no_races")
SEEKSIM_BUG(kept_activations, "layers that are computed again in backward share no memory", "memory_formula")
SEEKSIM_BUG(lost_partial_sum, "sums over tensor-parallel ranks leave the last rank's part out", "golden")
SEEKSIM_BUG(unreduced_norm_gradients,
            "each tensor way keeps the gradients that its own tokens give to norms (sequence parallelism)",
            "replicas_equal")
SEEKSIM_BUG(local_head_dropout,
            "dropout of attention counts heads from a tensor way's first, so that all ways drop alike", "golden")
SEEKSIM_BUG(context_positions_of_chunk,
            "positions of tokens are counted from the first token of a rank's chunk, in place of the sample's "
            "(world.context)",
            "golden")
SEEKSIM_BUG(context_rows_by_rank,
            "rows of a sample stand in the order of the ranks that have them, and the causal mask goes by that order "
            "(world.context, zigzag)",
            "golden")
SEEKSIM_BUG(context_heads_of_another,
            "the heads that come back from a rank of a context group are taken for those of the next one "
            "(world.context)",
            "golden")
SEEKSIM_BUG(context_gradients_of_own_tokens,
            "gradients are not summed over a context group: each rank keeps those of its own tokens (world.context)",
            "replicas_equal")
SEEKSIM_BUG(context_gradients_averaged,
            "gradients are divided by the ranks of a context group, as those of replicas are by theirs "
            "(world.context)",
            "golden")
SEEKSIM_BUG(context_loss_of_own_tokens,
            "a sample's loss is the mean over the tokens of one rank of its context group (world.context)", "golden")
SEEKSIM_BUG(context_dropout_of_chunk,
            "dropout counts tokens from the first one of a rank's chunk, so that all ranks of a context group drop "
            "alike (world.context)",
            "golden")
SEEKSIM_BUG(ring_mask_by_rank,
            "which keys a query sees goes by the order of ranks, not by that of chunks (ring attention, zigzag)",
            "golden")
SEEKSIM_BUG(ring_last_hop_left_out,
            "keys and values make one hop too few, so that each rank misses those of the next one (ring attention)",
            "golden")
SEEKSIM_BUG(ring_joins_without_factors,
            "what two blocks of keys give is added without the factors that bring both to one maximum (ring attention)",
            "golden")
SEEKSIM_BUG(ring_gradients_stay,
            "gradients of the last block of keys do not go home: the rank that made them adds them to its own keys' "
            "(ring attention)",
            "golden")
SEEKSIM_BUG(ring_stale_block,
            "backward takes the keys and values of the hop before for those of the last one (ring attention)", "golden")
SEEKSIM_BUG(ring_dropout_of_block,
            "dropout counts keys from the first one of the block that is here, so that all blocks drop alike (ring "
            "attention)",
            "golden")
SEEKSIM_BUG(ring_sums_in_16_bits,
            "what a block of keys gives is rounded to 16 bits before it is joined with others (ring attention)",
            "golden")
SEEKSIM_BUG(recompute_other_dropout, "what is computed again in backward drops other values than forward did", "golden")
SEEKSIM_BUG(untied_embedding,
            "the two stages that share the embedding each keep the gradient of their own use (pipeline)", "golden")
SEEKSIM_BUG(tied_misaligned,
            "the two stages that share the embedding add each other's gradients an element off (pipeline)", "golden")
SEEKSIM_BUG(local_layer_number, "dropout counts layers from a stage's first one, so that stages drop alike (pipeline)",
            "golden")
SEEKSIM_BUG(scaled_at_every_stage,
            "each stage divides the gradient that it sends back by the number of micro-batches (pipeline)", "golden")
SEEKSIM_BUG(last_bucket_never_reduced,
            "the gradients that backward completes last are never reduced (stages 2 and 3, ddp)",
            "golden")
SEEKSIM_BUG(chunk_loses_last_micro_batch,
            "of all pieces of a stage but the first, the last micro-batch's gradients are left out (interleaved pipeline, "
            "stages 2 and 3)",
            "golden")
SEEKSIM_BUG(bucket_waited_for,
            "backward waits for the sum of its first bucket before it goes on (stages 2 and 3, overlap_comm)",
            "finishes_within_virtual_s")
SEEKSIM_BUG(arrivals_swapped,
            "gradients that arrive from the first and the last rank are taken for each other's (stages 2 and 3, "
            "world.sums messages)",
            "golden")
SEEKSIM_BUG(half_message, "rank 1 sends half of an activation (pipeline)", "collectives_match")
SEEKSIM_BUG(backward_before_forward,
            "rank 1 waits for the gradient of its first micro-batch before it goes forward (pipeline)", "no_recovery")
SEEKSIM_BUG(gradient_sent_twice, "rank 1 sends the gradient of its first micro-batch twice (pipeline)",
            "collectives_match")
SEEKSIM_BUG(all_forwards_first,
            "stages go forward with all micro-batches before any goes back, whatever the schedule says (pipeline)",
            "live_activations")
SEEKSIM_BUG(silence_is_consent,
            "a rank that gets no answer to the vote on a step takes that for a yes (with partition)", "one_history")
SEEKSIM_BUG(
    stale_messages_taken,
    "a message that arrives a second time is taken for the next one of its size, whatever its epoch and number (with "
    "zombie_message)",
    "golden")
SEEKSIM_BUG(fewer_micro_batches, "rank 1 exchanges nothing with its neighbours for the last micro-batch (pipeline)",
            "no_recovery")
SEEKSIM_BUG(early_manifest,
            "ranks say that their file of a checkpoint is durable before they write it (checkpoints, with a crash)",
            "checkpoints_valid")
SEEKSIM_BUG(manifest_not_synced,
            "a checkpoint's manifest gets its name before its content is durable (checkpoints, with a crash)",
            "checkpoints_valid")
SEEKSIM_BUG(named_file_missing, "rank 1 never writes its file of a checkpoint (checkpoints)", "checkpoints_valid")
SEEKSIM_BUG(optimizer_step_not_saved,
            "a checkpoint forgets how many steps the optimizer has made (checkpoints, with a restart)", "golden")
SEEKSIM_BUG(scaler_not_saved, "a checkpoint loses the loss scaler's state (checkpoints in fp16, with a restart)",
            "golden")
SEEKSIM_BUG(checkpoint_unchecked,
            "files of a checkpoint are used without a look at their digests (checkpoints, with a damaged file)",
            "golden")
SEEKSIM_BUG(commits_before_vote, "rank 1 applies each step before it asks whether all do: seen where the vote fails",
            "one_history")
SEEKSIM_BUG(redoes_committed_step, "after a recovery all ranks train the last committed step again", "one_history")
SEEKSIM_BUG(copy_on_own_node, "copies of shards are kept on their owners' nodes (stages 1 to 3, several nodes)",
            "partition")
SEEKSIM_BUG(stale_copy, "rank 1's copies of others' shards miss step 1 (stages 1 to 3)", "replicas_equal")
SEEKSIM_BUG(
    first_copy_only,
    "a shard whose first copy is gone too is given up, though others are kept (stages 1 to 3, peer_copies of 2 or "
    "more)",
    "golden")
SEEKSIM_BUG(joins_without_state, "a rank that joins contributes before it has the others' state (with grow or spares)",
            "golden")
SEEKSIM_BUG(
    joins_without_steps,
    "a rank that joins counts the optimizer's steps, and with them the learning rate, from 0 (with grow or spares)",
    "replicas_equal")
SEEKSIM_BUG(quirk, "what another framework does, as if it were meant here: quirk:<name> (seeksim list quirks)",
            "golden")
SEEKSIM_BUG(undivided_window, "the gradients of a step's micro-batches are added up and never divided by their number",
            "conservation")
SEEKSIM_BUG(last_micro_batch_lost, "the gradient of each rank's last micro-batch counts for nothing", "conservation")
SEEKSIM_BUG(only_last_micro_batch, "of each rank's micro-batches the last alone leaves a gradient", "conservation")
SEEKSIM_BUG(divided_by_ways, "gradients are divided by the number of tensor-parallel ranks too (tensor)", "conservation")
SEEKSIM_BUG(tied_added_twice, "what the head gives to the gradient of a tied embedding is added twice (stage 0)",
            "golden")
SEEKSIM_BUG(clip_by_max,
            "the clipping coefficient is max(1, limit / norm): small gradients are blown up, large ones never clipped",
            "golden")
SEEKSIM_BUG(local_norm, "each rank clips by the norm of its own shard (stages 1 to 3)", "ranks_agree")
SEEKSIM_BUG(clip_off_in_16_bit, "gradient_clipping is forgotten in bf16 and fp16", "golden")
SEEKSIM_BUG(clip_skips_replicated,
            "tensor ways but the first never clip the gradients of what all ways hold (tensor, stage 0, fp32)",
            "replicas_equal")
SEEKSIM_BUG(never_reduced, "each rank trains with the gradients of its own samples (stage 0)", "replicas_equal")
SEEKSIM_BUG(update_lost, "the optimizer updates tensors that nothing uses (stage 0)", "golden")
SEEKSIM_BUG(gradients_never_zeroed, "a step begins with the gradients of the one before (stage 0)", "golden")
SEEKSIM_BUG(local_loss_scale, "after step 1 rank 1 halves its loss scale, and no other rank does (fp16)",
            "replicas_equal")
SEEKSIM_BUG(resume_replays_data,
            "a run that resumes from a checkpoint begins with the first batch again (checkpoints, with a restart)", "golden")
SEEKSIM_BUG(samples_shifted, "rank 1 shuffles by itself: it takes samples that others take too, and leaves out its own",
            "golden")
SEEKSIM_BUG(norm_left_out_by_empty,
            "a rank that owns no parameters does not take part when norms are gathered (stages 1 to 3, where some rank "
            "owns nothing)",
            "collectives_match")
SEEKSIM_BUG(norm_left_out_by_one, "rank 1 does not take part when norms are gathered (stages 1 to 3)",
            "collectives_match")
SEEKSIM_BUG(
    commit_heeds_revoke,
    "a rank that has heard of a revoke by the time that it hears a vote's answer gives the step up, whatever the "
    "answer is (with a fault right after a commit, and an order that `seeksim explore --strategy exhaustive` finds)",
    "one_history")
SEEKSIM_BUG(replicas_not_reduced,
            "shard groups never bring their gradients together: each trains on the samples of its own ranks, as if there "
            "were no others (world.shard_group, several groups)",
            "replicas_equal")
SEEKSIM_BUG(replicas_added_up,
            "the sum over shard groups is taken for a mean over one of them: gradients are as many times too large as "
            "there are groups (world.shard_group, several groups)",
            "conservation")
SEEKSIM_BUG(secondary_shards_stale,
            "what backward gathers inside a group is what the first forward pass left there, and no later one renews it "
            "(zero_hpz_partition_size)",
            "golden")
SEEKSIM_BUG(evaluation_keeps_dropout, "rank 1 leaves dropout on while it evaluates (evaluation)", "golden")
SEEKSIM_BUG(evaluation_skipped_by_one, "rank 1 leaves the evaluations between steps out (evaluation)",
            "collectives_match")
SEEKSIM_BUG(evaluation_left_out, "no rank evaluates after the last step (evaluation)", "evaluations")
SEEKSIM_BUG(evaluation_leaves_gradients,
            "an evaluation runs backward too, and its gradients are added to those of the next step (evaluation, stage 0)",
            "golden")
SEEKSIM_BUG(evaluation_means_of_ranks,
            "each rank divides by its own held-out samples, and the loss is the mean of the ranks' means (evaluation, "
            "samples that the ranks do not divide)",
            "golden")
SEEKSIM_BUG(sampler_forgets_epoch,
            "no rank tells the sampler of a new epoch: each has the order of the first (data.sampler)", "golden")
SEEKSIM_BUG(sampler_begins_again,
            "a run that resumes from a checkpoint begins the epoch again (data.sampler, checkpoints, with a restart)",
            "samples_once")
SEEKSIM_BUG(
    sampler_skips_twice,
    "a run that resumes from a checkpoint leaves out as many samples as were used, beyond those that its sampler "
    "has left out (data.sampler, checkpoints, with a restart)",
    "samples_once")
SEEKSIM_BUG(sampler_seeded_by_rank, "rank 1 shuffles with a seed of its own (data.sampler)", "samples_once")
SEEKSIM_BUG(
    sampler_counts_by_rank,
    "each rank counts its own samples, and their number times the ranks is taken for the position when the world "
    "has become another one (data.sampler, a rank that dies)",
    "samples_once")
SEEKSIM_BUG(
    curriculum_begins_again,
    "a run that resumes from a checkpoint begins its curriculum again (curriculum_learning, checkpoints, with a "
    "restart)",
    "golden")
SEEKSIM_BUG(curriculum_counts_all, "the loss is divided by all tokens, learned or not (curriculum_learning)", "golden")
SEEKSIM_BUG(packing_sees_others, "attention sees the documents before its own (data.packing)", "golden")
SEEKSIM_BUG(packing_positions_go_on, "positions do not begin again with each document (data.packing)", "golden")
SEEKSIM_BUG(packing_learns_boundaries,
            "the last token of a document learns to foretell the first one of the next (data.packing)", "golden")
SEEKSIM_BUG(packing_means_of_samples,
            "each micro-batch's loss is the mean of its own tokens, and the step's the mean of those (data.packing)",
            "golden")
SEEKSIM_BUG(fp8_states_not_saved,
            "scales and histories are not in checkpoints: a run that goes on from one begins with a scale of 1 (fp8 with "
            "delayed scaling, checkpoints, with a restart)",
            "golden")
SEEKSIM_BUG(fp8_amax_of_own_rank,
            "each rank scales by the largest magnitudes that it has seen itself (fp8 with delayed scaling)",
            "replicas_equal")
SEEKSIM_BUG(fp8_amax_of_last_micro_batch,
            "the last micro-batch overwrites the magnitudes of those before it (fp8 with delayed scaling, accumulation)",
            "golden")
SEEKSIM_BUG(fp8_moves_before_vote,
            "histories move when the passes of a step end, so that a step which is redone moves them twice (fp8 with "
            "delayed scaling, with a fault)",
            "golden")
SEEKSIM_BUG(fp8_moves_on_skipped,
            "a step that is skipped moves the histories (fp8 with delayed scaling, with a step that is skipped)", "golden")
SEEKSIM_BUG(fp8_scale_of_this_step,
            "a tensor is scaled by what is in the micro-batch at hand instead of by earlier steps (fp8 with delayed "
            "scaling)",
            "golden")
SEEKSIM_BUG(fp8_recompute_other_scale,
            "activations are computed again with other scales than the first time (fp8 with delayed scaling, activation "
            "checkpointing)",
            "golden")
SEEKSIM_BUG(fp8_unsaturated,
            "gradients beyond the largest number of 8 bits become NaN instead of that number (fp8 with delayed scaling, "
            "gradients that outgrow their scale)",
            "golden")
SEEKSIM_BUG(fp8_joiner_starts_anew,
            "a rank that joins begins with a scale of 1 and no history (fp8 with delayed scaling, a rank that joins)",
            "replicas_equal")
SEEKSIM_BUG(quantised_scale_of_shard,
            "weights are quantised with one scale for all that a rank has of a gather, in place of each block's "
            "(zero_quantized_weights)",
            "golden")
SEEKSIM_BUG(quantised_cut_off,
            "codes of quantised weights are rounded towards zero, not to the nearest one (zero_quantized_weights)",
            "golden")
SEEKSIM_BUG(quantised_weights_kept,
            "what forward gathered in 8 bits is written over the shard that it came from (zero_quantized_weights, fp32)",
            "golden")
SEEKSIM_BUG(quantised_forward_only,
            "backward gathers weights as they are, and forward computed with quantised ones (zero_quantized_weights, "
            "stage3_max_reuse_distance 0)",
            "golden")
SEEKSIM_BUG(quantised_persistent_exact,
            "weights that stay gathered are not quantised, so that stage3_param_persistence_threshold decides bits "
            "(zero_quantized_weights)",
            "golden")
SEEKSIM_BUG(quantised_bf16_as_fp16,
            "what quantises weights takes bf16 bits for fp16 ones (zero_quantized_weights, bf16)", "golden")
SEEKSIM_BUG(quantised_last_scale_lost, "rank 1 loses the scale of the last block of each gather (zero_quantized_weights)",
            "golden")
SEEKSIM_BUG(ema_before_update, "the mean of weights takes in what the step is about to change (ema)", "golden")
SEEKSIM_BUG(ema_of_rounded_weights,
            "the mean of weights is of the 16-bit weights to compute with, not of their masters (ema, bf16 or fp16)", "golden")
SEEKSIM_BUG(ema_at_skipped_steps, "the mean of weights moves in steps that are skipped (ema, fp16)", "golden")
SEEKSIM_BUG(ema_each_micro_batch, "the mean of weights moves once for each micro-batch of a step (ema, accumulation)",
            "golden")
SEEKSIM_BUG(ema_not_saved,
            "checkpoints lack the mean of weights, so that it begins anew with the first ones (ema, a restart)", "golden")
SEEKSIM_BUG(rounding_by_place,
            "random bits of stochastic rounding are counted from where a rank's part of a tensor begins "
            "(stochastic_rounding, ZeRO 1 to 3)",
            "golden")
SEEKSIM_BUG(rounding_same_each_step, "stochastic rounding draws the same bits in every step (stochastic_rounding)", "golden")
SEEKSIM_BUG(qgz_neighbours_scale,
            "who adds up quantised gradients takes each block apart with the scale of the block before it "
            "(zero_quantized_gradients, quantized_gradients.block 64)",
            "golden")
SEEKSIM_BUG(qgz_codes_summed,
            "who adds up quantised gradients adds codes, and multiplies with the scale of the first group "
            "(zero_quantized_gradients)",
            "golden")
SEEKSIM_BUG(qgz_halves_swapped,
            "rank 1 takes the high half of a byte for the earlier code of 4 bits (zero_quantized_gradients)", "golden")
SEEKSIM_BUG(qgz_sums_not_rounded,
            "rank 1 does not round sums of groups that are complete only after a later micro-step "
            "(zero_quantized_gradients, quantized_gradients.inner of more groups than a micro-step has)",
            "golden")
SEEKSIM_BUG(qgz_last_scale_lost,
            "rank 1 loses the scale of the last block of the last group that it is sent (zero_quantized_gradients)",
            "golden")
SEEKSIM_BUG(qgz_group_of_rank,
            "a rank quantises the sum of all its groups in place of each, so that the number of ranks decides bits "
            "(zero_quantized_gradients, several groups a micro-batch)",
            "golden")
SEEKSIM_BUG(qgz_averaged_over_nodes_only,
            "quantised gradients of matrices are divided by the nodes, of vectors by all groups "
            "(zero_quantized_gradients, quantized_gradients.inner)",
            "golden")
SEEKSIM_BUG(fast_leaves_out_last_k, "fast products leave out the last k of each tile of K (numerics fast)",
            "within_bounds")
SEEKSIM_BUG(fast_accumulates_in_bf16, "fast products accumulate in bf16 (numerics fast)", "within_bounds")
SEEKSIM_BUG(
    fast_ring_in_bf16,
    "fast sums over ranks are rounded to bf16 at each hop of the ring (numerics fast, several data-parallel ranks)",
    "within_bounds")
SEEKSIM_BUG(definition,
            "a mistake in what a step is, made by the run and by its one-rank golden alike: definition:<name> (a golden "
            "that is stored does not make it; docs/mutants.md has the names)",
            "reference")
#include "runtime/rules/bugs_of_parts.inl"
