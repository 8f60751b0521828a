#include "harness/commands/run_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "harness/commands/choice.h"
#include "harness/doctor/machine.h"
#include "harness/explain/explain.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/scenario_files.h"
#include "harness/loading/deepspeed/auto_values.h"
#include "harness/loading/load.h"
#include "harness/processes/refusals.h"
#include "harness/processes/session.h"
#include "harness/report/rows_file.h"
#include "harness/report/terminal.h"
#include "harness/run/run.h"
#include "harness/simulate/device.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

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
  const bool saves = !a.save_initial.empty() || !a.save_final.empty() || !a.save_batches.empty() ||
                     !a.save_logits.empty() || !a.save_gradients.empty();
  if (a.row >= 0 && a.files.size() > 1)
    throw BadInput(fmt::format("--row {}", a.row), "which of the scenarios is meant?", "Run one of them.");
  if (!a.trace.empty() && a.files.size() > 1)
    throw BadInput("--trace " + a.trace, "several scenarios would write the same file", "Run one of them.");
  if (!a.html.empty() && a.files.size() > 1)
    throw BadInput("--html " + a.html, "several scenarios would write the same file", "Run one of them.");
  if (!a.metrics.empty() && a.files.size() > 1)
    throw BadInput("--metrics " + a.metrics, "several scenarios would write the same file", "Run one of them.");
  if (a.redact && a.html.empty())
    throw BadInput("--redact", "it says what a page leaves out, and none is asked for", "Add --html FILE.");
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
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), options.files.gradients_step);
  const bool fine = colon != std::string::npos && error == std::errc() && end == step.data() + step.size() &&
                    options.files.gradients_step >= 1;
  options.files.save_gradients = fine ? a.save_gradients.substr(colon + 1) : "";
  if (options.files.save_gradients.empty()) {
    throw BadInput("--save-gradients " + a.save_gradients, "STEP:FILE is expected, the first step is 1",
                   "For example --save-gradients 1:gradients.safetensors.");
  }
}

RunOptions options_of(const RunArguments& a) {
  RunOptions options;
  options.style = style_of_stdout();
  options.progress = a.files.size() == 1;  // of several, the scenarios are counted
  options.wall_limit_s = a.wall_limit_s;
  options.rank_by_rank = a.rank_by_rank;
  options.verify_determinism = a.verify_determinism;
  options.many.processes = a.processes;
  options.many.row = a.row;
  options.many.all_rows = a.all;
  options.many.retries = a.retries;
  if (a.explain) {
    options.explain = [style = options.style, limit = a.wall_limit_s](const Scenario& scenario, const Json& report) {
      return explain_aside(scenario, report, limit, style);
    };
  }
  if (a.backend == "sim" && !a.no_names) {
    options.names = [limit = a.wall_limit_s](const Scenario& scenario, const Json& report) {
      return name_aside(scenario, report, limit);
    };
  }
  options.files.trace = a.trace;
  options.files.metrics = a.metrics;
  options.files.tensorboard = a.tensorboard;
  options.files.monitors = true;
  options.files.html.file = a.html;
  options.files.html.redact = a.redact;
  options.files.bundle = a.bundle;
  options.files.flight_recorder = a.flight_recorder;
  options.files.save_initial = a.save_initial;
  options.files.save_final = a.save_final;
  options.files.save_dtype = a.save_dtype == "bfloat16"  ? runtime::ElementType::bf16
                             : a.save_dtype == "float16" ? runtime::ElementType::f16
                                                         : runtime::ElementType::f32;
  options.files.save_shard_bytes = std::uint64_t(a.save_shard_mb) * 1'000'000;
  options.files.save_batches = a.save_batches;
  options.files.save_logits = a.save_logits;
  options.ranks.device = a.device;
  read_gradients(a, options);
  return options;
}

// "baseline" of "scenarios/baseline.json".
std::string stem_of(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  if (name.size() > 5 && name.ends_with(".json")) name.resize(name.size() - 5);
  return name;
}

