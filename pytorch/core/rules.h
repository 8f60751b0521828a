// Faults in a user's own job: the catalogue's rules, fired by the catalogue's own trigger (faults/trigger.h) as this
// rank comes to its collectives, its modules, its loaders and its files, and what they do to the numbers of a tensor.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "faults/plan.h"
#include "pytorch/core/record.h"

namespace seeksim::pytorch {

// A key of a rule with its value, as JSON has it.
using RuleValue = std::variant<bool, std::int64_t, double, std::string>;
using RuleKeys = std::vector<std::pair<std::string, RuleValue>>;

// The rule that these keys write. Throws std::invalid_argument with one line: an unknown key or word, a value of
// another type, a kind or site that does not apply to a script of one's own.
faults::Rule rule_of(const RuleKeys& keys);
// Why a rule cannot act on a script of one's own; empty where it can.
std::string does_not_apply(const faults::Rule& rule);
// What is wrong with a rule by the catalogue, in a script of so many ranks. A script's loader has modes of its own
// (data_error: skip, dup_apply), which the catalogue does not know.
std::vector<faults::Problem> problems_of(const faults::Rule& rule, int ranks);

// What the catalogue, and so a rule's `op` and `phase`, calls these.
runtime::OpKind catalogue_op(OpName op);
runtime::Phase catalogue_phase(StepPhase phase);

// What a rank does as rules are asked. The first ones after collective are named as the catalogue's sites.
enum class Act : std::uint8_t {
  collective,
  activation,           // a module has given this output
  activation_gradient,  // backward has come to a module's output
  loss,                 // backward() is about to be called on it
  parameter,            // a module is about to read it
  gradient,             // a parameter's own, before it is added up or reduced
  reduced_gradient,     // a parameter's, as the optimizer is about to use it
  optimizer_state,      // as the optimizer is about to use it
  batch,                // the script asks a loader for its next batch
  save,                 // a file of a checkpoint is written
  allocation,           // a module is about to need memory: as it begins, or as backward comes to its output
  work,                 // a phase of a step has ended
  step,                 // a step begins
  library_call,         // the communication library itself is called: NCCL, through pytorch/preload
  count_
};
std::string_view name(Act);
Act act(std::string_view word);  // count_ where there is no such name

// Where a rank is as rules are asked.
struct Situation {
  Act act = Act::collective;
  OpName op = OpName::all_reduce;
  StepPhase phase = StepPhase::init;
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  std::int32_t peer = -1;       // launch rank; send and recv
  bool sums = false;            // it reduces floating-point numbers: what rules about gradients mean
  std::string name = {};        // of the module, the parameter, its state ("head.weight.exp_avg"), or the file
  std::vector<int> ranks = {};  // launch ranks of a collective's group
  std::int64_t bytes = 0;       // that the rank gives to a collective
  std::int64_t worked_ns = 0;   // processor time of the phase that has ended
  std::int64_t now_ns = 0;      // CLOCK_MONOTONIC
};

// A link of 100 Gbit/s is what slow_link takes its share of.
inline constexpr double kLinkBytesPerSecond = 12.5e9;

class Rules {
 public:
  // ranks: of the job. fired: how often each rule fired here before a launcher restarted the job; empty: never.
  // attempt: starts of the job before this one. Throws std::invalid_argument with one line where a rule is impossible.
  Rules(std::vector<faults::Rule> rules, std::uint64_t seed, int rank, int ranks,
        const std::vector<std::uint64_t>& fired = {}, int attempt = 0);
  ~Rules();

  struct Hit {
    std::int32_t index = 0;   // of the rule
    std::int32_t firing = 0;  // from 1
    const faults::Rule* rule = nullptr;
    bool begins = true;         // false: a slowness that began at an earlier act and lasts
    std::int64_t delay_ns = 0;  // straggler, slow_link: how much longer this act takes
  };
  // The rules that fire here, in order. Counts the match: to be called once for each act, from any thread.
  std::vector<Hit> at(const Situation& situation);
  // The acts at which a rule of this rank could fire.
  std::vector<Act> acts() const;
  // Rules of this rank that are conditions and not events (clock_skew). Fires them: to be called once.
  std::vector<Hit> conditions();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a call of the communication library does, by the rules that fire there: 0 goes on, above 0 is NCCL's result,
// below 0 never returns.
int result_of(const std::vector<Rules::Hit>& hits);

// Changes numbers in place as the rule says (bit_flip, nan_inject, inf_inject, overflow, zero_tile; the element counts
// modulo `numel`). Returns what was done, in one line; empty where the type has no such value.
std::string strike(const faults::Rule& rule, DType type, std::byte* data, std::int64_t numel);

}  // namespace seeksim::pytorch
