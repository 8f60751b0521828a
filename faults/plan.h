// FaultPlan: an ordered list of rules Op -> Verdict. A rule says when (Trigger), what (kind and its numbers) and how
// often (count, over epochs and retries). Plans are data: serialisable, counted, deletable one by one; removing one
// changes nothing else, because each rule draws from a random stream of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/seams/seams.h"

namespace seeksim::faults {

using runtime::TimeNs;

// One value for each row of faults.inl.
enum class FaultKind : std::uint8_t {
#define SEEKSIM_FAULT(name, ...) name,
#include "faults/faults.inl"
#undef SEEKSIM_FAULT
  count_
};
std::string_view name(FaultKind kind);
FaultKind fault_kind(std::string_view name);  // count_ when unknown

// Where a fault of values strikes: which memory, at which point of a step.
enum class Site : std::uint8_t {
  unset,
  activation,           // what an operation of forward wrote
  activation_gradient,  // what an operation of backward wrote
  loss,                 // the samples' losses
  parameter,            // before an operation of forward reads it; the damage stays
  gradient,             // one micro-batch's, before any reduction
  reduced_gradient,     // after the reduction, before it is measured
  optimizer_state,      // moments, before they are used
  message,              // bit_flip only: on its way, without a checksum
  count_
};
std::string_view name(Site site);
Site site(std::string_view name);  // unset when unknown

// All that is given must match. Exact triggers and seeded random ones (probability).
struct Trigger {
  std::optional<int> rank;  // the acting rank (for pieces: the sender)
  std::optional<int> node;  // any rank that acts on this machine
  std::optional<int> peer;  // the other side of a piece
  std::optional<std::int64_t> step;
  std::optional<int> micro_batch;
  std::optional<int> attempt;          // scripts of one's own: 0 the first start of a job, 1 the first start again
  std::optional<std::int64_t> sample;  // any rank that loads it; its number in the run's data order
  std::optional<int> layer;
  std::string tensor;  // what the Op is about, e.g. "h.0.mlp.c_fc.weight"; empty: anything
  std::optional<runtime::OpKind> op;
  std::optional<runtime::Phase> phase;
  std::optional<std::uint64_t> call;  // from the n-th Op (1-based) of a rank that matches everything else
  std::optional<TimeNs> at_ns;        // not before this virtual time
  double probability = 1.0;           // drawn from the rule's own stream at each match
};

enum class Mode : std::uint8_t {
  unset,
  never,
  late,
  transient,
  permanent,
  constant,
  periodic,
  ramp,
  before,
  during,
  after,
  op,             // collective_mismatch: another kind of operation
  count,          //   half the elements
  dtype,          //   another type
  swap_order,     //   this one and the next in the other order
  skip,           //   not at all
  count0,         //   no elements
  wrong_nranks,   // init_failure: one member too few
  dup_rank,       //   it takes another one's place
  truncate,       // checkpoint_corrupt: the second half is missing
  flip,           //   a bit flips
  missing,        //   it is gone
  delayed_apply,  // stale_gradient: those of an earlier step
  dup_apply,      //   twice
  drop,           //   none
  count_
};
std::string_view name(Mode mode);
Mode mode(std::string_view name);  // unset when unknown

// What a rule says of a link, and of messages on it: one link (from, to), launch ranks or, with `nodes`, node numbers.
struct LinkRule {
  std::optional<int> from;
  std::optional<int> to;
  bool nodes = false;
  bool both_directions = true;
  TimeNs down_ns = 0;  // transient link_drop: how long a cut lasts
  TimeNs up_ns = 0;    //   and how long until the next
  int cycles = 1;
  double loss = 1.0;                    // link_drop: the share of its messages that are lost
  std::vector<std::vector<int>> sides;  // partition: two lists of ranks
  std::optional<int> store_side;        //   the side that reaches the control plane; unset: it is split too
};

// What a rule says of a pace or a clock.
struct PaceRule {
  double factor = 1.0;   // straggler: how many times slower; slow_link: share of the bandwidth left
  TimeNs period_ns = 0;  // periodic straggler
  double duty = 0.1;
  TimeNs ramp_ns = 0;    // ramping straggler: time from 1.0 to factor
  TimeNs cool_ns = 0;    //   and back again, over and over; 0: it stays slow
  TimeNs offset_ns = 0;  // clock_skew: what the clock shows too much
  double drift_ppm = 0;  //   how much too fast it runs
};

// What a rule says of numbers.
struct ValueRule {
  Site site = Site::unset;
  std::uint64_t element = 0;  // of the tensor or the part of it that the operation touches, modulo its size
  int elements = 256;         // zero_tile: how many
  double value = 65520;       // overflow: the least that rounds to infinity in fp16
  bool negative = false;      // inf_inject, overflow
  std::uint64_t bit = 0;      // message_corrupt: which bit, modulo the payload; bit_flip: of the number
  bool checksum = true;       // message_corrupt: the receiver notices
  std::int32_t token = 0;     // loss_spike: every target of the micro-batch; token_imbalance: every token
  int staleness = 1;          // stale_gradient: how many steps old
};

// What a rule says of a process, its machine or its device that ends.
struct EndRule {
  TimeNs returns_ns = 0;           // rank_crash: its process starts again so long after; 0: never
  std::string signal;              //   "kill", "segv", "abrt" or "exit:N": how its process ends; empty: kill
  bool lose_local_storage = true;  // node_crash: the machine's own disk is lost too
  int code = 214;                  // device_error: CUDA's number of it
  bool sticky = true;              //   the context is gone; false: one launch failed
  TimeNs notice_ns = 0;            // preemption_notice: from the notice to the end
  double cancelled = 0;            //   the chance that it is called off halfway
};

struct Rule : LinkRule, PaceRule, ValueRule, EndRule {
  FaultKind kind = FaultKind::count_;
  Trigger when;
  int count = 1;            // how many times it fires; 0: without limit
  Mode mode = Mode::unset;  // see docs/reference/faults.md; unset: its default
  TimeNs delay_ns = 0;      // late joiner; extra latency of a slow link
  std::string tag;          // oom: what the memory is for (MemoryTag); empty: anything
  std::uint64_t bytes = 0;  // oom: what the device may hold; 0: no budget, the allocation itself fails
  std::string path;         // faults of files: a part of the file's path; empty: any file
};

// How the process of a rank_crash ends: by a signal, or with an exit status as if all were well.
enum class ProcessEnd : std::uint8_t { kill, segv, abrt, exit };
struct ProcessEnding {
  ProcessEnd how = ProcessEnd::kill;
  int status = 0;  // of exit
};
// Rule::signal as it is written; empty when there is no such end.
std::optional<ProcessEnding> process_ending(std::string_view signal);

// What became of a rule. `fired` counts firings; a rule that never fired makes a run red.
inline constexpr std::size_t kFiringsKept = 1000;
// Operations of one kind that a rule looked at before it fired.
struct Met {
  runtime::OpKind kind = runtime::OpKind::count_;
  runtime::Phase phase = runtime::Phase::count_;
  std::uint64_t times = 0;
};
inline constexpr std::size_t kMetKept = 8;
struct RuleStatus {
  FaultKind kind = FaultKind::count_;
  std::string text;  // the rule in one line, as scenario files write it
  std::uint64_t fired = 0;
  TimeNs first_fired_ns = -1;
  std::vector<TimeNs> fired_ns;  // each firing in order, the first kFiringsKept of them
  std::vector<int> ranks;        // whom it hit, ascending
  std::optional<runtime::Op> first_op;
  // Before it fired: what its ranks did in its step (in any, where it names none), the first kMetKept kinds; the last
  // step that they came to; and operations that fitted but for `call` or the draw.
  std::vector<Met> met;
  std::int64_t last_step = -1;
  std::uint64_t matched = 0;
};
// What a rule met that never fired, as a clause: "in step 7 of rank 5 it met all_reduce in grad_reduce (2), ...".
std::string met_text(const Rule& rule, const RuleStatus& status);

class FaultPlan {
 public:
  // seed: the world's; each rule derives its stream from (seed, its number). node_of: launch rank -> node.
  FaultPlan(std::vector<Rule> rules, std::uint64_t seed, std::vector<int> node_of);
  FaultPlan(const FaultPlan&) = delete;
  FaultPlan& operator=(const FaultPlan&) = delete;
  ~FaultPlan();

