// The tagged run: the same scenario once more, in which each sample's gradient of each element is a small integer that
// names them both (runtime/model/edited_gradients.h). The reduced gradient of every rank must be the sum over all
// samples of the step, each once and with the same weight, whatever stage, cut, accumulation, faults and recovery did
// on the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/scenario/scenario.h"
#include "runtime/detect/observer.h"
#include "runtime/layout/parameters.h"

namespace seeksim::harness {

struct Conservation {
  std::int64_t steps = 0;
  std::uint64_t elements = 0;  // compared
  std::string wrong;           // the first element that is not the sum; empty: none
};

// Holds what ranks hand out in a tagged run against the formula.
class TagJudge {
 public:
  explicit TagJudge(const runtime::TrainPlan& plan);
  void look(int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients);
  const Conservation& result() const { return result_; }

 private:
  void expect(std::int64_t step);
  std::string explain(const std::string& name, std::size_t at, float got) const;

  const runtime::TrainPlan& plan_;
  runtime::Parameters parameters_;
  float at_root_;
  std::int64_t expected_step_ = -1;
  std::vector<runtime::NamedTensor> expected_;
  Conservation result_;
};

// The scenario's tagged run: as many of its steps as its faults need, two at least where there are so many.
Scenario tagged(const Scenario& scenario);

}  // namespace seeksim::harness
