#include "harness/verdict/figures.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/oracles/flops.h"
#include "harness/oracles/goodput.h"
#include "harness/oracles/inside_a_step.h"
#include "harness/verdict/checks.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::MemoryTag;
using runtime::seconds;
using Figure = std::optional<double>;

Figure of_last_step(const Evidence& e, float runtime::StepRecord::*number) {
  if (!e.run.has_values || e.run.steps.empty()) return std::nullopt;
  return double(e.run.steps.back().*number);
}

Figure model_state(const Evidence& e) {
  if (e.run.memory.peak_by_tag.size() < std::size_t(MemoryTag::count_)) return std::nullopt;
  double bytes = 0;
  for (const MemoryTag tag : {MemoryTag::parameters, MemoryTag::gradients, MemoryTag::optimizer})
    bytes += double(e.run.memory.peak_by_tag[std::size_t(tag)]);
  return bytes / 1e9;
}

// From the commit of one step to that of the next, in the mean.
Figure step_time(const Evidence& e) {
  if (e.run.steps.size() < 2) return std::nullopt;
  const auto& steps = e.run.steps;
  return seconds(steps.back().committed_ns - steps.front().committed_ns) / double(steps.size() - 1);
}

std::optional<Goodput> goodput_of(const Evidence& e) {
  if (!e.step_s) return std::nullopt;
  return goodput_of(e.run, *e.step_s, e.scenario.train.checkpoint.every_steps);
}

Figure formula(const Evidence& e, double Goodput::Formula::*number) {
  const std::optional<Goodput> goodput = goodput_of(e);
  if (!goodput || !goodput->formula) return std::nullopt;
  return *goodput->formula.*number;
}

Figure sent(const Evidence& e) {
  double bytes = 0;
  for (const sim::CommUse& use : e.run.traffic.comm) bytes += double(use.bytes_sent_per_rank_max);
  return bytes;
}

Figure failures(const Evidence& e) { return double(e.run.detection.ledger.interruptions().size()); }

Figure steps_lost(const Evidence& e) {
  std::int64_t lost = e.run.training.undone_steps;
  for (const Recovery& recovery : e.run.detection.recoveries) lost += recovery.steps_lost;
  return double(lost);
}

Figure bubble(const Evidence& e) {
  if (e.scenario.train.layout.parallel.pipeline < 2 || e.run.traffic.passes.empty()) return std::nullopt;
  return measured_bubble(e.run);
}

Figure slowdown(const Evidence& e) {
  if (!e.undisturbed_ns || *e.undisturbed_ns <= 0) return std::nullopt;
  return double(e.run.virtual_ns) / double(*e.undisturbed_ns);
}

