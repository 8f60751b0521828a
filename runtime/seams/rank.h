// Rank: a rank's number, its seams and its trace. The whole world as the trainer sees it.
#pragma once

#include <vector>

#include "runtime/seams/recorder.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class GatherRule;  // comm/gather_rule.h

struct Rank {
  int id = 0;          // launch rank
  int world_size = 1;  // at launch
  Clock& clock;
  Device& device;
  Transport& transport;
  Storage& storage;
  ControlPlane& control;
  Recorder& recorder;                       // what this rank did, always on
  std::vector<Comm> comms = {};             // that are open: an error on any of them is this rank's
  int ranks_per_node = 1;                   // what dies together
  const GatherRule* gather_rule = nullptr;  // in which rounds gathers travel; null: in one go
  int incarnation = 0;  // how often this launch rank's process was started again; it remembers nothing

  int node_of(int rank) const { return rank / ranks_per_node; }

  // Waits for the event. Throws SeamError{timeout | revoked | remote_error | corrupt | mismatch | closure}. "Done"
  // alone is never trusted: the async errors of `comm`, of all open communicators and the epoch are checked first,
  // since an aborted operation completes too.
  void wait(const Event& event, const Op& op, TimeNs timeout_ns, Comm comm = {});
};

}  // namespace seeksim::runtime
