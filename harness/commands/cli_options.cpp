#include "harness/commands/cli_options.h"

#include <CLI/CLI.hpp>

#include <charconv>

#include "harness/processes/transports.h"

namespace seeksim::harness {
namespace {

// CLI's own take "nan" and "1e300", and say a range in 309 digits.
CLI::Validator number_within(double least, bool or_equal, double most, const char* what) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool whole = error == std::errc() && end == text.data() + text.size();
        const bool fine = whole && (value > least || (or_equal && value == least)) && value <= most;
        return fine ? std::string() : text.substr(0, 40) + " is no number " + what;
      },
      "");
}

const CLI::Validator kNotNegative = number_within(0, true, 1e9, "from 0 to 1e9");
const CLI::Validator kPositive = number_within(0, false, 1e9, "above 0, up to 1e9");
const CLI::Validator kProcesses = number_within(0, false, 1024, "of processes, from 1 to 1024");

void add_auto(CLI::App* verb, std::vector<std::string>& autos) {
  verb->add_option(
          "--auto", autos,
          "lr=1e-4,batch=4: what Hugging Face's Trainer would fill \"auto\" values with (default: its defaults)")
      ->allow_extra_args(false);
}

// What is written about a run.
void add_results(CLI::App* run, RunArguments& a) {
  run->add_option("--out", a.out, "Folder for report.json, junit.xml, scenario.json and story.txt");
  run->add_option("--report", a.report, "Write the report as JSON");
  run->add_option("--junit", a.junit, "Write the checks as JUnit XML");
  run->add_option("--csv", a.csv, "Write a line per run (of a sweep: per row): settings, verdict, figures");
  run->add_option("--json-lines", a.json_lines, "The same, one JSON object per line");
  run->add_option("--metrics", a.metrics,
                  "Write a line of JSON for each step and rank: loss, norm, rate, scale, memory, times, score");
  run->add_option("--tensorboard", a.tensorboard, "Folder for TensorBoard's event files; of a sweep, one run per row");
  run->add_flag("--all", a.all, "Print every row of a sweep's table, however many there are");
  run->add_option("--html", a.html,
                  "Write a page about the run: verdict, timeline, curves, waits; one file, no network");
  run->add_flag("--redact", a.redact, "Leave paths, host names and the scenario's name out of the page of --html");
  run->add_option("--trace", a.trace,
                  "Write a Chrome trace of queues and hosts in virtual time; open it at ui.perfetto.dev");
  run->add_option(
      "--flight-recorder", a.flight_recorder,
      "Folder for one flight recorder dump per rank, as PyTorch writes them: at the last failure, or at the end");
}

// Weights, samples and gradients, for another program.
void add_saves(CLI::App* run, SaveArguments& a) {
  run->add_option("--save-initial", a.save_initial,
                  "Write the initial weights: a safetensors file, or a folder/ as Hugging Face has it");
  run->add_option("--save-final", a.save_final, "Write the weights after the last step, likewise");
  run->add_option("--save-dtype", a.save_dtype, "How both are written")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->capture_default_str();
  run->add_option("--save-shard-mb", a.save_shard_mb, "Of a folder: larger models are several files with an index")
      ->check(kPositive)
      ->capture_default_str();
  run->add_option("--save-batches", a.save_batches, "Write the token ids, (steps, batch, context + 1)");
  run->add_option("--save-logits", a.save_logits,
                  "Write the logits of the first batch by the initial weights, (batch, context, vocabulary)");
  run->add_option("--save-gradients", a.save_gradients,
                  "STEP:FILE, write the gradients of that step before clipping; STEP counts from 1");
}

}  // namespace

