// The waits that order accesses to memory, one name each (bug.h), so that any of them can be left out and the race
// detector seen to notice. A wait that only tells the watchdog where to look, or bounds what is under way, has no name.
#pragma once

#include "runtime/bug.h"
#include "runtime/communicator.h"

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
inline void host_after_all(Device& device, Edge edge, const PlantedBug& bug) {
  if (!bug.skips(edge)) device.drain();
}

// ... but for files, which go on.
inline void host_after_all_but_files(Device& device, Edge edge, const PlantedBug& bug) {
  if (!bug.skips(edge)) device.drain_all_but_files();
}

}  // namespace seeksim::runtime
