#include "harness/commands/torch_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/input/shell.h"
#include "harness/releases/environment.h"
#include "harness/report/terminal.h"
#include "harness/torch/check/check.h"
#include "harness/torch/check/recovers.h"
#include "harness/torch/compare.h"
#include "harness/torch/doctor.h"
#include "harness/torch/explore/explore.h"
#include "harness/torch/hunt/hunt.h"
#include "harness/torch/python.h"
#include "harness/torch/run.h"
#include "harness/torch/show/flight_recorder.h"
#include "harness/torch/show/run_page.h"
#include "harness/torch/show/trace.h"
#include "harness/torch/table/table.h"
#include "pytorch/core/relay_line.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

void add_torch_run(CLI::App& torch, TorchArguments& a) {
  CLI::App* run = torch.add_subcommand(
      "run",
      "Run a script on ranks of this machine and judge it: seeksim torch run --np 2 [S.json] -- train.py ARGS, or "
      "-- torchrun ..., -- accelerate launch ..., -- python -m ...");
  run->add_option("scenario", a.scenario, "Scenario file (.json) with \"torch\"; none: nothing breaks");
  run->add_option("--np", a.ranks, "Number of ranks (default: torch.np of the scenario, or 2)")
      ->check(CLI::Range(1, kTorchRanksMax));
  run->add_option("--set", a.sets, "key.path=value: change a value of the scenario, as for seeksim run")
      ->allow_extra_args(false);
  run->add_option_function<std::string>(
      "--backend", [&a](const std::string& word) { a.sets.push_back("torch.backend=" + word); },
      "Who carries the collectives: seeksim; forwarded or gathered: the script's own backend, watched; own: "
      "the same, unwatched (torch.backend of the scenario)");
  run->add_option("--python", a.python,
                  "The Python that has torch (default: the active virtual environment's, else python3)");
  run->add_option("--out", a.out, "Folder for records, report.json, junit.xml, story.txt and the ranks' output");
  run->add_option("--report", a.report, "Write the report as JSON");
  run->add_option("--junit", a.junit, "Write the checks as JUnit XML");
  run->add_option("--html", a.shown.html,
                  "Write the run as a page: verdict, what each rank did when, who waited for whom");
  run->add_option("--trace", a.shown.trace, "Write the run for Perfetto and chrome://tracing");
  run->add_option("--flight-recorder", a.shown.flight_recorder,
                  "Write dumps of PyTorch's flight recorder into this folder, for torchfrtrace and seeksim analyse");
  run->add_option("--warm", a.warm_s,
                  "Start ranks from a process that has imported torch, and let it stay for this many seconds after its "
                  "last use: the next run starts in a second")
      ->check(CLI::Range(1.0, 86400.0));
  run->add_option("--import", a.imports, "With --warm: a module that the process imports besides; repeat it")
      ->allow_extra_args(false);
  run->add_option("--wall-limit", a.job.wall_limit_s, "End the job after this many seconds (exit status 3)")
      ->check(CLI::Range(0.0, 1e9));
  run->add_option("--nnodes", a.job.hosts,
                  "Hosts; the same command is started on each. torchrun's own words behind -- do, too; --np counts the "
                  "ranks of all hosts (docs/torch-hosts.md)")
      ->check(CLI::Range(1, pytorch::kMaxHosts));
  run->add_option("--node-rank", a.job.host, "Which of the hosts this is, from 0")
      ->check(CLI::Range(0, pytorch::kMaxHosts - 1));
  run->add_option("--rdzv", a.job.endpoint, "HOST:PORT on host 0: the script meets there, seeksim at the next port");
  run->add_flag("--insecure", a.job.insecure,
                "The hosts meet without a secret (SEEKSIM_TOKEN), though the network between them is open to others");
}

