// The catalogue of faults: one table from which names, parameters, defaults and validation come, so that what `seeksim
// list faults` prints, what a scenario may say and what the code does cannot drift apart.
#include <algorithm>
#include <array>
#include <string>

#include "faults/plan.h"
#include "faults/trigger.h"

namespace seeksim::faults {

using runtime::kSecond;
using runtime::OpKind;

namespace {

constexpr std::array<std::string_view, std::size_t(FaultKind::count_)> kKinds = {"collective_timeout",
                                                                                 "link_drop",
                                                                                 "slow_link",
                                                                                 "straggler",
                                                                                 "rank_crash",
                                                                                 "message_drop",
                                                                                 "message_corrupt",
                                                                                 "nan_inject",
                                                                                 "inf_inject",
                                                                                 "overflow",
                                                                                 "bit_flip",
                                                                                 "zero_tile",
                                                                                 "loss_spike",
                                                                                 "oom",
                                                                                 "pinned_alloc_failure",
                                                                                 "nvme_read_error",
                                                                                 "nvme_short_read",
                                                                                 "nvme_write_error",
                                                                                 "nvme_torn_write",
                                                                                 "disk_full",
                                                                                 "slow_disk"};

constexpr std::array<std::pair<Site, std::string_view>, 8> kSites = {
    {{Site::activation, "activation"},
     {Site::activation_gradient, "activation_gradient"},
     {Site::loss, "loss"},
     {Site::parameter, "parameter"},
     {Site::gradient, "gradient"},
     {Site::reduced_gradient, "reduced_gradient"},
     {Site::optimizer_state, "optimizer_state"},
     {Site::message, "message"}}};

constexpr std::array<std::pair<Mode, std::string_view>, 10> kModes = {{{Mode::never, "never"},
                                                                       {Mode::late, "late"},
                                                                       {Mode::transient, "transient"},
                                                                       {Mode::permanent, "permanent"},
                                                                       {Mode::constant, "constant"},
                                                                       {Mode::periodic, "periodic"},
                                                                       {Mode::ramp, "ramp"},
                                                                       {Mode::before, "before"},
                                                                       {Mode::during, "during"},
                                                                       {Mode::after, "after"}}};

std::vector<FaultInfo> make_catalogue() {
  return {
      {.kind = FaultKind::collective_timeout,
       .summary = "a rank never joins an operation, or joins it late",
       .sees = "the rank: nothing, it hangs. The others: no error at all, they wait until their watchdog ends it",
       .recovery =
           "abort, agree, go on without the rank, redo the step: final bits as if undisturbed. Late but within the "
           "watchdog: only time differs",
       .defaults = "mode never; delay_s must be given with mode late; count 1",
       .field = "F01: 1.7 % of Llama 3's 419 unexpected interruptions; 9.9 % of ByteRobust's incidents are job hangs",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode",
                      "delay_s"},
       .modes = {Mode::never, Mode::late}},
      {.kind = FaultKind::link_drop,
       .summary = "a link carries nothing: for a while, for good, or in one direction only",
       .sees = "nothing while the network's retransmission hides it (ib: 30 s); then the users of the link get "
               "remote_error (ib, tcp) or nothing, and everyone else waits",
       .recovery =
           "hidden cut: only time differs. Longer: name the link, go on without one of its ends, redo the step; "
           "the first rank to time out is not the culprit",
       .defaults = "mode transient where down_s is given, else permanent; down_s 1, up_s 10, cycles 1; both_directions "
                   "true; lasts from its first match (or from at_s) on",
       .field = "F02-F04: 8.4 % of Llama 3's interruptions are switch or cable; 5K-60K link flaps a day in one cluster",
       .parameters = {"link", "both_directions", "step", "micro_batch", "op", "phase", "call", "at_s", "probability",
                      "mode", "down_s", "up_s", "cycles"},
       .modes = {Mode::permanent, Mode::transient}},
      {.kind = FaultKind::slow_link,
       .summary = "a link with less bandwidth or more latency",
       .sees = "step time grows; no error",
       .recovery = "none is needed: only time differs",
       .defaults = "factor 0.5 (the share of the bandwidth that is left) where neither factor nor delay_s is given; "
                   "both_directions true; lasts from its first match (or from at_s) on",
       .field = "F06: 2.9 % of ByteRobust's incidents are InfiniBand; 0.8 % are a decline of throughput",
       .parameters = {"link", "both_directions", "step", "micro_batch", "op", "phase", "call", "at_s", "probability",
                      "factor", "delay_s"},
       .modes = {}},
      {.kind = FaultKind::straggler,
       .summary = "a device that computes slower: always, now and then, or more and more",
       .sees = "everyone waits for it in every collective; no error",
       .recovery = "none is needed: only time differs",
       .defaults = "mode periodic where period_s is given, ramp where ramp_s is, else constant; factor 1.1 constant, 2 "
                   "periodic, 1.5 ramp; period_s 60, duty 0.1; ramp_s 300; lasts from its first match on",
       .field =
           "F07: 42.5 % of 3,079 jobs straggle, 10.4 % of GPU hours wasted; 1.4 % of Llama 3's interruptions thermal",
       .parameters = {"rank", "step", "micro_batch", "phase", "call", "at_s", "probability", "mode", "factor",
                      "period_s", "duty", "ramp_s"},
       .modes = {Mode::constant, Mode::periodic, Mode::ramp}},
      {.kind = FaultKind::rank_crash,
       .summary = "a process is gone: before, during or after an operation, or at a time",
       .sees = "its neighbours: remote_error at once (tcp), after 30 s (ib) or never (inside a node); the others wait",
       .recovery =
           "agree on who is dead and on the last committed step, go on without it, redo the step: final bits as "
           "if undisturbed; a step is committed by all or by none",
       .defaults =
           "mode before; count 1; with rank and at_s alone it needs no operation; returns_s 0: it does not come back",
       .field = "F08: 35.3 % of Llama 3's interruptions are a faulty GPU, 12.9 % software; 36.1 % of ByteRobust's "
                "incidents are CUDA errors",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count", "mode",
                      "returns_s"},
       .modes = {Mode::before, Mode::during, Mode::after}},
      {.kind = FaultKind::message_drop,
       .summary = "one message is sent and never arrives",
       .sees = "the sender: nothing. The receiver waits until its watchdog ends it; then everyone who waits for it",
       .recovery = "name the link, redo the step: final bits as if undisturbed; the lost message is never replaced by "
                   "the next one",
       .defaults = "count 1",
       .field = "F14: networks retransmit, so it takes an error in an endpoint; part of the 8.4 % network causes",
       .parameters = {"rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count"},
       .modes = {}},
      {.kind = FaultKind::message_corrupt,
       .summary = "one bit of one message flips",
       .sees = "with checksum: the receiver gets an error that names the sender. Without: nobody notices",
       .recovery =
           "with checksum: redo the step, final bits as if undisturbed. Without: only a comparison with the golden "
           "or between ranks can tell",
       .defaults = "bit 0, checksum true, count 1",
       .field = "F14: 1.4 % of Llama 3's interruptions are silent data corruption; about weekly in the largest runs",
       .parameters = {"rank", "peer", "step", "micro_batch", "op", "phase", "call", "at_s", "probability", "count",
                      "bit", "checksum"},
       .modes = {}},
      {.kind = FaultKind::nan_inject,
       .summary = "a number becomes NaN: in an activation, a gradient, the loss, a parameter or the optimizer state",
       .sees = "nothing by itself: the value spreads through everything that is computed from it; the vote sees it in "
               "the reduced gradient",
       .recovery = "every rank skips the step, and only that step; a NaN in a parameter or a moment stays, so every "
                   "later step is skipped until the run stops",
       .defaults = "site gradient, element 0, count 1",
       .field = "F11: fp16 sees it as an overflow and skips; bf16 spreads it silently where nobody looks",
       .parameters = {"rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability", "count",
                      "site", "element"},
       .modes = {},
       .sites = {Site::gradient, Site::activation, Site::activation_gradient, Site::loss, Site::parameter,
                 Site::reduced_gradient, Site::optimizer_state}},
      {.kind = FaultKind::inf_inject,
       .summary = "a number becomes infinite",
       .sees = "as nan_inject",
       .recovery = "as nan_inject",
       .defaults = "site gradient, element 0, negative false, count 1",
       .field = "F11",
       .parameters = {"rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability", "count",
                      "site", "element", "negative"},
       .modes = {},
       .sites = {Site::gradient, Site::activation, Site::activation_gradient, Site::loss, Site::parameter,
                 Site::reduced_gradient, Site::optimizer_state}},
      {.kind = FaultKind::overflow,
       .summary = "a number becomes too large for fp16, though not for bf16",
       .sees = "fp16: infinity from the moment it is stored; bf16 and fp32: a large finite number",
       .recovery = "fp16: the step is skipped and the loss scale halves; bf16 and fp32: nothing but a large gradient",
       .defaults = "site activation, element 0, value 65520 (the least that rounds to infinity in fp16), count 1",
       .field = "F11: 65520 is the first value that fp16 cannot hold",
       .parameters = {"rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability", "count",
                      "site", "element", "value", "negative"},
       .modes = {},
       .sites = {Site::activation, Site::activation_gradient, Site::gradient, Site::parameter, Site::reduced_gradient}},
      {.kind = FaultKind::bit_flip,
       .summary = "one bit of a number flips, silently",
       .sees = "nobody, unless the number becomes non-finite; copies on other ranks still have the old one",
       .recovery = "only a comparison can tell: between replicas, with the golden, or with the same work done again",
       .defaults = "site gradient, element 0, bit 0, count 1; site message: as message_corrupt without a checksum",
       .field = "F12, F13, F15: 1.4 % of Llama 3's interruptions are silent data corruption",
       .parameters = {"rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability", "count",
                      "site", "element", "bit", "peer", "op"},
       .modes = {},
       .sites = {Site::gradient, Site::activation, Site::activation_gradient, Site::loss, Site::parameter,
                 Site::reduced_gradient, Site::optimizer_state, Site::message}},
      {.kind = FaultKind::zero_tile,
       .summary = "a run of numbers becomes zero, as when a thread block never wrote its tile",
       .sees = "nobody",
       .recovery = "as bit_flip",
       .defaults = "site activation, element 0, elements 256, count 1",
       .field = "F13: silent corruption of many elements at once",
       .parameters = {"rank", "step", "micro_batch", "phase", "layer", "tensor", "call", "at_s", "probability", "count",
                      "site", "element", "elements"},
       .modes = {},
       .sites = {Site::activation, Site::activation_gradient, Site::gradient, Site::parameter, Site::reduced_gradient,
                 Site::optimizer_state}},
      {.kind = FaultKind::loss_spike,
       .summary = "a bad batch: the targets of a micro-batch are tokens that never occur",
       .sees = "the loss and the gradient norm jump for a step; all ranks agree",
       .recovery = "none: clipping bounds the step; the spike is named by step",
       .defaults = "token 0, count 1",
       .field = "F28: about 20 spikes in a PaLM run; ByteRobust raises an alarm at five times the loss or the norm",
       .parameters = {"rank", "step", "micro_batch", "call", "at_s", "probability", "count", "token"},
       .modes = {},
       .sites = {}},
      {.kind = FaultKind::oom,
       .summary = "an allocation fails, though there may be room: the n-th, one of a kind, or all beyond a budget",
       .sees = "the rank: out of memory where it asked, with what it asked for; the others wait for it in the next "
               "collective",
       .recovery = "all agree that the step did not happen, then free what can be freed, or take a layout that needs "
                   "less, and redo it: final bits as if undisturbed. A layout that cannot shrink ends in a clean stop",
       .defaults = "any memory of the device; bytes 0 (no budget); count 1; with op comm_create it strikes the "
                   "communicator's own memory",
       .field = "F16: CUDA's error 2, which is not sticky; inside NCCL it ends the communicator (unhandled CUDA error)",
       .parameters = {"rank", "step", "micro_batch", "op", "phase", "tensor", "call", "at_s", "probability", "count",
                      "tag", "bytes"},
       .modes = {}},
      {.kind = FaultKind::pinned_alloc_failure,
       .summary = "the host locks no more memory",
       .sees = "the rank: out of memory, of pinned memory, when it makes its buffers",
       .recovery = "as oom; pageable memory serves where the plan does not insist",
       .defaults = "count 1",
       .field = "F17: cudaMallocHost returns error 2",
       .parameters = {"rank", "step", "phase", "tensor", "call", "at_s", "probability", "count", "tag"},
       .modes = {}},
      {.kind = FaultKind::nvme_read_error,
       .summary = "a read of a file fails",
       .sees = "the rank: an input/output error with the file's path",
       .recovery = "read again, a bounded number of times with growing pauses; then the rank has lost what was there",
       .defaults = "any file; count 1",
       .field = "F18: 3 of Llama 3's 419 unexpected interruptions were an SSD (0.7 %)",
       .parameters = {"rank", "step", "phase", "call", "at_s", "probability", "count", "path"},
       .modes = {}},
      {.kind = FaultKind::nvme_short_read,
       .summary = "a read brings fewer bytes than were asked for, and says so",
       .sees = "the rank: a count that is too small, if it looks",
       .recovery = "ask for the rest; never use what did not arrive",
       .defaults = "half of it, in whole sectors; any file; count 1",
       .field = "F18: POSIX allows it any time; DeepSpeed only asserts the count, which python -O takes away",
       .parameters = {"rank", "step", "phase", "call", "at_s", "probability", "count", "path"},
       .modes = {}},
      {.kind = FaultKind::nvme_write_error,
       .summary = "a write or a sync fails",
       .sees = "the rank: an input/output error with the file's path",
       .recovery = "write again; the old copy is kept until the new one is durable",
       .defaults = "any file; count 1",
       .field = "F19: as nvme_read_error",
       .parameters = {"rank", "step", "phase", "call", "at_s", "probability", "count", "path"},
       .modes = {}},
      {.kind = FaultKind::nvme_torn_write,
       .summary = "a write says that it is done, and half of it is",
       .sees = "nothing, until the bytes are read back and their checksum is wrong",
       .recovery = "found by checksum at the latest when it is read; written again, or taken from an older copy",
       .defaults = "the first half, in whole sectors; a sync that does nothing; any file; count 1",
       .field = "F19: what is not synced can be lost or come back in another order",
       .parameters = {"rank", "step", "phase", "call", "at_s", "probability", "count", "path"},
       .modes = {}},
      {.kind = FaultKind::disk_full,
       .summary = "a write finds no room",
       .sees = "the rank: a count of 0, or \"no space left on device\"",
       .recovery = "nothing that was durable is given up; a clean stop names the folder and what it needed",
       .defaults = "any file; count 1 (0: it stays full)",
       .field = "F19: ENOSPC, at a write or only at the sync",
       .parameters = {"rank", "step", "phase", "call", "at_s", "probability", "count", "path"},
       .modes = {}},
      {.kind = FaultKind::slow_disk,
       .summary = "reads and writes of files take longer: always, now and then, or more and more",
       .sees = "everyone waits for it in the next collective; no error",
       .recovery = "none is needed: only time differs",
       .defaults = "mode as straggler; factor 10 constant, 2 periodic, 1.5 ramp; lasts from its first match on",
       .field = "F18: a latency of tens of milliseconds now and then",
       .parameters = {"rank", "step", "phase", "call", "at_s", "probability", "mode", "factor", "period_s", "duty",
                      "ramp_s"},
       .modes = {Mode::constant, Mode::periodic, Mode::ramp}},
  };
}

