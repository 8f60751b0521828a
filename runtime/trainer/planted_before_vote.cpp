// Planted bugs before the vote: which samples are taken, in which order, with which gradients, and what the real
// mistakes did to sums over ranks and to their norms.
#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cast.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/model/edited_gradients.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"
#include "runtime/trainer/pipeline_links.h"
#include "runtime/trainer/planting.h"
#include "runtime/trainer/reduction.h"

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;
using kernels::Lane;
using kernels::Vec;

struct ResumeReplaysData final : Mistake {
  using Mistake::Mistake;
  std::int64_t step_of_batch(std::int64_t step, std::int64_t began_at) const override { return step - began_at; }
};

struct SamplesShifted final : Mistake {
  using Mistake::Mistake;
  std::int64_t first_sample(std::int64_t first) const override { return first + 1; }
};

// ---- the order of a data set ---------------------------------------------------------------------------------------

struct SamplerForgetsEpoch final : Mistake {
  using Mistake::Mistake;
  Sampler sampler(const Sampler& planned) const override { return planned.without_epochs(); }
};

struct SamplerSeededByRank final : Mistake {
  using Mistake::Mistake;
  Sampler sampler(const Sampler& planned) const override {
    return planned.with_seed(planned.at(0).seed + std::uint64_t(at.rank));
  }
};

struct SamplerBeginsAgain final : Mistake {
  using Mistake::Mistake;
  std::int64_t position(const SamplePosition& at) override {
    return at.position - at.sampler.at(at.began_at).index * (at.sampler.on() ? 1 : 0);
  }
};

// As by a loader that has been set to where it was, of which so many batches are left out once more.
struct SamplerSkipsTwice final : Mistake {
  using Mistake::Mistake;
  std::int64_t position(const SamplePosition& at) override { return at.position + at.began_at; }
};

struct SamplerCountsByRank final : Mistake {
  using Mistake::Mistake;
  std::int64_t position(const SamplePosition& at) override {
    if (members_ != at.members && members_ > 0) off_ = (at.position + off_) / members_ * at.members - at.position;
    members_ = at.members;
    return at.position + off_;
  }

 private:
  int members_ = 0;       // of the world whose samples were counted last
  std::int64_t off_ = 0;  // from the right position
};

// ---- which tokens are learned --------------------------------------------------------------------------------------

struct CurriculumBeginsAgain final : Mistake {
  using Mistake::Mistake;
  std::int64_t step_of_curriculum(std::int64_t step, std::int64_t began_at) const override { return step - began_at; }
};

struct CurriculumCountsAll final : Mistake {
  using Mistake::Mistake;
  Index tokens_of_mean(Index, Index all) const override { return all; }
};

struct PackingMeansOfSamples final : Mistake {
  using Mistake::Mistake;
  float weight_of_tokens(double of_samples, double of_tokens) const override {
    return of_tokens > 0 ? float(of_samples / of_tokens) : 0;
  }
};

struct RankSeededDropout final : Mistake {
  using Mistake::Mistake;
  std::uint64_t dropout_seed(std::uint64_t seed) const override { return seed + std::uint64_t(at.rank); }
};

// ---- gradients of a micro-batch ------------------------------------------------------------------------------------

struct SampleTwice final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int micro_batch, int) const override {
    if (micro_batch == 0) edit.first_block_times = 2;
  }
};

struct SampleLost final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int micro_batch, int) const override {
    if (micro_batch == 0) edit.first_block_times = 0;
  }
};

struct WrongWeight final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int, int micro_batches) const override { edit.times = 1.0f / float(micro_batches); }
};

struct UndividedWindow final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int, int micro_batches) const override { edit.times = float(micro_batches); }
};

struct DividedByWays final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int, int) const override { edit.times = 1.0f / float(at.plan.layout.parallel.tensor); }
};

struct ExpertsDividedByGroup final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int, int) const override {
    edit.experts_times = 1.0f / float(at.plan.layout.parallel.expert);
  }
};

struct ExpertsOfOwnSamples final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int, int) const override { edit.others_times = 0; }
};

