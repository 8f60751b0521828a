// The waits that order accesses to memory, one name each (edges.h), so that any of them can be left out and the race
// detector seen to notice. A wait that only shows the watchdog where to look, or bounds what is under way, has no name.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/rules/bug.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

// Later work of `queue` comes after the event; the host goes on.
inline void after(Queue& queue, const Event& event, Edge edge, const PlantedBug& bug) {
  if (!bug.skips(edge)) queue.wait(event);
}

// All that the host does or enqueues from here on comes after the event. Under the watchdog, which names `op`.
inline void host_after(Communicator& comm, const Event& event, const Op& op, Edge edge, const PlantedBug& bug) {
  if (!bug.skips(edge)) comm.wait(event, op);
}

// The same, after everything that was enqueued anywhere.
// Cannot be cut short by a revoke; a device that does not answer in time is lost.
// Without files: these go on.
inline void host_after_all(const Rank& rank, const Op& op, TimeNs timeout_ns, Edge edge, const PlantedBug& bug,
                           bool files_too = true) {
  if (bug.skips(edge) || rank.device.drain_by(later(rank.clock.now(), timeout_ns), files_too)) return;
  throw SeamError(ErrorKind::device_lost, op, "the device does not answer");
}

}  // namespace seeksim::runtime
