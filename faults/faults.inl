// One row a fault: its name as scenarios write it, what happens (summary), what a rank sees of it, what recovery must
// hold, the parameters with their defaults, and how often the field sees it. plan.h makes of it the enum, catalogue.cpp
// the catalogue. The first of `modes` and of `sites` is the default where nothing else decides.
SEEKSIM_FAULT(
    collective_timeout, .rows = "F01, F30, F32", .summary = "a rank never joins an operation, or joins it late",
    .sees = "the rank: nothing, it hangs. The others: no error at all, they wait until their watchdog ends it",
    .recovery =
        "abort, agree, go on without the rank, redo the step: final bits as if undisturbed. Late but within the "
        "watchdog: only time differs",
    .defaults = "mode never; delay_s must be given with mode late; count 1",
    .field = "1.7 % of Llama 3's 419 unexpected interruptions; 9.9 % of ByteRobust's incidents are job hangs",
    .parameters = keys("rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode",
                       "delay_s"),
    .modes = list(Mode::never, Mode::late))
SEEKSIM_FAULT(link_drop, .rows = "F02, F03, F04",
              .summary = "a link carries nothing: for a while, for good, or in one direction only",
              .sees =
                  "nothing while the network's retransmission hides it (ib: 30 s); then the users of the link get "
                  "remote_error (ib, tcp) or nothing, and everyone else waits",
              .recovery =
                  "hidden cut: only time differs. Longer: name the link, go on without one of its ends, redo the step; "
                  "the first rank to time out is not the culprit",
              .defaults =
                  "mode transient where down_s is given, else permanent; down_s 1, up_s 10, cycles 1; both_directions "
                  "true; loss 1 (all of its messages; less: each is lost by chance, and the others are delay_s late); "
                  "lasts from its first match (or from at_s) on",
              .field = "8.4 % of Llama 3's interruptions are switch or cable; 5K-60K link flaps a day in one cluster",
              .parameters = keys("link", "both_directions", "step", "micro_batch", "op", "phase", "call", "at_s",
                                 "probability", "mode", "down_s", "up_s", "cycles", "loss", "delay_s"),
              .modes = list(Mode::permanent, Mode::transient))
SEEKSIM_FAULT(slow_link, .rows = "F06", .summary = "a link with less bandwidth or more latency",
              .sees = "step time grows; no error", .recovery = "none is needed: only time differs",
              .defaults =
                  "factor 0.5 (the share of the bandwidth that is left) where neither factor nor delay_s is given; "
                  "both_directions true; lasts from its first match (or from at_s) on",
              .field = "2.9 % of ByteRobust's incidents are InfiniBand; 0.8 % are a decline of throughput",
              .parameters = keys("link", "both_directions", "step", "micro_batch", "op", "phase", "call", "at_s",
                                 "probability", "factor", "delay_s"))
SEEKSIM_FAULT(
    straggler, .rows = "F07", .summary = "a device that computes slower: always, now and then, or more and more",
    .sees = "everyone waits for it in every collective; no error", .recovery = "none is needed: only time differs",
    .defaults =
        "mode periodic where period_s is given, ramp where ramp_s is, else constant; factor 1.1 constant, 2 "
        "periodic, 1.5 ramp; period_s 60, duty 0.1; ramp_s 300, and with cool_s back again, over and over; "
        "lasts from its first match on",
    .field = "42.5 % of 3,079 jobs straggle, 10.4 % of GPU hours wasted; 1.4 % of Llama 3's interruptions thermal",
    .parameters = keys("rank", "step", "micro_batch", "phase", "call", "at_s", "probability", "mode", "factor",
                       "period_s", "duty", "ramp_s", "cool_s"),
    .modes = list(Mode::constant, Mode::periodic, Mode::ramp))