const FaultInfo& info(FaultKind kind) { return catalogue()[std::size_t(kind)]; }

bool allows(const FaultInfo& of, std::string_view key) {
  return std::find(of.parameters.begin(), of.parameters.end(), key) != of.parameters.end();
}

// Collects problems of one rule; each check is one line below.
class Review {
 public:
  explicit Review(std::vector<Problem>& into) : into_(into) {}
  void require(bool fine, std::string_view key, const std::string& what) {
    if (!fine) into_.push_back({std::string(key), what});
  }

 private:
  std::vector<Problem>& into_;
};

void review_places(Review& review, const Rule& rule, const FaultInfo& of, const std::vector<int>& node_of) {
  const int ranks = int(node_of.size());
  const int nodes = node_of.empty() ? 0 : *std::max_element(node_of.begin(), node_of.end()) + 1;
  const std::string world = "ranks go from 0 to " + std::to_string(ranks - 1);
  const auto is_rank = [&](const std::optional<int>& r) { return !r || (*r >= 0 && *r < ranks); };
  review.require(is_rank(rule.when.rank), "rank", world);
  review.require(is_rank(rule.when.peer), "peer", world);
  review.require(!rule.when.rank || rule.when.rank != rule.when.peer, "peer", "a rank sends no message to itself");
  if (is_link(rule.kind)) {
    review.require(rule.from && rule.to, "link", "give the link: {\"from\": 0, \"to\": 1} or {\"nodes\": [0, 1]}");
    const int limit = rule.nodes ? nodes : ranks;
    const auto inside = [&](const std::optional<int>& end) { return !end || (*end >= 0 && *end < limit); };
    review.require(inside(rule.from) && inside(rule.to), "link",
                   rule.nodes ? "nodes go from 0 to " + std::to_string(nodes - 1) : world);
    review.require(!rule.from || rule.from != rule.to, "link", "a link has two different ends");
  } else {
    review.require(!rule.from && !rule.to, "link", std::string(name(of.kind)) + " has no link");
  }
  review.require(!is_slow(rule.kind) || rule.when.rank, "rank", "say which rank is slow");
  review.require(rule.kind != FaultKind::rank_crash || !is_timed(rule.when) || rule.when.rank, "rank",
                 "a crash at a time needs its rank");
}

