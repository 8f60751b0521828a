// Planted bugs of algorithms whose groups or workers have gradients, or weights, of their own (runtime/parts): rows as in
// bugs.inl, which ends with these.
SEEKSIM_BUG(residual_dropped,
            "what compression leaves out of a gradient is forgotten instead of kept for the next one (compression)",
            "compression_conserves")
SEEKSIM_BUG(residual_of_skipped_step,
            "a skipped step leaves its residual behind, as if what it sent had been applied (compression, fp16)", "golden")
SEEKSIM_BUG(residual_not_saved,
            "residuals are not in checkpoints: a run that goes on from one begins with empty ones (compression, "
            "checkpoints, with a restart)",
            "golden")
SEEKSIM_BUG(late_place_reused,
            "a worker has a place too few, so its new gradient is put where one still waits to be applied (staleness)",
            "staleness_bounded")
SEEKSIM_BUG(late_older_dropped,
            "where several gradients of a worker come at once, only the newest is applied (staleness, drawn)",
            "staleness_bounded")
SEEKSIM_BUG(late_repeated, "where no gradient of a worker comes, the one before is applied again (staleness, drawn)",
            "staleness_bounded")
SEEKSIM_BUG(late_beyond_bound, "every gradient comes a step later than the bound allows (staleness)",
            "staleness_bounded")
SEEKSIM_BUG(late_not_saved,
            "gradients that wait are not in checkpoints: a run that goes on from one applies zeroes (staleness)", "golden")
SEEKSIM_BUG(late_in_scaled_units,
            "a gradient waits with the loss scale of the step that made it, and is applied with a later one's "
            "(staleness, fp16)",
            "golden")
SEEKSIM_BUG(late_by_rank, "delays are drawn by a worker's place on its rank, not by its number (staleness, drawn)",
            "golden")
SEEKSIM_BUG(momentum_taken_for_gradient,
            "the optimizer does not freeze: it smooths the momentum that was reduced once more, and the variance follows "
            "it (compression.optimizer)",
            "golden")
SEEKSIM_BUG(momentum_in_full,
            "each group adds the whole momentum to its gradient, not its share of it: their sum has it as many times as "
            "there are groups (compression.optimizer, several groups)",
            "golden")
SEEKSIM_BUG(freeze_counts_skipped,
            "ranks begin to send momentum by the number of the step, skipped ones counted, and the optimizer freezes by "
            "those that it made: between them momentum is taken for a gradient (compression.optimizer, fp16)",
            "golden")
SEEKSIM_BUG(server_residual_dropped,
            "what the second compression leaves out of the sum of all groups is forgotten (compression.optimizer)",
            "compression_conserves")
SEEKSIM_BUG(server_residual_not_saved,
            "checkpoints hold what groups have not sent, and not what the second compression has left out "
            "(compression.optimizer, checkpoints, with a restart)",
            "golden")
SEEKSIM_BUG(factors_not_orthogonal,
            "the sum of factors P is not made orthogonal before matrices are multiplied by it (compression.method power)",
            "golden")
SEEKSIM_BUG(residual_of_whole_sum,
            "each group takes the whole sum for what it has sent itself, not its share of it (compression.method power, "
            "several groups)",
            "compression_conserves")
SEEKSIM_BUG(factors_of_skipped_step,
            "a skipped step leaves its factors Q behind for the next one (compression.method power, fp16)", "golden")
SEEKSIM_BUG(factors_not_saved,
            "factors Q are not in checkpoints: a run that goes on from one begins with drawn ones (compression.method "
            "power, checkpoints, with a restart)",
            "golden")
SEEKSIM_BUG(worker_left_out,
            "the outer step does not hear of the last worker: it counts as one that never moved (local_sgd, several "
            "workers)",
            "golden")
SEEKSIM_BUG(worker_goes_its_way,
            "rank 1's first worker goes on from its own weights after an outer step (local_sgd)", "workers_meet")
SEEKSIM_BUG(workers_meet_each_step, "the outer step is made after each inner one (local_sgd, every above 1)",
            "workers_meet")
SEEKSIM_BUG(workers_keep_16_bit_weights,
            "after an outer step the fp32 masters are new, and the weights to compute with are not (local_sgd, fp16 or "
            "bf16)",
            "workers_meet")
SEEKSIM_BUG(outer_gradient_reversed,
            "the outer gradient is the workers' weights minus the outer ones (local_sgd, sgd or nesterov)", "golden")
SEEKSIM_BUG(outer_gradient_divided_twice,
            "the outer gradient is divided by the workers once more after it was averaged (local_sgd, sgd or nesterov, "
            "several workers)",
            "golden")
SEEKSIM_BUG(outer_momentum_not_saved,
            "the outer momentum is not in checkpoints: a run that goes on from one begins with none (local_sgd, "
            "checkpoints, with a restart)",
            "golden")
SEEKSIM_BUG(inner_moments_reset, "an outer step zeroes the workers' moments (local_sgd)", "golden")
SEEKSIM_BUG(outer_step_repeated,
            "an outer step that a recovery has to make up for is made twice (local_sgd, a message lost in it)", "golden")
SEEKSIM_BUG(speculation_kept_when_clipped,
            "a step that was made before its gradient's norm was known is kept, although the gradient is clipped "
            "(super_offload)",
            "golden")
SEEKSIM_BUG(speculation_kept_on_overflow,
            "a step that was made before it was known to overflow stays in the state when it is skipped (super_offload)",
            "golden")
SEEKSIM_BUG(speculation_leaves_moments,
            "of a step that was made ahead the weights are taken, and the moments are left as they were "
            "(super_offload)",
            "golden")
SEEKSIM_BUG(ddp_buckets_differ, "rank 1 cuts gradients into other buckets than the others (ddp)", "collectives_match")
SEEKSIM_BUG(idle_experts_keep_gradients,
            "an expert that no token of a step came to is moved by its last gradient (stage 0, experts)", "golden")
SEEKSIM_BUG(norm_of_own_stage, "each stage clips by the norm of its own gradients (world.pipeline)", "golden")
SEEKSIM_BUG(norm_is_a_mean,
            "ranks of an expert group take the mean of their norms, each with its own experts (world.expert)", "golden")
