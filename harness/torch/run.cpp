#include "harness/torch/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/torch/blame.h"
#include "harness/torch/job.h"
#include "harness/torch/judges.h"
#include "harness/torch/python.h"
#include "harness/torch/report.h"
#include "harness/torch/scenario.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/wire/bytes.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;

// The run's folder: the user's, or one that goes again unless it is to be kept.
class RunFolder {
 public:
  explicit RunFolder(const std::string& given) : temporary_(given.empty()) {
    std::string path = given;
    if (temporary_) {
      path = (fs::temp_directory_path() / "seeksim-torch-XXXXXX").string();
      if (::mkdtemp(path.data()) == nullptr)
        throw BadInput(path, fmt::format("no temporary folder: {}", std::strerror(errno)), "Use --out FOLDER.");
    } else {
      make_folder(path, "--out");
      clear_run_folder(path);
    }
    path_ = fs::absolute(path).string();
  }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder() {
    std::error_code ignored;
    if (temporary_ && !kept_) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  bool temporary() const { return temporary_; }
  void keep() { kept_ = true; }

 private:
  bool temporary_, kept_ = false;
  std::string path_;
};

bool strikes_nccl(const TorchScenario& scenario) {
  return std::any_of(scenario.faults.begin(), scenario.faults.end(),
                     [](const faults::Rule& rule) { return rule.kind == faults::FaultKind::device_error; });
}

// What is loaded before NCCL: ours, and what the caller's environment already names.
std::string preloaded(const Start& start) {
  const char* others = std::getenv("LD_PRELOAD");
  return (fs::path(start.built.module).parent_path() / "libseeksim_nccl.so").string() +
         (others == nullptr || *others == '\0' ? "" : ':' + std::string(others));
}

JobPlan job_of(const std::string& folder, const TorchScenario& scenario, const std::vector<std::string>& command,
               const Start& start) {
  JobPlan plan;
  plan.direct = is_script(command.front());
  plan.command = command;
  if (plan.direct) {
    const std::vector<std::string> python = {start.python};
    const std::vector<std::string>& before = start.ranks_with.empty() ? python : start.ranks_with;
    plan.command.insert(plan.command.begin(), before.begin(), before.end());
  }
  plan.ranks = scenario.torch.ranks;
  if (start.relay != nullptr) {
    plan.hosts = start.hosts.count;
    plan.host = start.hosts.host;
    plan.master = start.hosts.master;
    plan.port = start.hosts.port;
    plan.on_failure = [&start](const std::string& what) { start.relay->job_failed(what); };
    plan.failed_elsewhere = [&start] { return start.relay->failed_elsewhere(); };
  }
  plan.environment = rank_environment(start);
  plan.environment["SEEKSIM_TORCH_DIR"] = folder;
  if (strikes_nccl(scenario)) plan.environment["LD_PRELOAD"] = preloaded(start);
  plan.folder = folder;
  plan.patience_s = scenario.torch.patience_s();
  plan.wall_limit_s = start.wall_limit_s;
  plan.quiet = start.quiet;
  return plan;
}

// Somebody's launcher may have started another number of ranks than was said.
void refuse_other_world(const TorchRun& run) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record || rank.record->now.world == run.scenario.torch.ranks) continue;
    throw BadInput(run.command.front(),
                   fmt::format("it started {} ranks, and the scenario is for {}", rank.record->now.world,
                               run.scenario.torch.ranks),
                   fmt::format("Use --np {}.", rank.record->now.world));
  }
}

// The verdict of the first host, for the others.
struct VerdictSaid {
  std::int32_t status = 0;
  std::string text;
};

// Hosts still tell each other what they know when they are asked to stop, but not for long.
std::function<bool()> until_asked_to_end() {
  static constexpr std::chrono::seconds kToTell(10);
  return [since = std::optional<std::chrono::steady_clock::time_point>()]() mutable {
    if (runtime::interrupted() == 0) return false;
    if (!since) since = std::chrono::steady_clock::now();
    return std::chrono::steady_clock::now() - *since > kToTell;
  };
}

