// Planted bugs: mistakes that real frameworks made, switched on by a scenario ("bug": "name"), so that every oracle can
// be seen to fail. A bug is an edit of data (a wait left out, a bound moved, a piece forgotten) at a few named points;
// a run without one tests an integer there and nowhere on a hot path.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::runtime {

enum class Quirk : std::uint8_t;  // quirks.h

// Where a queue, or the host, waits for an event: the edges of the happens-before order that are not program order.
// Named, so that each can be left out by "skip_wait:<name>" and seen to be needed. Who waits: for what.
enum class Edge : std::uint8_t {
  none,
  backward_done,                // host: backward's gradients, before they are reduced (stages 0 and 1)
  gradients_reduced,            // host: the all-reduce, before anybody uses its sum (stage 0)
  shard_reduced,                // host: this rank's reduced shard, before it is measured (stages 1 to 3)
  norms_measured,               // communication: the norms of this rank's blocks, before they are gathered
  norms_gathered,               // host: everybody's norms, before they are folded
  step_measured,                // host: loss, norm and count, before it reads them
  update_applied,               // host: the optimizer, before parameters are digested and published
  parameters_published,         // host: updated parameters, before the next forward (stages 1 and 2)
  persistent_published,         // host: parameters that stay gathered, before the next forward (stage 3)
  bucket_filled,                // communication: a bucket's gradients, before they are reduced (stages 2 and 3)
  bucket_reduced,               // compute: the bucket just filled, at once (overlap_comm off)
  bucket_free,                  // compute: the bucket that is to be filled again (overlap_comm on)
  parameters_gathered,          // compute: a gather, before its module runs (stage 3, overlap_comm on)
  parameters_gathered_at_once,  // compute: a gather, at once (stage 3, overlap_comm off)
  checkpoint_written,           // copy: an input of a segment, before it is copied to the host
  checkpoint_copied_out,        // compute: that copy, before its place on the device is written again
  checkpoint_place_free,        // copy: the last user of a place, before an input comes back into it
  checkpoint_copied_in,         // compute: an input that comes back, before it is used
  space_free,                   // copy: the last user of a space, before something else is gathered into it (stage 3)
  shards_drawn,                 // host: initial shards, before others get them
  shards_moved,                 // host: shards in their new places, before the old ones are given up
  shard_handed_out,             // host: a gathered tensor, before it reads it
  step_abandoned,               // host: everything, before a failed step's memory is given up
  landing_filled,               // copy: a bucket's sums, before they go to the host (offload, as all below)
  landing_free,                 // communication: the memory in which a bucket's sums land, before they land there again
  gradients_arrived,            // host's queue: gradients, before it adds them up
  node_free,                    // copy: the last addition, before gradients come into memory that it read
  gradients_held,               // communication: gradients on the host, before they go to who keeps a copy
  norms_at_home,                // copy: norms measured by the host's processor, before they go to the device
  updated_at_home,              // copy: parameters that the host's processor updated, before they go to the device
  piece_read,                   // host: a piece of state or parameters, from its file, before it is used
  piece_updated,                // storage: a piece's new values, before they are written
  tensor_part_made,             // messages: what a tensor way has made, before it is sent
  tensor_part_arrived,          // compute: what the other ways have made, before it is used
  staging_free,                 // storage: the last use of a staging buffer, before it is filled again
  activation_place_free,        // receiving: the last user of where an activation arrives (pipeline, as all below)
  activation_received,          // compute: an activation of another stage, before its piece runs on it
  activation_made,              // sending: a piece's output, before it is sent
  activation_left,              // compute: that it is sent, before the next one is written there
  gradient_place_free,          // receiving: the last user of where a gradient arrives
  gradient_received,            // compute: a gradient of another stage, before backward begins with it
  gradient_made,                // sending: a gradient, before it is sent back
  tied_received,                // compute: the other stage's sum of a shared parameter's gradient, before it is added
  replica_norms_measured,       // communication: norms of this rank's parameters, before they are gathered
  replica_norms_gathered,       // host: those of all ranks of a replica, before it folds them
  snapshot_taken,               // host: copies of the state for a checkpoint, before they are written and it goes on
  checkpoint_read,              // host: what came of a file of a checkpoint, before its memory takes the next file
  count_
};

