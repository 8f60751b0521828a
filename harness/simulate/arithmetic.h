// The arithmetic of a run: the contract's, a vendor's, or the contract's with a vendor's at its side.
#pragma once

#include <memory>
#include <optional>

#include "harness/record/run_record.h"
#include "harness/scenario/scenario.h"
#include "kernels/fast.h"
#include "runtime/launch/numeric_audit.h"
#include "runtime/seams/seams.h"

namespace seeksim::harness {

// What computes the products and sums over ranks of a run, or of one process of it: the contract, or what the scenario
// asks for; or an audit, of a run by the contract.
class RunArithmetic {
 public:
  RunArithmetic(const Scenario& scenario, const std::optional<kernels::FastWay>& audit);
  kernels::Arithmetic* get() const { return audit_ ? static_cast<kernels::Arithmetic*>(audit_.get()) : fast_.get(); }
  runtime::LaunchListener* listener() const { return audit_.get(); }  // null: launches are not observed
  // What a transport does with a library's sums.
  runtime::LibrarySums library_sums() const;
  std::optional<FastAudit> audited() const;

 private:
  std::unique_ptr<kernels::FastArithmetic> fast_;
  std::unique_ptr<runtime::NumericAudit> audit_;
};

}  // namespace seeksim::harness
