// What a run did, as plain values: filled by a Collector while the run goes on, or by hand in tests. Checks and
// reports see this and nothing else, so that they can be tried without running anything.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "faults/plan.h"
#include "harness/record/choices.h"
#include "harness/record/commits.h"
#include "harness/record/ledger.h"
#include "runtime/detect/analyser.h"
#include "runtime/detect/observer.h"
#include "runtime/launch/numeric_audit.h"
#include "runtime/recovery/train.h"
#include "sim/world.h"

namespace seeksim::harness {

using runtime::TimeNs;

// How one rank ended.
struct RankRecord {
  enum class How : std::uint8_t { running, finished, evicted, stopped, died, threw, spare } how = How::running;
  std::string why;
  std::int64_t steps_committed = 0;
  runtime::StateDigest state;  // of a rank that finished
  runtime::Layout layout;      // the last one
};
const char* name(RankRecord::How how);

// One recovery, put together from the reports of all ranks.
struct Recovery {
  std::uint32_t epoch = 0;
  std::int64_t step = 0;
  int first_rank = -1;  // the rank that noticed first
  runtime::ErrorKind error = runtime::ErrorKind::count_;
  runtime::Op op;  // in which it noticed
  runtime::Diagnosis diagnosis;
  std::vector<int> evicted;
  std::vector<int> survivors;
  TimeNs detected_ns = -1;  // first rank
  TimeNs agreed_ns = -1;    // last rank, as the two below
  TimeNs rebuilt_ns = -1;
  TimeNs resumed_ns = -1;  // -1: never
  std::int64_t steps_lost = 0;
  std::vector<int> of_another_mind;  // ranks whose diagnosis named others
  std::string layout;                // what the memory ladder changed; empty: it was not asked
  std::string memory;                // what was in use when the first rank was out of it
  int out_of_memory = -1;            // that rank
  // What the flight recorders of that moment tell; its diagnosis is the one above.
  std::optional<runtime::Analysis> analysis;
};

// A step in which a rank reported other numbers than the first rank to commit it.
struct Disagreement {
  std::int64_t step = 0;
  int rank = 0;
  runtime::StepRecord seen;
  runtime::StepRecord first;
};

// Where replicas were first seen to differ.
struct ReplicaDifference {
  std::int64_t step = 0;
  int rank = 0;
  int other = 0;
  std::string what;
};

// A rank's shards in one epoch, as it reported them.
struct TrueShards {
  int rank = 0;
  runtime::ShardRecord told;
};

// The samples of the data set that a step used, by their places in its batch; -1: nobody told.
struct UsedSamples {
  std::uint32_t epoch = 0;  // of the world that made the step
  std::vector<std::int64_t> rows;
};

struct Event {
  TimeNs at_ns = 0;
  int rank = -1;
  std::string text;
};

// The first value that was not finite in a step, as one rank saw it.
struct Birth {
  int rank = -1;
  std::int64_t step = 0;
  runtime::NonFiniteBirth birth;
};

// What the operations of one rank wrote in the step that is logged.
struct RangeLog {
  int rank = -1;
  std::int64_t step = 0;
  std::vector<runtime::RangeLogEntry> entries;
  std::uint64_t left_out = 0;  // more of them, that the rank did not keep
};

// What a rank reported about running each micro-batch of a step twice.
struct Rerun {
  int rank = -1;
  runtime::RerunRecord told;
};

// The job, from one start of its processes to their end.
struct Attempt {
  TimeNs began_ns = 0;
  TimeNs ended_ns = -1;
  std::string why;              // it ended before the last step; empty: it did not
  std::int64_t first_step = 0;  // with which it went on
  std::int64_t steps_lost = 0;  // that attempts before had made, and this one made again
};

// A checkpoint, put together from the reports of all ranks; or what an inspection after the run found.
struct Checkpoint {
  std::int64_t step = 0;
  bool complete = false;
  std::string why;          // it was given up
  TimeNs began_ns = -1;     // first rank
  TimeNs blocked_ns = 0;    // how long training waited, on the rank that waited longest
  TimeNs ended_ns = -1;     // last rank
  std::uint64_t bytes = 0;  // of all ranks
};
struct FoundCheckpoint {
  std::int64_t step = 0;
  std::string problem;  // empty: it is whole
};

// One firing of a fault rule, in the order of the run.
struct FaultDecision {
  static constexpr std::size_t kKept = 1000;
  std::size_t rule = 0;
  TimeNs at_ns = 0;
  int rank = -1;
  std::string op;                                  // in words; empty: at a time
  runtime::OpKind kind = runtime::OpKind::count_;  // of that Op
  runtime::Phase phase = runtime::Phase::count_;
};

// Straggler scores of one rank: 1 is the best.
struct ScoreRecord {
  std::int64_t steps = 0;
  double sum = 0;
  double least = 1;
  double mean() const { return steps > 0 ? sum / double(steps) : 1; }
};

// Fast arithmetic, compared with the contract in this run.
struct FastAudit {
  runtime::AuditReport report;
  std::uint64_t products_through_host = 0;  // that no library of the device computed
};

// What became of a fault of the user's (harness/loading/extensions.h).
struct OwnFaultStatus {
  std::string name;
  std::uint64_t fired = 0;
};

struct RunRecord {
  // ---- how it ended: what every reader asks for first
  bool has_values = true;  // false: a run of shapes, without losses, norms and digests
  // false: it is unknown whether ranks bring the same operation. NCCL's messages do not say.
  bool compares_collectives = true;
  sim::WorldEnd end = sim::WorldEnd::finished;
  TimeNs virtual_ns = 0;  // of training: what is gathered after the last step, to be looked at, is no part of it
  TimeNs ended_ns = 0;    // with that
  double wall_s = 0;
  std::uint64_t fingerprint = 0;
  std::string wait_for_graph;
  // Filled by a run of shapes in a steady world.
  struct Alike {
    int classes = 0;            // of ranks that stand for each other; 0: none do
    std::size_t simulated = 0;  // ranks that were run
    std::string why_not;
    std::vector<std::uint64_t> courses;  // by rank: a hash over what it did when, its peaks and its traffic
    std::uint64_t digest() const;        // of all courses
  };
  std::optional<Alike> alike;
  std::vector<RankRecord> ranks;
  std::vector<runtime::StepRecord> steps;  // committed, in order; as the first rank to commit reported it
  std::vector<Event> events;               // from the world and the fault plan, in order
  std::vector<faults::RuleStatus> faults;
  std::vector<OwnFaultStatus> own_faults;      // in the scenario's order
  std::vector<FaultDecision> fault_decisions;  // the first kKept

