// Op: one act of a rank that others can see or that takes device time. Tracing, fault matching, timeouts, replay,
// shrinking and divergence reports all speak Op, so this file is the vocabulary of the whole project.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace seeksim::runtime {

// The published enumeration: scenario files name these (`"op": "all_reduce"`), reports count by them.
enum class OpKind : std::uint8_t {
  compute,         // a kernel launch
  copy,            // a copy between host and device memory
  all_reduce,      // canonical sum, result everywhere
  reduce_scatter,  // canonical sum, each owner gets its shard
  all_gather,      // everybody's shard, everywhere
  broadcast,       // from one to all
  send,            // point to point, named by the runtime
  recv,
  barrier,
  vote,             // the commit agreement of a step
  agree,            // the recovery agreement
  comm_create,      // building a communicator
  data_load,        // fetching a micro-batch
  param_gather,     // sharded parameters, ahead of their use
  publish,          // updated parameters from their owners, after the commit point
  peer_copy,        // a reduced gradient shard, to the rank that keeps a copy of the owner's state
  redistribute,     // shards from owners and copies to their owners in a smaller world
  inspect,          // a look at what an operation wrote
  host_compute,     // a kernel that the host's processor runs, over its own memory
  storage_read,     // from a file into host memory
  storage_write,    // from host memory into a file; or making what was written durable
  allocate,         // memory, of a device or of its host
  send_activation,  // a micro-batch's residual stream, from one piece of a pipeline to the next
  send_gradient,    // its gradient, back
  tied_gradient,    // of a parameter that two stages use: each gets the other's sum
  storage_sync,     // what was written to a file or a folder becomes durable
  storage_rename,   // a file gets its final name
  join,             // a rank that is no member waits to be taken in
  hand_over,        // where a run stands, to those who were just taken in
  all_to_all,       // rows of tokens to the ranks of their experts, or what the experts made of them back
  group_gather,     // gradients of what is no expert's, to the other ranks of an expert group
  ring_hop,         // a block of keys and values, to the next rank of a context group; its gradients, to its owner
  count_            // how many kinds there are
};

// Where in a step the Op happens.
enum class Phase : std::uint8_t {
  init,
  data,
  forward,
  backward,
  grad_reduce,
  optimizer,
  commit,
  checkpoint,
  recovery,
  publish,
  recompute,   // of activations that were not kept
  evaluation,  // of held-out samples, forward only
  count_
};

// Which dimension of the rank grid a communicator spans. replica: all ranks that hold one copy of the model together.
// shard: the data-parallel ranks of one shard group; replicate: those with the same shard, one of each group.
enum class Axis : std::uint8_t { world, data, pipeline, tensor, expert, replica, shard, replicate, context, count_ };

// Whether all members of a communicator take part in it.
bool is_collective(OpKind kind);

std::string_view name(OpKind kind);
std::string_view name(Phase phase);
std::string_view name(Axis axis);
// The inverse, for scenario files. Returns count_ where there is no such name.
OpKind op_kind(std::string_view name);
Phase phase(std::string_view name);

// A plain value: copied freely, never owns. Ranks are named by launch rank and never renumbered.
struct Op {
  OpKind kind = OpKind::compute;
  Phase phase = Phase::init;
  Axis axis = Axis::world;
  std::uint32_t epoch = 0;
  std::int32_t rank = -1;         // the acting rank
  std::int32_t peer = -1;         // the other side of a point-to-point piece; -1 where the Op is a collective
  std::int32_t micro_batch = -1;  // -1 outside micro-batches
  std::int32_t layer = -1;        // -1 outside layers
  std::int64_t step = -1;         // -1 before the first step
  std::uint64_t sequence = 0;     // per communicator for communication, per queue for compute; starts at 1
  std::uint64_t bytes = 0;        // payload that leaves or arrives at this rank
  std::int64_t sample = -1;       // data_load: the first one that it brings, by its number in the data order of the run
  std::int32_t samples = 0;       //   and how many
  const char* tensor = "";        // what it is about; a string that outlives the run
  const char* site = "";          // call site, "file:line"; a string literal
};

// "all_reduce #12 of rank 5, step 7, grad_reduce, epoch 0, 'gradients' (804 KiB)"
std::string describe(const Op& op);

}  // namespace seeksim::runtime
