#include "harness/export/metrics.h"

#include "harness/input/json_text.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {

using runtime::seconds;

std::string metrics_lines(const RunRecord& run, const std::function<Json(std::int64_t step)>& alarms) {
  std::string lines;
  const runtime::StepRecord* before = nullptr;
  for (const runtime::StepRecord& step : run.steps) {
    const auto value = [&](double of_step) { return run.has_values ? number_or_word(of_step) : Json(nullptr); };
    Json line = {
        {"step", step.step},
        {"committed_s", seconds(step.committed_ns)},
        {"step_s", before == nullptr ? Json(nullptr) : Json(seconds(step.committed_ns - before->committed_ns))},
        {"loss", value(double(step.loss))},
        {"grad_norm", value(double(step.grad_norm))},
        {"lr", number_or_word(step.lr)},
        {"loss_scale", number_or_word(step.loss_scale)},
        {"skipped", step.skipped},
        {"epoch", step.epoch},
        {"samples", step.data_position}};
    if (alarms) line["alarms"] = alarms(step.step);
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
    before = &step;
  }
  return lines;
}

}  // namespace seeksim::harness
