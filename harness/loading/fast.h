// "numerics": "fast": products and sums over ranks as vendors make them (kernels/fast.h), in two runs. The scenario's
// own runs freely, and its bits are nobody's. Beside it the same training is done by the contract, undisturbed, and of
// each product and sum the vendor's result from the same operands is held against the contract's
// (runtime/launch/numeric_audit.h): that is what within_bounds judges. The two losses stand side by side in the report,
// and judge nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/input/json.h"
#include "harness/input/reader.h"
#include "harness/oracles/finding.h"
#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "kernels/fast.h"
#include "runtime/seams/seams.h"

namespace seeksim::harness {

struct Evidence;
struct Golden;

// What computes the products and sums over ranks of a run, or of one process of it: the contract, or what the scenario
// asks for; or an audit, of a run by the contract.
class RunArithmetic {
 public:
  RunArithmetic(const Scenario& scenario, const std::optional<kernels::FastWay>& audit);
  kernels::Arithmetic* get() const { return audit_ ? static_cast<kernels::Arithmetic*>(audit_.get()) : fast_.get(); }
  runtime::LaunchListener* listener() const { return audit_.get(); }  // null: nobody has to be told of launches
  // Of a transport that has a library for sums.
  runtime::LibrarySums library_sums() const;
  std::optional<FastAudit> audited() const;

 private:
  std::unique_ptr<kernels::FastArithmetic> fast_;
  std::unique_ptr<runtime::NumericAudit> audit_;
};

// Reads what belongs to the key, and refuses what needs exact bits. numerics: the word, already one of those known.
void read_fast(const Reader& top, const std::string& numerics, Scenario& scenario);

struct FastComparison {
  FastAudit audit;
  std::vector<float> loss;    // the contract's, by step
  std::string backend;        // on which it was made
  std::string not_canonical;  // the run beside it has other bits than the golden: its operands prove nothing
};
// teacher: a run that was audited. golden: of the scenario.
FastComparison compare_fast(const RunRecord& teacher, const std::string& backend, const Golden& golden);

Finding within_bounds(const Evidence& evidence, const std::string& argument);
std::string fast_text(const Evidence& evidence);
Json fast_json(const Evidence& evidence);

}  // namespace seeksim::harness