void add_torch_check(CLI::App& torch, TorchArguments& a) {
  CLI::App* check = torch.add_subcommand(
      "check",
      "Is a training script right? Run it as it is, and once for each switch that ought not to matter: seeksim torch "
      "check -- train.py ARGS");
  check->add_option("--np", a.ranks, "Number of ranks (default: 2)")->check(CLI::Range(1, kTorchRanksMax / 2));
  check->add_option("--only", a.switches, "Turn only these switches: NAME,NAME (docs/torch-check.md)")
      ->delimiter(',')
      ->allow_extra_args(false);
  check->add_option("--resume", a.resume,
                    "Arguments with which the script goes on from a checkpoint; {dir} stands for its folder, there and "
                    "in the script's own arguments");
  check->add_option("--python", a.python, "The Python that has torch");
  check->add_option("--out", a.out, "Folder of the runs and check.json");
  check->add_option("--report", a.report, "Write the result as JSON");
  check->add_flag("--json", a.json, "Print the result as JSON");
}

void add_torch_recovers(CLI::App& torch, TorchArguments& a) {
  CLI::App* recovers = torch.add_subcommand(
      "recovers",
      "Does a script recover? Run it undisturbed, break it off and let it go on: it has to end with the same bits: "
      "seeksim torch recovers --resume '--resume {dir}' -- train.py --save {dir}, or -- torchrun --max-restarts 1 ...");
  recovers->add_option("scenario", a.scenario, "Scenario file (.json) with \"torch\"; its faults disturb");
  recovers->add_option("--np", a.ranks, "Number of ranks (default: torch.np of the scenario, or 2)")
      ->check(CLI::Range(1, kTorchRanksMax));
  recovers->add_option("--set", a.sets, "key.path=value: change a value of the scenario")->allow_extra_args(false);
  recovers->add_option("--resume", a.resume,
                       "Arguments with which the script goes on, behind its own; {dir} stands for the folder of its "
                       "checkpoints (default: the same command again)");
  recovers->add_option("--how", a.breaks.how, "What happens to the last rank, unless a fault of the scenario ends one")
      ->check(CLI::IsMember({"kill", "hang"}))
      ->capture_default_str();
  recovers->add_flag("--again", a.breaks.again, "And once more, in the first step after it was resumed");
  recovers->add_option("--step", a.breaks.step, "In which step (default: drawn, from the first checkpoint on)")
      ->check(CLI::Range(std::int64_t(0), std::int64_t(1) << 53));
  recovers->add_option("--seed", a.seed, "Of the draw of the step")->capture_default_str();
  recovers->add_option("--python", a.python, "The Python that has torch");
  recovers->add_option("--out", a.out, "Folder of the runs, the checkpoints and recovers.json");
  recovers->add_option("--report", a.report, "Write the result as JSON");
  recovers->add_flag("--json", a.json, "Print the result as JSON");
}

void add_torch_explore(CLI::App& torch, TorchArguments& a) {
  CLI::App* explore = torch.add_subcommand(
      "explore",
      "Search for faults that a script does not survive as it should: seeksim torch explore --budget 10m -- train.py "
      "--save {dir}");
  explore->add_option("scenario", a.scenario, "Scenario file (.json) with \"torch\"; its faults are the first case");
  explore->add_option("--np", a.ranks, "Number of ranks (default: torch.np of the scenario, or 2)")
      ->check(CLI::Range(1, kTorchRanksMax));
  explore->add_option("--set", a.sets, "key.path=value: change a value of the scenario")->allow_extra_args(false);
  explore->add_option("--budget", a.search.budget, "Wall time: 90s, 10m, 2h; endless: until it is stopped")
      ->capture_default_str();
  explore->add_option("--cases", a.search.cases, "End after so many cases")->check(CLI::Range(1, 1 << 30));
  explore->add_option("--findings", a.search.findings, "End after so many different findings")
      ->check(CLI::Range(1, 1 << 30));
  explore->add_option("--seed", a.seed, "Of what is drawn")->capture_default_str();
  explore->add_option("--resume", a.resume,
                      "Arguments with which the script goes on, behind its own (default: the same command again)");
  explore->add_option("--python", a.python, "The Python that has torch");
  explore->add_option("--out", a.out, "Folder of the findings, their runs and explore.json");
  explore->add_option("--report", a.report, "Write the result as JSON");
  explore->add_flag("--json", a.json, "Print the result as JSON");
}