void add_run(CLI::App& app, RunArguments& a) {
  CLI::App* run = app.add_subcommand("run", "Run scenarios and check the results");
  run->add_option("scenario", a.files,
                  "Scenario files (.json), folders of them, or names of scenarios that come with seeksim; - reads one "
                  "from standard input");
  run->add_option("-k", a.pattern, "Run only the scenarios that have this in their path");
  run->add_option("--shard", a.shard,
                  "I/N: run every N-th scenario, or row of a single sweep, beginning with the I-th");
  run->add_flag("--last-failed", a.last_failed,
                "Run only what failed when several scenarios were run last from this folder");
  run->add_flag("--list", a.list, "Print which scenarios would run, and run none");
  run->add_flag("--check-only", a.check_only, "Read the scenarios, name all that is wrong with them, and run none");
  run->add_flag("--watch", a.watch, "Run again whenever a scenario, a file that it names or the program has changed");
  run->add_option("--set", a.sets,
                  "key.path=value: change a value of the scenario; a number indexes a list (faults.0.rank=3)")
      ->allow_extra_args(false);
  add_auto(run, a.autos);
  run->add_option("--seed", a.seed, "Seed of the simulated world: changes the schedule, never the weights");
  run->add_option("--schedule", a.schedule, "Replay the schedule string that a run printed (it includes the seed)");
  add_results(run, a);
  run->add_option("--bundle", a.bundle,
                  "Folder for the bundle of a failed or stopped run (default: bundle/ below --out)");
  run->add_flag("--explain", a.explain,
                "Explain a failed run: what went wrong first, what a user would see, similar known bugs");
  run->add_flag("--no-names", a.no_names,
                "Do not run a run whose bits are red again to name its first wrong operation");
  run->add_flag("--verify-determinism", a.verify_determinism, "Run twice and compare every Op");
  run->add_flag("--rank-by-rank", a.rank_by_rank,
                "Simulate every rank of a run of shapes, also those that are alike; slower, with the same result");
  run->add_option("--wall-limit", a.wall_limit_s, "Stop after this many seconds (exit status 3)")->check(kNotNegative);
  run->add_option("--retries", a.retries, "Run what ends with exit status 3 again, at most this many times")
      ->check(kNotNegative);
  std::vector<std::string> backends = {"sim", "mpi", "nccl"};
  for (const std::string& own : own_transport_names()) backends.push_back(own);
  run->add_option("--backend", a.backend, "sim; or with one process per rank: mpi, or nccl with one GPU each")
      ->check(CLI::IsMember(backends));
  run->add_flag(
      "--insecure", a.insecure,
      "Processes that torchrun started meet without a secret, though the network between them is open to others");
  run->add_flag("--no-skip", a.no_skip,
                "Refuse a scenario with checks that processes cannot be judged by, instead of skipping those checks");
  run->add_option("--device", a.device,
                  "Where simulated ranks compute: cpu, cuda (all of them share one GPU), or emulated (the kernels for "
                  "GPUs, run on the CPU: slow)")
      ->check(CLI::IsMember({"cpu", "cuda", "emulated"}));
  run->add_option("--storage", a.storage, "Where the run's files go: sim (in memory) or real (on disk)")
      ->check(CLI::IsMember({"sim", "real"}));
  run->add_flag("--resume", a.resume, "Continue from the newest checkpoint, if there is one (checkpoint.resume=true)");
  run->add_option("--init", a.init,
                  "Start from these weights under Hugging Face's names: a file, an index of several, or a folder");
  add_saves(run, a);
  run->add_option("-j", a.processes, "Scenarios or sweep rows to run in parallel (default: one per core)")
      ->check(kProcesses);
  run->add_option("--row", a.row, "Run only this row of the sweep, counted from 0")->check(kNotNegative);
}

void add_launch(CLI::App& app, LaunchArguments& a) {
  CLI::App* launch = app.add_subcommand(
      "launch", "Run a scenario on real processes, under a supervisor that restarts the job after a crash");
  launch->add_option("scenario", a.file, "Scenario file (.json), or the name of one that comes with seeksim")
      ->required();
  launch->add_option("--np", a.processes, "Number of processes (default: the ranks of the scenario's world)")
      ->check(kPositive);
  launch->add_option("--max-restarts", a.restarts_max, "Restart the job at most this many times")
      ->check(kNotNegative)
      ->capture_default_str();
  launch->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  launch->add_option("--seed", a.seed, "The world's seed, as for run");
  launch->add_option("--out", a.out, "Folder for checkpoints and reports (default: a temporary one)");
  launch->add_option("--report", a.report, "Write the report as JSON");
  launch->add_option("--backend", a.backend, "mpi, or nccl with one GPU each")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->capture_default_str();
  launch->add_option("--mpirun", a.mpirun, "The launcher to use, with its own arguments")->capture_default_str();
  launch->add_flag("--no-mpi", a.no_mpi, "Start all processes on this host without mpirun; messages go over TCP");
  launch->add_flag("--no-skip", a.no_skip, "As for run: refuse checks that processes cannot be judged by");
  launch->add_option("--address", a.address, "Address of this host, for ranks on other hosts")->capture_default_str();
  launch
      ->add_option("--start-limit", a.start_limit_s,
                   "Seconds that all processes have to connect; after that the start has failed")
      ->check(kPositive)
      ->capture_default_str();
  launch->add_option("--html", a.html, "Write a page about the job: one file, no network");
  launch->add_flag("--redact", a.redact, "Leave paths, host names and the scenario's name out of the page of --html");
  launch->add_option("--openmetrics", a.openmetrics,
                     "Write how the job is to this file, once a second, as OpenMetrics text");
  launch->add_option("--heartbeat", a.heartbeat_s, "Seconds between heartbeats, unless the scenario sets it")
      ->check(kPositive)
      ->capture_default_str();
  launch->add_option("--silent", a.silent_s, "A rank that sends no heartbeat for this many seconds counts as dead")
      ->check(kPositive)
      ->capture_default_str();
}