SEEKSIM_FAULT(
    rank_crash, .rows = "F08, F31", .summary = "a process is gone: before, during or after an operation, or at a time",
    .sees = "its neighbours: remote_error at once (tcp), after 30 s (ib) or never (inside a node); the others wait",
    .recovery =
        "agree on who is dead and on the last committed step, go on without it, redo the step: final bits as "
        "if undisturbed; a step is committed by all or by none",
    .defaults =
        "mode before; signal kill; count 1; with rank and at_s alone it needs no operation; returns_s 0: it "
        "does not come back",
    .field =
        "35.3 % of Llama 3's interruptions are a faulty GPU, 12.9 % software; 36.1 % of ByteRobust's "
        "incidents are CUDA errors",
    .parameters = keys("rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode",
                       "returns_s", "signal"),
    .modes = list(Mode::before, Mode::during, Mode::after))
SEEKSIM_FAULT(
    message_drop, .rows = "F14", .summary = "one message is sent and never arrives",
    .sees = "the sender: nothing. The receiver waits until its watchdog ends it; then everyone who waits for it",
    .recovery =
        "name the link, redo the step: final bits as if undisturbed; the lost message is never replaced by "
        "the next one",
    .defaults = "count 1",
    .field = "networks retransmit, so it takes an error in an endpoint; part of the 8.4 % network causes",
    .parameters = keys("rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count"))