// On the first host: what the others have to give. On another: gives it, and gets the verdict.
void join_hosts(TorchRun& run, const Start& start) {
  const HostsPlan& hosts = start.hosts;
  for (const std::string& name : start.host_names) run.hosts.push_back({name, {}, "", 0});
  HostRun& own = run.hosts[std::size_t(hosts.host)];
  for (ProcessRun& process : run.job.processes) process.host = hosts.host;
  if (hosts.host == 0) {
    const std::vector<HostGave> gave = start.relay->collect(until_asked_to_end());
    std::vector<std::string> theirs;
    for (const HostGave& one : gave) theirs.insert(theirs.end(), one.files.begin(), one.files.end());
    own.ranks = ranks_in(run.folder, run.scenario.torch.ranks, theirs);
    for (int host = 1; host < hosts.count; ++host) {
      const HostGave& one = gave[std::size_t(host)];
      run.hosts[std::size_t(host)].problem = one.problem;
      run.hosts[std::size_t(host)].clock_ns = one.clock_ns;
      if (one.summary) add_summary(run, host, *one.summary);
    }
    add_lost_ranks(run);
    write_hosts(run.folder, run.hosts);
    return;
  }
  own.ranks = ranks_in(run.folder, run.scenario.torch.ranks);
  std::vector<HostFile> files;
  for (const std::string& name : list_folder(run.folder)) {
    const std::string told = name == "output.txt" ? fmt::format("output-host-{}.txt", hosts.host) : name;
    if (is_name_of_a_rank_file(told)) files.push_back({run.folder + '/' + name, told});
  }
  run.verdict = start.relay->give(std::move(files), summary_text(run.job, own.ranks), until_asked_to_end());
  for (int host = 0; host < hosts.count; ++host) {
    if (host != hosts.host)
      run.hosts[std::size_t(host)].problem =
          fmt::format("what it knows goes to host 0 alone ({})", start.relay->why_lost(0));
  }
}

// Of a host that is not the first: what that one found.
Outcome outcome_from(const std::string& verdict, const TorchRun& run, const Print& print) {
  VerdictSaid said;
  Outcome outcome;
  outcome.name = run.scenario.name;
  try {
    runtime::from_bytes(std::as_bytes(std::span(verdict)), said);
  } catch (const runtime::Malformed& wrong) {
    throw BadInput(host_name(run, 0), fmt::format("its verdict {}", wrong.what()), "");
  }
  std::erase_if(said.text, [](char c) { return c != '\n' && c >= 0 && c < ' '; });
  print(fmt::format("\n  judged    by {}, for all hosts\n{}", host_name(run, 0), said.text));
  outcome.status = said.status < 0 || said.status > 3 ? ExitStatus::check_failed : ExitStatus(said.status);
  outcome.report = {{"schema", kReportSchema}, {"scenario", outcome.name}, {"judged_by", host_name(run, 0)}};
  return outcome;
}

