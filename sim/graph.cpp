// Reads the graph off the state of hosts and queues; keeps none of its own.
#include "sim/graph.h"

#include <fmt/format.h>

#include "sim/core.h"

namespace seeksim::sim {
namespace {

// A longer list has no reader.
constexpr int kRanksShown = 64;

std::string deadline_text(const Host& host) {
  if (host.deadline() == runtime::kForever) return "";
  return fmt::format(", until {:.6g} s", double(host.deadline()) / double(runtime::kSecond));
}

std::string host_line(SimRank& rank) {
  switch (rank.host.blocked()) {
    case Blocked::no:
      return "";
    case Blocked::event:
    case Blocked::drain:
      return fmt::format("its {}", rank.device.host_waits_for().queue->name());
    case Blocked::sleep:
      return "a moment to come";
    case Blocked::for_ever:
      return "nothing (it hangs)";
    case Blocked::rendezvous:
      return rank.transport.meeting_waits_for() + " to build a communicator";
    case Blocked::agreement:
      return rank.control.waits_in();
    case Blocked::abort:
      return "its device, in an abort or destroy";
  }
  return "";
}

std::string front_line(const runtime::SteppedQueue& queue) {
  if (queue.idle()) return "";
  if (const runtime::Op* op = queue.front_kernel()) return describe(*op) + " runs";
  if (const runtime::Activity* activity = queue.front_activity()) {
    const auto& operation = static_cast<const SimActivity&>(*activity);
    return describe(operation.op) + " waits for " + operation.waits_for();
  }
  const runtime::Event event = queue.front_wait();
  return event.queue == nullptr ? "" : fmt::format("waits for the {}", event.queue->name());
}

}  // namespace

std::string wait_for_graph(Core& core) {
  std::string text;
  int shown = 0, left_out = 0;
  for (auto& rank : core.ranks) {
    if (rank == nullptr) continue;
    const int id = rank->host.rank();
    if (rank->host.ended()) continue;
    if (shown++ >= kRanksShown) {
      ++left_out;
      continue;
    }
    if (const std::string line = host_line(*rank); !line.empty())
      text += fmt::format("rank {}: host waits for {}{}\n", id, line, deadline_text(rank->host));
    for (const runtime::SteppedQueue* queue : rank->device.queues())
      if (const std::string line = front_line(*queue); !line.empty())
        text += fmt::format("rank {}: {}: {}\n", id, queue->name(), line);
  }
  if (left_out > 0) text += fmt::format("... and {} more ranks\n", left_out);
  return text + core.control.undecided();
}

}  // namespace seeksim::sim