  // Steps beyond their numbers: what was reported twice, undone, kept on disks or asked for.
  struct Training {
    std::uint64_t step_comparisons = 0;              // how often two ranks' reports of a step were compared
    std::vector<Disagreement> disagreements;         // the first few
    Commits::Findings history;                       // whether each step was committed once, by all, alike
    std::vector<Attempt> attempts;                   // one, unless the job was started again
    std::vector<Checkpoint> checkpoints;             // that were begun, in order; each time
    std::vector<FoundCheckpoint> found_checkpoints;  // on the disks after the run, newest first
    std::int64_t undone_steps = 0;  // committed, and undone by going back to a checkpoint; not in `steps`
    std::int64_t resumed_from = 0;  // steps of an earlier run of the program, of which nothing is known here
    std::vector<runtime::NamedTensor> final_weights;
    std::vector<runtime::NamedTensor> gradients;  // of the step that was asked for
    // By step: a digest of the reduced, unscaled, unclipped gradients, from whole tensors and so blind to layouts.
    // Empty unless a check wants them.
    std::vector<std::uint64_t> gradient_digests;
    std::string gradients_disagree;  // the first step in which a rank had others: "step 2: rank 3"
    // Losses of held-out samples, by steps; as the first rank to have one told it.
    std::vector<runtime::EvaluationRecord> evaluations;
    std::vector<UsedSamples> samples;  // by step, where the data are a set of samples
    std::string samples_disagree;      // the first place that two ranks filled with different samples
    Choices choices;                   // of experts, where an alarm asks for them
    std::string evaluations_disagree;  // the first that was another one on another rank, or when it was made again
  } training;

