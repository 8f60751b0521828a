#include "harness/run/run.h"

#include <fmt/format.h>

#include <chrono>
#include <new>

#include "harness/explain/explain.h"
#include "harness/export/chrome_trace.h"
#include "harness/export/flight_recorder.h"
#include "harness/export/saved_files.h"
#include "harness/input/files.h"
#include "harness/loading/fast.h"
#include "harness/loading/load.h"
#include "harness/report/bundle.h"
#include "harness/report/progress.h"
#include "harness/run/determinism.h"
#include "harness/run/planned_run.h"
#include "harness/run/sweep_run.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/device.h"
#include "harness/simulate/simulate.h"

namespace seeksim::harness {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Before anything runs: can what was asked for be written?
void probe_files(const Scenario& scenario, const RunOptions& options) {
  if (!options.out.empty()) {
    make_folder(options.out, "--out");
    probe_writable(options.out + "/report.json", "--out");
  }
  if (!options.bundle.empty()) make_folder(options.bundle, "--bundle");
  if (!options.flight_recorder.empty()) make_folder(options.flight_recorder, "--flight-recorder");
  const std::pair<const char*, const std::string*> files[] = {{"--trace", &options.trace},
                                                              {"--save-initial", &options.save_initial},
                                                              {"--save-final", &options.save_final},
                                                              {"--save-batches", &options.save_batches},
                                                              {"--save-gradients", &options.save_gradients}};
  for (const auto& [option, file] : files) {
    if (!file->empty()) probe_writable(*file, option);
  }
  if (is_of_shapes(scenario) && (!options.save_final.empty() || !options.save_gradients.empty()))
    throw BadInput("--save-...", "a run of shapes has no values", "Use \"numerics\": \"exact\".");
  if (!options.save_gradients.empty() && options.gradients_step > scenario.train.definition.steps) {
    throw BadInput(fmt::format("--save-gradients {}:{}", options.gradients_step, options.save_gradients),
                   fmt::format("the scenario has {} steps", scenario.train.definition.steps),
                   "Steps are counted from 1 here.");
  }
}

// A run that serves the main one: the golden, the undisturbed world.
RunRecord run_aside(const Scenario& scenario, const std::string& what, SimulationOptions options, bool progress) {
  Progress bar(progress, what, scenario.train.definition.steps);
  options.progress = [&bar](TimeNs now, std::int64_t steps) { bar.update(now, steps); };
  RunRecord run = Simulation(scenario, options).run();
  if (run.end == sim::WorldEnd::out_of_wall_time) {
    throw OutOfTime(fmt::format("{}: the wall-clock limit of {} s was reached after {} steps", what,
                                options.wall_limit_s, run.steps.size()));
  }
  return run;
}
RunRecord run_aside(const Scenario& scenario, const std::string& what, double wall_limit_s, bool progress,
                    bool digest_gradients = false, bool keep_final_weights = false) {
  SimulationOptions options;
  options.wall_limit_s = wall_limit_s;
  options.digest_gradients = digest_gradients;
  options.keep_final_weights = keep_final_weights;
  return run_aside(scenario, what, std::move(options), progress);
}

// The same training by the contract, with fast arithmetic at its side; by the same processes where they can.
FastComparison beside_the_contract(const Scenario& scenario, const RunOptions& options, const Golden& golden) {
  const Scenario other = teacher(scenario);
  SimulationOptions with;
  with.wall_limit_s = options.wall_limit_s;
  with.device = options.device;
  with.audit = fast_way(scenario.train);
  const bool on_ranks = options.launch && options.launch_again;
  const RunRecord run =
      on_ranks ? options.launch(other, with, options.is_row) : run_aside(other, other.name, with, options.progress);
  return compare_fast(run, on_ranks ? options.backend : "sim", golden);
}

// Of the same world without faults and checkpoints, after its first step. 0: it is too short.
double undisturbed_step_s(const Scenario& scenario, const RunOptions& options) {
  constexpr std::int64_t kSteps = 21;
  Scenario calm = undisturbed(scenario);
  calm.train.checkpoint = {};
  calm.train.recovery.restarts_max = 0;
  calm.train.definition.steps = std::min(kSteps, scenario.train.definition.steps);
  const RunRecord run =
      run_aside(calm, scenario.name + " without faults and checkpoints", options.wall_limit_s, options.progress);
  if (run.steps.size() < 2) return 0;
  return double(run.steps.back().committed_ns - run.steps.front().committed_ns) / 1e9 / double(run.steps.size() - 1);
}

SimulationOptions simulation_options(const RunOptions& options) {
  SimulationOptions simulation;
  simulation.gradients_of = options.save_gradients.empty() ? -1 : options.gradients_step - 1;
  simulation.keep_final_weights = !options.save_final.empty();
  simulation.wall_limit_s = options.wall_limit_s;
  simulation.device = options.device;
  return simulation;
}

// A second run with the same seed, held against the first.
CheckResult same_again(const Scenario& scenario, const RunOptions& options, const Simulation& first,
                       const RunRecord& run) {
  SimulationOptions again = simulation_options(options);
  again.gradients_of = -1;
  again.digest_gradients = needs_gradients(scenario);  // gathering them takes Ops
  again.keep_final_weights = false;
  Simulation second(scenario, again);
  const RunRecord second_run = second.run();
  const std::string differs = first_difference(first, run, second, second_run);
  std::uint64_t entries = 0;
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) entries += first.recorder(int(rank)).log().size();
  if (!differs.empty()) return {"deterministic", false, differs};
  if (entries == 0) return {"deterministic", false, "looked at nothing: no Op was logged"};
  return {"deterministic", true, fmt::format("two runs, {} Ops each, fingerprint {}", entries, hex(run.fingerprint))};
}

