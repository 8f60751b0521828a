// The choice of the planted bug; and the bugs of the vote and of what comes after: updates, clipping, publication,
// other worlds, evaluations.
#include "runtime/trainer/planting.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>

#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/host/host_writes.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "runtime/seams/edges.h"
#include "runtime/trainer/reduction.h"
#include "runtime/trainer/tensors.h"

namespace seeksim::runtime {

namespace {

// Another bug of the catalogue that is the same mistake; none: the mutant has a point of its own.
Bug same_bug(Mutant mutant) {
  switch (mutant) {
    case Mutant::optimizer_holds_other_tensors:
      return Bug::update_lost;
    case Mutant::clip_max_for_min:
      return Bug::clip_by_max;
    case Mutant::clip_off_below_fp32:
      return Bug::clip_off_in_16_bit;
    case Mutant::tail_dropped:
      return Bug::last_micro_batch_lost;
    case Mutant::steps_on_last_micro_batch:
      return Bug::only_last_micro_batch;
    case Mutant::gradients_kept:
      return Bug::gradients_never_zeroed;
    case Mutant::tied_gradient_twice:
      return Bug::tied_added_twice;
    default:
      return Bug::none;
  }
}

}  // namespace

std::unique_ptr<Planted> plant(const TrainPlan& plan, int rank) {
  const Bug bug = plan.bug.is(Bug::definition) ? same_bug(plan.bug.mutant) : plan.bug.bug;
  for (const std::span<const PlantedRow> rows : {bugs_before_vote(), bugs_from_vote_on()}) {
    for (const PlantedRow& row : rows) {
      const bool here = row.where == PlantedRow::everywhere || plan.bug.rank == rank;
      if (bug == row.bug && here) return row.make({plan, rank});
    }
  }
  return std::make_unique<Planted>();
}

namespace {

// ---- votes ---------------------------------------------------------------------------------------------------------

struct SilenceIsConsent final : Mistake {
  using Mistake::Mistake;
  Agreement agree(ControlPlane& control, const Op& op, const Ballot& ballot, TimeNs deadline) const override {
    try {
      return control.agree(op, op.epoch, ballot, deadline);
    } catch (const SeamError& error) {
      if (error.kind() != ErrorKind::fenced) throw;
    }
    Agreement alone;
    alone.epoch = op.epoch;
    alone.members = {at.rank};
    alone.ballots = {ballot};
    return alone;
  }
};

struct CommitHeedsRevoke final : Mistake {
  using Mistake::Mistake;
  void agreed(const ControlPlane& control, const Op& op) const override {
    if (control.revoked(op.epoch)) throw SeamError(ErrorKind::revoked, op, "the epoch was revoked after the vote");
  }
};

// Its vote is about the step that is already applied.
struct CommitsBeforeVote final : Mistake {
  using Mistake::Mistake;
  bool all_good(const std::function<bool()>&, bool fine_here) const override { return fine_here; }
  void committed(const std::function<bool()>& vote, Progress& progress) const override {
    progress.step_back();
    vote();
    progress.advance();
  }
};

// ---- updates -------------------------------------------------------------------------------------------------------

struct DriftingLr final : Mistake {
  using Mistake::Mistake;
  double rate(double lr, std::int64_t step) const override {
    return step < at.plan.bug.step ? lr : std::bit_cast<double>(std::bit_cast<std::uint64_t>(lr) ^ 1);
  }
};

struct UpdateLost final : Mistake {
  using Mistake::Mistake;
  bool loses_update() const override { return true; }
};

struct LocalLossScale final : Mistake {
  using Mistake::Mistake;
  bool scales_down(bool skipped, std::int64_t step) const override { return skipped || step == at.plan.bug.step; }
};

// The last bit of one parameter that this rank holds and, where parameters have owners, does not own.
struct DriftingReplica final : Mistake {
  using Mistake::Mistake;
  void updated(Tensors& tensors, std::int64_t step) const override {
    if (tensors.keeper() == nullptr && step == at.plan.bug.step) drift(tensors);
  }
  void published(Tensors& tensors, std::int64_t steps) const override {
    if (steps > at.plan.bug.step) drift(tensors);
  }

