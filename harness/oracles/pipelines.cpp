#include "harness/oracles/pipelines.h"
#include "harness/scenario/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace seeksim::harness {

using runtime::ParallelPlan;
using runtime::PipelineSchedule;

double measured_bubble(const RunRecord& run) {
  double sum = 0;
  int steps = 0;
  for (std::size_t step = run.traffic.passes.size() > 1 ? 1 : 0; step < run.traffic.passes.size(); ++step, ++steps)
    sum += run.traffic.passes[step].bubble();
  return steps > 0 ? sum / steps : 0;
}

Finding bubble_formula(const Evidence& e, const std::string& percent) {
  const ParallelPlan& plan = e.scenario.train.layout.parallel;
  if (plan.pipeline == 1 || e.run.traffic.passes.empty()) return blind("there is no pipeline, or no step was made");
  if (plan.schedule == PipelineSchedule::zero_bubble) return blind("the zero_bubble schedule has a different formula");
  if (!e.run.detection.recoveries.empty()) return blind("there is no formula for a step that was run again");
  const double p = plan.pipeline, v = plan.virtual_stages, m = micro_batches_of_replica(e.scenario);
  const double formula = (p - 1) / (v * m + p - 1), measured = measured_bubble(e.run);
  const std::string detail = fmt::format(
      "{:.3f} % of the stages' time, and (p-1)/(v*m+p-1) is {:.3f} % for {} stages, {} micro-batches, {} "
      "piece{} a stage",
      100 * measured, 100 * formula, p, m, v, v == 1 ? "" : "s");
  return std::fabs(measured - formula) <= formula * std::stod(percent) / 100 ? good(detail) : bad(detail);
}

Finding live_activations(const Evidence& e, const std::string&) {
  const ParallelPlan& plan = e.scenario.train.layout.parallel;
  const bool stated = plan.schedule == PipelineSchedule::one_f_one_b || plan.schedule == PipelineSchedule::gpipe;
  if (e.run.traffic.pipeline.empty() || !stated) return blind("no rank reported a 1F1B or GPipe pipeline");
  std::string held;
  for (std::size_t rank = 0; rank < e.run.traffic.pipeline.size(); ++rank) {
    const runtime::PipelineRecord& told = e.run.traffic.pipeline[rank];
    if (told.in_flight.empty() || told.micro_batches == 0) continue;
    const bool all = plan.schedule == PipelineSchedule::gpipe;
    const int wanted = all ? told.micro_batches : std::min(plan.pipeline - told.stage, told.micro_batches);
    if (told.in_flight.front() != wanted) {
      return bad(fmt::format("stage {} (rank {}) holds the activations of {} micro-batches; {} says {}", told.stage,
                             rank, told.in_flight.front(), all ? "GPipe" : "1F1B", wanted));
    }
    held += fmt::format("{}{}", held.empty() ? "" : ", ", wanted);
  }
  return held.empty() ? blind("no rank has micro-batches") : good("micro-batches held, by rank: " + held);
}

}  // namespace seeksim::harness
