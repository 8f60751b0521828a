#include "harness/commands/schedule_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/input/problem.h"
#include "harness/loading/extensions.h"
#include "harness/report/terminal.h"
#include "runtime/plan/pipeline_schedule.h"

namespace seeksim::harness {
namespace {

using runtime::PipelineSchedule;

// A wider table helps no reader.
constexpr int kUnitsMax = 4096;

runtime::PipelineShape shape_of(const ScheduleArguments& a) {
  runtime::PipelineShape shape;
  shape.schedule = runtime::pipeline_schedule(a.schedule);
  if (shape.schedule >= PipelineSchedule::own) {
    shape.schedule = PipelineSchedule::own;
    shape.rule = own_schedule(a.schedule);
    if (shape.rule == nullptr)
      throw BadInput("--schedule " + a.schedule, "there is no such schedule",
                     did_you_mean(a.schedule, schedule_names()));
  }
  shape.stages = a.stages;
  shape.micro_batches = a.micro_batches;
  shape.chunks = a.chunks > 0 ? a.chunks : shape.schedule == PipelineSchedule::interleaved ? 2 : 1;
  shape.group = a.group;
  const std::string why = problem(shape);
  if (!why.empty()) throw BadInput("list schedule", why, "Change --pipeline, --micro-batches, --chunks or --group.");
  if (std::int64_t(shape.stages) + std::int64_t(shape.micro_batches) * shape.chunks > kUnitsMax)
    throw BadInput("list schedule", "such a table has too many columns", "Take fewer stages or micro-batches.");
  if (a.stage >= shape.stages)
    throw BadInput("--stage", fmt::format("there is no stage {}", a.stage), fmt::format("0 to {}.", shape.stages - 1));
  return shape;
}

void put_list(const runtime::PipelineShape& shape, int stage) {
  put(fmt::format("\nstage {}, tick by tick:\n", stage));
  int number = 0;
  for (const runtime::Tick& tick : stage_schedule(shape, stage)) {
    std::string line;
    for (const runtime::Instruction& instruction : tick) line += ' ' + text(instruction);
    put_data(fmt::format("{:4}{}\n", number++, line.empty() ? " -" : line));
  }
}

}  // namespace

ExitStatus schedule_command(const ScheduleArguments& arguments, const Style& style) {
  const runtime::PipelineShape shape = shape_of(arguments);
  const runtime::PipelineTimes times = pipeline_times(shape);
  const bool splits =
      shape.schedule == PipelineSchedule::zero_bubble || (shape.rule != nullptr && shape.rule->splits_backward());
  put_data(schedule_table(shape));
  put(fmt::format(
      "\n{}: F forward 1, {}; .. waits. {} units, {:.4g} % of them waiting; live activations by stage {}.\n",
      style.bold(arguments.schedule), splits ? "I gradient of the input 1, W of the weights 1" : "B backward 2",
      times.end, 100 * times.bubble(), fmt::join(times.live_activations, " ")));
  if (arguments.stage >= 0) put_list(shape, arguments.stage);
  return ExitStatus::as_expected;
}

}  // namespace seeksim::harness
