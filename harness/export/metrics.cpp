#include "harness/export/metrics.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/input/json.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::seconds;

// As in reports: what is no number is a word.
Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace

std::string metrics_lines(const RunRecord& run) {
  std::string lines;
  const runtime::StepRecord* before = nullptr;
  for (const runtime::StepRecord& step : run.steps) {
    const auto value = [&](double of_step) { return run.has_values ? number(of_step) : Json(nullptr); };
    const Json line = {
        {"step", step.step},
        {"committed_s", seconds(step.committed_ns)},
        {"step_s", before == nullptr ? Json(nullptr) : Json(seconds(step.committed_ns - before->committed_ns))},
        {"loss", value(double(step.loss))},
        {"grad_norm", value(double(step.grad_norm))},
        {"lr", number(step.lr)},
        {"loss_scale", number(step.loss_scale)},
        {"skipped", step.skipped},
        {"epoch", step.epoch},
        {"samples", step.data_position}};
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
    before = &step;
  }
  return lines;
}

}  // namespace seeksim::harness
