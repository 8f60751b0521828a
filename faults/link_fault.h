// A link rule, from the view of the messages over that link: which pairs of ranks it covers, from when on, and in which
// windows the link carries nothing. The fate of a piece is decided once, at its sender, when the host posts it. The
// transport applies it when the piece really travels.
#pragma once

#include <map>
#include <vector>

#include "faults/trigger.h"

namespace seeksim::faults {

class LinkFault {
 public:
  LinkFault(RuleState& state, const std::vector<int>& node_of);

  bool covers(int from, int to) const;

  // The fate of a piece that op.rank sends to op.peer now; null: none. The first match starts the rule. A timed rule
  // has already started: pieces posted before its time carry the window that is to come.
  const runtime::PieceFate* fate(const runtime::Op& piece, TimeNs now);

  // A cut that began and ended while pieces were under way has fired, though no piece was posted during it.
  void record_what_the_transport_saw();

 private:
  struct Window {
    runtime::PieceFate fate;
    int from = -1;  // the ends of the first piece that met it
    int to = -1;
  };
  Window* slowed(TimeNs now);
  Window* cut(TimeNs now);
  // The number of the window that a piece posted now can still meet; -1 when all are over.
  int window_at(TimeNs now) const;
  void record_both_ends(TimeNs now, int from, int to, const runtime::Op* op);

  const runtime::PieceFate* lost_or_late(const runtime::Op& piece, TimeNs now);

  RuleState& state_;
  const std::vector<int>& node_of_;
  runtime::PieceFate lost_, late_;  // of a link that loses some of its messages
  TimeNs since_ = runtime::kForever;
  std::map<int, Window>
      windows_;  // by number; a slow link has one. Addresses of fates are handed out: nothing is erased
};

}  // namespace seeksim::faults
