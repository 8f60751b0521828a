// seeksim plan, the part that predicts: dry runs of a configuration and of lighter and lighter ones (runs of shapes,
// from the same ledger as every run), until one fits into the memory of a device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "harness/search/deepspeed_ledger.h"

namespace seeksim::harness {

// What two steps without values tell of a configuration.
struct DryRun {
  std::size_t peak_bytes = 0;        // of the rank that needs most
  std::vector<std::size_t> at_peak;  // by tag, on that rank at that moment
  std::size_t host_peak_bytes = 0;   // of the host's memory, by the rank that needs most of it
  runtime::TimeNs step_ns = 0;       // of the second step
  std::uint64_t sent_bytes = 0;      // in the second step, by the rank that sends most, operation by operation
  double mfu = 0;                    // model FLOPs utilisation of the second step: of what all devices could do
};

// Memory without end: what is needed does not depend on what there is. Throws std::runtime_error where the run fails.
DryRun dry_run(const Scenario& scenario);

// A configuration as a change of a ds_config.json (RFC 7396).
struct Candidate {
  std::string name;
  Json patch;
};

// From the least to the most slowing: as given; the next stages; smaller micro-batches with more accumulation; then
// what computes again or moves state off the device, one measure after the other, each with the given micro-batch
// first.
std::vector<Candidate> candidates(const Scenario& given);

// Measures beyond stage and micro-batch, in the order in which they are tried; each keeps those before it. To add one:
// a row in planner.cpp.
struct Measure {
  const char* name;
  Json (*patch)(const Scenario& given);  // empty: the configuration has it already
};
const std::vector<Measure>& measures();

// What a patch is as --set options of a scenario.
std::vector<std::string> sets_of_patch(const Json& patch);

// Whose figures say what fits: seeksim's own, exact; DeepSpeed's, by formulas; those of a calibrated platform.
enum class LedgerOf { seeksim, deepspeed, platform };

struct PlanRow {
  Candidate candidate;
  std::optional<DryRun> run;
  std::vector<LedgerLine> by_deepspeed;  // where there is a run
  std::vector<LedgerLine> by_platform;   // where there is a platform that knows all parts of the scenario
  std::string refused;                   // why there is no run
  bool fits = false;                     // by the ledger that decides

  // Without end where the platform's is not known.
  double bytes(LedgerOf ledger) const;
};

struct Plan {
  std::vector<PlanRow> rows;
  int recommended = -1;   // the first that fits
  int closest = -1;       // that needs least
  bool platform = false;  // whether there is one, whose ledger may still not know a row
};

struct PlanOptions {
  LedgerOf ledger = LedgerOf::seeksim;
  bool all = false;  // go on after the first that fits
  // What a GPU holds on a platform; no lines where that is not known. Null: there is no platform.
  std::function<std::vector<LedgerLine>(const Scenario&)> platform;
};

// load: the scenario with a patch.
using LoadPatched = std::function<Scenario(const Json& patch)>;
Plan make_plan(const Scenario& given, const LoadPatched& load, std::size_t memory_bytes, const PlanOptions& options);

}  // namespace seeksim::harness