  // Wraps the seams of one rank; the wrappers live as long as the plan. Inert where no rule can match.
  runtime::Seams decorate(int rank, runtime::Seams inner);

  // Rules that act at a time instead of at an Op (a crash `at_ns` without an op): the world kills these ranks.
  struct TimedCrash {
    int rank = -1;
    TimeNs at_ns = 0;
    std::size_t rule = 0;
    bool lose_files = false;  // of its machine's own disk
  };
  std::vector<TimedCrash> timed_crashes() const;
  // Between these times these ranks and the control plane do not hear of each other.
  struct ControlOutage {
    std::vector<int> ranks;
    TimeNs from_ns = 0;
    TimeNs until_ns = runtime::kForever;
    bool all = false;         // the control plane itself is down, and its own clocks with it
    std::vector<int> others;  // not empty: the control plane is split; these or `ranks` have no quorum
    std::size_t rule = 0;
  };
  std::vector<ControlOutage> control_outages() const;
  void fired(std::size_t rule, TimeNs now, int rank);  // the world reports that it did

  // Kills the other processes of a machine, when one of them comes to the operation at which all die.
  using Killer = std::function<void(int rank, bool lose_files)>;
  void kills_through(Killer killer);

  std::vector<RuleStatus> status() const;

  // Called at each firing, for the story: rule number (0-based), when, who, and the Op (null for a timed crash).
  using Listener = std::function<void(std::size_t rule, TimeNs now, int rank, const runtime::Op* op)>;
  void on_fired(Listener listener);