void add_golden(CLI::App& app, GoldenArguments& a) {
  CLI::App* golden = app.add_subcommand("golden", "Run the golden of scenarios: the fault-free run on one rank");
  golden
      ->add_option("scenario", a.files,
                   "Scenario files (.json), folders of them, or names of scenarios that come with seeksim")
      ->required();
  golden->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  golden->add_flag("--write", a.write, "Store the result in golden/");
  golden->add_flag("--check", a.check, "Exit with status 1 unless the stored golden is equal");
  golden->add_flag("--explain", a.explain, "Print the settings that the golden's key is made of");
}

void add_list(CLI::App& app, ListArguments& a, ScheduleArguments& schedule) {
  CLI::App* list = app.add_subcommand(
      "list", "List scenarios, faults, checks, bugs, quirks, figures, keys or a pipeline's schedule");
  list->add_option("what", a.what,
                   "scenarios, faults, checks, bugs, quirks, figures, keys, schema, schedule; torch_keys and "
                   "torch_schema for scenarios of seeksim torch, study_keys and study_schema for studies")
      ->required();
  list->add_option("name", a.name,
                   "Only those of this name, or below it, or with it in their name: rank_crash, deepspeed");
  list->add_option("--schedule", schedule.schedule, "schedule: gpipe, 1f1b, interleaved or zero_bubble")
      ->capture_default_str();
  list->add_option("--pipeline", schedule.stages, "schedule: stages")->capture_default_str();
  list->add_option("--micro-batches", schedule.micro_batches, "schedule: micro-batches per step")
      ->capture_default_str();
  list->add_option("--chunks", schedule.chunks, "schedule: model chunks per stage (interleaved)");
  list->add_option("--group", schedule.group, "schedule: micro-batches in a row of one chunk (interleaved)");
  list->add_option("--stage", schedule.stage, "schedule: print this stage's instructions too");
}

void add_shrink(CLI::App& app, ShrinkArguments& a) {
  CLI::App* shrink =
      app.add_subcommand("shrink", "Shrink a failing scenario to the smallest one that fails the same way");
  shrink->add_option("scenario", a.file, "Scenario file (.json), or the name of one that comes with seeksim")
      ->required();
  shrink->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  shrink->add_option("--check", a.check, "The check that has to keep failing (default: the first that fails)");
  shrink->add_option("--out", a.out, "Write the scenario here (default: standard output)");
  shrink->add_option("--runs", a.runs_max, "Try at most this many candidates")->check(kPositive);
  shrink->add_option("--wall-limit", a.wall_limit_s, "Seconds that one candidate may take; 0: no limit")
      ->check(kNotNegative);
}

