#include "harness/export/metrics.h"

#include "harness/input/json_text.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {

using runtime::seconds;

namespace {

// When the first rank committed a step, and since when before that.
void add_times(const RunRecord& run, std::int64_t step, Json& line) {
  const auto at = std::size_t(step);
  if (at >= run.steps.size()) return;
  line["committed_s"] = seconds(run.steps[at].committed_ns);
  if (step > run.training.resumed_from)
    line["step_s"] = seconds(run.steps[at].committed_ns - run.steps[at - 1].committed_ns);
}

// On the line of the step after which it was computed.
void add_held_out(const RunRecord& run, std::int64_t step, Json& line) {
  for (const runtime::EvaluationRecord& one : run.training.evaluations)
    if (one.steps == step + 1) line["eval_loss"] = run.has_values ? number_or_word(double(one.loss)) : Json(nullptr);
}

}  // namespace

std::string metrics_lines(const RunRecord& run, const StepLog& log,
                          const std::function<Json(std::int64_t step)>& alarms) {
  std::string lines;
  for (const auto& [place, row] : log.rows()) {
    const auto& [number, rank] = place;
    const runtime::StepRecord& step = row.told;
    const auto value = [&](double of_step) { return run.has_values ? number_or_word(of_step) : Json(nullptr); };
    Json line = {{"step", number},
                 {"committed_s", nullptr},
                 {"step_s", nullptr},
                 {"loss", value(double(step.loss))},
                 {"grad_norm", value(double(step.grad_norm))},
                 {"lr", number_or_word(step.lr)},
                 {"loss_scale", number_or_word(step.loss_scale)},
                 {"skipped", step.skipped},
                 {"epoch", step.epoch},
                 {"samples", step.data_position}};
    add_times(run, number, line);
    add_held_out(run, number, line);
    if (alarms) line["alarms"] = alarms(number);
    line["rank"] = rank;
    line["rank_committed_s"] = seconds(step.committed_ns);
    line["memory_bytes"] = row.memory ? Json(row.memory->now) : Json(nullptr);
    line["memory_peak_bytes"] = row.memory ? Json(row.memory->peak) : Json(nullptr);
    line["straggler_score"] = row.score ? number_or_word(*row.score) : Json(nullptr);
    line["ranks_alike"] = log.weight(rank);
    lines += line.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  }
  return lines;
}

}  // namespace seeksim::harness