void save_results(const Scenario& scenario, const RunOptions& options, const RunRecord& run) {
  if (!options.save_final.empty())
    save_tensors(options.save_final, run.final_weights, "weights after the last step", "--save-final");
  if (!options.save_gradients.empty()) {
    save_tensors(options.save_gradients, run.gradients,
                 fmt::format("gradients of step {}, reduced, unscaled, before clipping", options.gradients_step),
                 "--save-gradients");
  }
  if (!options.save_batches.empty()) save_batches(options.save_batches, scenario.train.definition);
}

// As an ordinary scenario: of the faults that were drawn, those that came.
Scenario as_it_ran(const Scenario& scenario, const RunRecord& run) {
  Scenario other = scenario;
  const std::size_t written = scenario.faults.size() - scenario.drawn_faults;
  other.faults.resize(written);
  other.drawn_faults = 0;
  for (std::size_t i = written; i < scenario.faults.size(); ++i) {
    if (run.faults.at(i).fired > 0) other.faults.push_back(scenario.faults[i]);
  }
  return other;
}

void save_folder(const Scenario& scenario, const RunRecord& run, const RunOptions& options, const Outcome& outcome,
                 const std::string& text) {
  if (options.out.empty()) return;
  write_file(options.out + "/scenario.json", dump(to_json(as_it_ran(scenario, run))));
  write_file(options.out + "/story.txt", text);
  write_file(options.out + "/junit.xml", junit_xml({outcome.report}));
  write_file(options.out + "/report.json", dump(outcome.report));
}

}  // namespace

Golden find_golden(const Scenario& scenario, const RunOptions& options, const Print& print) {
  const Style& style = options.style;
  std::optional<Golden> stored = stored_golden(scenario);
  if (stored && (!stored->gradients.empty() || !needs_gradients(scenario))) {
    print(style.faint(fmt::format("  golden    {}\n", stored->origin)));
    return *stored;
  }
  const std::string key = golden_key(one_rank(scenario).train.definition);
  Golden golden = run_golden(scenario, key, options.wall_limit_s, options.progress);
  print(style.faint(fmt::format("  golden    none is stored under {}: {} done first\n", key, golden.origin)));
  return golden;
}