void add_explore(CLI::App& app, ExploreArguments& a) {
  CLI::App* explore =
      app.add_subcommand("explore", "Search for failures: try schedules and faults that no scenario lists");
  explore->add_option("scenario", a.file, "Scenario file (.json), or the name of one that comes with seeksim")
      ->required();
  explore->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  explore->add_option("--budget", a.budget, "Wall time: 90s, 10m, 2h; endless: until it is stopped")
      ->capture_default_str();
  explore
      ->add_option(
          "--strategy", a.strategy,
          "mix, random, swarm, pct, enumerate, or exhaustive (every order that makes a difference, for 2 or 3 ranks)")
      ->capture_default_str();
  explore->add_option("--seed", a.seed, "Seed of the search; \"random\" draws a new one each time")
      ->capture_default_str();
  explore->add_option("--out", a.out, "Folder for the scenarios that fail")->capture_default_str();
  explore->add_option("--report", a.report, "Write coverage and findings as JSON");
  explore->add_option("--html", a.html, "Write a page about the search: one file, no network");
  explore->add_option("-j,--jobs", a.jobs, "Processes (default: one per core)")->check(kProcesses);
  explore->add_option("--cases", a.cases, "Run at most this many cases in each process")->check(kPositive);
  explore->add_option("--findings", a.findings, "Stop after this many different findings")->check(kPositive);
  explore->add_flag("--no-faults", a.no_faults, "Schedules only");
  explore->add_flag("--no-twin", a.no_twin, "Do not search a twin with a smaller model first");
  explore->add_flag("--no-reduction", a.no_reduction, "exhaustive: run every order, including equivalent ones");
  explore->add_flag("--shrink", a.shrink, "Shrink each finding");
  explore->add_option("--wall-limit", a.wall_limit_s, "Seconds that one case may take")
      ->check(kPositive)
      ->capture_default_str();
}

void add_diff(CLI::App& app, DiffArguments& a) {
  CLI::App* diff = app.add_subcommand("diff", "Show where two runs first diverge, or a run and its golden, and why");
  diff->add_option("a", a.a, "Scenario file (.json); or a run that `runs` lists")->required();
  diff->add_option("b", a.b, "The second one (default: the golden of the first)");
  diff->add_option("--set", a.sets, "key.path=value for both, as for run")->allow_extra_args(false);
  diff->add_option("--set-b", a.sets_b, "key.path=value for the second scenario only")->allow_extra_args(false);
  diff->add_option("--schedule", a.schedule_a, "Of the first, as for run");
  diff->add_option("--schedule-b", a.schedule_b, "Of the second");
  diff->add_option("--report", a.report, "Write the difference as JSON");
  diff->add_option("--wall-limit", a.wall_limit_s, "Seconds that one run may take")
      ->check(kNotNegative)
      ->capture_default_str();
}

void add_analyse(CLI::App& app, AnalyseArguments& a) {
  CLI::App* analyse =
      app.add_subcommand("analyse", "Tell what flight recorder dumps or logs say about a hang: who waits for whom");
  analyse->alias("analyze");
  analyse
      ->add_option(
          "paths", a.paths,
          "Dumps of flight recorders, one a rank (PyTorch's, pickled or JSON; seeksim's), logs, or folders of them")
      ->required();
  analyse->add_flag("--json", a.json, "JSON instead of text");
  analyse->add_option("--html", a.html, "Write a page about the hang: one file, no network");
  analyse->add_option("--reproduce", a.reproduce,
                      "Write a scenario whose simulated ranks end in the same picture, and run it");
}

void add_runs(CLI::App& app, RunsArguments& a) {
  CLI::App* runs =
      app.add_subcommand("runs", "List the runs that folders of --out keep, and what changed between them");
  runs->add_option("folders", a.folders, "Folders that --out wrote, or folders above them")->required();
  runs->add_flag("--json", a.json, "JSON instead of a table");
}

void add_plan(CLI::App& app, PlanArguments& a) {
  CLI::App* plan = app.add_subcommand("plan", "Predict the memory of a configuration, and find the lightest that fits");
  plan->add_option("config", a.file, "Scenario, or DeepSpeed's ds_config.json")->required();
  plan->add_option("--gpus", a.gpus, "Number of GPUs (default: from the scenario)")->check(kPositive);
  plan->add_option("--nodes", a.nodes, "Number of nodes (default: 8 GPUs per node)")->check(kPositive);
  plan->add_option("--memory", a.memory,
                   "Memory of one GPU: 80GB (10^9 bytes) or 79.1GiB (default: from the scenario)");
  plan->add_option("--model", a.model,
                   "gpt2-xl, llama-3-8b or another name; a Hugging Face config.json or its folder; or "
                   "layers=..,width=..,heads=..,vocab=..,context=..");
  plan->add_option(
          "--ledger", a.ledger,
          "What has to fit: seeksim's own ledger, DeepSpeed's by formulas, or the calibrated one of --platform")
      ->check(CLI::IsMember({"seeksim", "deepspeed", "platform"}))
      ->capture_default_str();
  plan->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  add_auto(plan, a.autos);
  plan->add_option("--report", a.report, "Write the plan as JSON");
  plan->add_option("--html", a.html, "Write a page about the plan: one file, no network");
  plan->add_flag("--all", a.all, "Continue after the first configuration that fits");
  plan->add_option(
      "--platform", a.platform,
      "Times and memory of a calibrated platform as well: h100 or a100, then ,network=ib|hdr8|hdr4|efa32|efa4, "
      ",stack=fused|compiled|plain|eager, ,node=N, ,oversubscription=X, ,leaf=N, ,watts=500|700");
  plan->add_option("--nccl-tests", a.nccl_tests,
                   "nccl-tests' output from that platform, in place of the model; may be repeated")
      ->allow_extra_args(false);
  plan->add_option(
          "--torch-trace", a.torch_traces,
          "A trace of torch.profiler from that platform: its collectives in place of the model; may be repeated")
      ->allow_extra_args(false);
}