void tell_verdict(const Start& start, ExitStatus status, const std::string& text) {
  if (start.relay == nullptr || start.hosts.host != 0) return;
  const std::vector<std::byte> bytes = runtime::to_bytes(VerdictSaid{code(status), text});
  start.relay->tell_verdict({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Meets the other hosts, where there are some.
std::unique_ptr<Relay> start_relay(Start& start, const TorchScenario& scenario, const std::string& folder) {
  if (start.hosts.count <= 1) return nullptr;
  Json task = to_json(scenario);
  task.erase("name");
  MetHosts met;
  try {
    met = meet_hosts(start.hosts, dump(task));
  } catch (const BadInput&) {
    if (runtime::interrupted() != 0) throw AskedToStop();
    throw;
  }
  start.host_names = met.names;
  RelayPlan plan;
  plan.host = start.hosts.host;
  plan.names = std::move(met.names);
  plan.folder = folder;
  plan.files_bytes_max =
      std::uint64_t(scenario.torch.ranks) * (std::uint64_t(scenario.torch.record.max_mib + 64) << 20);
  auto relay = std::make_unique<Relay>(std::move(plan), std::move(met.wire));
  start.relay = relay.get();
  return relay;
}

// Lets ranks start from a process that has imported torch, where that was asked for. Returns a line that says so.
std::string start_warm(const RunRequest& request, Start& start) {
  if (request.warm_s <= 0) return "";
  if (!is_script(request.command.front())) return "  start     cold: a launcher starts the ranks\n";
  start.built.python_path = package_folder();
  Warm warm = keep_warm(start.python, rank_environment(start), request.warm_s, request.imports);
  start.ranks_with = std::move(warm.ranks_with);
  return fmt::format("  start     warm: a process that has imported torch {}, for {} s after its last use\n",
                     warm.fresh ? "was started and stays" : "was there", request.warm_s);
}

// A line that says where hosts meet; empty: there is one.
std::string where_hosts_meet(const HostsPlan& hosts) {
  if (hosts.count <= 1) return "";
  return fmt::format("  hosts     {}; this is host {}. They meet at {}:{}\n", hosts.count, hosts.host, hosts.master,
                     hosts.port + 1);
}

// Throws BadInput where the ranks cannot be shared out, or the run is of a kind that stays on one host.
void check_hosts(const HostsPlan& hosts, const TorchScenario& scenario, const std::vector<std::string>& command) {
  if (hosts.count <= 1) return;
  if (scenario.torch.ranks < hosts.count || (is_script(command.front()) && scenario.torch.ranks % hosts.count != 0))
    throw BadInput("--np",
                   fmt::format("{} ranks are not shared out evenly among {} hosts", scenario.torch.ranks, hosts.count),
                   "--np counts the ranks of all hosts.");
  if (scenario.torch.backend != Backend::seeksim)
    throw BadInput("torch.backend", fmt::format("\"{}\" runs on one host", name(scenario.torch.backend)),
                   "Use torch.backend \"seeksim\".");
}

// The other hosts of a run that is bad input on the first one learn of it.
TorchRun run_judged(const std::string& folder, const TorchScenario& scenario, const std::vector<std::string>& command,
                    const Start& start) {
  try {
    return run_in(folder, scenario, command, start);
  } catch (const BadInput& bad) {
    tell_verdict(start, ExitStatus::bad_input, fmt::format("  {}\n", bad.what()));
    throw;
  }
}

std::string kept_text(const RunFolder& folder) { return fmt::format("  folder    {}\n", folder.path()); }

void write_all(const RunFolder& folder, const TorchRun& run, const Outcome& outcome, const std::string& story) {
  write_file(folder.path() + "/report.json", dump(outcome.report));
  write_file(folder.path() + "/junit.xml", junit_xml({outcome.report}));
  write_file(folder.path() + "/scenario.json", dump(to_json(run.scenario)));
  write_file(folder.path() + "/story.txt", story);
}

}  // namespace

void refuse_command(const std::vector<std::string>& command, const std::string& verb) {
  if (command.empty())
    throw BadInput("seeksim torch " + verb, "there is no script",
                   fmt::format("Put it behind --: seeksim torch {} --np 2 -- train.py", verb));
  const std::string& first = command.front();
  if (!is_script(first)) return;
  if (!fs::exists(first))
    throw BadInput(first, "there is no such script", "Check the name, and the folder you are in.");
  if (!fs::is_regular_file(first)) throw BadInput(first, "it is no file", "Name the script that each rank runs.");
}

std::string script_name(const std::vector<std::string>& command) {
  const auto script = std::find_if(command.begin(), command.end(), is_script);
  return fs::path(script == command.end() ? command.front() : *script).stem().string();
}

Environment rank_environment(const Start& start) {
  Environment environment = {{"PYTHONPATH", python_path_with(start.built.python_path)}};
  if (start.ends_at_once) environment["SEEKSIM_TORCH_ENDS_AT_ONCE"] = "1";
  const auto unless_set = [&](const char* name, const char* value) {
    if (std::getenv(name) == nullptr) environment[name] = value;
  };
  unless_set("OMP_NUM_THREADS", "1");                 // another number of threads, another order of sums
  unless_set("PYTHONUNBUFFERED", "1");                // what a killed rank printed is not lost
  if (start.python.find('/') != std::string::npos) {  // torchrun of the same environment
    const char* path = std::getenv("PATH");
    environment["PATH"] =
        fs::absolute(start.python).parent_path().string() + (path == nullptr ? "" : ':' + std::string(path));
  }
  return environment;
}

TorchRun run_in(const std::string& folder, const TorchScenario& scenario, const std::vector<std::string>& command,
                const Start& start) {
  TorchRun run;
  run.scenario = scenario;
  run.command = command;
  run.folder = folder;
  write_file(folder + "/plan.json", dump(plan_json(scenario, start)));
  run.job = run_job(job_of(folder, scenario, command, start));
  if (start.relay != nullptr) join_hosts(run, start);
  if (run.verdict) return run;
  run.ranks = read_ranks(folder, scenario.torch.ranks);
  refuse_other_world(run);
  if (const std::string why = failed_by_itself(run); !why.empty())
    throw BadInput(command.front(), why,
                   start.quiet ? fmt::format("Does seeksim torch run --np {} run it?", scenario.torch.ranks)
                               : "Its output is above. Does it run without seeksim?");
  return run;
}

Json plan_json(const TorchScenario& scenario, const Start& start) {
  const TorchPlan& torch = scenario.torch;
  Json faults = Json::array();
  for (const faults::Rule& rule : scenario.faults) faults.push_back(Json::parse(faults::text(rule)));
  return {{"version", 1},
          {"module", start.built.module},
          {"backend", std::string(name(torch.backend))},
          {"seed", torch.seed},
          {"attempt", start.attempt},
          {"timeout_s", torch.timeout_s},
          {"sums", std::string(pytorch::name(torch.sums))},
          {"record",
           {{"hashes", torch.record.hashes},
            {"norms", torch.record.norms},
            {"stacks", torch.record.stacks},
            {"weights_every", torch.record.weights_every},
            {"gradients", torch.record.gradients},
            {"whole", torch.record.whole},
            {"max_mib", torch.record.max_mib}}},
          {"faults", faults},
          {"turns", start.turns},
          {"relay", start.relay == nullptr ? "" : start.relay->path()},
          {"host", start.hosts.host},
          {"hosts", start.host_names}};
}

std::string failed_by_itself(const TorchRun& run) {
  const ProcessRun* failed = nullptr;
  for (const ProcessRun& process : run.job.processes) {
    if (process.ending.good() || process.ended_by_us) continue;
    if (failed == nullptr || process.after_s < failed->after_s) failed = &process;
  }
  if (failed == nullptr || run.job.stopped == Stopped::interrupted) return "";
  for (const RankRun& rank : run.ranks)
    if (!rank.refused.empty()) return fmt::format("rank {}: {}", rank.rank, rank.refused);
  if (culprits_of(run)) return "";
  for (const RankRun& rank : run.ranks) {
    if (rank.record && (!rank.record->steps.empty() || !rank.record->faults.empty())) return "";
  }
  return fmt::format("{} ended {} before the first step{}",
                     failed->rank < 0 ? "the launcher" : fmt::format("rank {}", failed->rank), how(failed->ending),
                     failed->last_words.empty() ? "" : ": " + failed->last_words);
}

Outcome run_script(const RunRequest& request, const Print& print) {
  refuse_command(request.command, "run");
  TorchScenario scenario = load_torch_scenario(request.scenario, request.sets, request.np);
  if (scenario.name.empty()) scenario.name = script_name(request.command);
  Start start;
  start.python = find_python(request.python);
  const std::string how_started = start_warm(request, start);
  start.built = build_backend(start.python, start.ranks_with);
  start.wall_limit_s = request.wall_limit_s;
  start.hosts = hosts_plan(request.hosts, request.command);
  check_hosts(start.hosts, scenario, request.command);
  // The first host's folder may be this one's, too, on a file system that both see.
  RunFolder folder(request.out.empty() || start.hosts.host == 0
                       ? request.out
                       : fmt::format("{}/host-{}", request.out, start.hosts.host));
  std::string header = header_text(scenario, request.command, start.built.torch, start.hosts.count, request.style);
  header.insert(header.size() - 1, how_started + where_hosts_meet(start.hosts));  // before its empty line
  print(header);
  const std::unique_ptr<Relay> relay = start_relay(start, scenario, folder.path());
  const TorchRun run = run_judged(folder.path(), scenario, request.command, start);
  if (run.verdict) return outcome_from(*run.verdict, run, print);
  const Judgement judgement = judge(run);
  Outcome outcome;
  outcome.status = judgement.status;
  outcome.name = run.scenario.name;
  outcome.report = report_json(run, judgement);
  const bool red = outcome.status != ExitStatus::as_expected;
  if (red) folder.keep();
  std::string story = story_text(run, judgement, request.style);
  if (start.relay != nullptr) tell_verdict(start, outcome.status, verdict_text(run, judgement, {}));
  if (folder.temporary() && red) story += kept_text(folder);
  print(story);
  write_all(folder, run, outcome, header + story);
  if (request.shows) request.shows(run, outcome.report);
  return outcome;
}

}  // namespace seeksim::harness::torch
