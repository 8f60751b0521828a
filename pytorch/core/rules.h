// Faults in a user's own job: the catalogue's rules, fired by the catalogue's own trigger (faults/trigger.h) as this
// rank comes to its collectives, and what they do to the numbers of a tensor.
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
// Why a rule cannot act on a script of one's own; empty where it can. For the command, before it starts anything.
std::string does_not_apply(const faults::Rule& rule);

// Where a rank is as it comes to a collective.
struct Situation {
  OpName op = OpName::all_reduce;
  StepPhase phase = StepPhase::init;
  std::int64_t step = 0;
  std::int32_t micro_batch = 0;
  std::int32_t peer = -1;  // launch rank; send and recv
  bool sums = false;       // it reduces floating-point numbers: what rules about gradients mean
};

class Rules {
 public:
  // ranks: of the job. Throws std::invalid_argument with one line where a rule is impossible.
  Rules(std::vector<faults::Rule> rules, std::uint64_t seed, int rank, int ranks);
  ~Rules();

  struct Hit {
    std::int32_t index = 0;   // of the rule
    std::int32_t firing = 0;  // from 1
    const faults::Rule* rule = nullptr;
  };
  // The rules that fire here, in order. Counts the match: to be called once for each collective, from any thread.
  std::vector<Hit> at(const Situation& situation);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Changes numbers in place as the rule says (bit_flip, nan_inject, inf_inject, overflow, zero_tile; the element counts
// modulo `numel`). Returns what was done, in one line; empty where the type has no such value.
std::string strike(const faults::Rule& rule, DType type, std::byte* data, std::int64_t numel);

}  // namespace seeksim::pytorch
