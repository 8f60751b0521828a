#include "harness/simulate/arithmetic.h"

#include "harness/scenario/variants.h"

namespace seeksim::harness {

RunArithmetic::RunArithmetic(const Scenario& scenario, const std::optional<kernels::FastWay>& audit) {
  if (!audit && !is_fast(scenario)) return;
  fast_ = std::make_unique<kernels::FastArithmetic>(audit ? *audit : fast_way(scenario.train));
  if (audit) audit_ = std::make_unique<runtime::NumericAudit>(*fast_, audit->tf32);
}

runtime::LibrarySums RunArithmetic::library_sums() const {
  return audit_ ? runtime::LibrarySums::beside : fast_ ? runtime::LibrarySums::instead : runtime::LibrarySums::none;
}

std::optional<FastAudit> RunArithmetic::audited() const {
  if (!audit_) return std::nullopt;
  return FastAudit{audit_->report(), fast_->products_through_host()};
}

}  // namespace seeksim::harness