  // Called with every Op on its way into which a host could be struck, as each rank comes to it: the places that an
  // enumeration of faults runs over. To be set before decorate(), which then wraps every rank.
  using Watcher = std::function<void(const runtime::Op& op, TimeNs now)>;
  void watch(Watcher watcher);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The rule in one line of JSON, as scenario files write it; what has its default is left out.
std::string text(const Rule& rule);
// The rule with every unset parameter at its kind's default (catalogue: `defaults`).
Rule with_defaults(Rule rule);

// What makes a rule impossible, beyond the types of its values: empty when it is fine. `key` is the scenario's key, so
// that the loader can name the line; FaultPlan refuses rules that have any.
struct Problem {
  std::string key;
  std::string what;
};
std::vector<Problem> problems(const Rule& rule, const std::vector<int>& node_of);

// What `seeksim list faults` prints: one entry a kind, from the same table that loading and matching use.
struct FaultInfo {
  FaultKind kind;
  std::string_view name;  // as scenarios write it
  std::string_view rows;  // "F01, F30": of the table in docs/faults.md
  std::string_view summary;
  std::string_view sees;                     // what a rank sees
  std::string_view recovery;                 // what recovery must hold
  std::string_view defaults;                 // of the parameters, in one line
  std::string_view field;                    // how often the field sees it
  std::vector<std::string_view> parameters;  // keys of a rule that mean something for this kind
  std::vector<Mode> modes = {};              // the first is the default where nothing else decides; empty: no modes
  std::vector<Site> sites = {};              // the first is the default; empty: it has no site
};
const std::vector<FaultInfo>& catalogue();

}  // namespace seeksim::faults
