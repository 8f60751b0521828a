#include "harness/commands/launch_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/shell.h"
#include "harness/loading/load.h"
#include "harness/processes/faults.h"
#include "harness/processes/job_metrics.h"
#include "harness/processes/local_job.h"
#include "harness/processes/refusals.h"
#include "harness/run/one_run.h"
#include "harness/scenario/scenario.h"
#include "runtime/backend/control/control_server.h"
#include "runtime/backend/gpu/nccl_api.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/machine/posix_storage.h"
#include "runtime/backend/wire/mpi_world.h"
#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/seams/bounded.h"

namespace seeksim::harness {
namespace {

using Clock = std::chrono::steady_clock;

// How long a job may take to end after a signal.
constexpr double kToEnd_s = 5;
// Between two writes of --openmetrics.
constexpr double kMetricsEvery_s = 1;
// How long mpirun may take to notice a death by itself, and to end the others.
constexpr double kToNotice_s = 3;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// How the processes of one job ended.
struct Ended {
  int status = 0;   // of mpirun; 128 + n: by signal n
  std::string why;  // what was seen before; empty: nothing
  double after_s = 0;
};

constexpr int kNoProgram = 127;  // exit status where mpirun cannot be started, as a shell's
constexpr int kSignals = 64;
// mpirun's own status where a process left with status 0 and without MPI_Finalize. A process may have it, too.
constexpr int kLeftWithoutAWord = 1;

// What mpirun's status says of the process that it ended for. mpirun passes a status on, and of a signal 128 + its
// number, as shells do: above 128 the two look alike.
std::string how_it_ended(int status, bool left_without_a_word) {
  const int signal = status - 128;
  if (signal > 0 && signal <= kSignals)
    return fmt::format("with status {}: signal {} ({}), or an exit status of its own", status, signal,
                       ::strsignal(signal));
  if (status == kLeftWithoutAWord && left_without_a_word)
    return fmt::format("with status {}: a process failed with it, or left with status 0 and without MPI_Finalize",
                       status);
  return fmt::format("with status {}", status);
}

class Supervisor {
 public:
  Supervisor(const LaunchArguments& arguments, const Scenario& scenario, std::string program, Style style)
      : arguments_(arguments), scenario_(scenario), program_(std::move(program)), style_(style), began_(Clock::now()) {
    const runtime::RecoveryPlan& recovery = scenario.train.recovery;
    const bool given = recovery.heartbeat_ns > 0;
    heartbeat_s_ = given ? double(recovery.heartbeat_ns) / 1e9 : arguments.heartbeat_s;
    silent_s_ = given ? double(recovery.heartbeat_timeout_ns) / 1e9 : arguments.silent_s;
    std::filesystem::path folder = arguments.out;
    if (folder.empty()) folder = std::filesystem::temp_directory_path() / ("seeksim-" + runtime::new_token());
    make_folder(folder, "--out");
    folder_ = std::filesystem::absolute(folder);
    report_ = std::filesystem::absolute(arguments.report.empty() ? folder_ + "/launched.json" : arguments.report);
    if (arguments.address != kThisHost || arguments.no_mpi) return;
    const std::string name = "seeksim-mpi-" + runtime::new_token();
    session_ = std::filesystem::temp_directory_path() / name;
    if (std::filesystem::is_directory("/dev/shm")) shared_ = "/dev/shm/" + name;
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor() {
    std::error_code ignored;
    remove_leavings();
    if (arguments_.out.empty()) std::filesystem::remove_all(folder_, ignored);
  }

  ExitStatus run();

 private:
  void say(const std::string& text) {
    const double now = std::chrono::duration<double>(Clock::now() - began_).count();
    const std::string line = style_.faint(fmt::format("  {:>9.3f} s  launch: {}\n", now, text));
    std::fflush(stdout);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }
  void remove_leavings() const;
  std::vector<std::string> mpirun() const;
  std::vector<std::string> command(int attempt) const;
  pid_t start(int attempt, const runtime::ControlServer& server, const std::string& token);
  Ended watch(int attempt);
  std::string what_is_wrong(const runtime::ControlServer& server, double gone_s, double running_s) const;
  void end_job(pid_t job);
  Json report() const;
  std::optional<int> verdict() const;
  bool all_finished() const;
  std::string newest_checkpoint() const;
  void add_to_report() const;
  Json jobs_before() const;
  void write_last_page(ExitStatus status) const;
  ExitStatus supervise();
  void write_metrics(const runtime::ControlServer& server, int attempt, bool now);
  void write_last_metrics(ExitStatus status);

  const LaunchArguments& arguments_;
  const Scenario& scenario_;
  std::string program_;
  Style style_;
  Clock::time_point began_;
  double heartbeat_s_ = 0, silent_s_ = 0;
  std::string folder_, report_;
  // Open MPI's folders for a job, which stay when it is killed. Empty: unknown.
  std::string session_, shared_;
  std::vector<Ended> before_;         // jobs that did not come to a verdict
  JobState state_;                    // of --openmetrics
  std::uint64_t refused_before_ = 0;  // by the servers of earlier attempts
  Clock::time_point metrics_written_;
};

std::vector<std::string> Supervisor::mpirun() const {
  std::vector<std::string> words;
  std::istringstream given(arguments_.mpirun);
  for (std::string word; given >> word;) words.push_back(word);
  if (::geteuid() == 0) words.push_back("--allow-run-as-root");
  words.insert(words.end(), {"--oversubscribe", "-np", std::to_string(scenario_.world.ranks())});
  for (const char* variable : {"SEEKSIM_CONTROL", "SEEKSIM_TOKEN", "SEEKSIM_HEARTBEAT_S"})
    words.insert(words.end(), {"-x", variable});
  return words;
}

std::vector<std::string> Supervisor::command(int attempt) const {
  std::vector<std::string> words;
  if (!arguments_.no_mpi) words = mpirun();
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  add({program_, "run", arguments_.file, "--backend", arguments_.backend, "--out", folder_, "--report", report_});
  for (const std::string& set : arguments_.sets) add({"--set", set});
  if (!arguments_.seed.empty()) add({"--seed", arguments_.seed});
  if (arguments_.no_skip) add({"--no-skip"});
  if (attempt > 0 && scenario_.train.checkpoint.on()) add({"--resume"});
  return words;
}

pid_t Supervisor::start(int attempt, const runtime::ControlServer& server, const std::string& token) {
  const std::vector<std::string> words = command(attempt);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::fflush(nullptr);
  const pid_t supervisor = ::getpid();
  const pid_t job = ::fork();
  if (job < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (job > 0) return job;
  ::setpgid(0, 0);  // what a terminal sends, the supervisor passes on
  ::setenv("SEEKSIM_CONTROL", fmt::format("{}:{}", arguments_.address, server.port()).c_str(), 1);
  ::setenv("SEEKSIM_TOKEN", token.c_str(), 1);
  ::setenv("SEEKSIM_HEARTBEAT_S", fmt::format("{}", heartbeat_s_).c_str(), 1);
  if (arguments_.no_mpi) {
    runtime::become_worker(supervisor);
    run_local_job(words, scenario_.world.ranks());
  }
  if (!session_.empty()) ::setenv("OMPI_MCA_orte_tmpdir_base", session_.c_str(), 1);
  if (!shared_.empty()) ::setenv("OMPI_MCA_btl_vader_backing_directory", shared_.c_str(), 1);
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr,
               "seeksim: %s cannot be started: %s. Install openmpi-bin, name it with --mpirun, or use --no-mpi.\n",
               argv[0], std::strerror(errno));
  ::_exit(kNoProgram);
}

void Supervisor::remove_leavings() const {
  std::error_code ignored;
  for (const std::string& folder : {session_, shared_}) {
    if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  }
}

// mpirun ends its processes, also those that are stopped; if it does not, it is ended, and they end by their hearts.
void Supervisor::end_job(pid_t job) {
  ::kill(job, SIGTERM);
  ::kill(job, SIGCONT);  // it may be stopped itself
  const auto end = Clock::now() + std::chrono::duration<double>(kToEnd_s);
  siginfo_t info{};
  while (Clock::now() < end && ::waitid(P_PID, id_t(job), &info, WEXITED | WNOWAIT | WNOHANG) == 0 && info.si_pid == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ::kill(-job, SIGKILL);
}

std::string gone_text(const runtime::ControlServer& server) {
  return fmt::format("the process of rank {} has ended", server.gone().front());
}

// Why the job cannot go on; empty: it can, or it is mpirun's turn to notice.
std::string Supervisor::what_is_wrong(const runtime::ControlServer& server, double gone_s, double running_s) const {
  if (runtime::interrupted() != 0) return "the supervisor was asked to stop: " + runtime::interrupt_text();
  if (!server.silent().empty())
    return fmt::format("rank {} is silent: its process is stopped", server.silent().front());
  // Over TCP the others would go on meanwhile, and could come to another end.
  if (!server.gone().empty() && (arguments_.no_mpi || gone_s > kToNotice_s)) return gone_text(server);
  const int ranks = scenario_.world.ranks();
  if (server.ready() < ranks && running_s > arguments_.start_limit_s)
    return fmt::format("only {} of {} ranks connected within {} s", server.ready(), ranks, arguments_.start_limit_s);
  return {};
}

Ended Supervisor::watch(int attempt) {
  const auto began = Clock::now();
  Ended ended;
  bool ending = false;
  runtime::ControlServer::Options options;
  options.ranks = scenario_.world.ranks();
  options.token = runtime::new_token();
  options.address = arguments_.address == kThisHost ? arguments_.address : "";
  options.heartbeat_timeout_ns = runtime::to_time_ns(silent_s_ * 1e9);
  runtime::ControlServer server(options, [&](int rank, const std::string& text) {
    if (ending) return;  // what follows is no news
    say(rank >= 0 ? fmt::format("rank {}: {}", rank, text) : text);
  });
  remove_leavings();
  for (const std::string& folder : {session_, shared_}) {
    if (!folder.empty()) make_folder(folder, "launch");
  }
  Clock::time_point last_whole = began;  // when no process was known to be gone
  const pid_t job = start(attempt, server, options.token);
  for (;;) {
    server.step(50);
    write_metrics(server, attempt, false);
    int status = 0;
    const bool changed = ::waitpid(job, &status, WNOHANG | WUNTRACED) == job;
    if (changed && !WIFSTOPPED(status)) {
      ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    if (ending) continue;
    if (server.gone().empty()) last_whole = Clock::now();
    ended.why = changed ? (arguments_.no_mpi ? "the parent of the processes is stopped" : "mpirun is stopped")
                        : what_is_wrong(server, seconds_since(last_whole), seconds_since(began));
    if (ended.why.empty()) continue;
    say(ended.why + "; the job is ended");
    ending = true;
    end_job(job);
  }
  server.step(0);         // reads the last frames: they may show the process that was the reason
  ::kill(-job, SIGKILL);  // the processes that are left of it
  write_metrics(server, attempt, true);
  refused_before_ += server.refused();
  if (ended.why.empty() && !server.gone().empty()) ended.why = gone_text(server);
  ended.after_s = std::chrono::duration<double>(Clock::now() - began).count();
  return ended;
}

std::string Supervisor::newest_checkpoint() const {
  const runtime::CheckpointPlan& plan = scenario_.train.checkpoint;
  if (!plan.on()) return "the beginning: the scenario writes no checkpoints";
  runtime::PosixStorage storage(folder_);
  for (const std::int64_t step : runtime::checkpoints_in(storage, plan.path)) {
    if (runtime::verify_checkpoint(storage, runtime::step_folder(plan.path, step)).problem.empty())
      return fmt::format("the checkpoint after step {}", step);
  }
  return "the beginning: there is no complete checkpoint yet";
}

// Null: there is none, or its writer was ended in the middle.
Json Supervisor::report() const {
  std::ifstream file(report_);
  const Json report = Json::parse(file, nullptr, false);
  return report.is_object() ? report : Json();
}

// The exit status that the report asks for; empty: there is no whole report.
std::optional<int> Supervisor::verdict() const {
  const Json told = report();
  if (!told.contains("exit_code")) return std::nullopt;
  return told["exit_code"].get<int>();
}

// All ranks came to the last step: what mpirun did to processes afterwards changes nothing.
bool Supervisor::all_finished() const {
  const Json told = report();
  if (!told.contains("checks")) return false;
  return std::any_of(told["checks"].begin(), told["checks"].end(), [](const Json& check) {
    return check.value("name", "") == "finished" && check.value("ok", false);
  });
}

void Supervisor::add_to_report() const {
  Json told = report();
  told["jobs_before"] = jobs_before();
  write_file(report_, dump(told));
}

Json Supervisor::jobs_before() const {
  Json jobs = Json::array();
  for (const Ended& job : before_) jobs.push_back({{"status", job.status}, {"why", job.why}, {"after_s", job.after_s}});
  return jobs;
}

// Of a job without a verdict too: how its processes ended is all that is known then.
void Supervisor::write_last_page(ExitStatus status) const {
  if (arguments_.html.empty()) return;
  Json told = verdict() ? report() : Json{{"scenario", scenario_.name}, {"exit_code", code(status)}};
  if (!told.contains("sentence")) {
    told["sentence"] = "no job came to a verdict";
    told["verdict"] = name(status);
  }
  told["jobs_before"] = jobs_before();
  std::vector<std::string> words = {"seeksim", "launch", arguments_.file};
  if (arguments_.no_mpi) words.emplace_back("--no-mpi");
  for (const std::string& set : arguments_.sets) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--max-restarts", std::to_string(arguments_.restarts_max)});
  write_page({arguments_.html, command_line(words), arguments_.redact}, told);
}

void Supervisor::write_metrics(const runtime::ControlServer& server, int attempt, bool now) {
  if (arguments_.openmetrics.empty() || (!now && seconds_since(metrics_written_) < kMetricsEvery_s)) return;
  state_.ranks = scenario_.world.ranks();
  state_.ready = server.ready();
  state_.gone = int(server.gone().size());
  state_.silent = int(server.silent().size());
  state_.attempt = attempt;
  state_.refused = refused_before_ + server.refused();
  state_.running_s = seconds_since(began_);
  write_file(arguments_.openmetrics, openmetrics_text(state_));
  metrics_written_ = Clock::now();
}

void Supervisor::write_last_metrics(ExitStatus status) {
  if (arguments_.openmetrics.empty()) return;
  state_.exit_status = code(status);
  state_.report = report();
  state_.running_s = seconds_since(began_);
  write_file(arguments_.openmetrics, openmetrics_text(state_));
}

ExitStatus Supervisor::run() {
  if (!arguments_.openmetrics.empty()) probe_writable(arguments_.openmetrics, "--openmetrics");
  if (!arguments_.html.empty()) probe_writable(arguments_.html, "--html");
  state_.scenario = scenario_.name;
  const ExitStatus status = supervise();
  write_last_metrics(status);
  write_last_page(status);
  return status;
}

ExitStatus Supervisor::supervise() {
  const runtime::Interrupts noted;
  RealFaults::forget(folder_);
  for (int attempt = 0;; ++attempt) {
    std::error_code ignored;
    std::filesystem::remove(report_, ignored);
    const Ended ended = watch(attempt);
    // A verdict counts when the job ended with it and no process was missing: one that is left alone may have given up.
    // After a red run mpirun ends processes that are still leaving, so one may be missing though all had finished.
    const std::optional<int> told = verdict();
    if (told == ended.status && (ended.why.empty() || *told == 0 || all_finished())) {
      add_to_report();
      if (!before_.empty()) say(fmt::format("the job finished in attempt {}", attempt + 1));
      return ExitStatus(*told);
    }
    say(fmt::format("{}the job ended {}", ended.why.empty() ? "" : ended.why + "; ",
                    how_it_ended(ended.status, !ended.why.empty() && !arguments_.no_mpi)));
    // These statuses mean that a start is of no use, unless a process is gone, which may have ended with any status.
    const bool refused =
        ended.why.empty() && (ended.status == kNoProgram || ended.status == code(ExitStatus::bad_input));
    if (refused || told == code(ExitStatus::bad_input)) return ExitStatus::bad_input;
    if (runtime::interrupted() != 0) return ExitStatus::no_progress;
    before_.push_back(ended);
    if (attempt == arguments_.restarts_max) {
      say(fmt::format("no more restarts: --max-restarts is {}", arguments_.restarts_max));
      return ExitStatus::no_progress;
    }
    say(fmt::format("start {} of {}, from {}", attempt + 2, arguments_.restarts_max + 1, newest_checkpoint()));
  }
}

}  // namespace

ExitStatus launch_command(const LaunchArguments& arguments, const std::string& program, const Style& style) {
  const bool nccl = arguments.backend == "nccl";
  if (nccl && arguments.address == kThisHost) {  // ranks of other hosts have GPUs that this one may lack
    if (const std::string problem = runtime::nccl_problem(); !problem.empty())
      throw BadInput("launch --backend nccl", problem, "Use --backend mpi: ranks compute on the CPU.");
  }
  if (!arguments.no_mpi) need_mpi("launch");
  if (arguments.no_mpi && arguments.address != kThisHost)
    throw BadInput("--no-mpi", "starts all processes on this host, and --address is for those of others",
                   "Leave one of them out.");
  LoadOptions load;
  load.sets = arguments.sets;
  Scenario scenario = load_scenario(arguments.file, load);
  if (!scenario.sweep.empty()) {
    throw BadInput(arguments.file, "launch runs one job, and this is a sweep",
                   "Take one of its rows: --set sweep=[] and the row's settings.");
  }
  if (!arguments.no_skip)
    std::erase_if(scenario.checks, [&](const CheckSpec& check) { return why_not_judged(check.name, nccl) != nullptr; });
  if (std::vector<Problem> problems = problems_on_mpi(scenario, arguments.backend); !problems.empty())
    throw BadInput(std::move(problems));
  const int ranks = scenario.world.ranks();
  if (arguments.processes != 0 && arguments.processes != ranks) {
    throw BadInput(fmt::format("--np {}", arguments.processes), fmt::format("the world has {} ranks", ranks),
                   fmt::format("Use --np {}, or change the world: --set world.nodes=1 --set world.ranks_per_node={}.",
                               ranks, arguments.processes));
  }
  return Supervisor(arguments, scenario, program, style).run();
}

}  // namespace seeksim::harness