void add_torch_hunt(CLI::App& torch, TorchArguments& a) {
  CLI::App* hunt = torch.add_subcommand(
      "hunt",
      "Search for trainings that DDP, FSDP or DeepSpeed do not do right: draw models and options, and hold each to the "
      "same training by hand");
  hunt->add_option("--budget", a.search.budget, "Wall time: 90s, 10m, 2h; endless: until it is stopped")
      ->capture_default_str();
  hunt->add_option("--cases", a.search.cases, "End after so many cases")->check(CLI::Range(1, 1 << 30));
  hunt->add_option("--findings", a.search.findings, "End after so many different findings")
      ->check(CLI::Range(1, 1 << 30));
  hunt->add_option("--seed", a.seed, "Of what is drawn")->capture_default_str();
  hunt->add_option("--only", a.only, "FEATURE=VALUE,VALUE: draw only these; repeat it for other features")
      ->allow_extra_args(false);
  hunt->add_option("--case", a.search.one, "Run this case and no other: wrapper=zero3,tied=on");
  hunt->add_option("--known", a.search.known, "What one more known finding needs, which is not told again; repeat it")
      ->allow_extra_args(false);
  hunt->add_flag("--again", a.search.again, "Tell findings that docs/findings has, too");
  hunt->add_option("--import", a.imports, "A module that is imported before the ranks start, besides torch; repeat it")
      ->allow_extra_args(false);
  hunt->add_option("--python", a.python, "The Python that has torch");
  hunt->add_option("--out", a.out, "Folder of hunt.json, the findings and their runs; a hunt that is there goes on");
  hunt->add_option("--report", a.report, "Write the result as JSON");
  hunt->add_flag("--json", a.json, "Print the result as JSON");
}

void add_torch_compare(CLI::App& torch, TorchArguments& a) {
  CLI::App* compare =
      torch.add_subcommand("compare", "Compare every weight and every loss of two runs, and name the first difference");
  compare->add_option("a", a.a, "Folder of a run (--out of seeksim torch run)")->required();
  compare->add_option("b", a.b, "Folder of the other run")->required();
  compare
      ->add_option(
          "--grade", a.grade,
          "How near they have to be: bits, reassociated (1e-6, or what --order measures) or rounding (1e-2); exit "
          "status 1 otherwise")
      ->check(CLI::IsMember({"bits", "reassociated", "rounding"}))
      ->capture_default_str();
  compare
      ->add_option("--order", a.orders,
                   "Folder of run a again with another torch.sums: measures how far another order of sums may be away, "
                   "for the grade reassociated; repeat it for each order")
      ->allow_extra_args(false);
  compare->add_option("--report", a.report, "Write the comparison as JSON");
  compare->add_flag("--json", a.json, "Print the comparison as JSON");
}

void add_torch_table(CLI::App& torch, TorchArguments& a) {
  CLI::App* table = torch.add_subcommand(
      "table",
      "Run one training in several layouts, and hold each cell to the grade that a file expects of it: seeksim torch "
      "table examples/pytorch/layouts.table.json --out DIR");
  table->add_option("table", a.table, "What varies and what is expected (.json; docs/layouts.md)")->required();
  table
      ->add_option("--out", a.out, "Folder of the runs, table.txt and table.json; runs that are there are not repeated")
      ->required();
  table->add_option("--only", a.only, "AXIS=VALUE,VALUE: run only these; repeat it for other axes")
      ->allow_extra_args(false);
  table->add_option("--python", a.python, "The Python that has torch");
  table->add_option("--report", a.report, "Write the table as JSON here too");
}

void probe(const TorchArguments& a) {
  if (!a.report.empty()) probe_writable(a.report, "--report");
  if (!a.junit.empty()) probe_writable(a.junit, "--junit");
  if (!a.shown.html.empty()) probe_writable(a.shown.html, "--html");
  if (!a.shown.trace.empty()) probe_writable(a.shown.trace, "--trace");
}

std::string again(const TorchArguments& a) {
  std::vector<std::string> words = {"seeksim", "torch", "run"};
  if (!a.scenario.empty()) words.push_back(a.scenario);
  if (a.ranks > 0) words.insert(words.end(), {"--np", std::to_string(a.ranks)});
  for (const std::string& set : a.sets) words.insert(words.end(), {"--set", set});
  words.emplace_back("--");
  words.insert(words.end(), a.script.begin(), a.script.end());
  return command_line(words);
}

