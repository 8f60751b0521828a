// The record of one rank: a file of fixed-size entries that the rank maps and fills as things happen, so that whatever
// ends the process, SIGKILL included, the file holds all that it did. RecordWriter fills it, read_record() reads it;
// read_now() looks at its head only, while the rank runs. Whoever reads believes nothing of it: lengths, numbers and
// references are checked, and a file that breaks the format gives one error with its name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::pytorch {

inline constexpr std::uint32_t kRecordVersion = 3;
inline constexpr std::size_t kHeadBytes = 8192;
inline constexpr std::size_t kEntryBytes = 256;
inline constexpr std::size_t kGroupsWatched = 64;     // groups whose progress the head shows
inline constexpr std::size_t kMaxTextBytes = 65536;   // of one text; longer ones are cut
inline constexpr std::uint32_t kNoText = UINT32_MAX;  // a reference to no text

// What a rank did with a collective. Published: reports name them.
enum class OpName : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  send,
  recv,
  barrier,
  count_
};
enum class DType : std::uint8_t {
  none,
  fp32,
  fp64,
  fp16,
  bf16,
  fp8_e4m3,
  fp8_e5m2,
  int8,
  int16,
  int32,
  int64,
  uint8,
  boolean,
  complex64,
  complex128,
  other,  // carried as bytes, never summed
  count_
};
enum class ReduceName : std::uint8_t { none, sum, avg, product, min, max, band, bor, bxor, premul_sum, count_ };
// Where in its step a rank is, as the hooks see it.
enum class StepPhase : std::uint8_t { init, data, forward, backward, optimizer, checkpoint, count_ };
enum class CallState : std::uint8_t { created, started, finished, failed, count_ };
// What a hashed tensor was.
enum class TensorUse : std::uint8_t {
  weight,          // whole, as a forward pass used it
  gradient,        // of a parameter, as the optimizer is about to use it; `whole` says whether it is a shard
  local_gradient,  // of a parameter, before it is reduced, where a hook can see it
  state,   // of an optimizer ("head.weight.exp_avg"), as it is about to use it; only where plan.json asks for it
  buffer,  // of a module, before the first micro-batch; likewise
  left,    // a weight as the optimizer's step has left it; likewise
  count_
};
// What hooks saw of a script beside its tensors and losses. `name` and `text` of the entry say of what.
enum class SightKind : std::uint8_t {
  uses,           // name: a part of torch that switches of `seeksim torch check` turn: "ddp", "loader"
  turned,         // name: a switch of plan.json took effect
  batch,          // name: "loader 0, epoch 1", or with " shuffled"; text: "index:digest,..."; step: its number
  trains_on,      // name: "loader 0": a backward pass followed on one of its batches
  trains,         // name: a weight that requires a gradient
  old_gradient,   // name: a parameter whose gradient of an earlier step was never cleared
  left_eval,      // name: a module that is trained on in eval(), and was in train() before
  left_train,     // name: a module in train() in a forward pass without gradients
  late_clip,      // gradients were clipped when no backward pass had come since the last step
  undivided,      // every one of several micro-batches gave the loss function's own mean to backward()
  state,          // name: "rng.torch", "param_groups.0.lr"; text: its value, or a digest, as the step begins
  saved,          // name: a file of a checkpoint that is about to be written, "memory" where it is none
  lost_gradient,  // name: a parameter whose gradient was cleared between two backward passes of a step
  no_gradient,    // name: "12 weights", none of which had a gradient as a step came behind a backward pass
  count_
};
// Why a rank is named.
enum class Blame : std::uint8_t {
  did_not_join,       // alive, and never called the collective
  is_dead,            // its process is gone
  contribution_lost,  // it called the collective, and the others never saw what it gave
  disagrees,          // it means another collective than most ranks
  did_not_answer,     // the other end of a send or a receive
  backend_failed,     // its own backend, which carries the data, reported an error, or whose call never came back
  unreachable,        // on another host, from which nothing comes any more
  count_
};

std::string_view name(OpName);
std::string_view name(DType);
std::string_view name(ReduceName);
std::string_view name(StepPhase);
std::string_view name(CallState);
std::string_view name(TensorUse);
std::string_view name(SightKind);
std::string_view name(Blame);
// The inverse; count_ where there is no such name.
StepPhase step_phase(std::string_view word);
TensorUse tensor_use(std::string_view word);
SightKind sight_kind(std::string_view word);
std::size_t element_bytes(DType);  // 0 for none and other