// One folder a scenario below --out; the second of a name becomes NAME-2.
std::vector<Job> jobs_of(const RunArguments& a, const RunOptions& options) {
  std::vector<Job> jobs;
  for (const std::string& file : a.files) {
    Job job{file, options};
    if (a.files.size() > 1) job.options.files.monitors_below = fmt::format("{}-{}", jobs.size(), stem_of(file));
    if (!a.tensorboard.empty() && a.files.size() > 1)  // a run of TensorBoard's each
      job.options.files.tensorboard = a.tensorboard + '/' + job.options.files.monitors_below;
    if (!a.out.empty() && a.files.size() == 1) job.options.files.out = a.out;
    if (!a.out.empty() && a.files.size() > 1) {
      const std::string name = stem_of(file);
      std::string folder = a.out + '/' + name;
      const auto taken = [&](const Job& other) { return other.options.files.out == folder; };
      for (int n = 2; std::any_of(jobs.begin(), jobs.end(), taken); ++n)
        folder = fmt::format("{}/{}-{}", a.out, name, n);
      job.options.files.out = folder;
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
  if (!a.csv.empty()) write_file(a.csv, rows_as_csv(reports));
  if (!a.json_lines.empty()) write_file(a.json_lines, rows_as_json_lines(reports));
  if (!a.html.empty() && reports.size() == 1 && reports[0].contains("problems"))  // whatever ran wrote its own
    write_page({a.html, "", a.redact}, reports[0]);
  const bool failed = outcomes.size() == 1 && !outcomes.front().report.contains("checks");  // before it wrote anything
  if (!a.out.empty() && (outcomes.size() > 1 || failed)) {
    write_file(a.out + "/report.json", dump(whole_report(reports, status)));
    write_file(a.out + "/junit.xml", junit_xml(reports));
  }
}

// Its sentence, or the first problem that kept it from running.
std::string why_of(const Outcome& outcome) {
  if (!outcome.problems.empty()) return outcome.problems.front();
  return outcome.report.value("sentence", "");
}

// How many are as expected, and each of the others with its reason and what runs it again.
std::string summary(const std::vector<Job>& jobs, const std::vector<Outcome>& outcomes, const Style& style) {
  std::size_t good = 0;
  std::string red;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    good += outcome.status == ExitStatus::as_expected;
    if (outcome.status == ExitStatus::as_expected) continue;
    red += fmt::format("  {}  exit status {}: {}\n", outcome.name, code(outcome.status), why_of(outcome));
    red += style.faint(fmt::format("      seeksim run {}\n", jobs[i].file));
  }
  const std::string line = fmt::format("{} of {} scenarios as expected", good, outcomes.size());
  return '\n' + (red.empty() ? style.good(line) : style.bad(line)) + '\n' + red;
}

// `run scenarios/*.json` means the scenarios among them.
void leave_out_the_schema(std::vector<std::string>& files) {
  if (files.size() < 2) return;
  std::erase_if(files, [](const std::string& file) { return file.substr(file.rfind('/') + 1) == "schema.json"; });
}

// Without seed and schedule.
LoadOptions load_options(const RunArguments& a) {
  LoadOptions load;
  load.sets = sets_of_auto(a.autos);
  load.sets.insert(load.sets.end(), a.sets.begin(), a.sets.end());
  load.init = a.init;
  if (!a.storage.empty()) load.sets.push_back("storage=" + a.storage);
  if (a.resume) load.sets.push_back("checkpoint.resume=true");
  return load;
}

// All problems of all scenarios; a sweep's rows are read when they run.
ExitStatus check_scenarios(const RunArguments& a) {
  std::size_t bad = 0;
  for (const std::string& file : a.files) {
    try {
      load_scenario(file, load_options(a));
    } catch (const BadInput& problems) {
      ++bad;
      for (const Problem& problem : problems.problems()) complain(problem.text());
    }
  }
  put(fmt::format("{} of {} scenarios can be run\n", a.files.size() - bad, a.files.size()));
  return bad == 0 ? ExitStatus::as_expected : ExitStatus::bad_input;
}

// The scenarios of the command line on the ranks that `options` say.
ExitStatus run_scenarios(const RunArguments& a, const RunOptions& options) {
  LoadOptions load = load_options(a);
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
  const std::pair<const char*, const std::string*> files[] = {{"--report", &a.report},
                                                              {"--junit", &a.junit},
                                                              {"--html", &a.html},
                                                              {"--csv", &a.csv},
                                                              {"--json-lines", &a.json_lines}};
  for (const auto& [option, file] : files) {
    if (!file->empty()) probe_writable(*file, option);
  }
  check_machine();
  const std::vector<Job> jobs = jobs_of(a, options);
  std::vector<Outcome> outcomes;
  if (jobs.size() == 1 || options.ranks.launch) {
    for (const Job& job : jobs) {
      if (runtime::interrupted() != 0) break;
      outcomes.push_back(run_file(job.file, load, job.options, put));
      for (const std::string& problem : outcomes.back().problems) complain(problem);
    }
    if (jobs.size() > 1) put(summary(jobs, outcomes, options.style));
  } else {
    outcomes = run_all(jobs, load, a.processes, put);
    put(summary(jobs, outcomes, options.style));
  }
  ExitStatus status = ExitStatus::as_expected;
  std::vector<std::string> failed;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    status = std::max(status, outcomes[i].status);
    if (outcomes[i].status != ExitStatus::as_expected) failed.push_back(jobs[i].file);
  }
  if (jobs.size() > 1 || a.last_failed) remember_failed(failed);
  write_reports(a, outcomes, status);
  return status;
}