struct LastMicroBatchLost final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int micro_batch, int micro_batches) const override {
    if (micro_batch == micro_batches - 1) edit.times = 0;
  }
};

struct OnlyLastMicroBatch final : Mistake {
  using Mistake::Mistake;
  void edit(GradientEdit& edit, int micro_batch, int micro_batches) const override {
    if (micro_batch != micro_batches - 1) edit.times = 0;
  }
};

// ---- the schedule of a pipeline ------------------------------------------------------------------------------------

struct AllForwardsFirst final : Mistake {
  using Mistake::Mistake;
  PipelineSchedule schedule(PipelineSchedule) const override { return PipelineSchedule::gpipe; }
};

// Planted on one rank.
struct OutOfStepInGroup final : Mistake {
  using Mistake::Mistake;
  PipelineSchedule schedule(PipelineSchedule) const override { return PipelineSchedule::gpipe; }
};

struct FewerMicroBatches final : Mistake {
  using Mistake::Mistake;
  void instructions(std::vector<Instruction>& all, int micro_batches) const override {
    const int last = micro_batches - 1;
    std::erase_if(all, [last](const Instruction& i) {
      const bool computes = i.kind == Kind::load || i.kind == Kind::forward || i.kind == Kind::backward;
      return last > 0 && i.micro_batch == last && !computes;
    });
  }
};

struct BackwardBeforeForward final : Mistake {
  using Mistake::Mistake;
  void instructions(std::vector<Instruction>& all, int) const override {
    const auto is_first = [](Kind kind) {
      return [kind](const Instruction& i) { return i.kind == kind && i.micro_batch == 0; };
    };
    const auto forward = std::find_if(all.begin(), all.end(), is_first(Kind::forward));
    const auto gradient = std::find_if(forward, all.end(), is_first(Kind::recv_gradient));
    if (gradient == all.end()) return;
    const auto backward = std::find_if(gradient, all.end(), is_first(Kind::backward));
    if (backward == all.end()) return;
    const std::array<Instruction, 2> early = {*gradient, *backward};
    all.erase(backward);
    all.erase(gradient);
    all.insert(std::find_if(all.begin(), all.end(), is_first(Kind::forward)), early.begin(), early.end());
  }
};

// ---- messages between stages ---------------------------------------------------------------------------------------

struct ScaledAtEveryStage final : Mistake {
  using Mistake::Mistake;
  void sending_gradient(Launcher& compute, InFlight& flight, Index samples, int micro_batches) const override {
    const AnyVec gradient = flight.model->gradient_out(samples);
    with_float_type(gradient.type, [&](auto like) {
      using S = decltype(like);
      compute(
          "gradient of an activation", SEEKSIM_SITE, memory_cost(2 * gradient.n),
          [factor = 1.0f / float(micro_batches)](Lane lane, Vec<S> all) {
            kernels::change_on_host(lane, all, [&](Vec<S> values) {
              for (Index k = 0; k < values.n; ++k) {
                float wide = 0;
                kernels::widen<S>(Lane{}, {values.data + k, 1}, {&wide, 1});
                wide *= factor;
                kernels::narrow<S>(Lane{}, {&wide, 1}, {values.data + k, 1});
              }
            });
          },
          gradient.as<S>());
    });
    flight.gone_back = compute.queue().record();
  }
};

struct HalfMessage final : Mistake {
  using Mistake::Mistake;
  AnyVec to_send(AnyVec values) const override { return values.part(0, values.n / 2); }
};

struct GradientSentTwice final : Mistake {
  using Mistake::Mistake;
  bool sends_again(int micro_batch) const override { return micro_batch == 0; }
};

void add_values(Launcher& compute, const char* tensor, VecView<const float> more, VecView<float> sums) {
  compute(
      tensor, SEEKSIM_SITE, memory_cost(3 * sums.n, 1.0 / 3),
      [](Lane lane, Vec<const float> in, Vec<float> out) { kernels::tree_add(lane, out, in, out); }, more, sums);
}

