// Trainer: one rank's share of a training run. train_step is a transaction: before its commit point nothing durable
// changes, so that a step which failed anywhere is simply run again, by the same members or by fewer.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/data.h"
#include "runtime/gpt2.h"
#include "runtime/gradient_tree.h"
#include "runtime/observer.h"
#include "runtime/optimizer.h"
#include "runtime/plan.h"
#include "runtime/rank.h"

namespace seeksim::runtime {

class Trainer {
 public:
  Trainer(Rank& rank, const TrainPlan& plan, Observer& observer);

  // Allocates everything and makes the initial weights; no communication. Does nothing the second time.
  void prepare();
  // A new communicator for `epoch` and a new cut of the batch. The step under way, if any, starts anew.
  void connect(std::uint32_t epoch, std::vector<int> members);
  void train_step();
  // After a failure: gives up the communicator and waits until nothing is pending. Leaves what is durable untouched.
  void abandon();

  bool connected() const { return comm_.has_value(); }
  bool finished() const { return step_ >= plan_.definition.steps; }
  std::int64_t step() const { return step_; }  // the next to be committed
  const Communicator* communicator() const { return comm_ ? &*comm_ : nullptr; }
  bool is_lowest_rank() const { return comm_ && comm_->members().front() == rank_.id; }

  StateDigest state() const;
  std::vector<NamedTensor> weights() const;

 private:
  // What the host reads of a finished backward pass.
  struct StepResult {
    float loss = 0;
    float grad_norm = 0;
    bool finite = true;
  };

  void allocate();
  void initial_weights();
  void fetch(const SampleRange& samples, int micro_batch);
  void forward_backward(const SampleRange& samples, int micro_batch);
  void reduce_gradients();
  void add_tied_gradients();
  void measure_gradients();
  StepResult read_result() const;
  bool vote(bool finite);
  void apply(const StepResult& result, double lr);
  void commit(const StepResult& result, bool applied, double lr);
  void record_digests();
  void wait_for(const Op& op);
  std::span<const float> host_floats(const Buffer& buffer, Index n) const;

  Rank& rank_;
  const TrainPlan& plan_;
  Observer& observer_;
  Gpt2Parameters parameters_;
  LossScale scale_;
  DataSource data_;
  Launcher compute_;

  // Made by prepare().
  BufferPtr weights_;      // parameters
  BufferPtr gradients_;    // reduced: parameters, head's share, loss (Gpt2Parameters)
  BufferPtr norm_blocks_;  // norm^2 of the blocks of one slab
  BufferPtr norms_;        // norm^2 of each parameter, then of all
  BufferPtr nonfinite_;    // a count
  std::optional<Gpt2> model_;
  std::optional<GradientTree> tree_;
  std::optional<Optimizer> optimizer_;

  // Made by connect().
  std::optional<Communicator> comm_;
  std::vector<SampleRange> micro_batches_;  // of this rank, in samples of the step
  TreeOwnership ownership_;

  std::int64_t step_ = 0;
  bool hand_out_gradients_ = false;
};

// The clip coefficient: limit / (norm + 1e-6) where that is below one, else one. limit 0: no clipping.
float clip_coefficient(double limit, float norm);

}  // namespace seeksim::runtime