Golden run_golden(const Scenario& scenario, const std::string& key, double wall_limit_s, bool progress) {
  const Scenario one = one_rank(scenario);
  const RunRecord run = run_aside(one, "golden of " + scenario.name, wall_limit_s, progress, needs_gradients(scenario));
  if (!run.state()) {
    const std::string why =
        run.ranks.empty() ? "" : fmt::format(": rank 0 {} {}", name(run.ranks[0].how), run.ranks[0].why);
    throw std::runtime_error("the undisturbed one-rank run did not finish" + why);
  }
  return golden_of(run, key);
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

Outcome run_scenario(const Scenario& given, const RunOptions& options, const Print& print) {
  if (options.explain && given.planned.any())
    throw BadInput("--explain", given.file + " is many runs",
                   "Explain one of them: the command that shows a red run alone is printed.");
  if (given.planned.any()) return run_fault_plan(given, options, print);
  const auto start = std::chrono::steady_clock::now();
  Scenario scenario = given;
  scenario.world.verify = options.verify_determinism;
  if (is_fast(scenario)) check_fast_device(options.device);
  probe_files(scenario, options);
  std::string text;
  const Print tell = [&](std::string_view part) {
    text += part;
    print(part);
  };
  tell(header_text(scenario, options.style));
  if (!options.save_initial.empty()) save_initial(options.save_initial, scenario.train.definition);

  std::optional<Golden> golden;
  if (options.golden != nullptr) {
    golden = *options.golden;
  } else if (needs_golden(scenario) || is_fast(scenario)) {
    golden = find_golden(scenario, options, tell);
  }
  SimulationOptions simulation_of = simulation_options(options);
  simulation_of.digest_gradients = needs_gradients(scenario);
  const bool quirky = scenario.train.definition.quirks.any();
  simulation_of.keep_final_weights |= quirky;
  simulation_of.timeline = !options.trace.empty();
  simulation_of.flight_recorder = !options.flight_recorder.empty() || !options.out.empty() || !options.bundle.empty();
  if (scenario.real_storage || (options.launch && !options.out.empty()))
    simulation_of.storage_folder = options.out.empty() ? "." : options.out;
  Progress bar(options.progress, scenario.name, scenario.train.definition.steps);
  simulation_of.progress = [&bar](TimeNs now, std::int64_t steps) { bar.update(now, steps); };
  std::optional<Simulation> simulation;
  const RunRecord run = options.launch ? options.launch(scenario, simulation_of, options.is_row)
                                       : simulation.emplace(scenario, simulation_of).run();
  bar.finish();

  Evidence evidence{scenario, run, golden ? &*golden : nullptr, std::nullopt, {}};
  if (needs_undisturbed(scenario)) {
    const Scenario calm = undisturbed(scenario);
    evidence.undisturbed_ns =
        run_aside(calm, scenario.name + " without faults", options.wall_limit_s, options.progress).virtual_ns;
  }
  std::optional<FastComparison> fast;
  if (is_fast(scenario)) {
    fast = beside_the_contract(scenario, options, *golden);
    evidence.fast = &*fast;
  }
  if (needs_step(scenario)) evidence.step_s = undisturbed_step_s(scenario, options);
  if (needs_fp32(scenario)) {
    Scenario plain = without_quirks(one_rank(scenario));
    plain.train.definition.precision = {};
    plain.train.definition.scaler = {};
    const RunRecord reference = run_aside(plain, scenario.name + " in fp32", options.wall_limit_s, options.progress);
    evidence.fp32_loss.emplace();
    for (const runtime::StepRecord& step : reference.steps) evidence.fp32_loss->push_back(step.loss);
  }
  std::optional<RunRecord> clean;
  if (quirky) {
    clean = run_aside(without_quirks(scenario), scenario.name + " without quirks", options.wall_limit_s,
                      options.progress, false, true);
    evidence.without_quirks = &*clean;
  }
  if (needs_tagged(scenario)) evidence.conservation = tagged_run(scenario, options.wall_limit_s);
  if (options.verify_determinism) evidence.further.push_back(same_again(scenario, options, *simulation, run));
  const Judgement judgement = judge(evidence);
  tell(story_text(evidence, judgement, options.style));
  if (judgement.status != ExitStatus::as_expected && options.backend == "sim")
    tell(replay_text(evidence, options.style));
  if (judgement.status == ExitStatus::bug) tell(report_a_bug(scenario));
  if (!options.trace.empty()) {
    write_file(options.trace, chrome_trace(*simulation->timeline(), scenario, run));
    tell(options.style.faint(trace_summary(*simulation->timeline(), options.trace)));
  }

  Outcome outcome{judgement.status,
                  scenario.name,
                  report_json(evidence, judgement, {options.backend, options.device, seconds_since(start)}),
                  {}};
  if (options.explain) {
    const Explanation why = explain(scenario, outcome.report, options.wall_limit_s);
    tell(explanation_text(why, options.style));
    outcome.report["explanation"] = explanation_json(why);
  }
  save_results(scenario, options, run);
  save_folder(scenario, run, options, outcome, text);
  if (!options.flight_recorder.empty()) write_dumps(options.flight_recorder, scenario, run);
  const std::string bundle = !options.bundle.empty() ? options.bundle
                             : options.out.empty()   ? ""
                                                     : options.out + "/bundle";
  if (!bundle.empty() && wants_bundle(judgement)) write_bundle(bundle, evidence, judgement, text);
  return outcome;
}

Outcome guarded(const std::string& name, const std::string& again, const std::function<Outcome()>& run) {
  const auto failed = [&](const char* verdict, ExitStatus status, std::vector<std::string> problems) {
    return Outcome{status, name, failure_json(name, verdict, status, problems), problems};
  };
  try {
    return run();
  } catch (const BadInput& bad) {
    std::vector<std::string> problems;
    for (const Problem& problem : bad.problems()) problems.push_back(problem.text());
    return failed("bad_input", ExitStatus::bad_input, std::move(problems));
  } catch (const OutOfTime& late) {
    return failed("no_progress", ExitStatus::no_progress, {fmt::format("{}: {}", name, late.what())});
  } catch (const std::bad_alloc&) {
    return failed("bad_input", ExitStatus::bad_input,
                  {name + ": the machine has not enough memory. Use fewer ranks or a smaller model."});
  } catch (const std::exception& error) {
    return failed("bug", ExitStatus::bug,
                  {fmt::format("{}: this is a bug in seeksim: {}", name, error.what()),
                   fmt::format("please report it with the scenario and the command: {}", again)});
  }
}

Outcome run_text(std::string_view text, const std::string& file, const LoadOptions& load, const RunOptions& options,
                 const Print& print) {
  return guarded(file, "seeksim run " + file, [&] {
    const Scenario scenario = load_scenario_text(text, file, load);
    if (!scenario.sweep.empty()) return run_sweep(scenario, load, options, print);
    return run_scenario(scenario, options, print);
  });
}

Outcome run_file(const std::string& file, const LoadOptions& load, const RunOptions& options, const Print& print) {
  const std::string seed = load.seed ? fmt::format(" --seed {}", *load.seed) : "";
  return guarded(file, fmt::format("seeksim run {}{}", file, seed), [&] {
    const Scenario scenario = load_scenario(file, load);
    if (options.explain && !scenario.sweep.empty() && options.row < 0)
      throw BadInput("--explain", file + " is a sweep", "Add --row N.");
    if (!scenario.sweep.empty()) return run_sweep(scenario, load, options, print);
    if (options.row >= 0) throw BadInput("--row", file + " has no sweep", "Leave it out.");
    return run_scenario(scenario, options, print);
  });
}

}  // namespace seeksim::harness
