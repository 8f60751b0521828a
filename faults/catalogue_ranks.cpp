// Faults of processes, machines and devices. Rows of the catalogue: text and keys only, see catalogue.h.
#include "faults/catalogue.h"

namespace seeksim::faults {

std::vector<FaultInfo> faults_of_ranks() {
  return {
      {.kind = FaultKind::collective_timeout,
       .rows = "F01, F30, F32",
       .summary = "a rank never joins an operation, or joins it late",
       .sees = "the rank: nothing, it hangs. The others: no error at all, they wait until their watchdog ends it",
       .recovery =
           "abort, agree, go on without the rank, redo the step: final bits as if undisturbed. Late but within the "
           "watchdog: only time differs",
       .defaults = "mode never; delay_s must be given with mode late; count 1",
       .field = "1.7 % of Llama 3's 419 unexpected interruptions; 9.9 % of ByteRobust's incidents are job hangs",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode",
                      "delay_s"},
       .modes = {Mode::never, Mode::late}},
      {.kind = FaultKind::rank_crash,
       .rows = "F08, F31",
       .summary = "a process is gone: before, during or after an operation, or at a time",
       .sees = "its neighbours: remote_error at once (tcp), after 30 s (ib) or never (inside a node); the others wait",
       .recovery =
           "agree on who is dead and on the last committed step, go on without it, redo the step: final bits as "
           "if undisturbed; a step is committed by all or by none",
       .defaults = "mode before; signal kill; count 1; with rank and at_s alone it needs no operation; returns_s 0: it "
                   "does not come back",
       .field = "35.3 % of Llama 3's interruptions are a faulty GPU, 12.9 % software; 36.1 % of ByteRobust's "
                "incidents are CUDA errors",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode",
                      "returns_s", "signal"},
       .modes = {Mode::before, Mode::during, Mode::after}},
      {.kind = FaultKind::node_crash,
       .rows = "F09",
       .summary = "all processes of a machine are gone at once, and what its own disk held",
       .sees =
           "its peers: as rank_crash, several ranks at one instant; copies that were kept on that machine are gone too",
       .recovery = "a copy on another machine or a checkpoint serves: final bits as if undisturbed; where none is "
                   "left, a clean stop",
       .defaults = "count 1; lose_local_storage true; with node and at_s alone it needs no operation",
       .field = "0.7 % of Llama 3's interruptions are power supplies, 7.6 % unplanned maintenance of hosts; 2.3 to 6.5 "
                "failures per 1000 node-days",
       .parameters = {"node", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                      "lose_local_storage"},
       .modes = {}},
      {.kind = FaultKind::kernel_hang,
       .rows = "F10",
       .summary = "a launch never completes",
       .sees = "the rank: nothing; an abort waits for the launch too. The others: as collective_timeout",
       .recovery = "no wait without a bound: the rank ends itself when its device does not answer, the others go on "
                   "without it: final bits as if undisturbed",
       .defaults = "any launch of compute; count 1",
       .field =
           "4.1 % of Llama 3's interruptions are GPU system processors; NVRx injects it as a sleep of 2^62 on the GPU",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "layer",
                      "tensor"},
       .modes = {}},
      {.kind = FaultKind::device_error,
       .rows = "F27",
       .summary = "a device's memory or link fails: its context is gone",
       .sees = "the rank: CUDA's error at its next wait, and at each after that. The others wait for it",
       .recovery = "its data is not trusted: it leaves like a crash, the others go on: final bits as if undisturbed; "
                   "not sticky: one launch failed, the step is redone",
       .defaults = "code 214 (uncorrectable ECC; 220 NVLink, 226 contained), sticky true, count 1",
       .field = "17.2 % of Llama 3's interruptions are HBM3 memory, 4.5 % SRAM",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "code",
                      "sticky"},
       .modes = {}},
      {.kind = FaultKind::pause,
       .rows = "F32",
       .summary = "a process stands still for a while, then goes on",
       .sees = "the rank: nothing. The others: their watchdog, if the pause is longer",
       .recovery = "shorter than the watchdog: only time differs. Longer than watchdog and agreement: it is declared "
                   "dead; when it speaks again it is fenced out",
       .defaults = "delay_s must be given; count 1",
       .field = "NVRx injects it as SIGSTOP; torchft gives a rank that comes back a new identity for this",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "delay_s"},
       .modes = {}},
      {.kind = FaultKind::clock_skew,
       .rows = "F24",
       .summary = "a rank's clock shows another time, runs fast or slow, or jumps",
       .sees = "the rank: its own times; deadlines hold, as they are counted on a monotonic clock",
       .recovery = "none is needed: only what is reported differs; nobody is declared dead, and the right one is named",
       .defaults = "offset_s 0, drift_ppm 0; with at_s it begins then (a jump)",
       .field = "offsets of 500 ms and drifts of 200 ppm pass unnoticed where nobody looks; heartbeats and merged logs "
                "suffer",
       .parameters = {"rank", "at_s", "offset_s", "drift_ppm"},
       .modes = {}},
      {.kind = FaultKind::straggler,
       .rows = "F07",
       .summary = "a device that computes slower: always, now and then, or more and more",
       .sees = "everyone waits for it in every collective; no error",
       .recovery = "none is needed: only time differs",
       .defaults = "mode periodic where period_s is given, ramp where ramp_s is, else constant; factor 1.1 constant, 2 "
                   "periodic, 1.5 ramp; period_s 60, duty 0.1; ramp_s 300, and with cool_s back again, over and over; "
                   "lasts from its first match on",
       .field = "42.5 % of 3,079 jobs straggle, 10.4 % of GPU hours wasted; 1.4 % of Llama 3's interruptions thermal",
       .parameters = {"rank", "step", "micro_batch", "phase", "call", "at_s", "probability", "mode", "factor",
                      "period_s", "duty", "ramp_s", "cool_s"},
       .modes = {Mode::constant, Mode::periodic, Mode::ramp}},
      {.kind = FaultKind::preemption_notice,
       .rows = "F26",
       .summary = "a rank or a machine is told when it will be gone, and is gone then",
       .sees = "the rank: notice() of the control plane",
       .recovery =
           "finish the step, agree, save, leave: nothing is lost where the notice is long enough, else as rank_crash",
       .defaults = "at_s must be given; notice_s 0; cancelled 0 (the chance that it is called off halfway)",
       .field = "EC2 Spot gives 120 s, others 30 s, best effort; Azure may call it off",
       .parameters = {"rank", "node", "at_s", "notice_s", "cancelled"},
       .modes = {}},
  };
}

}  // namespace seeksim::faults