void review_trigger(Review& review, const Rule& rule, const FaultInfo& of) {
  const Trigger& when = rule.when;
  const std::string kind(name(of.kind));
  review.require(!when.peer || allows(of, "peer"), "peer", kind + " has no peer");
  review.require(!when.rank || allows(of, "rank"), "rank", kind + " is about a link, not about a rank");
  review.require(!when.op || (allows(of, "op") && can_concern(rule, *when.op)), "op",
                 kind + " cannot happen in " + std::string(when.op ? runtime::name(*when.op) : ""));
  const bool at_message = rule.site == Site::message;
  review.require(!is_value(rule.kind) || at_message || (!when.peer && !when.op), when.peer ? "peer" : "op",
                 "only site message has one");
  review.require(!at_message || (!when.layer && when.tensor.empty()), when.layer ? "layer" : "tensor",
                 "a message is told by op, peer, step and phase");
  review.require(!when.call || *when.call >= 1, "call", "calls are counted from 1");
  review.require(!when.at_ns || *when.at_ns >= 0, "at_s", "a run starts at 0");
  review.require(when.probability > 0 && when.probability <= 1, "probability", "must be above 0 and at most 1");
  review.require(rule.count >= 0, "count", "must be at least 1, or 0 for without limit");
}

std::string all_tags() {
  std::string all;
  for (int tag = 0; tag < int(runtime::MemoryTag::count_); ++tag)
    all += (tag > 0 ? ", " : "") + std::string(name(runtime::MemoryTag(tag)));
  return all;
}