void multiply_values(Launcher& compute, const char* tensor, float times, VecView<float> values) {
  compute(
      tensor, SEEKSIM_SITE, memory_cost(2 * values.n),
      [times](Lane lane, Vec<float> v) { kernels::scale(lane, v, times); }, values);
}

// ---- collectives: before the first recovery only, so that a run can go on after it ---------------------------------

struct SkippedCollective final : Mistake {
  using Mistake::Mistake;
  bool replaces_all_reduce(Workbench&, Tensors&, const World& world, Reduction&) override { return world.epoch() == 0; }
  void order(std::vector<Bucket>& buckets, std::uint32_t epoch) const override {
    if (epoch == 0) buckets.erase(buckets.begin());
  }
};

struct SwappedBuckets final : Mistake {
  using Mistake::Mistake;
  void order(std::vector<Bucket>& buckets, std::uint32_t epoch) const override {
    for (std::size_t i = 0; epoch == 0 && i < buckets.size(); ++i) {
      for (std::size_t j = i + 1; j < buckets.size(); ++j) {
        if (buckets[i].hi - buckets[i].lo != buckets[j].hi - buckets[j].lo) continue;
        std::swap(buckets[i], buckets[j]);
        return;
      }
    }
  }
};

struct WrongCount final : Mistake {
  using Mistake::Mistake;
  Index contributes(Index elements, std::uint32_t epoch) const override { return elements - (epoch == 0 ? 1 : 0); }
};

struct NormLeftOutByOne final : Mistake {
  using Mistake::Mistake;
  bool leaves_out_norms(std::uint32_t epoch, Index) const override { return epoch == 0; }
};

struct NormLeftOutByEmpty final : Mistake {
  using Mistake::Mistake;
  bool leaves_out_norms(std::uint32_t epoch, Index own) const override { return epoch == 0 && own == 0; }
};

// ---- sums ----------------------------------------------------------------------------------------------------------

// As if the module were called past its wrapper: the mean over this rank's own samples, without the other ranks.
struct NeverReduced final : Mistake {
  using Mistake::Mistake;
  bool replaces_all_reduce(Workbench& bench, Tensors& tensors, const World& world, Reduction& reduction) override {
    Launcher& compute = bench.compute;
    compute.phase(Phase::grad_reduce);
    const Index own = world.samples_of(world.share());
    const float share = own > 0 ? float(bench.definition().global_batch) / float(own) : 1.0f;
    const float factor = bench.scale.at_root * reduction.average().after * share;
    const Parameters& p = tensors.parameters();
    for (std::size_t piece = 0; piece < reduction.trees().size(); ++piece) {
      const Index begin = p.gradient_begin(piece), n = p.gradient_end(piece) - begin;
      const VecView<float> sums = tensors.sums(begin, n);
      const std::vector<VecView<const float>> parts = reduction.trees()[piece].parts();
      copy_values(compute, "gradients", SEEKSIM_SITE, AnyVec(parts.at(0)), AnyVec(sums));
      for (std::size_t i = 1; i < parts.size(); ++i) add_values(compute, "gradients", parts[i], sums);
      multiply_values(compute, "gradients", factor, sums);
    }
    bench.finish_all(compute.last(), Edge::gradients_reduced);
    return true;
  }
};

// As if zero_grad were never called.
struct GradientsNeverZeroed final : Mistake {
  using Mistake::Mistake;
  void all_reduced(Workbench& bench, Tensors& tensors) override {
    Launcher& compute = bench.compute;
    compute.phase(Phase::grad_reduce);
    const Index n = tensors.parameters().trainable_size();
    const VecView<float> sums = tensors.sums(0, n);
    if (old_sums_) {
      add_values(compute, "gradients", reads(vec<float>(*old_sums_, 0, n)), sums);
    } else {
      old_sums_ =
          bench.rank.device.allocate(std::size_t(n) * sizeof(float), MemoryTag::gradients, "gradients never zeroed");
    }
    copy_values(compute, "gradients", SEEKSIM_SITE, AnyVec(reads(sums)), AnyVec(vec<float>(*old_sums_, 0, n)));
  }