void write_shown(const TorchArguments& a, const torch::TorchRun& run, const Json& report) {
  if (!a.shown.html.empty()) write_file(a.shown.html, torch::run_page(run, report, again(a)));
  if (!a.shown.trace.empty()) write_file(a.shown.trace, torch::trace_text(run));
  if (!a.shown.flight_recorder.empty()) torch::write_flight_dumps(a.shown.flight_recorder, run);
}

ExitStatus run_script(const TorchArguments& a) {
  torch::RunRequest request;
  request.scenario = a.scenario;
  request.sets = a.sets;
  if (a.ranks > 0) request.np = a.ranks;
  request.command = a.script;
  request.python = a.python;
  request.out = a.out;
  request.wall_limit_s = a.job.wall_limit_s;
  request.warm_s = a.warm_s;
  request.imports = a.imports;
  if (a.job.hosts > 0) request.hosts.count = a.job.hosts;
  if (a.job.host >= 0) request.hosts.host = a.job.host;
  request.hosts.endpoint = a.job.endpoint;
  request.hosts.insecure = a.job.insecure;
  request.style = style_of_stdout();
  request.shows = [&a](const torch::TorchRun& run, const Json& report) { write_shown(a, run, report); };
  const Outcome outcome = torch::run_script(request, put);
  if (!a.report.empty()) write_file(a.report, dump(outcome.report));
  if (!a.junit.empty()) write_file(a.junit, junit_xml({outcome.report}));
  return outcome.status;
}

// What check, recovers and explore are asked alike.
template <class Request>
Request request_of(const TorchArguments& a) {
  Request request;
  request.command = a.script;
  request.resume = a.resume;
  if (a.ranks > 0) request.np = a.ranks;
  request.python = a.python;
  request.out = a.out;
  request.quiet = a.json;
  request.style = style_of_stdout();
  return request;
}

ExitStatus told(const TorchArguments& a, const Outcome& outcome) {
  if (!a.report.empty()) write_file(a.report, dump(outcome.report));
  if (a.json) put_data(dump(outcome.report));
  return outcome.status;
}

ExitStatus check_script(const TorchArguments& a) {
  auto request = request_of<torch::CheckRequest>(a);
  request.only = a.switches;
  return told(a, torch::run_check(request, put));
}

ExitStatus recover_script(const TorchArguments& a) {
  auto request = request_of<torch::RecoversRequest>(a);
  request.scenario = a.scenario;
  request.sets = a.sets;
  request.how = a.breaks.how;
  request.again = a.breaks.again;
  if (a.breaks.step >= 0) request.step = a.breaks.step;
  request.seed = a.seed;
  return told(a, torch::run_recovers(request, put));
}

ExitStatus explore(const TorchArguments& a) {
  auto request = request_of<torch::ExploreScript>(a);
  request.scenario = a.scenario;
  request.sets = a.sets;
  request.budget = a.search.budget;
  request.cases = a.search.cases;
  request.findings = a.search.findings;
  request.seed = a.seed;
  return told(a, torch::explore_script(request, put));
}

ExitStatus hunt(const TorchArguments& a) {
  torch::HuntRequest request;
  request.budget = a.search.budget;
  request.cases = a.search.cases;
  request.findings = a.search.findings;
  request.seed = a.seed;
  request.only = a.only;
  request.one = a.search.one;
  request.known = a.search.known;
  request.again = a.search.again;
  request.imports = a.imports;
  request.python = a.python;
  request.out = a.out;
  request.quiet = a.json;
  request.style = style_of_stdout();
  return told(a, torch::hunt(request, put));
}