bool is_tag(const std::string& word) {
  for (int tag = 0; tag < int(runtime::MemoryTag::count_); ++tag) {
    if (word == name(runtime::MemoryTag(tag))) return true;
  }
  return false;
}

void review_numbers(Review& review, const Rule& rule, const FaultInfo& of) {
  const bool site_fits = std::find(of.sites.begin(), of.sites.end(), rule.site) != of.sites.end();
  review.require(site_fits || (of.sites.empty() && rule.site == Site::unset), "site",
                 std::string(name(of.kind)) + " cannot strike \"" + std::string(name(rule.site)) + "\"");
  review.require(rule.elements > 0, "elements", "must be at least 1");
  review.require(rule.token >= 0, "token", "must not be negative");
  review.require(rule.tag.empty() || is_tag(rule.tag), "tag", "no memory has this tag; they are: " + all_tags());
  const bool mode_fits = std::find(of.modes.begin(), of.modes.end(), rule.mode) != of.modes.end();
  review.require(rule.mode == Mode::unset || mode_fits, "mode",
                 std::string(name(of.kind)) + " has no mode \"" + std::string(name(rule.mode)) + "\"");
  review.require(rule.delay_ns >= 0, "delay_s", "must not be negative");
  review.require(rule.returns_ns >= 0, "returns_s", "must not be negative");
  if (rule.kind == FaultKind::collective_timeout) {
    review.require(rule.mode != Mode::late || rule.delay_ns > 0, "delay_s", "mode late needs a delay_s above 0");
    review.require(rule.mode == Mode::late || rule.delay_ns == 0, "delay_s", "only mode late has a delay");
  }
  if (rule.kind == FaultKind::link_drop && rule.mode == Mode::transient) {
    review.require(rule.down_ns > 0, "down_s", "must be above 0");
    review.require(rule.up_ns >= 0, "up_s", "must not be negative");
    review.require(rule.cycles >= 1, "cycles", "must be at least 1");
  }
  if (rule.kind == FaultKind::slow_link) {
    review.require(rule.factor > 0 && rule.factor <= 1, "factor", "the share of bandwidth left: above 0 and at most 1");
  }
  if (is_slow(rule.kind)) {
    review.require(rule.factor >= 1, "factor", "how many times slower: at least 1");
    review.require(rule.mode != Mode::periodic || rule.period_ns > 0, "period_s", "must be above 0");
    review.require(rule.mode != Mode::periodic || (rule.duty > 0 && rule.duty <= 1), "duty", "above 0 and at most 1");
    review.require(rule.mode != Mode::ramp || rule.ramp_ns > 0, "ramp_s", "must be above 0");
  }
}

}  // namespace

