// Published peaks of a GPU's memory (bench/published/memory.csv), and how far step_memory is from each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/calibration/measurements.h"
#include "harness/calibration/step_memory.h"

namespace seeksim::harness::calibration {

struct MemoryMeasurement {
  // allocated, reserved: torch's counters of that name. used: what nvidia-smi says. fits: whether it ran, or was out of
  // memory.
  enum class What { allocated, reserved, used, fits };

  std::string id, series, source;
  What what = What::allocated;
  double bytes = 0;   // measured; of fits, the GPU's memory
  bool fits = false;  // where that is what was measured
  ModelShape model;
  StepLayout layout;
  Stack stack = Stack::plain;
  std::vector<Stage> stages;  // the largest of these was measured; empty: of all
  Kept kept = Kept::fitted;
};

// The table as text; `file` names it in messages. Throws BadInput with all problems.
std::vector<MemoryMeasurement> read_memory(const std::string& csv, const std::string& file);
// That of the checkout or of the installed program.
std::vector<MemoryMeasurement> published_memory();

// What was measured, predicted: bytes that are allocated or reserved; of fits, all that a GPU has to have.
double predicted_bytes(const MemoryMeasurement& one, const Constants& constants,
                       MemoryMistake mistake = MemoryMistake::none);
bool predicted_fit(const MemoryMeasurement& one, const Constants& constants,
                   MemoryMistake mistake = MemoryMistake::none);

using PredictBytes = std::function<double(const MemoryMeasurement&)>;
// Of rows that are no fits.
Errors errors(const std::vector<const MemoryMeasurement*>& rows, const PredictBytes& predict);

// How often a prediction that it fits, or that it does not, came true.
struct Fits {
  int ran = 0, ran_predicted = 0, out_of_memory = 0, out_of_memory_predicted = 0;
  double right() const { return double(ran_predicted + out_of_memory_predicted) / (ran + out_of_memory); }
};
Fits fits(const std::vector<const MemoryMeasurement*>& rows, const Constants& constants,
          MemoryMistake mistake = MemoryMistake::none);

}  // namespace seeksim::harness::calibration