 private:
  BufferPtr old_sums_;  // gradients of the step before
};

// As a buffer that is written where a gradient comes and set to zero nowhere.
struct IdleExpertsKeepGradients final : Mistake {
  using Mistake::Mistake;
  void all_reduced(Workbench& bench, Tensors& tensors) override {
    bench.compute.phase(Phase::grad_reduce);
    old_.resize(std::size_t(tensors.parameters().trainable_size()));
    for (const ParameterInfo* p : tensors.parameters().trainable())
      for (Index expert = 0; expert < p->experts; ++expert) keep(bench.compute, tensors, *p, expert);
  }

 private:
  void keep(Launcher& compute, Tensors& tensors, const ParameterInfo& p, Index expert) {
    const Index n = p.size / p.experts, at = p.offset + expert * n;
    const auto edit = [old = old_.data() + at](Lane lane, Vec<float> sums) {
      kernels::change_on_host(lane, sums, [&](Vec<float> now) {
        const bool idle = std::all_of(now.data, now.data + now.n, [](float g) { return g == 0; });
        idle ? std::copy_n(old, now.n, now.data) : std::copy_n(now.data, now.n, old);
      });
    };
    compute(p.name, SEEKSIM_SITE, memory_cost(2 * n), edit, tensors.sums(at, n));
  }
  std::vector<float> old_;  // gradients of the last step that used the expert
};

struct TiedAddedTwice final : Mistake {
  using Mistake::Mistake;
  bool adds_tied_twice() const override { return true; }
};

struct UntiedEmbedding final : Mistake {
  using Mistake::Mistake;
  bool leaves_tied_apart() const override { return true; }
};

// ---- norms and clipping --------------------------------------------------------------------------------------------

struct OffloadNormLeavesOneOut final : Mistake {
  using Mistake::Mistake;
  void first_norms_at_home(Launcher& host, VecView<float> norms) const override {
    clear_values(host, "norms", SEEKSIM_SITE, AnyVec(norms));
  }
};

// As if the sum over ranks had been left out of the norm.
struct LocalNorm final : Mistake {
  using Mistake::Mistake;
  void folding_norms(Launcher& compute, const Partition& partition, ShardInfo own,
                     VecView<float> norms) const override {
    const Index first = partition.norm_blocks_before(own.offset);
    const Index end = partition.norm_blocks_before(own.offset + own.size);
    clear_values(compute, "norms", SEEKSIM_SITE, AnyVec(norms.part(0, first)));
    clear_values(compute, "norms", SEEKSIM_SITE, AnyVec(norms.part(end, norms.n - end)));
  }
};

// What all tensor ways hold escapes the coefficient that is about to be applied to everything.
struct ClipSkipsReplicated final : Mistake {
  using Mistake::Mistake;
  void clipped(Workbench& bench, Tensors& tensors, int way, float coefficient) const override {
    if (way == 0 || tensors.keeper() != nullptr) return;
    const AnyVec gradients = tensors.flat_gradients();
    if (gradients.type != ElementType::f32) return;
    for (const ParameterInfo* p : tensors.parameters().trainable()) {
      if (p->splits) continue;
      const VecView<float> of_all = gradients.part(p->offset, p->size).as<float>();
      multiply_values(bench.compute, p->name, 1.0f / coefficient, of_all);
    }
  }
};

