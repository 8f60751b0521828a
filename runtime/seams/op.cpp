// Names of Op's enumerations and the one-line description of an Op that every error message and graph uses.
#include "runtime/seams/op.h"

#include <fmt/format.h>

#include "runtime/seams/enum_names.h"

namespace seeksim::runtime {
namespace {

constexpr EnumNames<OpKind> kKinds({{OpKind::compute, "compute"},
                                    {OpKind::copy, "copy"},
                                    {OpKind::all_reduce, "all_reduce"},
                                    {OpKind::reduce_scatter, "reduce_scatter"},
                                    {OpKind::all_gather, "all_gather"},
                                    {OpKind::broadcast, "broadcast"},
                                    {OpKind::send, "send"},
                                    {OpKind::recv, "recv"},
                                    {OpKind::barrier, "barrier"},
                                    {OpKind::vote, "vote"},
                                    {OpKind::agree, "agree"},
                                    {OpKind::comm_create, "comm_create"},
                                    {OpKind::data_load, "data_load"},
                                    {OpKind::param_gather, "param_gather"},
                                    {OpKind::publish, "publish"},
                                    {OpKind::peer_copy, "peer_copy"},
                                    {OpKind::redistribute, "redistribute"},
                                    {OpKind::inspect, "inspect"},
                                    {OpKind::host_compute, "host_compute"},
                                    {OpKind::storage_read, "storage_read"},
                                    {OpKind::storage_write, "storage_write"},
                                    {OpKind::allocate, "allocate"},
                                    {OpKind::send_activation, "send_activation"},
                                    {OpKind::send_gradient, "send_gradient"},
                                    {OpKind::tied_gradient, "tied_gradient"},
                                    {OpKind::storage_sync, "storage_sync"},
                                    {OpKind::storage_rename, "storage_rename"},
                                    {OpKind::join, "join"},
                                    {OpKind::hand_over, "hand_over"},
                                    {OpKind::all_to_all, "all_to_all"},
                                    {OpKind::group_gather, "group_gather"},
                                    {OpKind::ring_hop, "ring_hop"}});
constexpr EnumNames<Phase> kPhases({{Phase::init, "init"},
                                    {Phase::data, "data"},
                                    {Phase::forward, "forward"},
                                    {Phase::backward, "backward"},
                                    {Phase::grad_reduce, "grad_reduce"},
                                    {Phase::optimizer, "optimizer"},
                                    {Phase::commit, "commit"},
                                    {Phase::checkpoint, "checkpoint"},
                                    {Phase::recovery, "recovery"},
                                    {Phase::publish, "publish"},
                                    {Phase::recompute, "recompute"},
                                    {Phase::evaluation, "evaluation"}});
constexpr EnumNames<Axis> kAxes({{Axis::world, "world"},
                                 {Axis::data, "data"},
                                 {Axis::pipeline, "pipeline"},
                                 {Axis::tensor, "tensor"},
                                 {Axis::expert, "expert"},
                                 {Axis::replica, "replica"},
                                 {Axis::shard, "shard"},
                                 {Axis::replicate, "replicate"},
                                 {Axis::context, "context"}});

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < (1u << 20)) return fmt::format("{:.4g} KiB", double(bytes) / 1024);
  if (bytes < (1u << 30)) return fmt::format("{:.4g} MiB", double(bytes) / (1 << 20));
  return fmt::format("{:.4g} GiB", double(bytes) / (1 << 30));
}

}  // namespace

bool is_collective(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
    case OpKind::all_gather:
    case OpKind::param_gather:
    case OpKind::publish:
    case OpKind::peer_copy:
    case OpKind::redistribute:
    case OpKind::send_activation:
    case OpKind::send_gradient:
    case OpKind::tied_gradient:
    case OpKind::hand_over:
    case OpKind::all_to_all:
    case OpKind::group_gather:
    case OpKind::ring_hop:
      return true;
    default:
      return false;
  }
}

std::string_view name(OpKind kind) { return kKinds.of(kind); }
std::string_view name(Phase phase) { return kPhases.of(phase); }
std::string_view name(Axis axis) { return kAxes.of(axis); }
OpKind op_kind(std::string_view name) { return kKinds.named(name); }
Phase phase(std::string_view name) { return kPhases.named(name); }

std::string describe(const Op& op) {
  std::string text = fmt::format("{} #{} of rank {}", name(op.kind), op.sequence, op.rank);
  if (op.peer >= 0) text += fmt::format(" with rank {}", op.peer);
  if (op.step >= 0) text += fmt::format(", step {}", op.step);
  if (op.micro_batch >= 0) text += fmt::format(", micro-batch {}", op.micro_batch);
  if (op.samples == 1) text += fmt::format(", sample {}", op.sample);
  if (op.samples > 1) text += fmt::format(", samples {} to {}", op.sample, op.sample + op.samples - 1);
  if (op.layer >= 0) text += fmt::format(", layer {}", op.layer);
  text += fmt::format(", {}, epoch {}", name(op.phase), op.epoch);
  if (op.tensor != nullptr && *op.tensor != '\0') text += fmt::format(", '{}'", op.tensor);
  if (op.bytes > 0) text += fmt::format(" ({})", size_text(op.bytes));
  return text;
}

}  // namespace seeksim::runtime
