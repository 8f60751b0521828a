// LowRankReduction: brings gradients together as two thin factors of each matrix (PowerSGD; Vogels et al. 2019,
// docs/low-rank.md). Groups of samples are what workers are elsewhere. What a group owes of a matrix M is multiplied
// by a factor Q, which all have; the sum of that over all groups is made orthogonal, P; M^T P is summed over all groups
// and is the new Q; and P Q^T is what the step gets of the matrix. Both sums are trees over the groups, so any number
// of ranks has the bits of one. What is no matrix, or too small to gain, is summed whole.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/gradient_tree.h"
#include "runtime/layout/parameters.h"
#include "runtime/parts/residuals.h"

namespace seeksim::runtime {

// A parameter that travels in factors, which lie as rows: P^T (rank, rows) and Q^T (rank, cols).
struct LowRankMatrix {
  const ParameterInfo* parameter = nullptr;
  Index rank = 0;
  Index p_at = 0, q_at = 0;  // of its factors among all of their kind
  Index p_size() const { return rank * parameter->rows(); }
  Index q_size() const { return rank * parameter->cols(); }
};

struct LowRankLayout {
  LowRankLayout(const Parameters& parameters, const CompressionPlan& plan);
  // Whether factors of this rank are less than half of a matrix, as PyTorch's hook asks by default.
  static bool gains(const ParameterInfo& parameter, Index rank);
  std::vector<LowRankMatrix> matrices;
  std::vector<ShardInfo> whole;  // of the flat space, what travels whole
  Index whole_size = 0, p_size = 0, q_size = 0;
  // What is summed first: what travels whole, the loss, and the factors P.
  Index first_size() const { return whole_size + 1 + p_size; }
};

// The factors Q of all matrices, between steps: state as weights are, the same on all ranks.
class LowRankFactors {
 public:
  LowRankFactors(Device& device, const Parameters& parameters, const TrainPlan& plan);
  // First values, from the training seed.
  void begin(Launcher& launch) { draw(launch, 0, kept()); }
  const LowRankLayout& layout() const { return layout_; }
  VecView<float> kept() const { return part(in_use_); }
  VecView<float> next() const { return part(1 - in_use_); }
  // Those of a step that does not begin with the kept ones: others in each.
  void draw(Launcher& launch, std::int64_t step, VecView<float> out) const;
  void commit() { in_use_ = 1 - in_use_; }

 private:
  VecView<float> part(std::size_t i) const { return {buffers_[i].get(), 0, layout_.q_size}; }

  const TrainPlan& plan_;
  LowRankLayout layout_;
  std::vector<BufferPtr> buffers_;  // two, one of them in use
  std::size_t in_use_ = 0;
};

class LowRankReduction {
 public:
  LowRankReduction(Rank& rank, const Parameters& parameters, const TrainPlan& plan, Residuals& residuals,
                   LowRankFactors& factors);

  // A new world.
  void connect(Communicator& comm);

  // Times what is owed, what the step gets of the gradient, and the loss.
  struct Scales {
    float before = 1;
    float after = 1;
    float at_loss = 1;
  };
  // parts: of each group that is here, in order, the gradient space. sums: of what is trained. Enqueued on the
  // communication queue; returns the Op to wait for.
  using Parts = std::span<const VecView<const float>>;
  Op reduce(std::int64_t step, Parts parts, Scales scales, VecView<float> sums, VecView<float> loss);
  // After it, with its queue waited for.
  std::int64_t elements() const { return residuals_.groups().size() * parameters_.trainable_size(); }
  std::int64_t bytes() const;
  VecView<const std::int64_t> unconserved() const;  // by group that is here

 private:
  enum class Factor : std::uint8_t { p, q };
  Op op(std::int64_t step, const char* tensor) const;
  Op sum(Queue& queue, std::int64_t step, const char* tensor, GradientTree& tree, VecView<float> out);
  void begin_with(Launcher& launch, std::int64_t step);
  void owe(Launcher& launch, Index i, const VecView<const float>& part, float before);
  void fill_first(Launcher& launch, Index i, const VecView<const float>& part, VecView<float> out);
  void fill_second(Launcher& launch, Index i, VecView<float> out);
  void orthogonalise(Launcher& launch, VecView<float> factors, Factor which);
  void take_apart(Launcher& launch, Scales scales, VecView<float> sums, VecView<float> loss);
  void keep(Launcher& launch, Index i, const VecView<const float>& part, float before, VecView<float> sums);
  MatView<float> factor(const LowRankMatrix& m, const VecView<float>& factors, Factor which) const;
  MatView<float> owed(Index i, const ParameterInfo& p) const;
  VecView<const float> head_use(const VecView<const float>& part) const;
  VecView<float> p_factors() const;  // of the sum

  Rank& rank_;
  const Parameters& parameters_;
  const TrainPlan& plan_;
  Residuals& residuals_;
  LowRankFactors& factors_;
  GradientTree first_tree_, second_tree_;

  Communicator* comm_ = nullptr;
  BufferPtr first_;   // the sum of what is summed first
  BufferPtr begin_;   // the factors Q that the step begins with
  BufferPtr counts_;  // unconserved elements of each group that is here
};

}  // namespace seeksim::runtime