ExitStatus compare(const TorchArguments& a) {
  constexpr torch::Grade kGrades[] = {torch::Grade::bits, torch::Grade::reassociated, torch::Grade::rounding};
  const torch::Grade wanted =
      *std::find_if(std::begin(kGrades), std::end(kGrades), [&](torch::Grade grade) { return name(grade) == a.grade; });
  const std::vector<torch::RankRun> first = torch::read_ranks(a.a, 0), second = torch::read_ranks(a.b, 0);
  std::optional<torch::Allowance> allowed;
  if (!a.orders.empty()) allowed = torch::allowance_of(first, a.a, a.orders);
  const torch::RunComparison found = torch::compare_runs(first, second, a.a, a.b, allowed ? &*allowed : nullptr);
  const Json json = comparison_json(found, wanted, a.a, a.b);
  if (!a.report.empty()) write_file(a.report, dump(json));
  a.json ? put_data(dump(json)) : put(comparison_text(found, wanted, a.a, a.b));
  return found.grade <= wanted ? ExitStatus::as_expected : ExitStatus::check_failed;
}

ExitStatus run_table(const TorchArguments& a) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const Outcome outcome = torch::run_table({a.table, a.only, a.python, program, a.out, style_of_stdout()}, put);
  if (!a.report.empty()) write_file(a.report, dump(outcome.report));
  return outcome.status;
}

ExitStatus clean(const TorchArguments& a) {
  const std::uint64_t bytes = torch::clean_cache(torch::find_python(a.python));
  const std::uint64_t of_releases = releases::clean_environments(a.python);
  put(fmt::format("removed {:.1f} MiB of built backends, {:.1f} MiB of released packages\n", double(bytes) / (1 << 20),
                  double(of_releases) / (1 << 20)));
  return ExitStatus::as_expected;
}

}  // namespace

void add_torch(CLI::App& app, TorchArguments& a) {
  CLI::App* torch =
      app.add_subcommand("torch", "Run your own PyTorch script under faults and checks; compare two runs");
  torch->require_subcommand(1);
  add_torch_run(*torch, a);
  add_torch_check(*torch, a);
  add_torch_recovers(*torch, a);
  add_torch_explore(*torch, a);
  add_torch_hunt(*torch, a);
  add_torch_compare(*torch, a);
  add_torch_table(*torch, a);
  torch->add_subcommand("doctor", "Check that a Python, its torch and this machine can run scripts under seeksim")
      ->add_option("--python", a.python, "The Python that has torch");
  add_releases(*torch, a.releases);
  torch->add_subcommand("clean", "Remove the backends built for versions of torch, and the environments of releases")
      ->add_option("--python", a.python, "A Python to do it with");
}

std::vector<std::string> take_script(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "torch") return {};
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end()) return {};
  std::vector<std::string> script(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return script;
}

// A command that starts scripts ends in order when a signal asks it to, whatever it is at: status 3, not the signal.
ExitStatus until_asked_to_stop(ExitStatus (*command)(const TorchArguments&), const TorchArguments& a) {
  const runtime::Interrupts noted;
  ExitStatus status = ExitStatus::no_progress;
  try {
    status = command(a);
  } catch (const torch::AskedToStop& stop) {
    std::fprintf(stderr, "%s, before the script had run\n", stop.what());
  }
  runtime::forget_interrupt();
  return status;
}

ExitStatus torch_command(const CLI::App& app, const TorchArguments& a) {
  const CLI::App& verb = *app.get_subcommand("torch");
  probe(a);
  if (verb.got_subcommand("run")) return until_asked_to_stop(run_script, a);
  if (verb.got_subcommand("check")) return until_asked_to_stop(check_script, a);
  if (verb.got_subcommand("recovers")) return until_asked_to_stop(recover_script, a);
  if (verb.got_subcommand("explore")) return until_asked_to_stop(explore, a);
  if (verb.got_subcommand("hunt") && a.script.empty()) return until_asked_to_stop(hunt, a);
  bool of_releases = false;
  const ExitStatus status = releases_command(verb, a.releases, a.script, of_releases);
  if (of_releases) return status;
  if (!a.script.empty())
    throw BadInput("-- " + a.script.front(), "only seeksim torch run, check, recovers and explore start a script",
                   "Leave it out.");
  if (verb.got_subcommand("compare")) return compare(a);
  if (verb.got_subcommand("table")) return run_table(a);
  return verb.got_subcommand("doctor") ? torch::doctor(a.python, style_of_stdout()) : clean(a);
}

}  // namespace seeksim::harness
