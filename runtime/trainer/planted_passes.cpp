// Planted bugs of the passes: which samples are taken, in which order, with which gradients.
#include <algorithm>
#include <array>

#include "kernels/cast.h"
#include "runtime/trainer/edited_gradients.h"
#include "runtime/trainer/pipeline_links.h"
#include "runtime/trainer/planting.h"

namespace seeksim::runtime {
namespace {

using Kind = InstructionKind;

struct ResumeReplaysData final : Mistake {
  using Mistake::Mistake;
  std::int64_t step_of_batch(std::int64_t step, std::int64_t began_at) const override { return step - began_at; }
};

struct SamplesShifted final : Mistake {
  using Mistake::Mistake;
  std::int64_t first_sample(std::int64_t first) const override { return first + 1; }
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
          [factor = 1.0f / float(micro_batches)](kernels::Lane lane, kernels::Vec<S> all) {
            kernels::change_on_host(lane, all, [&](kernels::Vec<S> values) {
              for (Index k = 0; k < values.n; ++k) {
                float wide = 0;
                kernels::widen<S>(kernels::Lane{}, {values.data + k, 1}, {&wide, 1});
                wide *= factor;
                kernels::narrow<S>(kernels::Lane{}, {&wide, 1}, {values.data + k, 1});
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

constexpr auto kRows = std::to_array<PlantedRow>({
    {Bug::resume_replays_data, PlantedRow::everywhere, make_planted<ResumeReplaysData>},
    {Bug::samples_shifted, PlantedRow::on_one_rank, make_planted<SamplesShifted>},
    {Bug::rank_seeded_dropout, PlantedRow::everywhere, make_planted<RankSeededDropout>},
    {Bug::sample_twice, PlantedRow::on_one_rank, make_planted<SampleTwice>},
    {Bug::sample_lost, PlantedRow::on_one_rank, make_planted<SampleLost>},
    {Bug::wrong_weight, PlantedRow::on_one_rank, make_planted<WrongWeight>},
    {Bug::undivided_window, PlantedRow::everywhere, make_planted<UndividedWindow>},
    {Bug::divided_by_ways, PlantedRow::everywhere, make_planted<DividedByWays>},
    {Bug::last_micro_batch_lost, PlantedRow::everywhere, make_planted<LastMicroBatchLost>},
    {Bug::only_last_micro_batch, PlantedRow::everywhere, make_planted<OnlyLastMicroBatch>},
    {Bug::all_forwards_first, PlantedRow::everywhere, make_planted<AllForwardsFirst>},
    {Bug::fewer_micro_batches, PlantedRow::on_one_rank, make_planted<FewerMicroBatches>},
    {Bug::backward_before_forward, PlantedRow::on_one_rank, make_planted<BackwardBeforeForward>},
    {Bug::scaled_at_every_stage, PlantedRow::everywhere, make_planted<ScaledAtEveryStage>},
    {Bug::half_message, PlantedRow::on_one_rank, make_planted<HalfMessage>},
    {Bug::gradient_sent_twice, PlantedRow::on_one_rank, make_planted<GradientSentTwice>},
});

}  // namespace

std::span<const PlantedRow> bugs_of_passes() { return kRows; }

}  // namespace seeksim::runtime
