// NumericAudit: `fast` arithmetic compared with the contract, operation by operation, each from the contract's inputs
// (teacher forcing; docs/numerics.md#fast-mode). It is a run's arithmetic: for each product and each sum over ranks it
// computes the vendor's result, compares it, and keeps the contract's. So the run is the canonical one, bit for bit,
// and a difference never comes from an earlier operation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/arithmetic.h"
#include "kernels/bound.h"
#include "runtime/host/stepped_queue.h"
#include "runtime/seams/op.h"

namespace seeksim::runtime {

// Operations of one kind, all elements of their results.
struct AuditTally {
  std::uint64_t ops = 0;
  std::uint64_t elements = 0;
  std::uint64_t over = 0;  // elements
  double worst = 0;        // share of the bound
  Op worst_op;
};

// The first operation with an element over its bound.
struct OverBound {
  Op op;
  const char* what = "";  // "product", "sum"
  Index rows = 0, columns = 0;
  Index terms = 0;
  Index over = 0;  // of its elements
  kernels::Looked at;
};

struct AuditReport {
  AuditTally products;
  AuditTally sums;
  std::optional<OverBound> first;
  std::uint64_t ops() const { return products.ops + sums.ops; }
  std::uint64_t elements() const { return products.elements + sums.elements; }
  std::uint64_t over() const { return products.over + sums.over; }
};

// What several ranks' audits saw, of one run: `all` with `one` added. The first operation is the one of the least step.
void add(AuditReport& all, const AuditReport& one);

// "product of 'h.0.mlp.c_fc.weight', layer 0, ..., element (3, 17) of (64, 256): ...": who, where, both bit patterns,
// the bound.
std::string describe(const OverBound& over);

class NumericAudit final : public kernels::Arithmetic, public LaunchListener {
 public:
  // tf32: the vendor rounds operands of fp32 products to TF32.
  NumericAudit(kernels::Arithmetic& vendor, bool tf32) : vendor_(vendor), tf32_(tf32) {}

  void at(const Op& op) override { op_ = op; }
  void gemm(kernels::Lane lane, const kernels::AnyGemm& call) override;
  // Looks at the library's sum where there is one, else at the vendor's.
  void sum(kernels::Lane lane, const kernels::SumCall& call, kernels::Vec<float> out) override;
  void addend(kernels::Lane lane, kernels::Vec<float> values) override { vendor_.addend(lane, values); }

  const AuditReport& report() const { return report_; }

 private:
  template <class T, class To>
  void look_at(kernels::Lane lane, const kernels::GemmCall<T, To>& call);
  void take(AuditTally& tally, const char* what, const kernels::Comparison& seen, Index rows, Index columns,
            Index terms);

  kernels::Arithmetic& vendor_;
  const bool tf32_;
  Op op_;  // of the launch that runs
  AuditReport report_;
};

}  // namespace seeksim::runtime