std::vector<FigureInfo> made() {
  using Unit = FigureUnit;
  return {
      {"loss", Unit::number, [](const Evidence& e) { return of_last_step(e, &runtime::StepRecord::loss); },
       "of the last step that was committed"},
      {"grad_norm", Unit::number, [](const Evidence& e) { return of_last_step(e, &runtime::StepRecord::grad_norm); },
       "of the last step that was committed, before clipping"},
      {"steps", Unit::count, [](const Evidence& e) { return Figure(double(e.run.steps.size())); },
       "that were committed and last"},
      {"virtual_s", Unit::seconds, [](const Evidence& e) { return Figure(seconds(e.run.virtual_ns)); },
       "virtual time of the run; real time on processes"},
      {"step_s", Unit::seconds, step_time, "from one commit to the next, in the mean of the run"},
      {"step_flops", Unit::number,
       [](const Evidence& e) {
         const double flops = flops_of_step(e.scenario.train.definition);
         return flops > 0 ? Figure(flops) : std::nullopt;
       },
       "floating point operations of the matrix products of a step, over all ranks"},
      {"mfu", Unit::share,
       [](const Evidence& e) -> Figure {
         const Figure step_s = step_time(e);
         const auto& world = e.scenario.world;
         if (!step_s || *step_s <= 0) return std::nullopt;
         return flops_of_step(e.scenario.train.definition) /
                (*step_s * 1e9 * world.device.flops_per_ns * world.ranks());
       },
       "model FLOPs utilisation: step_flops as a share of what all devices could do in step_s, by world.device.tflops"},
      {"peak_bytes", Unit::bytes, [](const Evidence& e) { return Figure(double(e.run.memory.peak)); },
       "the most device memory in use on any rank"},
      {"host_peak_bytes", Unit::bytes, [](const Evidence& e) { return Figure(double(e.run.memory.host_peak)); },
       "the most host memory in use on any rank"},
      {"model_state_gb", Unit::gigabytes, model_state,
       "10^9 bytes of parameters, gradients and optimizer state on the rank that needs most"},
      {"sent_bytes", Unit::bytes, sent, "sent in all operations, each by the rank that sent most"},
      {"overlap", Unit::share, [](const Evidence& e) { return Figure(e.run.traffic.overlap.share()); },
       "of the communication of steps, hidden under compute"},
      {"bubble", Unit::share, bubble, "of the pipeline's time, in which stages wait"},
      {"failures", Unit::count, failures, "that some rank noticed"},
      {"recoveries", Unit::count, [](const Evidence& e) { return Figure(double(e.run.detection.recoveries.size())); },
       "that were made"},
      {"steps_lost", Unit::count, steps_lost, "committed steps that had to be trained again"},
      {"slowdown", Unit::number, slowdown, "virtual time, as a multiple of the same world's without faults"},
      {"goodput", Unit::share,
       [](const Evidence& e) {
         const std::optional<Goodput> goodput = goodput_of(e);
         return goodput ? Figure(goodput->ettr) : std::nullopt;
       },
       "of the virtual time that is steps which lasted (ETTR)"},
      {"lost", Unit::share,
       [](const Evidence& e) {
         const std::optional<Goodput> goodput = goodput_of(e);
         return goodput ? Figure(1 - goodput->ettr) : std::nullopt;
       },
       "of the virtual time, to checkpoints, failures and steps made again"},
      {"young_daly", Unit::share, [](const Evidence& e) { return formula(e, &Goodput::Formula::waste); },
       "what Young's and Daly's formula says is lost"},
      {"interval_s", Unit::seconds, [](const Evidence& e) { return formula(e, &Goodput::Formula::interval_s); },
       "from one checkpoint to the next"},
      {"best_interval_s", Unit::seconds,
       [](const Evidence& e) { return formula(e, &Goodput::Formula::best_interval_s); },
       "Young's and Daly's best interval between checkpoints, sqrt(2CM)"},
  };
}

// What a reader of this check's verdict wants to see of each run.
struct Shows {
  const char* check;
  std::vector<const char*> figures;
};
const std::vector<Shows>& shown_by_checks() {
  static const std::vector<Shows> rows = {
      {"finishes_within_virtual_s", {"virtual_s"}},
      {"recoveries", {"recoveries"}},
      {"steps_lost_at_most", {"steps_lost"}},
      {"loss_falls", {"loss"}},
      {"diverged", {"loss", "grad_norm"}},
      {"spikes", {"loss"}},
      {"tracks_fp32", {"loss"}},
      {"slowdown_at_least", {"slowdown", "virtual_s"}},
      {"goodput_at_least", {"goodput", "failures"}},
      {"young_daly", {"lost", "young_daly", "interval_s", "best_interval_s", "failures"}},
      {"overlap_at_least", {"overlap", "virtual_s"}},
      {"bubble_formula", {"bubble", "virtual_s"}},
      {"memory_formula", {"peak_bytes"}},
      {"model_state_gb", {"model_state_gb"}},
      {"traffic_formula", {"sent_bytes"}},
  };
  return rows;
}

}  // namespace

const std::vector<FigureInfo>& figure_catalogue() {
  static const std::vector<FigureInfo> all = made();
  return all;
}

const FigureInfo* find_figure(const std::string& name) {
  const auto& all = figure_catalogue();
  const auto found = std::find_if(all.begin(), all.end(), [&](const FigureInfo& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> figure_names() {
  std::vector<std::string> names;
  for (const FigureInfo& figure : figure_catalogue()) names.emplace_back(figure.name);
  return names;
}

Json figures_json(const Evidence& evidence) {
  Json figures = Json::object();
  for (const FigureInfo& figure : figure_catalogue()) {
    const Figure value = figure.value(evidence);
    figures[figure.name] = value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
  }
  return figures;
}

std::vector<std::string> shown_figures(const Scenario& scenario) {
  if (!scenario.watched.show.empty()) return scenario.watched.show;
  std::vector<std::string> shown;
  for (const Shows& row : shown_by_checks()) {
    const bool asked = std::any_of(scenario.checks.begin(), scenario.checks.end(),
                                   [&](const CheckSpec& check) { return check.name == row.check; });
    for (const char* figure : row.figures) {
      if (asked && std::find(shown.begin(), shown.end(), figure) == shown.end()) shown.emplace_back(figure);
    }
  }
  if (shown.empty()) shown = {"loss", "peak_bytes", "virtual_s"};
  return shown;
}

}  // namespace seeksim::harness
