// The catalogue of planted bugs and the names of edges.
#include "runtime/rules/bug.h"

#include <array>

#include "runtime/rules/quirks.h"

namespace seeksim::runtime {
namespace {

constexpr std::array<std::string_view, std::size_t(Edge::count_)> kEdges = {
    "none",
    "backward_done",
    "gradients_reduced",
    "shard_reduced",
    "norms_measured",
    "norms_gathered",
    "step_measured",
    "update_applied",
    "parameters_published",
    "persistent_published",
    "bucket_filled",
    "bucket_reduced",
    "bucket_free",
    "parameters_gathered",
    "parameters_gathered_at_once",
    "checkpoint_written",
    "checkpoint_copied_out",
    "checkpoint_place_free",
    "checkpoint_copied_in",
    "space_free",
    "shards_drawn",
    "shards_moved",
    "shard_handed_out",
    "step_abandoned",
    "landing_filled",
    "landing_free",
    "gradients_arrived",
    "node_free",
    "gradients_held",
    "norms_at_home",
    "updated_at_home",
    "piece_read",
    "piece_updated",
    "tensor_part_made",
    "tensor_part_arrived",
    "staging_free",
    "activation_place_free",
    "activation_received",
    "activation_made",
    "activation_left",
    "gradient_place_free",
    "gradient_received",
    "gradient_made",
    "tied_received",
    "replica_norms_measured",
    "replica_norms_gathered",
    "snapshot_taken",
    "checkpoint_read",
};

constexpr auto kBugs = std::to_array<BugInfo>({
    {Bug::skip_wait, "skip_wait", "one wait for an event is left out: skip_wait:<edge>", "no_races"},
    {Bug::early_release, "early_release", "rank 1 gives a gathered module's memory back while it is in use (stage 3)",
     "no_races"},
    {Bug::unwritten_memory, "unwritten_memory",
     "rank 1 never writes its own part of the parameters that it gathers (stage 3)", "no_poison"},
    {Bug::drifting_replica, "drifting_replica", "from step 1 on, rank 1's copy of one parameter is off by its last bit",
     "replicas_equal"},
    {Bug::drifting_lr, "drifting_lr", "from step 1 on, rank 1's learning rate is off by its last bit",
     "replicas_equal"},
    {Bug::stale_publish, "stale_publish",
     "from step 1 on, rank 1 keeps the old parameters of the first bucket that is published (stages 1 and 2)",
     "replicas_equal"},
    {Bug::overlapping_shards, "overlapping_shards", "the second shard begins a block early (stages 1 to 3)",
     "partition"},
    {Bug::gap_in_shards, "gap_in_shards", "the second shard begins an element late (stages 1 and 2)", "partition"},
    {Bug::swapped_buckets, "swapped_buckets", "rank 1 reduces two buckets of equal size in the other order (stage 1)",
     "collectives_match"},
    {Bug::wrong_count, "wrong_count", "rank 1 brings an element less to the all-reduce (stage 0) or publish (1 and 2)",
     "collectives_match"},
    {Bug::skipped_collective, "skipped_collective", "rank 1 leaves a reduction out (stages 0 and 1)",
     "collectives_match"},
    {Bug::kept_gathered, "kept_gathered", "gathered parameters are never given back (stage 3)", "memory_formula"},
    {Bug::full_optimizer_state, "full_optimizer_state",
     "every rank keeps the moments of all parameters (stages 1 to 3)", "memory_formula"},
    {Bug::gather_twice, "gather_twice", "each module is gathered again when it is used (stage 3)", "traffic_formula"},
    {Bug::sample_twice, "sample_twice", "rank 1 counts the first samples of its first micro-batch twice",
     "conservation"},
    {Bug::sample_lost, "sample_lost", "rank 1 leaves the first samples of its first micro-batch out", "conservation"},
    {Bug::wrong_weight, "wrong_weight", "rank 1 divides by its own number of micro-batches", "conservation"},
    {Bug::rank_seeded_dropout, "rank_seeded_dropout", "each rank drops values by a seed of its own", "golden"},
    {Bug::offload_drops_accumulation, "offload_drops_accumulation",
     "of gradients accumulated on the host only the last micro-batch's are kept (optimizer offload, stages 2 and 3)",
     "conservation"},
    {Bug::offload_miscounts_first_step, "offload_miscounts_first_step",
     "the same in the first step only, as if its micro-batches were counted wrongly", "conservation"},
    {Bug::offload_keeps_first_gradients, "offload_keeps_first_gradients",
     "of gradients accumulated on the host only the first micro-batch's are kept (optimizer offload, stages 2 and 3)",
     "conservation"},
    {Bug::offload_norm_leaves_one_out, "offload_norm_leaves_one_out",
     "rank 1 leaves a parameter out of the norm that its host measures (optimizer offload)", "golden"},
    {Bug::offload_waits_elsewhere, "offload_waits_elsewhere",
     "the event after the copy of updated parameters to the device is recorded on the host's queue (optimizer offload "
     "to nvme)",
     "no_races"},
    {Bug::offload_tail_squared, "offload_tail_squared",
     "the host's optimizer squares the first moments of the elements behind the last whole vector (optimizer offload "
     "to cpu)",
     "golden"},
    {Bug::swap_files_shared, "swap_files_shared",
     "files of ranks have no rank in their path, so that ranks of a node write over each other's (optimizer offload to "
     "nvme)",
     "no_recovery"},
    {Bug::swap_forgets_place, "swap_forgets_place",
     "each piece of the optimizer's state decays as the first one does (optimizer offload to nvme)", "golden"},
    {Bug::short_reads_taken, "short_reads_taken",
     "a read that brings fewer bytes than were asked for is taken for a whole one (optimizer offload to nvme, with "
     "nvme_short_read)",
     "golden"},
    {Bug::checkpoint_freed_early, "checkpoint_freed_early",
     "rank 1 gives the input of a segment back while it is copied to the host (checkpointing on the host)", "no_races"},
    {Bug::pinned_freed_early, "pinned_freed_early",
     "rank 1 gives pinned memory back while it is copied to the device (checkpointing on the host)", "no_races"},
    {Bug::offload_reads_old_generation, "offload_reads_old_generation",
     "from step 2 on, rank 1 reads the optimizer's state from the older files (optimizer offload to nvme)",
     "replicas_equal"},
    {Bug::staging_reused_early, "staging_reused_early",
     "rank 1 reads into staging memory before its updated parameters have left (optimizer offload to nvme)",
     "no_races"},
    {Bug::kept_activations, "kept_activations", "layers that are computed again in backward share no memory",
     "memory_formula"},
    {Bug::lost_partial_sum, "lost_partial_sum", "sums over tensor ways leave the last way's part out", "golden"},
    {Bug::unreduced_norm_gradients, "unreduced_norm_gradients",
     "each tensor way keeps the gradients that its own tokens give to norms (sequence parallelism)", "replicas_equal"},
    {Bug::local_head_dropout, "local_head_dropout",
     "dropout of attention counts heads from a tensor way's first, so that all ways drop alike", "golden"},
    {Bug::recompute_other_dropout, "recompute_other_dropout",
     "what is computed again in backward drops other values than forward did", "golden"},
    {Bug::untied_embedding, "untied_embedding",
     "the two stages that share the embedding each keep the gradient of their own use (pipeline)", "golden"},
    {Bug::tied_misaligned, "tied_misaligned",
     "the two stages that share the embedding add each other's gradients an element off (pipeline)", "golden"},
    {Bug::local_layer_number, "local_layer_number",
     "dropout counts layers from a stage's first one, so that stages drop alike (pipeline)", "golden"},
    {Bug::scaled_at_every_stage, "scaled_at_every_stage",
     "each stage divides the gradient that it sends back by the number of micro-batches (pipeline)", "golden"},
    {Bug::last_bucket_never_reduced, "last_bucket_never_reduced",
     "the gradients that backward completes last are never reduced (stages 2 and 3)", "golden"},
    {Bug::half_message, "half_message", "rank 1 sends half of an activation (pipeline)", "collectives_match"},
    {Bug::backward_before_forward, "backward_before_forward",
     "rank 1 waits for the gradient of its first micro-batch before it goes forward (pipeline)", "no_recovery"},
    {Bug::gradient_sent_twice, "gradient_sent_twice",
     "rank 1 sends the gradient of its first micro-batch twice (pipeline)", "collectives_match"},
    {Bug::all_forwards_first, "all_forwards_first",
     "stages go forward with all micro-batches before any goes back, whatever the schedule says (pipeline)",
     "live_activations"},
    {Bug::silence_is_consent, "silence_is_consent",
     "a rank that gets no answer to the vote on a step takes that for a yes (with partition)", "one_history"},
    {Bug::stale_messages_taken, "stale_messages_taken",
     "a message that arrives a second time is taken for the next one of its size, whatever its epoch and number (with "
     "zombie_message)",
     "golden"},
    {Bug::fewer_micro_batches, "fewer_micro_batches",
     "rank 1 exchanges nothing with its neighbours for the last micro-batch (pipeline)", "no_recovery"},
    {Bug::early_manifest, "early_manifest",
     "ranks say that their file of a checkpoint is durable before they write it (checkpoints, with a crash)",
     "checkpoints_valid"},
    {Bug::manifest_not_synced, "manifest_not_synced",
     "a checkpoint's manifest gets its name before its content is durable (checkpoints, with a crash)",
     "checkpoints_valid"},
    {Bug::named_file_missing, "named_file_missing", "rank 1 never writes its file of a checkpoint (checkpoints)",
     "checkpoints_valid"},
    {Bug::optimizer_step_not_saved, "optimizer_step_not_saved",
     "a checkpoint forgets how many steps the optimizer has made (checkpoints, with a restart)", "golden"},
    {Bug::scaler_not_saved, "scaler_not_saved",
     "a checkpoint forgets where the loss scaler stands (checkpoints in fp16, with a restart)", "golden"},
    {Bug::checkpoint_unchecked, "checkpoint_unchecked",
     "files of a checkpoint are used without a look at their digests (checkpoints, with a damaged file)", "golden"},
    {Bug::commits_before_vote, "commits_before_vote",
     "rank 1 applies each step before it asks whether all do: seen where the vote fails", "one_history"},
    {Bug::redoes_committed_step, "redoes_committed_step",
     "after a recovery all ranks train the last committed step again", "one_history"},
    {Bug::copy_on_own_node, "copy_on_own_node",
     "copies of shards are kept on their owners' nodes (stages 1 to 3, several nodes)", "partition"},
    {Bug::stale_copy, "stale_copy", "rank 1's copies of others' shards miss step 1 (stages 1 to 3)", "replicas_equal"},
    {Bug::first_copy_only, "first_copy_only",
     "a shard whose first copy is gone too is given up, though others are kept (stages 1 to 3, peer_copies of 2 or "
     "more)",
     "golden"},
    {Bug::joins_without_state, "joins_without_state",
     "a rank that joins contributes before it has the others' state (with grow or spares)", "golden"},
    {Bug::joins_without_steps, "joins_without_steps",
     "a rank that joins counts the optimizer's steps, and with them the learning rate, from 0 (with grow or spares)",
     "replicas_equal"},
    {Bug::quirk, "quirk", "what another framework does, as if it were meant here: quirk:<name> (seeksim list quirks)",
     "golden"},
    {Bug::undivided_window, "undivided_window",
     "the gradients of a step's micro-batches are added up and never divided by their number", "conservation"},
    {Bug::last_micro_batch_lost, "last_micro_batch_lost",
     "the gradient of each rank's last micro-batch counts for nothing", "conservation"},
    {Bug::only_last_micro_batch, "only_last_micro_batch",
     "of each rank's micro-batches the last alone leaves a gradient", "conservation"},
    {Bug::divided_by_ways, "divided_by_ways", "gradients are divided by the number of tensor ways too (tensor)",
     "conservation"},
    {Bug::tied_added_twice, "tied_added_twice",
     "what the head gives to the gradient of a tied embedding is added twice (stage 0)", "golden"},
    {Bug::clip_by_max, "clip_by_max",
     "the clipping coefficient is max(1, limit / norm): small gradients are blown up, large ones never clipped",
     "golden"},
    {Bug::local_norm, "local_norm", "each rank clips by the norm of its own shard (stages 1 to 3)", "ranks_agree"},
    {Bug::clip_off_in_16_bit, "clip_off_in_16_bit", "gradient_clipping is forgotten in bf16 and fp16", "golden"},
    {Bug::clip_skips_replicated, "clip_skips_replicated",
     "tensor ways but the first never clip the gradients of what all ways hold (tensor, stage 0, fp32)",
     "replicas_equal"},
    {Bug::never_reduced, "never_reduced", "each rank trains with the gradients of its own samples (stage 0)",
     "replicas_equal"},
    {Bug::update_lost, "update_lost", "the optimizer updates tensors that nobody uses (stage 0)", "golden"},
    {Bug::gradients_never_zeroed, "gradients_never_zeroed",
     "a step begins with the gradients of the one before (stage 0)", "golden"},
    {Bug::local_loss_scale, "local_loss_scale",
     "after step 1 rank 1 halves its loss scale, and nobody else does (fp16)", "replicas_equal"},
    {Bug::resume_replays_data, "resume_replays_data",
     "who goes on from a checkpoint begins with the first batch again (checkpoints, with a restart)", "golden"},
    {Bug::samples_shifted, "samples_shifted",
     "rank 1 shuffles by itself: it takes samples that others take too, and leaves out its own", "golden"},
    {Bug::norm_left_out_by_one, "norm_left_out_by_one",
     "rank 1 does not take part when norms are gathered (stages 1 to 3)", "collectives_match"},
    {Bug::commit_heeds_revoke, "commit_heeds_revoke",
     "a rank that has heard of a revoke by the time that it hears a vote's answer gives the step up, whatever the "
     "answer is (with a fault right after a commit, and an order that `seeksim explore --strategy exhaustive` finds)",
     "one_history"},
    {Bug::fast_leaves_out_last_k, "fast_leaves_out_last_k",
     "fast products leave out the last k of each tile of K (numerics fast)", "within_bounds"},
    {Bug::fast_accumulates_in_bf16, "fast_accumulates_in_bf16", "fast products accumulate in bf16 (numerics fast)",
     "within_bounds"},
    {Bug::fast_ring_in_bf16, "fast_ring_in_bf16",
     "fast sums over ranks are rounded to bf16 at each hop of the ring (numerics fast, several data-parallel ranks)",
     "within_bounds"},
});

// A name alone does not say which.
bool needs_more(Bug bug) { return bug == Bug::skip_wait || bug == Bug::quirk; }

}  // namespace

std::span<const BugInfo> bug_catalogue() { return kBugs; }

std::string_view name(Edge edge) { return kEdges[std::size_t(edge)]; }

std::string_view name(Bug bug) {
  for (const BugInfo& row : kBugs) {
    if (row.bug == bug) return row.name;
  }
  return "none";
}

std::string text(const PlantedBug& bug) {
  if (bug.is(Bug::none)) return {};
  std::string which;
  if (bug.is(Bug::skip_wait)) which = ":" + std::string(name(bug.edge));
  if (bug.is(Bug::quirk)) which = ":" + std::string(info(bug.quirk).name);
  return std::string(name(bug.bug)) + which;
}

std::vector<std::string> bug_names() {
  std::vector<std::string> names;
  for (const BugInfo& row : kBugs) {
    if (!needs_more(row.bug)) names.emplace_back(row.name);
  }
  for (std::size_t i = 1; i < kEdges.size(); ++i) names.push_back(text({Bug::skip_wait, Edge(i)}));
  for (const QuirkInfo& row : quirk_catalogue()) {
    if (row.point != QuirkPoint::plan) names.push_back("quirk:" + std::string(row.name));
  }
  return names;
}

bool parse(std::string_view text, PlantedBug& bug) {
  const std::size_t colon = text.find(':');
  PlantedBug parsed;
  for (const BugInfo& row : kBugs) {
    if (text.substr(0, colon) == row.name) parsed.bug = row.bug;
  }
  if (parsed.bug == Bug::none || needs_more(parsed.bug) != (colon != std::string_view::npos)) return false;
  if (parsed.bug == Bug::skip_wait) {
    for (std::size_t i = 1; i < kEdges.size(); ++i) {
      if (text.substr(colon + 1) == kEdges[i]) parsed.edge = Edge(i);
    }
    if (parsed.edge == Edge::none) return false;
  }
  if (parsed.bug == Bug::quirk) {
    const std::optional<Quirk> quirk = quirk_named(text.substr(colon + 1));
    if (!quirk || info(*quirk).point == QuirkPoint::plan) return false;  // the plan is made before a bug is planted
    parsed.quirk = *quirk;
  }
  bug = parsed;
  return true;
}

}  // namespace seeksim::runtime
