// Names of Op's enumerations and the one-line description of an Op that every error message and graph uses.
#include "runtime/seams/op.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace seeksim::runtime {
namespace {

constexpr std::array<std::string_view, std::size_t(OpKind::count_)> kKinds = {
    "compute",       "copy",         "all_reduce",     "reduce_scatter", "all_gather",      "broadcast",
    "send",          "recv",         "barrier",        "vote",           "agree",           "comm_create",
    "data_load",     "param_gather", "publish",        "peer_copy",      "redistribute",    "inspect",
    "host_compute",  "storage_read", "storage_write",  "allocate",       "send_activation", "send_gradient",
    "tied_gradient", "storage_sync", "storage_rename", "join",           "hand_over"};
constexpr std::array<std::string_view, std::size_t(Phase::count_)> kPhases = {
    "init",   "data",       "forward",  "backward", "grad_reduce", "optimizer",
    "commit", "checkpoint", "recovery", "publish",  "recompute"};
constexpr std::array<std::string_view, std::size_t(Axis::count_)> kAxes = {"world",  "data",   "pipeline",
                                                                           "tensor", "expert", "replica"};

template <std::size_t N, class E>
std::string_view name_in(const std::array<std::string_view, N>& names, E value) {
  return std::size_t(value) < N ? names[std::size_t(value)] : std::string_view("none");
}

template <class E, std::size_t N>
E value_in(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return E(i);
  return E::count_;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < (1u << 20)) return fmt::format("{:.4g} KiB", double(bytes) / 1024);
  return fmt::format("{:.4g} MiB", double(bytes) / (1 << 20));
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
      return true;
    default:
      return false;
  }
}

std::string_view name(OpKind kind) { return name_in(kKinds, kind); }
std::string_view name(Phase phase) { return name_in(kPhases, phase); }
std::string_view name(Axis axis) { return name_in(kAxes, axis); }
OpKind op_kind(std::string_view name) { return value_in<OpKind>(kKinds, name); }
Phase phase(std::string_view name) { return value_in<Phase>(kPhases, name); }

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
