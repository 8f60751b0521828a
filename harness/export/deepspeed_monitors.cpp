#include "harness/export/deepspeed_monitors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "harness/export/event_file.h"
#include "harness/input/files.h"
#include "harness/input/problem.h"
#include "runtime/plan/changes.h"
#include "runtime/plan/learning_rate.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

struct Event {
  const char* metric;  // Train/Samples/METRIC
  std::int64_t samples = 0;
  double value = 0;
  double at_s = 0;
};

std::string folder_below(const Monitor& monitor, const std::string& below) {
  const std::string folder = folder_of(monitor);
  return folder.empty() ? "" : folder + below;
}

void make_one(const Monitor& monitor, const std::string& below, const char* key) {
  const std::string folder = folder_below(monitor, below);
  if (!monitor.enabled || folder.empty()) return;
  std::error_code failed;
  const std::filesystem::path here = std::filesystem::canonical(".", failed),
                              there = std::filesystem::weakly_canonical(here / folder, failed);
  if (failed || std::mismatch(here.begin(), here.end(), there.begin(), there.end()).first != here.end()) {
    throw BadInput(fmt::format("deepspeed.{}", key), folder + " leads out of the working folder by a link",
                   "Name another output_path, or remove the link.");
  }
  make_folder(folder, fmt::format("deepspeed.{}", key));
}

// What the next step would use, were there one.
double rate_after(const Scenario& scenario, const RunRecord& run) {
  const runtime::Definition& d = scenario.train.definition;
  const runtime::StepRecord& last = run.steps.back();
  std::vector<std::int64_t> undone;
  for (const runtime::DivergenceRecord& one : run.detection.divergences) undone.push_back(one.undoes_change);
  const std::int64_t applied = last.optimizer_steps - runtime::optimizer_start(d.quirks).steps;
  return runtime::learning_rate(d.scheduler, d.optimizer.lr, applied) *
         runtime::in_force(d, undone, last.step + 1).lr_scale;
}

std::vector<Event> events_of(const Scenario& scenario, const RunRecord& run) {
  std::vector<Event> events;
  const bool scales = scenario.train.definition.precision.compute == runtime::ElementType::f16 && run.has_values;
  const std::optional<runtime::StateDigest> end = run.state();
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    const runtime::StepRecord& step = run.steps[i];
    const runtime::StepRecord* const next = i + 1 < run.steps.size() ? &run.steps[i + 1] : nullptr;
    const auto put = [&](const char* metric, double value) {
      events.push_back({metric, step.data_position, value, runtime::seconds(step.committed_ns)});
    };
    if (run.has_values) put("train_loss", double(step.loss));
    put("lr", next != nullptr ? next->lr : rate_after(scenario, run));
    if (scales && (next != nullptr || end)) put("loss_scale", next != nullptr ? next->loss_scale : end->loss_scale);
  }
  return events;
}

// As Python prints it.
std::string python_number(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void write_csv(const std::string& folder, const std::vector<Event>& events) {
  for (const char* metric : {"lr", "train_loss", "loss_scale"}) {
    std::string rows;  // lines end as Python's csv module ends them
    for (const Event& event : events) {
      if (std::string_view(event.metric) == metric)
        rows += fmt::format("{},{}\r\n", event.samples, python_number(event.value));
    }
    if (!rows.empty())
      write_file(fmt::format("{}/Train_Samples_{}.csv", folder, metric), fmt::format("step,{}\r\n{}", metric, rows));
  }
}

void write_event_file(const std::string& folder, const std::vector<Event>& events) {
  EventFile file;
  for (const Event& event : events)
    file.scalar(std::string("Train/Samples/") + event.metric, event.samples, event.at_s, float(event.value));
  write_file(folder + "/events.out.tfevents.0.seeksim", file.bytes());
}

}  // namespace

void make_monitor_folders(const Monitors& monitors, const std::string& below) {
  make_one(monitors.tensorboard, below, "tensorboard");
  make_one(monitors.csv, below, "csv_monitor");
}

void write_monitor_files(const Scenario& scenario, const RunRecord& run, const std::string& below) {
  const Monitors& monitors = scenario.watched.monitors;
  const auto folder = [&](const Monitor& monitor) { return monitor.enabled ? folder_below(monitor, below) : ""; };
  if (const std::string to = folder(monitors.tensorboard); !to.empty()) write_event_file(to, events_of(scenario, run));
  if (const std::string to = folder(monitors.csv); !to.empty()) write_csv(to, events_of(scenario, run));
}

}  // namespace seeksim::harness
