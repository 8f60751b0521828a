#include "harness/export/tensorboard.h"

#include "harness/export/event_file.h"
#include "harness/input/files.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {

using runtime::seconds;

void write_tensorboard(const std::string& folder, const RunRecord& run) {
  EventFile file;
  TimeNs before = -1;
  for (const runtime::StepRecord& step : run.steps) {
    const double at = seconds(step.committed_ns);
    const auto put = [&](const char* tag, double value) { file.scalar(tag, step.step, at, float(value)); };
    if (run.has_values) {
      put("train/loss", double(step.loss));
      put("train/grad_norm", double(step.grad_norm));
      put("train/loss_scale", step.loss_scale);
      put("train/skipped", step.skipped ? 1 : 0);
    }
    put("train/lr", step.lr);
    if (before >= 0) put("time/step_s", seconds(step.committed_ns - before));
    before = step.committed_ns;
  }
  for (const runtime::EvaluationRecord& one : run.training.evaluations) {
    if (run.has_values) file.scalar("eval/loss", one.steps - 1, seconds(one.at_ns), one.loss);
  }
  const std::int64_t last = run.steps.empty() ? 0 : run.steps.back().step;
  const auto peak = [&](const std::string& tag, std::size_t bytes) {
    file.scalar("memory/peak_bytes/" + tag, last, seconds(run.virtual_ns), float(bytes));
  };
  peak("all", run.memory.peak);
  for (std::size_t tag = 0; tag < run.memory.peak_by_tag.size(); ++tag) {
    if (run.memory.peak_by_tag[tag] > 0) peak(std::string(name(runtime::MemoryTag(tag))), run.memory.peak_by_tag[tag]);
  }
  make_folder(folder, "--tensorboard");
  write_file(folder + "/events.out.tfevents.0.seeksim", file.bytes());
}

}  // namespace seeksim::harness