void add_study(CLI::App& app, StudyArguments& a) {
  CLI::App* study = app.add_subcommand(
      "study", "Simulate campaigns of thousands of hours, and compare checkpoint intervals, spares and policies");
  study->add_option("study", a.file, "Study file (.json): see docs/campaigns.md")->required();
  study->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  study->add_option("--csv", a.csv, "Write the table as CSV, with intervals and the time by cause");
  study->add_option("--json", a.json, "Write everything as JSON, each campaign included");
  study->add_option("--pictures", a.pictures, "Folder for goodput.svg and lost.svg");
  study->add_option("--html", a.html, "Write a page with both: one file, no network");
  study->add_option("-j", a.processes, "Campaigns to run in parallel (default: one per core)")->check(kProcesses);
}

void add_doctor(CLI::App& app, DoctorArguments& a) {
  CLI::App* doctor =
      app.add_subcommand("doctor", "Check this machine, and lint the environment and the config of a training job");
  doctor->add_option("--launch", a.launch,
                     "A file with a launch line, or a batch script: torchrun, deepspeed, mpirun, srun, sbatch");
  doctor->add_option("--config", a.config, "A ds_config.json to check (default: the one that the launch line names)");
  add_auto(doctor, a.autos);
  doctor->add_option("--hostfile", a.hostfile, "A DeepSpeed hostfile to check");
  doctor->add_option("--gpus", a.gpus, "Number of data-parallel GPUs that the config is for")->check(kPositive);
  doctor->add_option("--gpus-before", a.gpus_before, "Number of GPUs that its learning rate was chosen for")
      ->check(kPositive);
}

void add_museum(CLI::App& app, MuseumArguments& a) {
  CLI::App* museum = app.add_subcommand(
      "museum", "Run real framework bugs: what catches each, and that the same run without it passes");
  museum->add_option("exhibit", a.names, "Files of scenarios/museum/, without .json (default: all)");
  museum->add_flag("--markdown", a.markdown, "Print the table of scenarios/museum/README.md");
  museum->add_option("-j", a.processes, "Runs in parallel (default: one per core)")->check(kProcesses);
}

void add_checkpoint(CLI::App& app, CheckpointArguments& a) {
  CLI::App* checkpoint = app.add_subcommand("checkpoint", "Inspect, verify or convert checkpoints on disk");
  checkpoint->require_subcommand(1);
  const auto add = [&](const char* verb, const char* what) {
    CLI::App* sub = checkpoint->add_subcommand(verb, what);
    sub->add_option("folder", a.folder, "Folder of checkpoints, or one of them (step-0000000010)")->required();
    return sub;
  };
  add("inspect", "List the checkpoints and what each contains");
  add("verify", "Read every file; exit with status 1 unless every checkpoint with a manifest is complete");
  add("convert", "Write the newest one's weights into one safetensors file, under Hugging Face's names")
      ->add_option("out", a.out, "The file to write")
      ->required();
}

void add_reference(CLI::App& app, ReferenceArguments& a) {
  CLI::App* reference = app.add_subcommand("reference", "Write the reference pages of the documentation");
  reference->add_option("folder", a.top, "The repository's top folder")->capture_default_str();
  reference->add_flag("--check", a.check, "Write nothing: exit status 1 where a stored page is out of date");
}

}  // namespace seeksim::harness
