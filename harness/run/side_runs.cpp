#include "harness/run/side_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/oracles/fast_bounds.h"
#include "harness/oracles/reference_training.h"
#include "harness/report/progress.h"
#include "harness/run/determinism.h"
#include "harness/scenario/variants.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

SimulationOptions within(const RunOptions& options) {
  SimulationOptions simulation;
  simulation.wall_limit_s = options.wall_limit_s;
  return simulation;
}

RunRecord aside(const Judged& judged, const Scenario& other, const char* how) {
  return run_aside(other, judged.scenario.name + how, within(judged.options), judged.options.progress);
}

void without_faults(const Judged& judged, SideRuns&, Evidence& evidence) {
  evidence.undisturbed_ns = aside(judged, undisturbed(judged.scenario), " without faults").virtual_ns;
}

// The same training by the contract, with fast arithmetic at its side; by the same processes where they can.
void beside_the_contract(const Judged& judged, SideRuns& kept, Evidence& evidence) {
  const RunOptions& options = judged.options;
  const Scenario other = teacher(judged.scenario);
  SimulationOptions with = within(options);
  with.device = options.ranks.device;
  with.audit = fast_way(judged.scenario.train);
  const bool on_ranks = options.ranks.launch && options.ranks.launch_again;
  const RunRecord run = on_ranks ? options.ranks.launch(other, with, options.many.is_row)
                                 : run_aside(other, other.name, with, options.progress);
  kept.fast = compare_fast(run, on_ranks ? options.ranks.backend : "sim", *judged.golden);
  evidence.fast = &*kept.fast;
}

// How long a step of the same world takes without faults and checkpoints, after its first one. 0: it is too short.
void undisturbed_step(const Judged& judged, SideRuns&, Evidence& evidence) {
  constexpr std::int64_t kSteps = 21;
  Scenario calm = undisturbed(judged.scenario);
  calm.train.checkpoint = {};
  calm.train.recovery.restarts_max = 0;
  calm.train.definition.steps = std::min(kSteps, judged.scenario.train.definition.steps);
  const RunRecord run = aside(judged, calm, " without faults and checkpoints");
  evidence.step_s = 0;
  if (run.steps.size() < 2) return;
  evidence.step_s =
      double(run.steps.back().committed_ns - run.steps.front().committed_ns) / 1e9 / double(run.steps.size() - 1);
}

void in_fp32(const Judged& judged, SideRuns&, Evidence& evidence) {
  Scenario plain = without_quirks(one_rank(judged.scenario));
  plain.train.definition.precision = {};
  plain.train.definition.scaler = {};
  const RunRecord reference = aside(judged, plain, " in fp32");
  evidence.fp32_loss.emplace();
  for (const runtime::StepRecord& step : reference.steps) evidence.fp32_loss->push_back(step.loss);
}

void as_seeksim_does_it(const Judged& judged, SideRuns& kept, Evidence& evidence) {
  SimulationOptions options = within(judged.options);
  options.keep_final_weights = true;
  kept.without_quirks = run_aside(without_quirks(judged.scenario), judged.scenario.name + " without quirks", options,
                                  judged.options.progress);
  evidence.without_quirks = &*kept.without_quirks;
}

void against_the_reference(const Judged& judged, SideRuns& kept, Evidence& evidence) {
  const std::vector<CheckSpec>& checks = judged.scenario.checks;
  const bool whole =
      std::any_of(checks.begin(), checks.end(), [](const CheckSpec& check) { return check.text() == "reference"; });
  kept.reference = reference_run(judged.scenario, whole ? Judging::whole : Judging::ends, judged.options.wall_limit_s,
                                 judged.options.progress);
  evidence.reference = &*kept.reference;
}

void with_tags(const Judged& judged, SideRuns&, Evidence& evidence) {
  evidence.conservation = tagged_run(judged.scenario, judged.options.wall_limit_s);
}