constexpr auto kRowsBeforeVote = std::to_array<PlantedRow>({
    {Bug::resume_replays_data, PlantedRow::everywhere, make_planted<ResumeReplaysData>},
    {Bug::samples_shifted, PlantedRow::on_one_rank, make_planted<SamplesShifted>},
    {Bug::sampler_forgets_epoch, PlantedRow::everywhere, make_planted<SamplerForgetsEpoch>},
    {Bug::sampler_begins_again, PlantedRow::everywhere, make_planted<SamplerBeginsAgain>},
    {Bug::sampler_skips_twice, PlantedRow::everywhere, make_planted<SamplerSkipsTwice>},
    {Bug::sampler_seeded_by_rank, PlantedRow::on_one_rank, make_planted<SamplerSeededByRank>},
    {Bug::sampler_counts_by_rank, PlantedRow::everywhere, make_planted<SamplerCountsByRank>},
    {Bug::curriculum_begins_again, PlantedRow::everywhere, make_planted<CurriculumBeginsAgain>},
    {Bug::curriculum_counts_all, PlantedRow::everywhere, make_planted<CurriculumCountsAll>},
    {Bug::packing_means_of_samples, PlantedRow::everywhere, make_planted<PackingMeansOfSamples>},
    {Bug::rank_seeded_dropout, PlantedRow::everywhere, make_planted<RankSeededDropout>},
    {Bug::sample_twice, PlantedRow::on_one_rank, make_planted<SampleTwice>},
    {Bug::sample_lost, PlantedRow::on_one_rank, make_planted<SampleLost>},
    {Bug::wrong_weight, PlantedRow::on_one_rank, make_planted<WrongWeight>},
    {Bug::undivided_window, PlantedRow::everywhere, make_planted<UndividedWindow>},
    {Bug::divided_by_ways, PlantedRow::everywhere, make_planted<DividedByWays>},
    {Bug::experts_divided_by_group, PlantedRow::everywhere, make_planted<ExpertsDividedByGroup>},
    {Bug::experts_of_own_samples, PlantedRow::on_one_rank, make_planted<ExpertsOfOwnSamples>},
    {Bug::last_micro_batch_lost, PlantedRow::everywhere, make_planted<LastMicroBatchLost>},
    {Bug::only_last_micro_batch, PlantedRow::everywhere, make_planted<OnlyLastMicroBatch>},
    {Bug::all_forwards_first, PlantedRow::everywhere, make_planted<AllForwardsFirst>},
    {Bug::out_of_step_in_group, PlantedRow::on_one_rank, make_planted<OutOfStepInGroup>},
    {Bug::fewer_micro_batches, PlantedRow::on_one_rank, make_planted<FewerMicroBatches>},
    {Bug::backward_before_forward, PlantedRow::on_one_rank, make_planted<BackwardBeforeForward>},
    {Bug::scaled_at_every_stage, PlantedRow::everywhere, make_planted<ScaledAtEveryStage>},
    {Bug::half_message, PlantedRow::on_one_rank, make_planted<HalfMessage>},
    {Bug::gradient_sent_twice, PlantedRow::on_one_rank, make_planted<GradientSentTwice>},
    {Bug::skipped_collective, PlantedRow::on_one_rank, make_planted<SkippedCollective>},
    {Bug::swapped_buckets, PlantedRow::on_one_rank, make_planted<SwappedBuckets>},
    {Bug::wrong_count, PlantedRow::on_one_rank, make_planted<WrongCount>},
    {Bug::norm_left_out_by_empty, PlantedRow::everywhere, make_planted<NormLeftOutByEmpty>},
    {Bug::norm_left_out_by_one, PlantedRow::on_one_rank, make_planted<NormLeftOutByOne>},
    {Bug::never_reduced, PlantedRow::everywhere, make_planted<NeverReduced>},
    {Bug::gradients_never_zeroed, PlantedRow::everywhere, make_planted<GradientsNeverZeroed>},
    {Bug::idle_experts_keep_gradients, PlantedRow::everywhere, make_planted<IdleExpertsKeepGradients>},
    {Bug::tied_added_twice, PlantedRow::everywhere, make_planted<TiedAddedTwice>},
    {Bug::untied_embedding, PlantedRow::everywhere, make_planted<UntiedEmbedding>},
    {Bug::offload_norm_leaves_one_out, PlantedRow::on_one_rank, make_planted<OffloadNormLeavesOneOut>},
    {Bug::local_norm, PlantedRow::everywhere, make_planted<LocalNorm>},
    {Bug::clip_skips_replicated, PlantedRow::everywhere, make_planted<ClipSkipsReplicated>},
});

}  // namespace

std::span<const PlantedRow> bugs_before_vote() { return kRowsBeforeVote; }

}  // namespace seeksim::runtime