std::string_view name(FaultKind kind) { return kind < FaultKind::count_ ? kKinds[std::size_t(kind)] : "unknown"; }

FaultKind fault_kind(std::string_view name) {
  return FaultKind(std::find(kKinds.begin(), kKinds.end(), name) - kKinds.begin());
}

std::string_view name(Mode mode) {
  for (const auto& [known, text] : kModes) {
    if (known == mode) return text;
  }
  return "unset";
}

Mode mode(std::string_view name) {
  for (const auto& [known, text] : kModes) {
    if (text == name) return known;
  }
  return Mode::unset;
}

std::string_view name(Site site) {
  for (const auto& [known, text] : kSites) {
    if (known == site) return text;
  }
  return "unset";
}

Site site(std::string_view name) {
  for (const auto& [known, text] : kSites) {
    if (text == name) return known;
  }
  return Site::unset;
}

const std::vector<FaultInfo>& catalogue() {
  static const std::vector<FaultInfo> table = make_catalogue();
  return table;
}

Rule with_defaults(Rule rule) {
  if (rule.kind < FaultKind::count_ && rule.site == Site::unset && !info(rule.kind).sites.empty())
    rule.site = info(rule.kind).sites.front();
  switch (rule.kind) {
    case FaultKind::collective_timeout:
      if (rule.mode == Mode::unset) rule.mode = Mode::never;
      break;
    case FaultKind::link_drop:
      if (rule.mode == Mode::unset) rule.mode = rule.down_ns > 0 ? Mode::transient : Mode::permanent;
      if (rule.mode == Mode::transient && rule.down_ns == 0) rule.down_ns = kSecond;
      if (rule.mode == Mode::transient && rule.up_ns == 0) rule.up_ns = 10 * kSecond;
      break;
    case FaultKind::slow_link:
      if (rule.factor == 1.0 && rule.delay_ns == 0) rule.factor = 0.5;
      break;
    case FaultKind::straggler:
    case FaultKind::slow_disk:
      if (rule.mode == Mode::unset) {
        rule.mode = rule.period_ns > 0 ? Mode::periodic : rule.ramp_ns > 0 ? Mode::ramp : Mode::constant;
      }
      if (rule.factor == 1.0)
        rule.factor = rule.mode == Mode::constant   ? (rule.kind == FaultKind::straggler ? 1.1 : 10.0)
                      : rule.mode == Mode::periodic ? 2.0
                                                    : 1.5;
      if (rule.mode == Mode::periodic && rule.period_ns == 0) rule.period_ns = 60 * kSecond;
      if (rule.mode == Mode::ramp && rule.ramp_ns == 0) rule.ramp_ns = 300 * kSecond;
      break;
    case FaultKind::rank_crash:
      if (rule.mode == Mode::unset) rule.mode = Mode::before;
      break;
    default:
      break;
  }
  return rule;
}

std::vector<Problem> problems(const Rule& given, const std::vector<int>& node_of) {
  if (given.kind >= FaultKind::count_) return {{"kind", "no such fault; `seeksim list faults` names them"}};
  const Rule rule = with_defaults(given);
  const FaultInfo& of = info(rule.kind);
  std::vector<Problem> found;
  Review review(found);
  review_places(review, rule, of, node_of);
  review_trigger(review, rule, of);
  review_numbers(review, rule, of);
  return found;
}

}  // namespace seeksim::faults