  // What ranks found wrong, and what they did about it.
  struct Detection {
    Ledger ledger;                                       // of failures, and when they were over
    std::vector<Recovery> recoveries;                    // by epoch
    std::vector<runtime::JoinRecord> joins;              // by epoch
    std::vector<runtime::StragglerRecord> stragglers;    // each once an epoch at most
    std::map<int, ScoreRecord> scores;                   // by rank, where stragglers are looked for
    std::vector<runtime::DivergenceRecord> divergences;  // in order
    // Flight recorders of all ranks at the last failure, or where nothing failed at the end.
    std::vector<runtime::FlightDump> dumps;
    std::optional<runtime::Analysis> at_the_end;  // of a run that ended without an agreement, or of one that is slow
  } detection;

  // The most bytes in use on any rank, of its device and of its host.
  struct Memory {
    std::vector<std::size_t> peak_by_tag;
    std::size_t peak = 0;
    std::vector<std::size_t> at_peak;           // by tag, on the rank that needed most, when it did
    std::vector<std::size_t> host_peak_by_tag;  // pageable and pinned
    std::size_t host_peak = 0;
    std::size_t pinned_peak = 0;
  } memory;

  // What went over links, between host and device and to files, and what of it was hidden.
  struct Traffic {
    std::vector<sim::CommUse> comm;                 // indexed by OpKind
    sim::CommOverlap overlap;                       // over all ranks
    std::vector<sim::StepPasses> passes;            // of the first steps
    std::vector<runtime::PipelineRecord> pipeline;  // by rank, of the last world; empty: there is none
    sim::CommOverlap copies;                        // between host and device, over all ranks
    sim::FileUse files;                             // over all ranks
  } traffic;

  // Whether ranks do and hold the same.
  struct Agreement {
    std::uint64_t collectives_compared = 0;
    std::vector<std::string> mismatches;  // of collectives: the first few
    std::uint64_t replica_comparisons = 0;
    std::vector<ReplicaDifference> replica_differences;  // the first few
    std::vector<TrueShards> shards;
    struct Workers {
      std::int64_t meetings = 0, apart = 0;  // workers seen after outer steps, and between them
      std::string wrong;                     // the first that should not be
    } workers;                               // that train apart, over all ranks and committed steps
    std::vector<runtime::LateRecord> late;   // of each worker whose gradients come late, in each applied step
  } agreement;

  struct Races {
    bool watched = false;          // the race detector was on
    std::vector<sim::Race> found;  // what it found
    std::uint64_t accesses = 0;    // what it looked at
  } races;

  // Values that should not be, and what was recorded of values.
  struct Numbers {
    std::uint64_t poison_looks = 0;   // values of results that were searched for poison
    std::vector<std::string> poison;  // where it was found, sources first
    // Declared reads of what nothing had written, wherever the race detector was on, and how many reads it looked at.
    std::vector<sim::UnwrittenRead> unwritten;
    std::uint64_t reads = 0;
    std::vector<Birth> births;  // the first kBirthsKept
    std::vector<RangeLog> ranges;
    std::int64_t rerun_micro_batches = 0;  // that were run twice, over all ranks and attempts
    std::int64_t rerun_ranges = 0;         // of gradients, compared
    std::vector<Rerun> reruns;             // the first kRerunsKept that found something
    struct Compressed {
      std::int64_t elements = 0, unconserved = 0, bytes = 0;
      int rank = -1;  // where the first one was not conserved, and when
      std::int64_t step = -1;
    } compressed;                                 // gradients, over all ranks and committed steps
    std::vector<kernels::Stagnation> stagnation;  // by step, over all ranks that report it; empty with fp32 masters
    std::optional<FastAudit> audit;               // of a run that was asked for one
  } numbers;

  struct Schedule {
    std::uint64_t decisions = 0;          // unless it is `seeded`
    std::vector<sim::Deviation> choices;  // as deviations from `first`
  } schedule;

  // The digest of the first rank that finished; empty when none did, and in a run of shapes.
  std::optional<runtime::StateDigest> state() const;
  // Entries of the range log that ranks did not keep.
  std::uint64_t ranges_left_out() const;
  // The last one of the first rank that finished, else of rank 0.
  runtime::Layout layout() const;
};

}  // namespace seeksim::harness
