#include "harness/run/one_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>

#include "harness/archive/kept_runs.h"
#include "harness/export/chrome_trace.h"
#include "harness/export/deepspeed_monitors.h"
#include "harness/export/flight_recorder.h"
#include "harness/export/metrics.h"
#include "harness/export/saved_files.h"
#include "harness/export/tensorboard.h"
#include "harness/html/report_page.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/loading/features/cpu_only.h"
#include "harness/loading/load.h"
#include "harness/oracles/alarms.h"
#include "harness/oracles/reference_training.h"
#include "harness/report/bundle.h"
#include "harness/report/progress.h"
#include "harness/run/first_logits.h"
#include "harness/run/memory_reserve.h"
#include "harness/run/side_runs.h"
#include "harness/scenario/variants.h"
#include "harness/simulate/device.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/wire/process_world.h"
#include "runtime/recovery/train.h"
#include "sim/core.h"

namespace seeksim::harness {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Before anything runs: can what was asked for be written?
void probe_files(const Scenario& scenario, const FileOptions& files) {
  if (!files.out.empty()) {
    make_folder(files.out, "--out");
    probe_writable(files.out + "/report.json", "--out");
  }
  if (!files.bundle.empty()) make_folder(files.bundle, "--bundle");
  if (!files.flight_recorder.empty()) make_folder(files.flight_recorder, "--flight-recorder");
  if (!files.tensorboard.empty()) make_folder(files.tensorboard, "--tensorboard");
  if (files.monitors) make_monitor_folders(scenario.watched.monitors, files.monitors_below);
  const std::pair<const char*, const std::string*> each[] = {{"--trace", &files.trace},
                                                             {"--metrics", &files.metrics},
                                                             {"--html", &files.html.file},
                                                             {"--save-batches", &files.save_batches},
                                                             {"--save-logits", &files.save_logits},
                                                             {"--save-gradients", &files.save_gradients}};
  for (const auto& [option, file] : each) {
    if (!file->empty()) probe_writable(*file, option);
  }
  const std::pair<const char*, const std::string*> models[] = {{"--save-initial", &files.save_initial},
                                                               {"--save-final", &files.save_final}};
  for (const auto& [option, path] : models) {
    if (path->empty()) continue;
    if (is_folder_to_save(*path)) make_folder(*path, option);
    probe_writable(is_folder_to_save(*path) ? *path + "/config.json" : *path, option);
  }
  if (is_of_shapes(scenario) &&
      (!files.save_final.empty() || !files.save_gradients.empty() || !files.save_logits.empty()))
    throw BadInput("--save-...", "a shapes-only run has no values", "Use \"numerics\": \"exact\".");
  if (!files.save_gradients.empty() && files.gradients_step > scenario.train.definition.steps) {
    throw BadInput(fmt::format("--save-gradients {}:{}", files.gradients_step, files.save_gradients),
                   fmt::format("the scenario has {} steps", scenario.train.definition.steps),
                   "Steps are counted from 1 here.");
  }
}

// Found before, stored, or run now; none where nothing is compared with one.
std::optional<Golden> golden_for(const Scenario& scenario, Needs wanted, const RunOptions& options,
                                 const Print& print) {
  if (options.golden != nullptr) return *options.golden;
  if (!has(wanted, Needs::golden) && !has(wanted, Needs::contract)) return std::nullopt;
  return find_golden(scenario, options, print);
}

// The judged run. `simulation` stays empty where it is on ranks of another kind.
RunRecord run_judged(const Scenario& scenario, Needs wanted, const RunOptions& options,
                     std::optional<Simulation>& simulation, StepLog& step_log) {
  const FileOptions& files = options.files;
  SimulationOptions how = simulation_options(options);
  how.digest_gradients = has(wanted, Needs::gradients);
  how.keep_final_weights |= has(wanted, Needs::no_quirks);
  how.timeline = !files.trace.empty() || !files.html.file.empty();
  how.step_log = files.metrics.empty() ? nullptr : &step_log;
  how.flight_recorder = !files.flight_recorder.empty() || !files.out.empty() || !files.bundle.empty();
  if (scenario.real_storage || (options.ranks.launch && !files.out.empty()))
    how.storage_folder = files.out.empty() ? "." : files.out;
  Progress bar(options.progress, scenario.name, scenario.train.definition.steps);
  how.progress = [&bar](TimeNs now, std::int64_t steps) { bar.update(now, steps); };
  RunRecord run = options.ranks.launch ? options.ranks.launch(scenario, how, options.many.is_row)
                                       : simulation.emplace(scenario, how).run();
  bar.finish();
  for (const Alarm& alarm : raised_alarms(scenario, run))
    run.events.push_back({alarm.passings.front().at_ns, -1, text_of(alarm)});
  return run;
}

std::string metrics_of(const Evidence& e, const StepLog& steps) {
  if (!e.scenario.watched.alarms.any()) return metrics_lines(e.run, steps);
  const std::vector<Alarm> raised = raised_alarms(e.scenario, e.run);
  return metrics_lines(e.run, steps, [&](std::int64_t step) { return Json(alarms_in_step(raised, step)); });
}

// Files that are written one after the other: what cannot be written keeps none of the others from being tried.
class Files {
 public:
  template <class Write>
  void write(Write write) {
    try {
      write();
    } catch (const BadInput& bad) {
      for (const Problem& problem : bad.problems()) problems_.push_back(problem.text());
    }
  }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  std::vector<std::string> problems_;
};

void tell_story(const Evidence& evidence, const Judgement& judgement, const RunOptions& options,
                const std::optional<Simulation>& simulation, Files& written, const Print& tell) {
  const std::string& trace = options.files.trace;
  tell(story_text(evidence, judgement, options.style));
  if (judgement.status != ExitStatus::as_expected && options.ranks.backend == "sim")
    tell(replay_text(evidence, options.style));
  if (judgement.status == ExitStatus::bug) tell(report_a_bug(evidence.scenario));
  if (trace.empty()) return;
  written.write([&] {
    write_file(trace, chrome_trace(*simulation->timeline(), evidence.scenario, evidence.run));
    tell(options.style.faint(trace_summary(*simulation->timeline(), trace)));
  });
}

SavedWeights how_saved(const FileOptions& files, const std::string& path, const char* option) {
  return {path, files.save_dtype, files.save_shard_bytes, option};
}

void save_results(const Scenario& scenario, const FileOptions& files, const RunRecord& run, Files& written) {
  if (!files.save_final.empty()) {
    written.write([&] {
      save_weights(how_saved(files, files.save_final, "--save-final"), scenario.train.definition.model,
                   run.training.final_weights, "weights after the last step");
    });
  }
  if (!files.save_gradients.empty()) {
    written.write([&] {
      save_tensors(files.save_gradients, run.training.gradients,
                   fmt::format("gradients of step {}, reduced, unscaled, before clipping", files.gradients_step),
                   "--save-gradients");
    });
  }
  if (!files.save_batches.empty()) written.write([&] { save_batches(files.save_batches, scenario.train.definition); });
  if (!files.save_logits.empty()) {
    written.write([&] {
      save_tensors(files.save_logits, {first_logits(scenario)}, "logits of the first batch by the initial weights",
                   "--save-logits");
    });
  }
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

void write_files(const Evidence& evidence, const Judgement& judgement, const FileOptions& files, const Json& report,
                 const std::string& text, Files& written) {
  const Scenario& scenario = evidence.scenario;
  written.write([&] { write_folder(files.out, to_json(as_it_ran(scenario, evidence.run)), text, report); });
  save_results(scenario, files, evidence.run, written);
  if (!files.tensorboard.empty()) written.write([&] { write_tensorboard(files.tensorboard, evidence.run); });
  if (files.monitors) written.write([&] { write_monitor_files(scenario, evidence.run, files.monitors_below); });
  if (!files.flight_recorder.empty())
    written.write([&] { write_dumps(files.flight_recorder, scenario, evidence.run); });
  const std::string bundle = !files.bundle.empty() ? files.bundle : files.out.empty() ? "" : files.out + "/bundle";
  if (!bundle.empty() && wants_bundle(judgement))
    written.write([&] { write_bundle(bundle, evidence, judgement, text); });
}

void write_page_of_run(const Evidence& evidence, const HtmlOptions& html, const Json& report,
                       const std::optional<Simulation>& simulation, Files& written) {
  if (html.file.empty()) return;
  written.write([&] {
    write_file(html.file, html::report_page({report, html.command, html.redact, &evidence.run,
                                             simulation ? simulation->timeline() : nullptr, evidence.golden}));
  });
}

// A check that these ranks cannot be judged by.
struct SkippedCheck {
  std::string name, why;
};

// Takes them out. Throws BadInput where nothing would be left of what was asked for.
std::vector<SkippedCheck> take_skipped(Scenario& scenario, const RanksOptions& ranks) {
  std::vector<SkippedCheck> skipped;
  if (!ranks.why_skipped) return skipped;
  std::vector<CheckSpec> judged;
  for (const CheckSpec& check : scenario.checks) {
    const char* why = ranks.why_skipped(check.name);
    if (why == nullptr)
      judged.push_back(check);
    else
      skipped.push_back({check.text(), why});
  }
  if (!skipped.empty() && judged.empty()) {
    throw BadInput(scenario.file,
                   fmt::format("--backend {}: each of its checks would be skipped, {} for one: {}", ranks.backend,
                               skipped.front().name, skipped.front().why),
                   "Add a check that real ranks can be judged by, such as golden:bitwise, or use --backend sim.");
  }
  scenario.checks = std::move(judged);
  return skipped;
}

std::string skipped_text(const std::vector<SkippedCheck>& skipped) {
  std::string text;
  for (const SkippedCheck& check : skipped) text += fmt::format("  skip      {}: {}\n", check.name, check.why);
  return text;
}

void add_skipped(const std::vector<SkippedCheck>& skipped, Json& report) {
  for (const SkippedCheck& check : skipped)
    report["checks"].push_back({{"name", check.name}, {"ok", true}, {"detail", check.why}, {"skipped", true}});
}

// On processes some may be gone though the others came through. The last line says so.
void add_who_came_to_the_end(const RunRecord& run, Judgement& judgement) {
  const auto ended = std::count_if(run.ranks.begin(), run.ranks.end(),
                                   [](const RankRecord& rank) { return rank.how == RankRecord::How::finished; });
  judgement.sentence += fmt::format("; {} of {} ranks came to the end", ended, run.ranks.size());
}

}  // namespace

bool wants_names(const Outcome& outcome) {
  if (outcome.status != ExitStatus::check_failed || !outcome.report.contains("checks")) return false;
  constexpr std::array<std::string_view, 4> kOfBits = {"golden", "replicas_equal", "ranks_agree", "conservation"};
  const Json& checks = outcome.report.at("checks");
  return std::any_of(checks.begin(), checks.end(), [&](const Json& check) {
    const std::string name = check.at("name").get<std::string>();
    const bool of_bits = std::find(kOfBits.begin(), kOfBits.end(), name.substr(0, name.find(':'))) != kOfBits.end();
    return of_bits && !check.at("ok").get<bool>() && check.value("looked", true);
  });
}

Golden find_golden(const Scenario& scenario, const RunOptions& options, const Print& print) {
  const Style& style = options.style;
  std::optional<Golden> stored = stored_golden(scenario);
  if (stored && (!stored->gradients.empty() || !needs_gradients(scenario))) {
    print(style.faint(fmt::format("  golden    fault-free run on one rank: {}\n", stored->origin)));
    return *stored;
  }
  const std::string key = golden_key(one_rank(scenario).train.definition);
  Golden golden = run_golden(scenario, key, options.wall_limit_s, options.progress);
  const std::string judged = golden.judged ? fmt::format(", judged in {:.2f} s", golden.judged->wall_s) : "";
  print(style.faint(fmt::format("  golden    fault-free run on one rank, done first ({}{}); none is stored under {}\n",
                                golden.origin, judged, key)));
  return golden;
}

Golden run_golden(const Scenario& scenario, const std::string& key, double wall_limit_s, bool progress) {
  const Scenario one = one_rank(scenario);
  SimulationOptions options;
  options.wall_limit_s = wall_limit_s;
  options.digest_gradients = needs_gradients(scenario);
  // Nobody judges himself. Where the scenario asks for it, more is judged in a run of its own.
  std::optional<ReferenceJudge> judge;
  if (not_in_reference(one.train.definition).empty() && !has(needs(scenario), Needs::reference))
    listen(judge.emplace(one.train.definition, Judging::beside_golden), options);
  const RunRecord run = run_aside(one, "golden of " + scenario.name, options, progress);
  if (!run.state()) {
    const std::string why =
        run.ranks.empty() ? "" : fmt::format(": rank 0 {} {}", name(run.ranks[0].how), run.ranks[0].why);
    throw std::runtime_error("the undisturbed one-rank run did not finish" + why);
  }
  Golden golden = golden_of(run, key);
  if (judge) golden.judged = std::make_shared<const ReferenceVerdict>(judge->judge(run));
  return golden;
}

Outcome run_one(const Scenario& given, const RunOptions& options, const Print& print) {
  const auto start = std::chrono::steady_clock::now();
  Scenario scenario = given;
  const std::vector<SkippedCheck> skipped = take_skipped(scenario, options.ranks);
  scenario.world.verify = options.verify_determinism;
  check_device(scenario, {options.ranks.device, options.ranks.backend});
  if (is_fast(scenario)) check_fast_device(options.ranks.device);
  probe_files(scenario, options.files);
  const FolderLock alone(options.files.out, "--out");
  const RunKeeper keeper(options.files.out, to_json(scenario), scenario.name);
  std::string text;
  const Print tell = [&](std::string_view part) {
    text += part;
    print(part);
  };
  tell(header_text(scenario, options.style));
  tell(skipped_text(skipped));
  if (const FileOptions& files = options.files; !files.save_initial.empty()) {
    const runtime::Definition& definition = scenario.train.definition;
    save_weights(how_saved(files, files.save_initial, "--save-initial"), definition.model,
                 runtime::initial_weights(definition), "initial weights");
  }

  const Needs wanted = needs(scenario) | (options.verify_determinism ? Needs::twice : Needs::nothing);
  const std::optional<Golden> golden = golden_for(scenario, wanted, options, tell);
  std::optional<Simulation> simulation;
  StepLog steps;
  const RunRecord run = run_judged(scenario, wanted, options, simulation, steps);
  Evidence evidence{scenario, run, golden ? &*golden : nullptr, std::nullopt, {}};
  SideRuns beside;
  if (runtime::interrupted() == 0)
    beside.run({scenario, options, run, evidence.golden, simulation ? &*simulation : nullptr}, wanted, evidence);
  Judgement judgement = judge(evidence);
  if (!skipped.empty()) judgement.sentence += fmt::format(", {} skipped", skipped.size());
  if (options.ranks.launch) add_who_came_to_the_end(run, judgement);

  Outcome outcome{judgement.status,
                  scenario.name,
                  report_json(evidence, judgement, {options.ranks.backend, options.ranks.device, seconds_since(start)}),
                  {}};
  add_skipped(skipped, outcome.report);
  if (options.names && !options.explain && wants_names(outcome)) {
    const RunOptions::Page first = options.names(scenario, outcome.report);
    tell(first.text);
    outcome.report["names"] = first.json;
  }
  Files written;
  tell_story(evidence, judgement, options, simulation, written, tell);
  if (options.explain) {
    const RunOptions::Page page = options.explain(scenario, outcome.report);
    tell(page.text);
    outcome.report["explanation"] = page.json;
  }
  write_files(evidence, judgement, options.files, outcome.report, text, written);
  if (const std::string& file = options.files.metrics; !file.empty())
    written.write([&] { write_file(file, metrics_of(evidence, steps)); });
  write_page_of_run(evidence, options.files.html, outcome.report, simulation, written);
  written.write([&] { keeper.ended(outcome.report); });
  outcome.problems = written.problems();
  if (!outcome.problems.empty()) outcome.status = std::max(outcome.status, ExitStatus::bad_input);
  return outcome;
}

void write_page(const HtmlOptions& html, const Json& report) {
  if (!html.file.empty()) write_file(html.file, html::report_page({report, html.command, html.redact}));
}

void write_folder(const std::string& folder, const Json& scenario, const std::string& story, const Json& report) {
  if (folder.empty()) return;
  const std::pair<const char*, std::string> files[] = {{"/report.json", dump(report)},
                                                       {"/junit.xml", junit_xml({report})},
                                                       {"/scenario.json", dump(scenario)},
                                                       {"/story.txt", story}};
  std::vector<Problem> problems;
  for (const auto& [name, content] : files) {  // one that does not fit keeps none of the others from being tried
    try {
      write_file(folder + name, content);
    } catch (const BadInput& bad) {
      problems.insert(problems.end(), bad.problems().begin(), bad.problems().end());
    }
  }
  if (!problems.empty()) throw BadInput(std::move(problems));
}

Outcome retried(int retries, const Print& print, const std::function<Outcome()>& run) {
  Outcome outcome = run();
  const auto again = [&] {  // a sweep has retried its rows one by one
    return outcome.status == ExitStatus::no_progress && !outcome.report.contains("rows") && runtime::interrupted() == 0;
  };
  for (int i = 1; i <= retries && again(); ++i) {
    for (const std::string& problem : outcome.problems) print(problem + '\n');
    print(fmt::format("{}: it came to no end; retry {} of {}\n\n", outcome.name, i, retries));
    outcome = run();
    outcome.report["retries"] = i;
  }
  return outcome;
}

Outcome guarded(const std::string& name, const std::string& again, const std::function<Outcome()>& run) {
  const auto failed = [&](ExitStatus status, std::vector<std::string> problems) {
    return Outcome{status, name, failure_json(name, status, problems), problems};
  };
  keep_memory_reserve();
  try {
    return run();
  } catch (const BadInput& bad) {
    std::vector<std::string> problems;
    for (const Problem& problem : bad.problems()) problems.push_back(problem.text());
    return failed(ExitStatus::bad_input, std::move(problems));
  } catch (const OutOfTime& late) {
    return failed(ExitStatus::no_progress, {fmt::format("{}: {}", name, late.what())});
  } catch (const runtime::PeerGone& gone) {
    return failed(ExitStatus::no_progress, {fmt::format("{}: {}", name, gone.what())});
  } catch (const sim::OutOfMachineMemory& starved) {
    memory_has_run_out();
    return failed(ExitStatus::bad_input,
                  {fmt::format("{}: {}. Use fewer ranks, a smaller model or a larger machine.", name, starved.what())});
  } catch (const std::bad_alloc&) {
    memory_has_run_out();
    return failed(ExitStatus::bad_input,
                  {name + ": the machine has not enough memory. Use fewer ranks or a smaller model."});
  } catch (const std::exception& error) {
    return failed(ExitStatus::bug, {fmt::format("{}: this is a bug in seeksim: {}", name, error.what()),
                                    fmt::format("please report it with the scenario and the command: {}", again)});
  }
}

}  // namespace seeksim::harness