// A second run with the same seed, compared with the first.
CheckResult same_again(const Judged& judged) {
  SimulationOptions again = simulation_options(judged.options);
  again.gradients_of = -1;
  again.digest_gradients = has(needs(judged.scenario), Needs::gradients);  // gathering them takes Ops
  again.keep_final_weights = false;
  Simulation second(judged.scenario, again);
  const RunRecord second_run = second.run();
  const std::string differs = first_difference(*judged.simulation, judged.run, second, second_run);
  std::uint64_t entries = 0;
  for (std::size_t rank = 0; rank < judged.run.ranks.size(); ++rank)
    entries += judged.simulation->recorder(int(rank)).log().size();
  if (!differs.empty()) return {"deterministic", false, differs};
  if (entries == 0) return {"deterministic", false, "looked at nothing: no Op was logged"};
  return {"deterministic", true,
          fmt::format("two runs, {} Ops each, fingerprint {}", entries, hex(judged.run.fingerprint))};
}

void once_more(const Judged& judged, SideRuns&, Evidence& evidence) { evidence.further.push_back(same_again(judged)); }

// What is needed, and the run that brings it to the evidence.
struct SideRun {
  Needs needs;
  void (*run)(const Judged& judged, SideRuns& kept, Evidence& evidence);
};
constexpr SideRun kSideRuns[] = {{Needs::undisturbed, without_faults},      {Needs::contract, beside_the_contract},
                                 {Needs::step, undisturbed_step},           {Needs::fp32, in_fp32},
                                 {Needs::no_quirks, as_seeksim_does_it},    {Needs::tagged, with_tags},
                                 {Needs::reference, against_the_reference}, {Needs::twice, once_more}};

}  // namespace

RunRecord run_aside(const Scenario& scenario, const std::string& what, SimulationOptions options, bool progress) {
  Progress bar(progress, what, scenario.train.definition.steps);
  options.progress = [&bar](TimeNs now, std::int64_t steps) { bar.update(now, steps); };
  RunRecord run = Simulation(scenario, options).run();
  if (run.end == sim::WorldEnd::out_of_wall_time && runtime::interrupted() != 0)
    throw OutOfTime(
        fmt::format("{} was ended by {} after {} steps", what, runtime::interrupt_text(), run.steps.size()));
  if (run.end == sim::WorldEnd::out_of_wall_time) {
    throw OutOfTime(fmt::format("{}: the wall-clock limit of {} s was reached after {} steps", what,
                                options.wall_limit_s, run.steps.size()));
  }
  return run;
}

Conservation tagged_run(const Scenario& scenario, double wall_limit_s) {
  const Scenario other = tagged(scenario);
  TagJudge judge(other.train);
  SimulationOptions options;
  options.wall_limit_s = wall_limit_s;
  options.on_gradients = [&](int rank, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
    judge.look(rank, step, gradients);
  };
  Simulation(other, options).run();
  return judge.result();
}

void listen(ReferenceJudge& judge, SimulationOptions& options) {
  options.looks_at = [&judge](std::int64_t step) { return judge.looks_at(step); };
  options.on_state = [&judge](std::int64_t step, Collector::State state) { judge.take_state(step, std::move(state)); };
  options.on_gradients = [&judge](int, std::int64_t step, const std::vector<runtime::NamedTensor>& gradients) {
    judge.take_gradients(step, gradients);
  };
}

ReferenceVerdict reference_run(const Scenario& scenario, Judging how, double wall_limit_s, bool progress) {
  const Scenario one = one_rank(scenario);
  const runtime::Definition& definition = one.train.definition;
  ReferenceVerdict verdict;
  verdict.unknown = not_in_reference(definition);
  if (!verdict.unknown.empty()) return verdict;
  ReferenceJudge judge(definition, how);
  SimulationOptions options;
  options.wall_limit_s = wall_limit_s;
  listen(judge, options);
  const RunRecord run = run_aside(one, scenario.name + " on one rank", options, progress);
  verdict = judge.judge(run);
  if (run.state()) verdict.golden = golden_of(run, golden_key(definition));
  return verdict;
}

SimulationOptions simulation_options(const RunOptions& options) {
  SimulationOptions simulation;
  simulation.gradients_of = options.files.save_gradients.empty() ? -1 : options.files.gradients_step - 1;
  simulation.keep_final_weights = !options.files.save_final.empty();
  simulation.wall_limit_s = options.wall_limit_s;
  simulation.device = options.ranks.device;
  simulation.rank_by_rank = options.rank_by_rank;
  return simulation;
}

void SideRuns::run(const Judged& judged, Needs wanted, Evidence& evidence) {
  for (const SideRun& one : kSideRuns) {
    if (has(wanted, one.needs)) one.run(judged, *this, evidence);
  }
}

}  // namespace seeksim::harness
