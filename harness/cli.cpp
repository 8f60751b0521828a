#include "harness/cli.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "harness/batch.h"
#include "harness/checkpoint_command.h"
#include "harness/commands.h"
#include "harness/device.h"
#include "harness/diff_command.h"
#include "harness/doctor.h"
#include "harness/explore_command.h"
#include "harness/files.h"
#include "harness/flight_recorder.h"
#include "harness/launch_command.h"
#include "harness/mpi_session.h"
#include "harness/museum.h"
#include "harness/plan_command.h"
#include "harness/real_backend.h"
#include "harness/schedule_command.h"
#include "harness/shapes.h"
#include "harness/shrink_command.h"
#include "kernels/isa.h"
#include "runtime/backend/nccl_api.h"

namespace seeksim::harness {

extern const char* const kBuildInfo;

namespace {

// The options of `run`, as they stand on the command line.
struct RunArguments {
  std::vector<std::string> files;
  std::vector<std::string> sets;
  std::string backend = "sim", device = "cpu", storage;
  std::string out, report, junit, init;
  std::string trace, bundle, flight_recorder;
  std::string save_initial, save_final, save_batches, save_gradients;
  std::string seed, schedule;
  double wall_limit_s = 0;
  bool verify_determinism = false;
  bool resume = false;
  bool explain = false;
  int processes = 0;
  int row = -1;
};

Style style_of_stdout() {
  Style style;
  style.colour = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  return style;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void complain(const std::string& text) {
  const std::string line = "seeksim: " + text + '\n';
  std::fflush(stdout);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::uint64_t seed_of(const std::string& text) {
  constexpr std::uint64_t kSeedMax = std::uint64_t(1) << 53;  // as in scenarios: every JSON tool reads it back exactly
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size() || seed > kSeedMax) {
    throw BadInput("--seed " + text, fmt::format("a whole number from 0 to {} is expected", kSeedMax),
                   "For example --seed 7.");
  }
  return seed;
}

void refuse_what_is_not_there(const RunArguments& a) {
  if (a.backend == "nccl") {
    if (const std::string problem = runtime::nccl_problem(); !problem.empty())
      throw BadInput("--backend nccl", problem, "Use --backend mpi, or leave it out: ranks are simulated.");
  }
  if (a.backend == "sim") check_device(a.device);
  if (a.backend != "sim" && a.device != (a.backend == "nccl" ? "cuda" : "cpu") && a.device != "cpu")
    throw BadInput("--device " + a.device, "processes of --backend " + a.backend + " compute on the CPU",
                   "Leave it out, or use --backend sim.");
  const bool saves =
      !a.save_initial.empty() || !a.save_final.empty() || !a.save_batches.empty() || !a.save_gradients.empty();
  if (a.row >= 0 && a.files.size() > 1)
    throw BadInput(fmt::format("--row {}", a.row), "which of the scenarios is meant?", "Run one of them.");
  if (!a.trace.empty() && a.files.size() > 1)
    throw BadInput("--trace " + a.trace, "several scenarios would write the same file", "Run one of them.");
  if ((!a.bundle.empty() || !a.flight_recorder.empty()) && a.files.size() > 1)
    throw BadInput(a.bundle.empty() ? "--flight-recorder" : "--bundle", "several scenarios would write the same folder",
                   "Run one of them, or use --out.");
  if (saves && a.files.size() > 1)
    throw BadInput("--save-...", "several scenarios would write the same file", "Run them one by one.");
}

// "1:F": the step counts from 1.
void read_gradients(const RunArguments& a, RunOptions& options) {
  if (a.save_gradients.empty()) return;
  const std::size_t colon = a.save_gradients.find(':');
  const std::string step = a.save_gradients.substr(0, colon);
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), options.gradients_step);
  const bool fine = colon != std::string::npos && error == std::errc() && end == step.data() + step.size() &&
                    options.gradients_step >= 1;
  options.save_gradients = fine ? a.save_gradients.substr(colon + 1) : "";
  if (options.save_gradients.empty()) {
    throw BadInput("--save-gradients " + a.save_gradients, "STEP:FILE is expected, the first step is 1",
                   "For example --save-gradients 1:gradients.safetensors.");
  }
}

RunOptions options_of(const RunArguments& a) {
  RunOptions options;
  options.style = style_of_stdout();
  options.progress = a.files.size() == 1 && ::isatty(STDERR_FILENO) == 1;
  options.wall_limit_s = a.wall_limit_s;
  options.verify_determinism = a.verify_determinism;
  options.processes = a.processes;
  options.row = a.row;
  options.explain = a.explain;
  options.trace = a.trace;
  options.bundle = a.bundle;
  options.flight_recorder = a.flight_recorder;
  options.save_initial = a.save_initial;
  options.save_final = a.save_final;
  options.save_batches = a.save_batches;
  options.device = a.device;
  read_gradients(a, options);
  return options;
}

// One folder a scenario below --out; the second of a name becomes NAME-2.
std::vector<Job> jobs_of(const RunArguments& a, const RunOptions& options) {
  std::vector<Job> jobs;
  for (const std::string& file : a.files) {
    Job job{file, options};
    if (!a.out.empty() && a.files.size() == 1) job.options.out = a.out;
    if (!a.out.empty() && a.files.size() > 1) {
      std::string name = file.substr(file.rfind('/') + 1);
      if (name.size() > 5 && name.substr(name.size() - 5) == ".json") name.resize(name.size() - 5);
      std::string folder = a.out + '/' + name;
      const auto taken = [&](const Job& other) { return other.options.out == folder; };
      for (int n = 2; std::any_of(jobs.begin(), jobs.end(), taken); ++n)
        folder = fmt::format("{}/{}-{}", a.out, name, n);
      job.options.out = folder;
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void write_reports(const RunArguments& a, const std::vector<Outcome>& outcomes, ExitStatus status) {
  std::vector<Json> reports;
  for (const Outcome& outcome : outcomes) reports.push_back(outcome.report);
  if (!a.report.empty()) write_file(a.report, dump(whole_report(reports, status)));
  if (!a.junit.empty()) write_file(a.junit, junit_xml(reports));
  if (!a.out.empty() && outcomes.size() > 1) {
    write_file(a.out + "/report.json", dump(whole_report(reports, status)));
    write_file(a.out + "/junit.xml", junit_xml(reports));
  }
}

std::string summary(const std::vector<Outcome>& outcomes, const Style& style) {
  std::size_t good = 0;
  std::string red;
  for (const Outcome& outcome : outcomes) {
    good += outcome.status == ExitStatus::as_expected;
    if (outcome.status != ExitStatus::as_expected)
      red += fmt::format("  {}  exit status {}\n", outcome.name, code(outcome.status));
  }
  const std::string line = fmt::format("{} of {} scenarios as expected", good, outcomes.size());
  return '\n' + (red.empty() ? style.good(line) : style.bad(line)) + '\n' + red;
}

// `run scenarios/*.json` means the scenarios among them.
void leave_out_the_schema(std::vector<std::string>& files) {
  if (files.size() < 2) return;
  std::erase_if(files, [](const std::string& file) { return file.substr(file.rfind('/') + 1) == "schema.json"; });
}

// Wrong bits are worse than none: the machine is asked before anything runs.
void check_machine() {
  try {
    kernels::active_isa();
  } catch (const std::exception& error) {
    throw BadInput("this machine", error.what(), "seeksim doctor says what it has.");
  }
  if (const std::string wrong = kernels::self_test(); !wrong.empty()) throw BadInput("this machine", wrong, "");
}

// The scenarios of the command line on the ranks that `options` say.
ExitStatus run_scenarios(const RunArguments& a, const RunOptions& options) {
  LoadOptions load;
  load.sets = a.sets;
  load.init = a.init;
  if (!a.storage.empty()) load.sets.push_back("storage=" + a.storage);
  if (a.resume) load.sets.push_back("checkpoint.resume=true");
  std::uint64_t seed = 0;
  if (!a.seed.empty()) {
    seed = seed_of(a.seed);
    load.seed = &seed;
  }
  load.schedule = a.schedule;
  if (!a.schedule.empty() && (!a.seed.empty() || a.files.size() > 1))
    throw BadInput("--schedule", a.seed.empty() ? "it belongs to one scenario" : "it brings the seed along",
                   a.seed.empty() ? "Run that one." : "Leave --seed out.");
  if (!a.out.empty()) make_folder(a.out, "--out");
  if (!a.report.empty()) probe_writable(a.report, "--report");
  if (!a.junit.empty()) probe_writable(a.junit, "--junit");
  check_machine();
  const std::vector<Job> jobs = jobs_of(a, options);
  std::vector<Outcome> outcomes;
  if (jobs.size() == 1 || options.launch) {
    for (const Job& job : jobs) {
      outcomes.push_back(run_file(job.file, load, job.options, put));
      for (const std::string& problem : outcomes.back().problems) complain(problem);
    }
    if (jobs.size() > 1) put(summary(outcomes, options.style));
  } else {
    outcomes = run_all(jobs, load, a.processes, put);
    put(summary(outcomes, options.style));
  }
  ExitStatus status = ExitStatus::as_expected;
  for (const Outcome& outcome : outcomes) status = std::max(status, outcome.status);
  write_reports(a, outcomes, status);
  return status;
}

// One of the processes that mpirun started: the first one leads, and judges.
ExitStatus run_on_mpi(const RunArguments& a, RunOptions options) {
  refuse_options_on_mpi(options);
  if (!a.schedule.empty())
    throw BadInput("--schedule", "--backend mpi: who of several processes runs next is the machine's choice",
                   "Leave it out, or use --backend sim.");
  MpiSession session(a.backend == "nccl");
  if (!session.leads()) {
    session.serve();
    return ExitStatus::as_expected;
  }
  options.backend = session.backend();
  options.ranks_max = session.processes();
  options.launch_again = !session.supervised();
  if (a.backend == "nccl") options.device = "cuda";
  options.launch = [&session](const Scenario& scenario, const SimulationOptions& how, bool row) {
    return session.run(scenario, how, row);
  };
  const ExitStatus status = run_scenarios(a, options);
  session.end(status);
  return status;
}

ExitStatus run_command(RunArguments a) {
  leave_out_the_schema(a.files);
  refuse_what_is_not_there(a);
  const RunOptions options = options_of(a);
  return a.backend == "sim" ? run_scenarios(a, options) : run_on_mpi(a, options);
}

// ---- golden --------------------------------------------------------------------------------------------------------

struct GoldenArguments {
  std::vector<std::string> files;
  std::vector<std::string> sets;
  bool write = false, check = false, explain = false;
};

ExitStatus golden_of_file(const std::string& file, const GoldenArguments& a) {
  LoadOptions load;
  load.sets = a.sets;
  const Scenario scenario = load_scenario(file, load);
  if (is_of_shapes(scenario)) throw BadInput(file, "a run of shapes has no golden", "Use \"numerics\": \"exact\".");
  const std::string key = golden_key(one_rank(scenario).train.definition);
  if (a.explain) put(dump(key_fields(scenario.train.definition)));
  const std::optional<Golden> stored = stored_golden(scenario);
  const std::string folder = top_folder() + "/golden";
  const std::string target = stored ? stored->origin : folder + '/' + golden_file_name(scenario, key);
  if (a.write) probe_writable(target, "--write");
  const Golden fresh = run_golden(scenario, key, 0, ::isatty(STDERR_FILENO) == 1);
  put(fmt::format("{}  key {}  params {}  loss {} -> {}  ({})\n", scenario.name, key, hex(fresh.state.params),
                  fresh.loss.front(), fresh.loss.back(), fresh.origin));
  std::string differs = stored ? difference(*stored, fresh.state) : "";
  for (std::size_t i = 0; stored && differs.empty() && i < fresh.loss.size(); ++i) {
    if (stored->loss.size() != fresh.loss.size() || !(stored->loss[i] == fresh.loss[i]))
      differs = fmt::format("loss of step {}", i);
  }
  if (stored && !differs.empty()) put(fmt::format("  differs from {}: {}\n", stored->origin, differs));
  if (stored && differs.empty()) put(fmt::format("  equal to {}\n", stored->origin));
  if (!stored) put(fmt::format("  none is stored under this key\n"));
  if (a.write) {
    write_file(target, dump(to_json(fresh, scenario)));
    put(fmt::format("  written: {}\n", target));
    return ExitStatus::as_expected;
  }
  return a.check && (!stored || !differs.empty()) ? ExitStatus::check_failed : ExitStatus::as_expected;
}

ExitStatus golden_command(const GoldenArguments& a) {
  check_machine();
  ExitStatus status = ExitStatus::as_expected;
  for (const std::string& file : a.files) status = std::max(status, golden_of_file(file, a));
  return status;
}

// The program that runs now, for processes that are to be the same.
std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

// ---- the parser ----------------------------------------------------------------------------------------------------

void add_run(CLI::App& app, RunArguments& a) {
  CLI::App* run = app.add_subcommand("run", "Run scenarios and judge them");
  run->add_option("scenario", a.files, "Scenario files (.json)")->required();
  run->add_option("--set", a.sets,
                  "key.path=value: change a value of the scenario; a number indexes a list (faults.0.rank=3)")
      ->allow_extra_args(false);
  run->add_option("--seed", a.seed, "The world's seed: another schedule, the same weights");
  run->add_option("--schedule", a.schedule, "Replay: the string that a run printed; brings seed and schedule");
  run->add_option("--out", a.out, "Folder for report.json, junit.xml, scenario.json and story.txt");
  run->add_option("--report", a.report, "Write the report as JSON");
  run->add_option("--junit", a.junit, "Write the checks as JUnit XML");
  run->add_option("--trace", a.trace,
                  "Write a Chrome trace of what queues and hosts did in virtual time; ui.perfetto.dev opens it");
  run->add_option("--flight-recorder", a.flight_recorder,
                  "Folder for a flight recorder dump of each rank, as PyTorch writes them: of the last failure, or of "
                  "the end");
  run->add_option("--bundle", a.bundle,
                  "Folder for what a run that stopped or is red leaves behind (default: bundle/ below --out)");
  run->add_flag("--explain", a.explain,
                "Of a red run: what differs first, what caused it, what a user sees, which known bugs look alike");
  run->add_flag("--verify-determinism", a.verify_determinism, "Run twice and compare every Op");
  run->add_option("--wall-limit", a.wall_limit_s, "Give up after so many seconds (exit status 3)")
      ->check(CLI::NonNegativeNumber);
  run->add_option("--backend", a.backend, "sim, or under mpirun, a process a rank: mpi, or nccl with a GPU each")
      ->check(CLI::IsMember({"sim", "mpi", "nccl"}));
  run->add_option("--device", a.device,
                  "Where simulated ranks compute: cpu, cuda (all of them share one GPU), or emulated (the kernels for "
                  "GPUs, run on the CPU: slow)")
      ->check(CLI::IsMember({"cpu", "cuda", "emulated"}));
  run->add_option("--storage", a.storage, "sim or real: where files of the run go")
      ->check(CLI::IsMember({"sim", "real"}));
  run->add_flag("--resume", a.resume, "Go on from the newest checkpoint, where there is one (checkpoint.resume=true)");
  run->add_option("--init", a.init, "Start from these weights (safetensors, Hugging Face's GPT-2 names)");
  run->add_option("--save-initial", a.save_initial, "Write the initial weights");
  run->add_option("--save-final", a.save_final, "Write the weights after the last step");
  run->add_option("--save-batches", a.save_batches, "Write the token ids, (steps, batch, context + 1)");
  run->add_option("--save-gradients", a.save_gradients,
                  "STEP:FILE, write that step's gradients before clipping; STEP counts from 1");
  run->add_option("-j", a.processes, "Scenarios, or rows of a sweep, at once (default: one a core)")
      ->check(CLI::PositiveNumber);
  run->add_option("--row", a.row, "Only this row of a sweep, counted from 0")->check(CLI::NonNegativeNumber);
}

void add_launch(CLI::App& app, LaunchArguments& a) {
  CLI::App* launch = app.add_subcommand(
      "launch", "Run a scenario on processes under a supervisor, which starts the job again after a death");
  launch->add_option("scenario", a.file, "Scenario file (.json)")->required();
  launch->add_option("--np", a.processes, "Processes (default: as many as the scenario's world has ranks)")
      ->check(CLI::PositiveNumber);
  launch->add_option("--max-restarts", a.restarts_max, "Start the job again at most so often")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  launch->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  launch->add_option("--seed", a.seed, "The world's seed, as for run");
  launch->add_option("--out", a.out, "Folder for checkpoints and reports (default: one that goes at the end)");
  launch->add_option("--report", a.report, "Write the report as JSON");
  launch->add_option("--backend", a.backend, "mpi, or nccl: with a GPU each")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->capture_default_str();
  launch->add_option("--mpirun", a.mpirun, "The program that starts processes, with arguments of its own")
      ->capture_default_str();
  launch->add_option("--address", a.address, "This host's, for ranks on other hosts")->capture_default_str();
  launch
      ->add_option("--start-limit", a.start_limit_s,
                   "Seconds until all processes must have met; else the start is over")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  launch->add_option("--heartbeat", a.heartbeat_s, "Seconds between heartbeats, where the scenario does not say")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  launch->add_option("--silent", a.silent_s, "Who sends none for so many seconds is stopped or dead")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_golden(CLI::App& app, GoldenArguments& a) {
  CLI::App* golden = app.add_subcommand("golden", "Run the undisturbed one-rank golden of scenarios");
  golden->add_option("scenario", a.files, "Scenario files (.json)")->required();
  golden->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  golden->add_flag("--write", a.write, "Store it in golden/");
  golden->add_flag("--check", a.check, "Exit status 1 unless a stored one is equal");
  golden->add_flag("--explain", a.explain, "Print what the key is made of");
}

void add_list(CLI::App& app, std::string& what, ScheduleArguments& schedule) {
  CLI::App* list =
      app.add_subcommand("list", "List scenarios, faults, checks, bugs, quirks, keys or a pipeline's schedule");
  list->add_option("what", what, "scenarios, faults, checks, bugs, quirks, keys, schedule")->required();
  list->add_option("--schedule", schedule.schedule, "schedule: gpipe, 1f1b, interleaved or zero_bubble")
      ->capture_default_str();
  list->add_option("--pipeline", schedule.stages, "schedule: stages")->capture_default_str();
  list->add_option("--micro-batches", schedule.micro_batches, "schedule: micro-batches of a step")
      ->capture_default_str();
  list->add_option("--chunks", schedule.chunks, "schedule: pieces of the model on a stage (interleaved)");
  list->add_option("--group", schedule.group, "schedule: micro-batches in a row of one chunk (interleaved)");
  list->add_option("--stage", schedule.stage, "schedule: print this stage's instructions too");
}

void add_shrink(CLI::App& app, ShrinkArguments& a) {
  CLI::App* shrink = app.add_subcommand("shrink", "Make a scenario that fails as small as it gets, failing alike");
  shrink->add_option("scenario", a.file, "Scenario file (.json)")->required();
  shrink->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  shrink->add_option("--check", a.check, "The check that must stay red (default: the first that is)");
  shrink->add_option("--out", a.out, "Write the scenario here (default: standard output)");
  shrink->add_option("--runs", a.runs_max, "Run at most so many candidates")->check(CLI::PositiveNumber);
  shrink->add_option("--wall-limit", a.wall_limit_s, "Seconds that one of them may take; 0: no limit")
      ->check(CLI::NonNegativeNumber);
}

void add_explore(CLI::App& app, ExploreArguments& a) {
  CLI::App* explore = app.add_subcommand("explore", "Look for failures: schedules and faults that nobody wrote down");
  explore->add_option("scenario", a.file, "Scenario file (.json)")->required();
  explore->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  explore->add_option("--budget", a.budget, "Wall time: 90s, 10m, 2h")->capture_default_str();
  explore
      ->add_option(
          "--strategy", a.strategy,
          "mix, random, swarm, pct, enumerate, or exhaustive: each order that makes a difference, of 2 or 3 ranks")
      ->capture_default_str();
  explore->add_option("--seed", a.seed, "Of the exploration; \"random\": another one each time")->capture_default_str();
  explore->add_option("--out", a.out, "Folder for the scenarios that fail")->capture_default_str();
  explore->add_option("--report", a.report, "Write what was reached and found as JSON");
  explore->add_option("-j,--jobs", a.jobs, "Processes (default: one a core)")->check(CLI::PositiveNumber);
  explore->add_option("--cases", a.cases, "At most so many, of each process")->check(CLI::PositiveNumber);
  explore->add_option("--findings", a.findings, "End after so many different ones")->check(CLI::PositiveNumber);
  explore->add_flag("--no-faults", a.no_faults, "Schedules only");
  explore->add_flag("--no-reduction", a.no_reduction,
                    "exhaustive: each order, also those that nobody could tell apart");
  explore->add_flag("--shrink", a.shrink, "Make what was found as small as it gets");
  explore->add_option("--wall-limit", a.wall_limit_s, "Seconds that one case may take")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_diff(CLI::App& app, DiffArguments& a) {
  CLI::App* diff = app.add_subcommand("diff", "Say where two runs part, or a run and its golden, and what led there");
  diff->add_option("a", a.a, "Scenario file (.json)")->required();
  diff->add_option("b", a.b, "The other one (default: the golden of the first)");
  diff->add_option("--set", a.sets, "key.path=value for both, as for run")->allow_extra_args(false);
  diff->add_option("--set-b", a.sets_b, "key.path=value for the second alone")->allow_extra_args(false);
  diff->add_option("--schedule", a.schedule_a, "Of the first, as for run");
  diff->add_option("--schedule-b", a.schedule_b, "Of the second");
  diff->add_option("--report", a.report, "Write the difference as JSON");
  diff->add_option("--wall-limit", a.wall_limit_s, "Seconds that one run may take")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

void add_plan(CLI::App& app, PlanArguments& a) {
  CLI::App* plan = app.add_subcommand("plan", "Predict the memory of a configuration, and find the lightest that fits");
  plan->add_option("config", a.file, "Scenario, or DeepSpeed's ds_config.json")->required();
  plan->add_option("--gpus", a.gpus, "On so many GPUs (default: as the scenario says)")->check(CLI::PositiveNumber);
  plan->add_option("--nodes", a.nodes, "On so many nodes (default: 8 GPUs a node)")->check(CLI::PositiveNumber);
  plan->add_option("--memory", a.memory, "Of one GPU: 80GB (10^9 bytes) or 79.1GiB (default: as the scenario says)");
  plan->add_option(
      "--model", a.model,
      "gpt2-small, gpt2-medium, gpt2-large, gpt2-xl, 7.5b or layers=..,width=..,heads=..,vocab=..,context=..");
  plan->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  plan->add_option("--report", a.report, "Write the plan as JSON");
  plan->add_flag("--all", a.all, "Go on after the first configuration that fits");
}

void add_doctor(CLI::App& app, DoctorArguments& a) {
  CLI::App* doctor =
      app.add_subcommand("doctor", "Check this machine, and what variables and settings of a training job really do");
  doctor->add_option("--config", a.config, "A ds_config.json to look at");
  doctor->add_option("--hostfile", a.hostfile, "A DeepSpeed hostfile to look at");
  doctor->add_option("--gpus", a.gpus, "Data-parallel GPUs that the config is to run on")->check(CLI::PositiveNumber);
}

void add_museum(CLI::App& app, MuseumArguments& a) {
  CLI::App* museum = app.add_subcommand("museum",
                                        "Show mistakes of real frameworks, what catches them, and that "
                                        "nothing is wrong without them");
  museum->add_option("exhibit", a.names, "Files of scenarios/museum/, without .json (default: all)");
  museum->add_flag("--markdown", a.markdown, "Print the table of scenarios/museum/README.md");
  museum->add_option("-j", a.processes, "Runs at once (default: one a core)")->check(CLI::PositiveNumber);
}

struct CheckpointArguments {
  std::string folder, out;
};

void add_checkpoint(CLI::App& app, CheckpointArguments& a) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "Look at checkpoints in real files");
  checkpoint->require_subcommand(1);
  const auto add = [&](const char* verb, const char* what) {
    CLI::App* sub = checkpoint->add_subcommand(verb, what);
    sub->add_option("folder", a.folder, "Folder of checkpoints, or one of them (step-0000000010)")->required();
    return sub;
  };
  add("inspect", "Which there are, and what each holds");
  add("verify", "Read every file: exit status 1 unless all that have a manifest are whole");
  add("convert", "Write the newest one's weights into one safetensors file, under Hugging Face's names")
      ->add_option("out", a.out, "The file to write")
      ->required();
}

ExitStatus checkpoint_command(const CLI::App& app, const CheckpointArguments& a) {
  const CLI::App& checkpoint = *app.get_subcommand("checkpoint");
  if (checkpoint.got_subcommand("inspect")) return inspect_checkpoints(a.folder, style_of_stdout());
  if (checkpoint.got_subcommand("verify")) return verify_checkpoints(a.folder, style_of_stdout());
  return convert_checkpoint(a.folder, a.out);
}

constexpr const char* kFooter =
    R"(Exit status: 0 as expected, 1 a check failed, 2 bad scenario or usage, 3 no progress, 4 a bug in seeksim.
Try: seeksim run scenarios/nccl_timeout.json)";

ExitStatus dispatch(const std::vector<std::string>& arguments) {
  CLI::App app("seeksim runs real distributed training against injected faults and checks every bit of the result.",
               "seeksim");
  app.footer(kFooter);
  app.set_version_flag("--version", kBuildInfo);
  app.require_subcommand(1);
  RunArguments run;
  LaunchArguments launch;
  GoldenArguments golden;
  ShrinkArguments shrink;
  PlanArguments plan;
  std::string list;
  add_run(app, run);
  add_launch(app, launch);
  add_golden(app, golden);
  add_shrink(app, shrink);
  ExploreArguments explore;
  add_explore(app, explore);
  DiffArguments diff;
  add_diff(app, diff);
  ScheduleArguments schedule;
  add_list(app, list, schedule);
  add_plan(app, plan);
  CheckpointArguments checkpoint;
  add_checkpoint(app, checkpoint);
  std::string dumps;
  app.add_subcommand("analyse", "Say what flight recorder dumps tell: who is to blame, who waits for whom")
      ->add_option("folder", dumps, "Folder with one dump a rank (seeksim run --flight-recorder, or PyTorch's)")
      ->required();
  DoctorArguments doctor;
  add_doctor(app, doctor);
  MuseumArguments museum;
  add_museum(app, museum);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::Success& asked_for_help) {
    app.exit(asked_for_help);
    return ExitStatus::as_expected;
  } catch (const CLI::ParseError& error) {
    std::string next = "seeksim --help prints what there is.";
    std::vector<std::string> verbs;
    for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
    if (!arguments.empty() && arguments[0][0] != '-' && app.get_subcommands().empty()) {
      next = did_you_mean(arguments[0], verbs);
      throw BadInput(arguments[0], "there is no such command", next + " " + "seeksim --help prints what there is.");
    }
    throw BadInput("", error.what(), next);
  }
  if (app.got_subcommand("run")) return run_command(std::move(run));
  if (app.got_subcommand("launch")) return launch_command(launch, own_path(), style_of_stdout());
  if (app.got_subcommand("golden")) return golden_command(golden);
  if (app.got_subcommand("shrink")) {
    check_machine();
    return shrink_command(shrink);
  }
  if (app.got_subcommand("diff")) {
    check_machine();
    return diff_command(diff, style_of_stdout());
  }
  if (app.got_subcommand("explore")) {
    check_machine();
    return explore_command(explore, style_of_stdout());
  }
  if (app.got_subcommand("analyse")) {
    put(harness::dump(analyse_folder(dumps)));
    return ExitStatus::as_expected;
  }
  if (app.got_subcommand("plan")) return plan_command(plan);
  if (app.got_subcommand("checkpoint")) return checkpoint_command(app, checkpoint);
  if (app.got_subcommand("list")) {
    if (list == "schedule") return schedule_command(schedule, style_of_stdout());
    return list_command(list, style_of_stdout());
  }
  if (app.got_subcommand("museum")) {
    check_machine();
    return museum_command(museum, style_of_stdout());
  }
  return doctor_command(doctor, style_of_stdout());
}

}  // namespace

int main_of(const std::vector<std::string>& arguments) {
  try {
    const ExitStatus status = dispatch(arguments);
    // A full disk behind `> file` would otherwise go unnoticed.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      throw BadInput("standard output", "cannot be written", "Is its file system full?");
    return code(status);
  } catch (const BadInput& bad) {
    for (const Problem& problem : bad.problems()) complain(problem.text());
    return code(ExitStatus::bad_input);
  } catch (const std::exception& error) {
    std::string command = "seeksim";
    for (const std::string& argument : arguments) command += ' ' + argument;
    complain(fmt::format("this is a bug in seeksim: {}", error.what()));
    complain("please report it with the command: " + command);
    return code(ExitStatus::bug);
  }
}

}  // namespace seeksim::harness
