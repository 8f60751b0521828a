// Faults of links, messages, communicators and the control plane. Rows of the catalogue: text and keys only, see
// catalogue.h.
#include "faults/catalogue.h"

namespace seeksim::faults {

std::vector<FaultInfo> faults_of_links() {
  return {
      {.kind = FaultKind::link_drop,
       .rows = "F02, F03, F04",
       .summary = "a link carries nothing: for a while, for good, or in one direction only",
       .sees = "nothing while the network's retransmission hides it (ib: 30 s); then the users of the link get "
               "remote_error (ib, tcp) or nothing, and everyone else waits",
       .recovery =
           "hidden cut: only time differs. Longer: name the link, go on without one of its ends, redo the step; "
           "the first rank to time out is not the culprit",
       .defaults = "mode transient where down_s is given, else permanent; down_s 1, up_s 10, cycles 1; both_directions "
                   "true; loss 1 (all of its messages; less: each is lost by chance, and the others are delay_s late); "
                   "lasts from "
                   "its first match (or from at_s) on",
       .field = "8.4 % of Llama 3's interruptions are switch or cable; 5K-60K link flaps a day in one cluster",
       .parameters = {"link", "both_directions", "step", "micro_batch", "op", "phase", "call", "at_s", "probability",
                      "mode", "down_s", "up_s", "cycles", "loss", "delay_s"},
       .modes = {Mode::permanent, Mode::transient}},
      {.kind = FaultKind::slow_link,
       .rows = "F06",
       .summary = "a link with less bandwidth or more latency",
       .sees = "step time grows; no error",
       .recovery = "none is needed: only time differs",
       .defaults = "factor 0.5 (the share of the bandwidth that is left) where neither factor nor delay_s is given; "
                   "both_directions true; lasts from its first match (or from at_s) on",
       .field = "2.9 % of ByteRobust's incidents are InfiniBand; 0.8 % are a decline of throughput",
       .parameters = {"link", "both_directions", "step", "micro_batch", "op", "phase", "call", "at_s", "probability",
                      "factor", "delay_s"},
       .modes = {}},
      {.kind = FaultKind::message_drop,
       .rows = "F14",
       .summary = "one message is sent and never arrives",
       .sees = "the sender: nothing. The receiver waits until its watchdog ends it; then everyone who waits for it",
       .recovery = "name the link, redo the step: final bits as if undisturbed; the lost message is never replaced by "
                   "the next one",
       .defaults = "count 1",
       .field = "networks retransmit, so it takes an error in an endpoint; part of the 8.4 % network causes",
       .parameters = {"rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count"},
       .modes = {}},
      {.kind = FaultKind::message_corrupt,
       .rows = "F14",
       .summary = "one bit of one message flips",
       .sees = "with checksum: the receiver gets an error that names the sender. Without: nobody notices",
       .recovery =
           "with checksum: redo the step, final bits as if undisturbed. Without: only a comparison with the golden "
           "or between ranks can tell",
       .defaults = "bit 0, checksum true, count 1",
       .field = "1.4 % of Llama 3's interruptions are silent data corruption; about weekly in the largest runs",
       .parameters = {"rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                      "bit", "checksum"},
       .modes = {}},
      {.kind = FaultKind::collective_mismatch,
       .rows = "F22",
       .summary =
           "a rank brings another operation than the others: kind, count, type or order differ, or it leaves one out",
       .sees = "the transport that compares names both; NCCL says nothing, and hangs, crashes or sums garbage",
       .recovery = "abort, name the rank that differs from the most, redo the step: final bits as if undisturbed",
       .defaults = "mode op; count 1. No operation here has a root",
       .field = "a part of the 12.9 % software bugs; NCCL calls the outcome undefined",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode"},
       .modes = {Mode::op, Mode::count, Mode::dtype, Mode::swap_order, Mode::skip, Mode::count0}},
      {.kind = FaultKind::zombie_message,
       .rows = "F23",
       .summary = "a message arrives a second time, after others have begun to use the memory or the connection",
       .sees = "nothing: its epoch and number tell that it is stale, and it is dropped and counted",
       .recovery = "final bits as if undisturbed; without the fence (bug stale_messages_taken) it is taken for the "
                   "next one of its size",
       .defaults = "delay_s must be given; count 1",
       .field = "two NCCL communicators that were shrunk from one parent share their hash, and nothing else tells "
                "their messages apart",
       .parameters = {"rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                      "delay_s"},
       .modes = {}},
      {.kind = FaultKind::partition,
       .rows = "F05",
       .summary = "two parts of the world do not reach each other, and one of them not the control plane",
       .sees = "all messages between the sides are lost; one side gets no answer to votes any more",
       .recovery = "only the side that reaches the control plane goes on (where it is split too: more than half of the "
                   "members, or half and the lowest rank); the other one never commits, and stops",
       .defaults =
           "sides and at_s must be given; no store_side: the control plane is split too; down_s 0: it never heals",
       .field = "a switch or cable is 8.4 % of Llama 3's interruptions",
       .parameters = {"sides", "at_s", "down_s", "store_side", "probability"},
       .modes = {}},
      {.kind = FaultKind::store_death,
       .rows = "F33",
       .summary = "the control plane answers nobody, for a while or for good",
       .sees = "training goes on until the next vote, which nobody answers",
       .recovery = "back in time: only time differs. Too late: every rank stops and says so, and none has committed "
                   "what others have not",
       .defaults = "at_s must be given; down_s 0: it stays dead",
       .field = "torchft's lighthouse and NVRx's store are single points of failure",
       .parameters = {"at_s", "down_s", "probability"},
       .modes = {}},
      {.kind = FaultKind::init_failure,
       .rows = "F30",
       .summary = "a rank builds a communicator with one member too few, or in another one's place",
       .sees =
           "NCCL: only the root's thread warns, everybody hangs. Here: the members differ, or wait until the deadline",
       .recovery = "bounded: built again in the next epoch; for ever wrong: a clean stop",
       .defaults = "mode wrong_nranks; count 1 (0: it is wrong each time)",
       .field = "NCCL tries to connect 34 times in about 60 s, then says remote_error",
       .parameters = {"rank", "op", "phase", "step", "call", "at_s", "probability", "count", "mode"},
       .modes = {Mode::wrong_nranks, Mode::dup_rank}},
  };
}

}  // namespace seeksim::faults
