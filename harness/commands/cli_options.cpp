#include "harness/commands/cli_options.h"

#include <CLI/CLI.hpp>

namespace seeksim::harness {

void add_run(CLI::App& app, RunArguments& a) {
  CLI::App* run = app.add_subcommand("run", "Run scenarios and judge them");
  run->add_option("scenario", a.files, "Scenario files (.json), or folders of them")->required();
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
  golden->add_option("scenario", a.files, "Scenario files (.json), or folders of them")->required();
  golden->add_option("--set", a.sets, "key.path=value, as for run")->allow_extra_args(false);
  golden->add_flag("--write", a.write, "Store it in golden/");
  golden->add_flag("--check", a.check, "Exit status 1 unless a stored one is equal");
  golden->add_flag("--explain", a.explain, "Print what the key is made of");
}

void add_list(CLI::App& app, std::string& what, ScheduleArguments& schedule) {
  CLI::App* list =
      app.add_subcommand("list", "List scenarios, faults, checks, bugs, quirks, keys or a pipeline's schedule");
  list->add_option("what", what, "scenarios, faults, checks, bugs, quirks, keys, schema, schedule")->required();
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

void add_reference(CLI::App& app, ReferenceArguments& a) {
  CLI::App* reference = app.add_subcommand("reference", "Write the reference pages of the documentation");
  reference->add_option("folder", a.top, "The repository's top folder")->capture_default_str();
  reference->add_flag("--check", a.check, "Write nothing: exit status 1 where a stored page is out of date");
}

}  // namespace seeksim::harness