// One of the processes that mpirun started: the first one leads, and judges.
ExitStatus run_on_mpi(const RunArguments& a, RunOptions options) {
  refuse_options_on_mpi(options, a.backend);
  if (!a.schedule.empty())
    throw BadInput("--schedule",
                   "--backend " + a.backend + ": the machine decides which of several processes runs next",
                   "Leave it out, or use --backend sim.");
  MpiSession session(a.backend, a.insecure);
  if (!session.leads()) {
    session.serve();
    return ExitStatus::as_expected;
  }
  options.ranks.backend = session.backend();
  options.ranks.max = session.processes();
  options.ranks.launch_again = !session.supervised();
  if (a.backend == "nccl") options.ranks.device = "cuda";
  if (!a.no_skip)
    options.ranks.why_skipped = [nccl = a.backend == "nccl"](std::string_view check) {
      return why_not_judged(check, nccl);
    };
  options.ranks.launch = [&session](const Scenario& scenario, const SimulationOptions& how, bool row) {
    return session.run(scenario, how, row);
  };
  options.ranks.why_not = [&session](const Scenario& scenario) { return session.why_not(scenario); };
  const ExitStatus status = run_scenarios(a, options);
  session.end(status);
  return status;
}

// Leaves the scenarios that --last-failed, -k and --shard name. Of a single one the shard is returned: it is of its
// rows.
Shard choose_scenarios(RunArguments& a) {
  if (a.last_failed) a.files = that_failed_last(a.files);
  if (!a.pattern.empty()) a.files = with_pattern(a.files, a.pattern);
  if (a.shard.empty()) return {};
  const Shard shard = shard_of(a.shard);
  if (a.row >= 0) throw BadInput("--shard " + a.shard, "--row names one row already", "Leave one of them out.");
  if (a.files.size() == 1) return shard;
  a.files = of_shard(a.files, shard);
  return {};
}

}  // namespace

ExitStatus run_command(RunArguments a) {
  if (a.files.empty() && !a.last_failed)
    throw BadInput("run", "which scenario?", "Name a file, a folder or a scenario that comes along: `list scenarios`.");
  leave_out_the_schema(a.files);
  std::optional<runtime::Interrupts> noted;
  std::optional<runtime::EndsBySignal> ends;
  if (a.backend == "sim")
    noted.emplace();
  else
    ends.emplace();
  a.files = with_folders_expanded(a.files);
  const Shard rows = choose_scenarios(a);
  if (a.list) {
    for (const std::string& file : a.files) put(file + '\n');
    return ExitStatus::as_expected;
  }
  if (a.files.empty()) {
    put(a.shard.empty() ? "nothing failed the last time\n" : fmt::format("no scenario is of shard {}\n", a.shard));
    return ExitStatus::as_expected;
  }
  if (a.check_only) return check_scenarios(a);
  refuse_what_is_not_there(a);
  RunOptions options = options_of(a);
  options.many.shard = rows;
  return a.backend == "sim" ? run_scenarios(a, options) : run_on_mpi(a, options);
}

}  // namespace seeksim::harness