 private:
  static void drift(const Tensors& tensors) {
    const ShardKeeper* const keeper = tensors.keeper();
    const bool owns_first = keeper != nullptr && keeper->own().shard.offset == 0 && keeper->own().shard.size > 0;
    const Index element = owns_first ? tensors.parameters().trainable_size() - 1 : 0;
    const AnyVec weights = tensors.flat_parameters();
    const VecView<std::byte> low{weights.buffer, Index(weights.part(element, 1).range(true).lo), 1};
    kernels::change_on_host(weights.buffer->lane, low.get(),
                            [](kernels::Vec<std::byte> bits) { bits[0] ^= std::byte{1}; });
    settle(*weights.buffer);
  }
};

// ---- clipping ------------------------------------------------------------------------------------------------------

struct ClipByMax final : Mistake {
  using Mistake::Mistake;
  float clipping(float, double limit, float norm) const override {
    return std::max(1.0f, static_cast<float>(limit) / norm);
  }
};

struct ClipOffIn16Bit final : Mistake {
  using Mistake::Mistake;
  double clipping_limit(double limit) const override {
    return is_16_bit(at.plan.definition.precision.compute) ? 0 : limit;
  }
};

// ---- publication ---------------------------------------------------------------------------------------------------

// Old values come back to the front of the flat space, except where this rank owns it.
struct StalePublish final : Mistake {
  using Mistake::Mistake;
  void publishing(Tensors& tensors, Index lo, Index hi, std::int64_t steps) override {
    old_.clear();
    if (steps <= at.plan.bug.step || lo > 0) return;
    const AnyVec weights = tensors.flat_parameters();
    old_.resize(weights.part(0, hi).bytes());
    kernels::copy_bytes(weights.buffer->lane, weights.buffer->data, old_.data(), old_.size());
  }
  void published_bucket(Tensors& tensors) override {
    if (old_.empty()) return;
    const ShardInfo shard = tensors.keeper()->own().shard;
    const AnyVec weights = tensors.flat_parameters();
    const Range own = weights.part(shard.offset, shard.size).range(true);
    const auto restore = [&](std::size_t lo, std::size_t hi) {
      if (lo < hi) kernels::copy_bytes(weights.buffer->lane, old_.data() + lo, weights.buffer->data + lo, hi - lo);
    };
    restore(0, std::min(own.lo, old_.size()));
    restore(std::min(own.hi, old_.size()), old_.size());
    settle(*weights.buffer);
  }

