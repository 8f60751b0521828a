// Where faults can strike a script, as its undisturbed run showed, and the draw of a fault from it.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/torch/run_record.h"
#include "sim/random.h"

namespace seeksim::harness::torch {

// What has to hold of a run that faults strike, from the strictest on.
enum class Promise : std::uint8_t {
  same_bits,  // only time differs: it ends as if nothing had been
  ends,       // each rank ends with an error, or all go on with the same bits
  goes_on     // the same, and a checkpoint is damaged: it goes on from another one, or says that it cannot
};

// One row for each fault that is drawn.
struct ExploredFault {
  enum class Where : std::uint8_t { collective, step, link, batch, save, always };
  faults::FaultKind kind;
  faults::Mode mode;  // unset: it has none
  Promise promise;
  Where where;
};
const std::vector<ExploredFault>& explored_faults();
// What has to hold under all of these rules together.
Promise promise_of(const std::vector<faults::Rule>& rules);

class Places {
 public:
  // goes_on: the script has a checkpoint to go on from, so that it is worth damaging one.
  Places(const TorchRun& undisturbed, bool goes_on);

  // The rows that find a place in this script.
  const std::vector<const ExploredFault*>& rows() const { return rows_; }
  // A fault of this row. A damaged checkpoint comes with a rank that is killed later, so that it is read.
  std::vector<faults::Rule> draw(const ExploredFault& row, sim::Random& random) const;
  // A fault that ends the script again as it goes on, in one of the first steps that it makes then; empty: none fits.
  std::vector<faults::Rule> draw_again(sim::Random& random) const;

 private:
  struct Call {
    int rank = 0;
    std::int64_t step = 0;
    runtime::OpKind op = runtime::OpKind::count_;
    runtime::Phase phase = runtime::Phase::count_;
    std::uint64_t of_kind = 0;  // which of its kind in this step and phase, from 1
    std::uint64_t of_all = 0;   // which of all kinds
  };
  struct Save {
    int rank = 0;
    std::int64_t step = 0;
  };
  bool has_place(const ExploredFault& row) const;
  static void strike(faults::Rule& rule, const Call& call);  // there
  const Call* call_after(std::int64_t step, sim::Random& random) const;

  int ranks_;
  std::int64_t steps_;
  bool goes_on_;
  std::vector<Call> calls_;
  std::vector<Save> saves_;
  std::vector<int> loading_;  // ranks that have a loader
  std::vector<const ExploredFault*> rows_;
};

}  // namespace seeksim::harness::torch