// A measure of a tensor's values besides its hash: two tensors that are not kept can be compared by it.
// |a.probe - b.probe| / a.norm estimates their relative distance.
struct Measure {
  double norm = 0;   // square root of the sum of squares; 0 for tensors that are not floating point
  double probe = 0;  // sum of elements, each times a fixed random sign of its index
};

// Entries of a record. `text` members are references that RankRecord::text() resolves. Times are nanoseconds of
// CLOCK_MONOTONIC, which all processes of a machine share; 0: not yet.
struct GroupEntry {
  std::uint32_t name = kNoText;
  std::uint32_t ranks = kNoText;  // launch ranks in the group's order: "0,2,3"
  std::int32_t size = 0;
};
struct CallEntry {
  OpName op = OpName::all_reduce;
  ReduceName reduce = ReduceName::none;
  DType dtype = DType::none;
  StepPhase phase = StepPhase::init;
  CallState state = CallState::created;
  bool async = false;
  bool nonfinite_in = false;
  bool nonfinite_out = false;
  std::int32_t group = -1;        // index in RankRecord::groups
  std::int32_t root = -1;         // launch rank
  std::int32_t peer = -1;         // launch rank; send and recv only
  std::int32_t micro_batch = 0;   // backward passes of this step before it
  std::int32_t fault = -1;        // rule of plan.json that fired here
  std::uint32_t stack = kNoText;  // Python frames, innermost first, one "file:line function" a line
  std::uint32_t shape = kNoText;  // of all tensors: "[64,256] [64]"
  std::uint64_t seq = 0;          // in its group, from 1; 0 for send and recv
  std::int64_t step = 0;          // optimizer steps done before it
  std::int64_t numel = 0;         // that this rank gives (receives, where it gives nothing)
  std::int64_t bytes = 0;
  std::uint64_t hash_in = 0;   // of what the rank gave, faults included; 0: not hashed
  std::uint64_t hash_out = 0;  // of what it got
  Measure in, out;             // 0 unless plan.json asks for norms
  std::int64_t created_ns = 0, started_ns = 0, finished_ns = 0;
};
struct StepEntry {        // the optimizer has made its step
  std::int64_t step = 0;  // the one that has just ended, from 0
  std::int32_t micro_batches = 0;
  std::int64_t time_ns = 0;
};
struct LossEntry {  // a scalar on which backward() was called
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  DType dtype = DType::none;
  std::uint64_t bits = 0;  // of the value, widened to double
  std::int64_t time_ns = 0;
};
struct TensorEntry {
  TensorUse use = TensorUse::weight;
  StepPhase phase = StepPhase::init;
  DType dtype = DType::none;
  bool whole = true;  // false: this rank's shard
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  std::int32_t order = 0;          // n-th of its use in this micro-batch, from 0
  std::uint32_t name = kNoText;    // "blocks.0.up.weight": without the prefixes that wrappers add
  std::uint32_t module = kNoText;  // class of its module: "Linear"
  std::uint32_t shape = kNoText;   // "[256,64]"
  std::uint64_t hash = 0;
  Measure measure;
};
struct FaultEntry {         // a rule fired: written before the fault happens, so a rank that it kills has said so
  std::int32_t rule = 0;    // index in plan.json
  std::int32_t firing = 0;  // how often it has fired here, from 1
  std::int32_t call = -1;   // index in RankRecord::calls; -1: not in a collective
  std::int64_t step = 0;
  std::uint32_t text = kNoText;  // what was done: "bit 28 of element 5 flipped: 0x3c... -> 0x2c..."
  std::int64_t time_ns = 0;
};
struct VerdictEntry {  // one for each rank that this rank blames for a collective that failed
  Blame blame = Blame::did_not_join;
  OpName op = OpName::all_reduce;  // as this rank means it
  std::int32_t group = -1;
  std::int32_t rank = -1;  // launch rank of the culprit
  std::int32_t call = -1;  // index in RankRecord::calls
  std::uint64_t seq = 0;
  std::int64_t step = 0;
  std::uint32_t text = kNoText;  // the whole message that the script got
  std::int64_t waited_ns = 0;
  std::int64_t time_ns = 0;
};
struct NoteEntry {  // what was not watched, and why; once each
  std::uint32_t text = kNoText;
};
struct PhaseEntry {  // a phase of a step begins; it lasts until the next one does
  StepPhase phase = StepPhase::init;
  std::int32_t micro_batch = 0;
  std::int64_t step = 0;
  std::int64_t time_ns = 0;
};
struct SightEntry {
  SightKind kind = SightKind::uses;
  StepPhase phase = StepPhase::init;
  std::int32_t micro_batch = 0;
  std::uint32_t name = kNoText;
  std::uint32_t text = kNoText;
  std::int64_t step = 0;
};