SEEKSIM_FAULT(
    message_corrupt, .rows = "F14", .summary = "one bit of one message flips",
    .sees = "with checksum: the receiver gets an error that names the sender. Without: no rank notices",
    .recovery =
        "with checksum: redo the step, final bits as if undisturbed. Without: only a comparison with the golden "
        "or between ranks can tell",
    .defaults = "bit 0, checksum true, count 1",
    .field = "1.4 % of Llama 3's interruptions are silent data corruption; about weekly in the largest runs",
    .parameters = keys("rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                       "bit", "checksum"))
SEEKSIM_FAULT(
    nan_inject, .rows = "F11",
    .summary = "a number becomes NaN: in an activation, a gradient, the loss, a parameter or the optimizer state",
    .sees =
        "nothing by itself: the value spreads through everything that is computed from it; the vote sees it in "
        "the reduced gradient",
    .recovery =
        "every rank skips the step, and only that step; a NaN in a parameter or a moment stays, so every "
        "later step is skipped until the run stops",
    .defaults = "site gradient, element 0, count 1",
    .field = "fp16 sees it as an overflow and skips; bf16 spreads it silently unless a check looks",
    .parameters = keys("rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability",
                       "count", "site", "element"),
    .sites = list(Site::gradient, Site::activation, Site::activation_gradient, Site::loss, Site::parameter,
                  Site::reduced_gradient, Site::optimizer_state))
SEEKSIM_FAULT(inf_inject, .rows = "F11", .summary = "a number becomes infinite", .sees = "as nan_inject",
              .recovery = "as nan_inject", .defaults = "site gradient, element 0, negative false, count 1",
              .field = "as nan_inject",
              .parameters = keys("rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s",
                                 "probability", "count", "site", "element", "negative"),
              .sites = list(Site::gradient, Site::activation, Site::activation_gradient, Site::loss, Site::parameter,
                            Site::reduced_gradient, Site::optimizer_state))
SEEKSIM_FAULT(
    overflow, .rows = "F11", .summary = "a number becomes too large for fp16, though not for bf16",
    .sees = "fp16: infinity from the moment it is stored; bf16 and fp32: a large finite number",
    .recovery = "fp16: the step is skipped and the loss scale halves; bf16 and fp32: nothing but a large gradient",
    .defaults = "site activation, element 0, value 65520 (the least that rounds to infinity in fp16), count 1",
    .field = "65520 is the first value that fp16 cannot hold",
    .parameters = keys("rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability",
                       "count", "site", "element", "value", "negative"),
    .sites = list(Site::activation, Site::activation_gradient, Site::gradient, Site::parameter, Site::reduced_gradient))
SEEKSIM_FAULT(
    bit_flip, .rows = "F12, F13, F14, F15", .summary = "one bit of a number flips, silently",
    .sees = "no rank, unless the number becomes non-finite; copies on other ranks still have the old one",
    .recovery = "only a comparison can tell: between replicas, with the golden, or with the same work done again",
    .defaults = "site gradient, element 0, bit 0, count 1; site message: as message_corrupt without a checksum",
    .field = "1.4 % of Llama 3's interruptions are silent data corruption",
    .parameters = keys("rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability",
                       "count", "site", "element", "bit", "peer", "op"),
    .sites = list(Site::gradient, Site::activation, Site::activation_gradient, Site::loss, Site::parameter,
                  Site::reduced_gradient, Site::optimizer_state, Site::message))
SEEKSIM_FAULT(zero_tile, .rows = "F13",
              .summary = "a run of numbers becomes zero, as when a thread block never wrote its tile", .sees = "nobody",
              .recovery = "as bit_flip", .defaults = "site activation, element 0, elements 256, count 1",
              .field = "silent corruption of many elements at once",
              .parameters = keys("rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s",
                                 "probability", "count", "site", "element", "elements"),
              .sites = list(Site::activation, Site::activation_gradient, Site::gradient, Site::parameter,
                            Site::reduced_gradient, Site::optimizer_state))
SEEKSIM_FAULT(loss_spike, .rows = "F28",
              .summary = "a bad batch: the targets of a micro-batch are tokens that never occur",
              .sees = "the loss and the gradient norm jump for a step; all ranks agree",
              .recovery = "none: clipping bounds the step; the spike is named by step", .defaults = "token 0, count 1",
              .field = "about 20 spikes in a PaLM run; ByteRobust raises an alarm at five times the loss or the norm",
              .parameters = keys("rank", "step", "micro_batch", "call", "at_s", "probability", "count", "token"))
SEEKSIM_FAULT(token_imbalance, .rows = "F28",
              .summary = "a batch of padding: all tokens of a micro-batch are one token, so that they go to the same experts",
              .sees = "alarms on the load of experts and, with a capacity, on dropped choices; all ranks agree",
              .recovery = "none: capacities bound what an expert takes; the step is named", .defaults = "token 0, count 1",
              .field = "without capacities the rank of the busiest expert runs out of memory or all wait for it",
              .parameters = keys("rank", "step", "micro_batch", "call", "at_s", "probability", "count", "token"))
SEEKSIM_FAULT(
    oom, .rows = "F16",
    .summary = "an allocation fails, though there may be room: the n-th, one of a kind, or all beyond a budget",
    .sees =
        "the rank: out of memory where it asked, with what it asked for; the others wait for it in the next "
        "collective",
    .recovery =
        "all agree that the step did not happen, then free what can be freed, or take a layout that needs "
        "less, and redo it: final bits as if undisturbed. A layout that cannot shrink ends in a clean stop",
    .defaults =
        "any memory of the device; bytes 0 (no budget); count 1; with op comm_create it strikes the "
        "communicator's own memory",
    .field = "CUDA's error 2, which is not sticky; inside NCCL it ends the communicator (unhandled CUDA error)",
    .parameters = keys("rank", "step", "micro_batch", "op", "phase", "tensor", "call", "at_s", "probability", "count",
                       "tag", "bytes"))
SEEKSIM_FAULT(pinned_alloc_failure, .rows = "F17", .summary = "the host locks no more memory",
              .sees = "the rank: out of memory, of pinned memory, when it makes its buffers",
              .recovery = "as oom; pageable memory serves where the plan does not insist", .defaults = "count 1",
              .field = "cudaMallocHost returns error 2",
              .parameters = keys("rank", "step", "phase", "tensor", "call", "at_s", "probability", "count", "tag"))
SEEKSIM_FAULT(
    nvme_read_error, .rows = "F18", .summary = "a read of a file fails",
    .sees = "the rank: an input/output error with the file's path",
    .recovery = "read again, a bounded number of times with growing pauses; then the rank has lost what was there",
    .defaults = "any file; count 1", .field = "3 of Llama 3's 419 unexpected interruptions were an SSD (0.7 %)",
    .parameters = keys("rank", "step", "phase", "call", "at_s", "probability", "count", "path"))
SEEKSIM_FAULT(nvme_short_read, .rows = "F18", .summary = "a read brings fewer bytes than were asked for, and says so",
              .sees = "the rank: a count that is too small, if it looks",
              .recovery = "ask for the rest; never use what did not arrive",
              .defaults = "bytes: half of it, in whole sectors; any file; count 1",
              .field = "POSIX allows it any time; DeepSpeed only asserts the count, which python -O takes away",
              .parameters = keys("rank", "step", "phase", "call", "at_s", "probability", "count", "path", "bytes"))
SEEKSIM_FAULT(nvme_write_error, .rows = "F19", .summary = "a write or a sync fails",
              .sees = "the rank: an input/output error with the file's path",
              .recovery = "write again; the old copy is kept until the new one is durable",
              .defaults = "any file; count 1", .field = "as nvme_read_error",
              .parameters = keys("rank", "step", "phase", "call", "at_s", "probability", "count", "path"))
SEEKSIM_FAULT(nvme_torn_write, .rows = "F19", .summary = "a write says that it is done, and half of it is",
              .sees = "nothing, until the bytes are read back and their checksum is wrong",
              .recovery = "found by checksum at the latest when it is read; written again, or taken from an older copy",
              .defaults = "bytes: the first half, in whole sectors; a sync that does nothing; any file; count 1",
              .field = "what is not synced can be lost or come back in another order",
              .parameters = keys("rank", "step", "phase", "call", "at_s", "probability", "count", "path", "bytes"))
SEEKSIM_FAULT(disk_full, .rows = "F19", .summary = "a write finds no room",
              .sees = "the rank: a count of 0, or \"no space left on device\"",
              .recovery = "nothing that was durable is given up; a clean stop names the folder and what it needed",
              .defaults = "any file; count 1 (0: it stays full)", .field = "ENOSPC, at a write or only at the sync",
              .parameters = keys("rank", "step", "phase", "call", "at_s", "probability", "count", "path"))
SEEKSIM_FAULT(slow_disk, .rows = "F18",
              .summary = "reads and writes of files take longer: always, now and then, or more and more",
              .sees = "everyone waits for it in the next collective; no error",
              .recovery = "none is needed: only time differs",
              .defaults = "mode as straggler; factor 10 constant, 2 periodic, 1.5 ramp; lasts from its first match on",
              .field = "a latency of tens of milliseconds now and then",
              .parameters = keys("rank", "step", "phase", "call", "at_s", "probability", "mode", "factor", "period_s",
                                 "duty", "ramp_s"),
              .modes = list(Mode::constant, Mode::periodic, Mode::ramp))
SEEKSIM_FAULT(
    node_crash, .rows = "F09", .summary = "all processes of a machine are gone at once, and what its own disk held",
    .sees =
        "its peers: as rank_crash, several ranks at one instant; copies that were kept on that machine are gone too",
    .recovery =
        "a copy on another machine or a checkpoint serves: final bits as if undisturbed; where none is "
        "left, a clean stop",
    .defaults = "count 1; lose_local_storage true; with node and at_s alone it needs no operation",
    .field =
        "0.7 % of Llama 3's interruptions are power supplies, 7.6 % unplanned maintenance of hosts; 2.3 to 6.5 "
        "failures per 1000 node-days",
    .parameters = keys("node", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                       "lose_local_storage"))
SEEKSIM_FAULT(
    kernel_hang, .rows = "F10", .summary = "a launch never completes",
    .sees = "the rank: nothing; an abort waits for the launch too. The others: as collective_timeout",
    .recovery =
        "no wait without a bound: the rank ends itself when its device does not answer, the others go on "
        "without it: final bits as if undisturbed",
    .defaults = "any launch of compute; count 1",
    .field =
        "4.1 % of Llama 3's interruptions are GPU system processors; NVRx injects it as a sleep of 2^62 on the GPU",
    .parameters = keys("rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "layer",
                       "tensor"))
SEEKSIM_FAULT(device_error, .rows = "F27", .summary = "a device's memory or link fails: its context is gone",
              .sees = "the rank: CUDA's error at its next wait, and at each after that. The others wait for it",
              .recovery =
                  "its data is not trusted: it leaves like a crash, the others go on: final bits as if undisturbed; "
                  "not sticky: one launch failed, the step is redone",
              .defaults = "code 214 (uncorrectable ECC; 220 NVLink, 226 contained), sticky true, count 1",
              .field = "17.2 % of Llama 3's interruptions are HBM3 memory, 4.5 % SRAM",
              .parameters = keys("rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                                 "code", "sticky"))
SEEKSIM_FAULT(pause, .rows = "F32", .summary = "a process stands still for a while, then goes on",
              .sees = "the rank: nothing. The others: their watchdog, if the pause is longer",
              .recovery =
                  "shorter than the watchdog: only time differs. Longer than watchdog and agreement: it is declared "
                  "dead; when it speaks again it is fenced out",
              .defaults = "delay_s must be given; count 1",
              .field = "NVRx injects it as SIGSTOP; torchft gives a rank that comes back a new identity for this",
              .parameters = keys("rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                                 "delay_s"))
SEEKSIM_FAULT(
    clock_skew, .rows = "F24", .summary = "a rank's clock shows another time, runs fast or slow, or jumps",
    .sees = "the rank: its own times; deadlines hold, as they are counted on a monotonic clock",
    .recovery = "none is needed: only what is reported differs; no rank is declared dead, and the right one is named",
    .defaults = "offset_s 0, drift_ppm 0; with at_s it begins then (a jump)",
    .field =
        "offsets of 500 ms and drifts of 200 ppm pass unnoticed unless a check looks; heartbeats and merged logs "
        "suffer",
    .parameters = keys("rank", "at_s", "offset_s", "drift_ppm"))
SEEKSIM_FAULT(data_stall, .rows = "F25", .summary = "the data loader takes long",
              .sees = "the others wait for the rank in the next collective",
              .recovery = "shorter than the watchdog: only time differs; longer: as collective_timeout late",
              .defaults = "delay_s must be given; count 1", .field = "an everyday event on shared file systems",
              .parameters = keys("rank", "step", "micro_batch", "sample", "call", "at_s", "probability", "count",
                                 "delay_s"))
SEEKSIM_FAULT(data_error, .rows = "F25", .summary = "the data loader cannot bring a micro-batch, or a sample",
              .sees = "the rank: an exception. The others hear of it when it revokes the epoch",
              .recovery =
                  "all redo the step with the same samples: final bits as if undisturbed; one that fails for ever "
                  "ends in an agreed stop that names the rank, and the sample",
              .defaults = "count 1 (0: it fails for ever); sample: strikes any rank that loads it, in any layout",
              .field = "12.9 % of Llama 3's interruptions are software",
              .parameters = keys("rank", "step", "micro_batch", "sample", "call", "at_s", "probability", "count"))
SEEKSIM_FAULT(
    preemption_notice, .rows = "F26", .summary = "a rank or a machine gets notice of when it will be gone, and is gone then",
    .sees = "the rank: notice() of the control plane",
    .recovery =
        "finish the step, agree, save, leave: nothing is lost where the notice is long enough, else as rank_crash",
    .defaults = "at_s must be given; notice_s 0; cancelled 0 (the chance that it is called off halfway)",
    .field = "EC2 Spot gives 120 s, others 30 s, best effort; Azure may call it off",
    .parameters = keys("rank", "node", "at_s", "notice_s", "cancelled"))
SEEKSIM_FAULT(
    collective_mismatch, .rows = "F22",
    .summary =
        "a rank brings another operation than the others: kind, count, type or order differ, or it leaves one out",
    .sees = "the transport that compares names both; NCCL says nothing, and hangs, crashes or sums garbage",
    .recovery = "abort, name the rank that differs from the most, redo the step: final bits as if undisturbed",
    .defaults = "mode op; count 1. No operation here has a root",
    .field = "a part of the 12.9 % software bugs; NCCL calls the outcome undefined",
    .parameters = keys("rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode"),
    .modes = list(Mode::op, Mode::count, Mode::dtype, Mode::swap_order, Mode::skip, Mode::count0))
SEEKSIM_FAULT(zombie_message, .rows = "F23",
              .summary = "a message arrives a second time, after others have begun to use the memory or the connection",
              .sees = "nothing: its epoch and number tell that it is stale, and it is dropped and counted",
              .recovery =
                  "final bits as if undisturbed; without the fence (bug stale_messages_taken) it is taken for the "
                  "next one of its size",
              .defaults = "delay_s must be given; count 1",
              .field =
                  "two NCCL communicators that were shrunk from one parent share their hash, and nothing else tells "
                  "their messages apart",
              .parameters = keys("rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability",
                                 "count", "delay_s"))
SEEKSIM_FAULT(
    partition, .rows = "F05",
    .summary = "two parts of the world do not reach each other, and one of them not the control plane",
    .sees = "all messages between the sides are lost; one side gets no answer to votes any more",
    .recovery =
        "only the side that reaches the control plane goes on (where it is split too: more than half of the "
        "members, or half and the lowest rank); the other one never commits, and stops",
    .defaults = "sides and at_s must be given; no store_side: the control plane is split too; down_s 0: it never heals",
    .field = "a switch or cable is 8.4 % of Llama 3's interruptions",
    .parameters = keys("sides", "at_s", "down_s", "store_side", "probability"))
SEEKSIM_FAULT(store_death, .rows = "F33", .summary = "the control plane answers no rank, for a while or for good",
              .sees = "training continues until the next vote, which gets no answer",
              .recovery =
                  "back in time: only time differs. Too late: every rank stops and says so, and none has committed "
                  "what others have not",
              .defaults = "at_s must be given; down_s 0: it stays dead",
              .field = "torchft's lighthouse and NVRx's store are single points of failure",
              .parameters = keys("at_s", "down_s", "probability"))
SEEKSIM_FAULT(
    init_failure, .rows = "F30",
    .summary = "a rank builds a communicator with one member too few, or in another one's place",
    .sees = "NCCL: only the root's thread warns, everybody hangs. Here: the members differ, or wait until the deadline",
    .recovery = "bounded: built again in the next epoch; for ever wrong: a clean stop",
    .defaults = "mode wrong_nranks; count 1 (0: it is wrong each time)",
    .field = "NCCL tries to connect 34 times in about 60 s, then says remote_error",
    .parameters = keys("rank", "op", "phase", "step", "call", "at_s", "probability", "count", "mode"),
    .modes = list(Mode::wrong_nranks, Mode::dup_rank))
SEEKSIM_FAULT(
    checkpoint_corrupt, .rows = "F20",
    .summary = "a file is damaged once it is durable: half of it is missing, a bit flips, or it is gone",
    .sees = "nothing, until it is loaded",
    .recovery = "found by size and digest before any of it is used; the previous checkpoint serves; never a loop",
    .defaults = "mode truncate; path rank- ; bit 0; count 1",
    .field = "a corrupt replica of a checkpoint gave NaN and an endless loop of restarts (Megatron-LM#5281)",
    .parameters = keys("rank", "step", "op", "phase", "call", "at_s", "probability", "count", "mode", "path", "bit"),
    .modes = list(Mode::truncate, Mode::flip, Mode::missing))
SEEKSIM_FAULT(lost_checkpoint, .rows = "F21",
              .summary = "once a file is durable it is gone, and all that lies beside it",
              .sees = "nothing, until it is to be loaded",
              .recovery = "the next older one serves; where none is left, an explicit stop",
              .defaults = "path manifest.json; op storage_rename; count 1",
              .field = "as node_crash, where checkpoints lie on the machine",
              .parameters = keys("rank", "step", "op", "phase", "call", "at_s", "probability", "count", "path"))
SEEKSIM_FAULT(stale_gradient, .rows = "F29",
              .summary = "an update takes the gradients of an earlier step, its own twice, or none", .sees = "nobody",
              .recovery = "tags of samples in the gradients tell (conservation), or other replicas, or the golden",
              .defaults = "mode delayed_apply; staleness 1 (steps); count 1",
              .field = "asynchronous training on purpose; a race of a bucket's buffers by accident",
              .parameters = keys("rank", "step", "call", "at_s", "probability", "count", "mode", "staleness"),
              .modes = list(Mode::delayed_apply, Mode::dup_apply, Mode::drop), .sites = list(Site::reduced_gradient))
