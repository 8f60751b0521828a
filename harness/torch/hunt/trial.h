// One case, run: the training by hand, the same training in its wrapper, and how near the two are.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "harness/torch/cases/features.h"
#include "harness/torch/check/warm.h"
#include "harness/torch/compare.h"
#include "harness/torch/run.h"

namespace seeksim::harness::torch {

enum class TrialEnd : std::uint8_t {
  same,     // the same bits
  near,     // farther away, and no farther than is expected
  refused,  // the framework ended it with an error of its own
  red,      // farther away, another judge is red, or nothing was recorded
  stopped,  // the command was asked to stop
  count_
};
std::string_view name(TrialEnd end);

struct TrialVerdict {
  TrialEnd end = TrialEnd::red;
  Rule expected;
  std::string check;  // red: "compare", a judge, "by_hand" where the training by hand failed
  std::string text;   // red: what was found; refused: the framework's own words; near: what shows that it is rounding
  std::string where;  // red: parameter or operation, without the step
  std::optional<RunComparison> found;
};

// a: by hand, where each rank has the whole model. In an expert layer a rank has its own experts, and by hand those of
// the others are called `elsewhere`. Of a pipeline it has its stages, of which several micro-batches may begin before
// the first one ends: each value has to be on some rank.
void leave_out_what_other_ranks_have(const Case& drawn, RunComparison& found);

class Trials {
 public:
  // imports: modules that the process imports which starts the ranks, besides torch. Builds the backend; throws
  // BadInput.
  Trials(const std::string& python, std::vector<std::string> imports);

  // Starts the process that imports torch once.
  void warm_up();
  // Runs the case in this folder, which gets case.py, plain/ and the wrapper's run.
  TrialVerdict run(const Case& drawn, const std::string& folder);

  // Trainings by hand are run again from now on, so that a folder holds what its case ran.
  void forget() { known_.clear(); }

  const std::string& torch() const { return start_.built.torch; }
  int runs() const { return runs_; }
  // Of the process that starts ranks, and of those that have ended; 0 once it was ended, and counts as any other.
  double processor_s() const { return warm_ ? warm_->processor_s() : 0; }
  // Ends the process that starts ranks.
  void end() { warm_.reset(); }

 private:
  struct Ran {
    std::optional<TorchRun> run;
    std::string failed;  // why there is none
  };
  // The training by hand of some case, and what moves it.
  struct ByHand {
    std::string key;
    Ran ran;
    std::optional<Allowance> reassociated, rounding;
  };
  // How a run differs from what its case says.
  struct Way {
    pytorch::SumOrder sums = pytorch::SumOrder::canonical;
    std::vector<std::string> turns;
    bool whole = false;  // weights that are spread over ranks are gathered
  };
  // Runs the case; where it is resumed by another number of ranks, both runs, of which the last one that ran counts.
  Ran start(const Case& drawn, const std::string& folder, const std::string& name, bool plain, const Way& way);
  Ran start_one(int ranks, const std::vector<std::string>& command, const std::string& out, const Way& way);
  ByHand& by_hand(const Case& drawn, const std::string& folder);
  const Allowance* allowance(const Case& drawn, const std::string& folder, ByHand& plain);
  const Allowance* rounding(const Case& drawn, const std::string& folder, ByHand& plain);
  // Runs a red case in float64, by hand and in its wrapper: near, where that shows that it is rounding.
  void look_in_float64(const Case& drawn, const std::string& folder, TrialVerdict& verdict);
  void hold(const Case& drawn, const std::string& folder, ByHand& plain, const TorchRun& run, TrialVerdict& verdict);

  std::vector<std::string> imports_;
  Start start_;
  std::optional<WarmStart> warm_;
  std::deque<ByHand> known_;  // the latest ones
  int runs_ = 0;
};

// The verdict on a run in a wrapper as far as it needs no comparison; none: it is to be compared.
std::optional<TrialVerdict> verdict_of_run(const TorchRun& plain, const TorchRun& run);
// The verdict on a comparison, whose grade is the measured one. Both runs have to have recorded the same.
void judge_distance(TrialVerdict& verdict);
// Whether what is red in fp32 is rounding: float64 has 2^29 places where fp32 has one, and a mistake stays as large as
// it was.
bool shrinks_as_rounding(const RunComparison& in_fp32, const RunComparison& in_float64);

}  // namespace seeksim::harness::torch