 private:
  std::vector<std::byte> old_;
};

// ---- worlds --------------------------------------------------------------------------------------------------------

struct RedoesCommittedStep final : Mistake {
  using Mistake::Mistake;
  void connecting(Progress& progress, std::uint32_t epoch) const override {
    if (epoch > 0 && progress.step() > 0) progress.step_back();
  }
};

struct JoinsWithoutState final : Mistake {
  using Mistake::Mistake;
  void bringing(std::vector<AnyVec>& state) const override { state.erase(state.begin()); }
};

struct JoinsWithoutSteps final : Mistake {
  using Mistake::Mistake;
  std::int64_t steps_of_joiner(std::int64_t) const override { return 0; }
};

// ---- evaluation ----------------------------------------------------------------------------------------------------

struct EvaluationKeepsDropout final : Mistake {
  using Mistake::Mistake;
  bool evaluates_with_dropout() const override { return true; }
};

struct EvaluationSkippedByOne final : Mistake {
  using Mistake::Mistake;
  bool evaluates(bool after_the_last) const override { return after_the_last; }
};

struct EvaluationLeftOut final : Mistake {
  using Mistake::Mistake;
  bool evaluates(bool after_the_last) const override { return !after_the_last; }
};

struct EvaluationMeansOfRanks final : Mistake {
  using Mistake::Mistake;
  float evaluation_factor(Index own, Index all, int members) const override {
    return own > 0 ? float(double(all) / (double(own) * members)) : 0;
  }
};

// As if evaluation mode only turned dropout off: what backward leaves waits for the next step's sums.
struct EvaluationLeavesGradients final : Mistake {
  using Mistake::Mistake;
  void evaluated(Workbench& bench, Tensors& tensors, Model& model, const Batch& batch) override {
    const Index n = tensors.parameters().gradient_size();
    if (!left_)
      left_ = bench.rank.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::scratch, "left gradients");
    const VecView<float> nodes[] = {vec<float>(*left_, 0, n)};
    const GradientBlock all[] = {{0, batch.samples}};
    NodeSink sink(nodes);
    model.backward(bench.compute, tensors.in_use(), batch, bench.scale.at_loss, all, sink);
    waits_ = true;
  }
  bool replaces_all_reduce(Workbench& bench, Tensors& tensors, const World&, Reduction& reduction) override {
    if (!std::exchange(waits_, false) || reduction.trees().front().nodes().empty()) return false;
    const Index n = tensors.parameters().trainable_size();
    const VecView<const float> own = reduction.trees().front().parts().front();
    bench.compute(
        "gradients", SEEKSIM_SITE, memory_cost(3 * n, 1.0 / 3),
        [](kernels::Lane lane, kernels::Vec<const float> in, kernels::Vec<float> out) {
          kernels::tree_add(lane, out, in, out);
        },
        vec<const float>(*left_, 0, n), VecView<float>{own.buffer, own.offset, n});
    bench.finish_all(bench.compute.last(), Edge::backward_done);
    return false;
  }

 private:
  BufferPtr left_;
  bool waits_ = false;
};

constexpr auto kRowsFromVoteOn = std::to_array<PlantedRow>({
    {Bug::evaluation_keeps_dropout, PlantedRow::on_one_rank, make_planted<EvaluationKeepsDropout>},
    {Bug::evaluation_skipped_by_one, PlantedRow::on_one_rank, make_planted<EvaluationSkippedByOne>},
    {Bug::evaluation_left_out, PlantedRow::everywhere, make_planted<EvaluationLeftOut>},
    {Bug::evaluation_leaves_gradients, PlantedRow::everywhere, make_planted<EvaluationLeavesGradients>},
    {Bug::evaluation_means_of_ranks, PlantedRow::everywhere, make_planted<EvaluationMeansOfRanks>},
    {Bug::silence_is_consent, PlantedRow::everywhere, make_planted<SilenceIsConsent>},
    {Bug::commit_heeds_revoke, PlantedRow::everywhere, make_planted<CommitHeedsRevoke>},
    {Bug::commits_before_vote, PlantedRow::on_one_rank, make_planted<CommitsBeforeVote>},
    {Bug::drifting_lr, PlantedRow::on_one_rank, make_planted<DriftingLr>},
    {Bug::update_lost, PlantedRow::everywhere, make_planted<UpdateLost>},
    {Bug::local_loss_scale, PlantedRow::on_one_rank, make_planted<LocalLossScale>},
    {Bug::clip_by_max, PlantedRow::everywhere, make_planted<ClipByMax>},
    {Bug::clip_off_in_16_bit, PlantedRow::everywhere, make_planted<ClipOffIn16Bit>},
    {Bug::drifting_replica, PlantedRow::on_one_rank, make_planted<DriftingReplica>},
    {Bug::stale_publish, PlantedRow::on_one_rank, make_planted<StalePublish>},
    {Bug::redoes_committed_step, PlantedRow::everywhere, make_planted<RedoesCommittedStep>},
    {Bug::joins_without_state, PlantedRow::everywhere, make_planted<JoinsWithoutState>},
    {Bug::joins_without_steps, PlantedRow::everywhere, make_planted<JoinsWithoutSteps>},
});

}  // namespace

std::span<const PlantedRow> bugs_from_vote_on() { return kRowsFromVoteOn; }

}  // namespace seeksim::runtime