enum class Bug : std::uint8_t {
  none,
  skip_wait,             // one edge is left out, always and on every rank
  early_release,         // one rank gives a gathered module's memory back before its last user is through
  unwritten_memory,      // one rank leaves its own part of what it gathers as it found it
  drifting_replica,      // one rank's copy of one parameter is off by its last bit
  drifting_lr,           // one rank's learning rate is
  stale_publish,         // one rank keeps the old parameters of the first bucket that is published
  overlapping_shards,    // one shard begins a block early
  gap_in_shards,         // ... an element late
  swapped_buckets,       // before the first recovery, one rank reduces two buckets of equal size in the other order
  wrong_count,           // one rank brings an element less to a collective
  skipped_collective,    // one rank leaves a reduction out
  kept_gathered,         // gathered parameters are never given back
  full_optimizer_state,  // every rank keeps the moments of all parameters
  gather_twice,          // each module is gathered again when it is used
  sample_twice,          // one rank counts a tree node's samples twice
  sample_lost,           // ... not at all
  wrong_weight,          // one rank divides by its own number of micro-batches
  rank_seeded_dropout,   // which values are dropped depends on the rank
  offload_drops_accumulation,     // of gradients on the host, only the last micro-batch's are kept
  offload_miscounts_first_step,   // ... in the first step only
  offload_keeps_first_gradients,  // ... only the first micro-batch's
  offload_norm_leaves_one_out,    // one rank leaves a parameter out of the norm that its host measures
  offload_waits_elsewhere,        // the event after a copy to the device is recorded on another queue
  offload_tail_squared,           // the host's optimizer squares the first moments at the end of a shard
  offload_reads_old_generation,   // one rank reads the optimizer's state from the older files
  staging_reused_early,           // one rank fills staging memory again before its parameters have left
  swap_files_shared,              // files of ranks have no rank in their path
  swap_forgets_place,             // a piece of the optimizer's state is updated as if it were the first
  short_reads_taken,              // a read that brings too little is taken for a whole one
  checkpoint_freed_early,         // one rank gives the input of a segment back while it is copied to the host
  pinned_freed_early,             // ... its pinned copy while it is copied to the device
  kept_activations,               // layers that are computed again share no memory
  lost_partial_sum,               // the last tensor way's part of sums over ways is left out
  unreduced_norm_gradients,       // with sequence parallelism, each way keeps its own tokens' gradient of norms
  local_head_dropout,             // dropout in attention goes by the head's number on its way
  recompute_other_dropout,        // a recomputation drops other values than forward did
  untied_embedding,               // of a parameter that two stages share, each keeps the gradient of its own use
  tied_misaligned,                // ... each adds the other's, an element off
  local_layer_number,             // layers are numbered from a stage's first one on, where dropout is drawn
  scaled_at_every_stage,          // each stage divides the gradient that it sends back by the number of micro-batches
  last_bucket_never_reduced,      // gradients that are complete last are never reduced
  half_message,                   // one rank sends half of an activation
  backward_before_forward,        // one rank waits for a gradient before it sends what that is the gradient of
  all_forwards_first,             // stages go forward with all micro-batches before any goes back
  gradient_sent_twice,            // one rank sends the gradient of its first micro-batch twice
  fewer_micro_batches,            // one rank exchanges nothing with its neighbours for the last micro-batch
  early_manifest,                 // ranks say that their file of a checkpoint is durable before they write it
  manifest_not_synced,            // a checkpoint's manifest gets its name before its content is durable
  named_file_missing,             // one rank never writes the file that the manifest names
  optimizer_step_not_saved,       // a checkpoint forgets how many steps the optimizer has made
  scaler_not_saved,               // ... where the loss scaler stands
  checkpoint_unchecked,           // files of a checkpoint are taken without a look at their digests
  commits_before_vote,            // one rank applies a step before it asks whether all do
  redoes_committed_step,          // after a recovery all train the last committed step again
  copy_on_own_node,               // copies of shards are kept on their owners' nodes
  stale_copy,                     // one rank's copies of others' shards miss a step
  first_copy_only,                // a shard whose first copy is gone too is given up, though others are kept
  joins_without_state,            // who joins goes on with initial parameters
  joins_without_steps,            // ... counts the optimizer's steps from 0, and the learning rate with them
  silence_is_consent,             // who gets no answer to its vote takes that for a yes
  stale_messages_taken,           // a message that arrives twice is taken for the next one of its size
  quirk,                          // what another framework does, as if it were meant here: the golden does without
  undivided_window,               // gradients of a step's micro-batches are added up and never divided by their number
  last_micro_batch_lost,          // the gradient of a step's last micro-batch counts for nothing
  only_last_micro_batch,          // ... nothing else counts
  divided_by_ways,                // each tensor way divides its gradients by the number of ways
  tied_added_twice,               // what the head gives to a tied embedding is added twice
  clip_by_max,                    // small gradients are blown up, large ones are never clipped
  local_norm,                     // each rank clips by the norm of its own shard
  clip_off_in_16_bit,             // gradient_clipping is forgotten where parameters have 16 bits
  clip_skips_replicated,          // tensor ways but the first never clip what all ways hold
  never_reduced,                  // each rank trains with its own gradients
  update_lost,                    // the optimizer updates tensors that nobody uses
  gradients_never_zeroed,         // a step begins with the gradients of the one before
  local_loss_scale,               // one rank halves its loss scale, and nobody else does
  resume_replays_data,            // who goes on from a checkpoint begins with the first batch again
  samples_shifted,                // one rank shuffles by itself: some samples come twice, others never
  norm_left_out_by_one,           // one rank does not take part when norms are gathered
  commit_heeds_revoke,            // who hears of a revoke when a vote is decided already gives the step up
  fast_leaves_out_last_k,         // fast: products leave out the last k of each tile of K
  fast_accumulates_in_bf16,       // fast: products accumulate in bf16
  fast_ring_in_bf16,              // fast: sums over ranks are rounded to bf16 at each hop
  count_
};

// Which bug, where. A bug of one rank is planted on `rank`.
struct PlantedBug {
  Bug bug = Bug::none;
  Edge edge = Edge::none;  // of skip_wait
  int rank = 1;
  std::int64_t step = 1;  // those of the replicas begin here
  Quirk quirk{};          // of quirk

  bool is(Bug which) const { return bug == which; }
  bool is(Bug which, int on) const { return bug == which && rank == on; }
  bool skips(Edge which) const { return bug == Bug::skip_wait && edge == which; }
  friend bool operator==(const PlantedBug&, const PlantedBug&) = default;
};

struct BugInfo {
  Bug bug;
  const char* name;    // as scenarios write it
  const char* does;    // what is wrong while it is on
  const char* caught;  // the check that must turn red
};
// All of them, for `seeksim list bugs`.
std::span<const BugInfo> bug_catalogue();

std::string_view name(Edge edge);
// "name", "skip_wait:edge" or "quirk:name"; false where there is no such bug.
bool parse(std::string_view text, PlantedBug& bug);
// The inverse of parse; "" for none.
std::string text(const PlantedBug& bug);
// All that parse() takes.
std::vector<std::string> bug_names();
std::string_view name(Bug bug);

}  // namespace seeksim::runtime