enum class EntryKind : std::uint8_t {
  none,
  text,
  group,
  call,
  step,
  loss,
  tensor,
  fault,
  verdict,
  note,
  sight,
  phase,
  count_
};

// How far a rank has come in one group. A rank waits where joined > finished.
struct GroupProgress {
  std::int32_t group = -1;
  OpName op = OpName::all_reduce;  // of the last one that it joined
  std::uint64_t joined = 0;
  std::uint64_t finished = 0;
  std::int64_t since_ns = 0;  // when it joined the last one
};
// The head of a record: what can be read at any moment.
struct RankNow {
  std::int32_t rank = 0;     // launch rank (RANK)
  std::int32_t world = 0;    // WORLD_SIZE
  std::int32_t attempt = 0;  // restarts of the job before this one
  std::int64_t pid = 0;
  std::int64_t started_ns = 0;       // CLOCK_MONOTONIC
  std::int64_t started_unix_ns = 0;  // wall clock, for people
  std::string torch;                 // "2.15.0+cu132"
  std::string backend;               // "seeksim", or "own" where torch's stays
  bool ended = false;                // Python's exit was reached
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  StepPhase phase = StepPhase::init;
  std::uint64_t entries = 0;
  std::uint64_t left_out = 0;  // entries that no longer fitted (plan.json: record.max_mib)
  std::vector<GroupProgress> groups;
};
struct Place {  // one entry in the order of writing
  EntryKind kind = EntryKind::none;
  std::uint32_t index = 0;  // in the list of its kind
};
struct RankRecord {
  RankNow now;
  std::vector<std::string> texts;
  std::vector<GroupEntry> groups;
  std::vector<CallEntry> calls;
  std::vector<StepEntry> steps;
  std::vector<LossEntry> losses;
  std::vector<TensorEntry> tensors;
  std::vector<FaultEntry> faults;
  std::vector<VerdictEntry> verdicts;
  std::vector<NoteEntry> notes;
  std::vector<SightEntry> sights;
  std::vector<PhaseEntry> phases;
  std::vector<Place> order;  // all but texts
  // The text of a reference; empty for kNoText.
  const std::string& text(std::uint32_t reference) const;
};

// Reads a record, also one that is still being written. Throws std::runtime_error with one line: file, what is wrong.
RankRecord read_record(const std::string& path);
// Reads its head only. Throws as read_record().
RankNow read_now(const std::string& path);

// Fills a record. All functions may be called from any thread. When the file has reached its limit, or the disk is
// full, entries are counted and left out; nothing else happens to the rank.
class RecordWriter {
 public:
  struct Start {
    std::int32_t rank = 0;
    std::int32_t world = 1;
    std::int32_t attempt = 0;
    std::string torch;
    std::string backend;
    std::uint64_t max_bytes = std::uint64_t(512) << 20;
  };
  // Creates the file; it must not exist. Throws std::system_error naming it.
  RecordWriter(const std::string& path, const Start& start);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // A reference to this text; the same text gives the same one. kNoText when it no longer fits.
  std::uint32_t text(std::string_view text);
  // Each returns the entry's index among those of its kind, or -1 when it was left out.
  std::int32_t add(const GroupEntry& entry);
  std::int32_t add(const CallEntry& entry);
  std::int32_t add(const StepEntry& entry);
  std::int32_t add(const LossEntry& entry);
  std::int32_t add(const TensorEntry& entry);
  std::int32_t add(const FaultEntry& entry);
  std::int32_t add(const VerdictEntry& entry);
  std::int32_t add(const NoteEntry& entry);
  std::int32_t add(const SightEntry& entry);
  std::int32_t add(const PhaseEntry& entry);
  // Writes a call's entry again: its state, hashes and times have changed. -1 is ignored.
  void update(std::int32_t call, const CallEntry& entry);

  // The head.
  void now(std::int64_t step, std::int32_t micro_batch, StepPhase phase);
  void joined(std::int32_t group, OpName op, std::uint64_t seq);
  void finished(std::int32_t group, std::uint64_t seq);
  void ended();
  // After a fork the child holds the same file: from here on it writes nothing.
  void forget();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Nanoseconds of CLOCK_MONOTONIC.
std::int64_t monotonic_ns();

}  // namespace seeksim::pytorch
