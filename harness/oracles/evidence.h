// What a judge may look at, and what comes out of a judgement: the scenario, the record of its run, the golden, and
// what runs at its side showed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/oracles/conservation.h"
#include "harness/oracles/finding.h"
#include "harness/record/golden.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"

namespace seeksim::harness {

struct CheckResult {
  std::string name;  // as CheckSpec::text
  bool ok = false;
  std::string detail;
  bool looked = true;    // false: red because there was nothing to look at
  bool skipped = false;  // these ranks cannot be judged by it: neither green nor red, though `ok` is set
};

// Fast arithmetic, compared with the contract in a run beside the judged one.
struct FastComparison {
  FastAudit audit;
  std::vector<float> loss;    // the contract's, by step
  std::string backend;        // on which it was made
  std::string not_canonical;  // the run beside it has other bits than the golden: its operands prove nothing
};

struct ReferenceVerdict;  // reference_steps.h

// All that a check may look at.
struct Evidence {
  const Scenario& scenario;
  const RunRecord& run;
  const Golden* golden = nullptr;        // there when a check needs it
  std::optional<TimeNs> undisturbed_ns;  // virtual time of the same world without faults
  std::vector<CheckResult> further;      // made elsewhere (--verify-determinism), judged with the rest
  std::optional<Conservation> conservation = std::nullopt;     // of the tagged run
  std::optional<std::vector<float>> fp32_loss = std::nullopt;  // of the same training in fp32 on one rank
  const RunRecord* without_quirks = nullptr;    // the same run as seeksim would do it; there when a quirk is on
  std::optional<double> step_s = std::nullopt;  // of a step of the same world that nothing disturbs
  const FastComparison* fast = nullptr;         // of a run of fast arithmetic
  const ReferenceVerdict* reference = nullptr;  // on the same training on one rank
};

}  // namespace seeksim::harness
