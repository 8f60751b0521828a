#include "harness/processes/faults.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace seeksim::harness {

using faults::FaultKind;
using faults::Mode;
using faults::Rule;

namespace {

constexpr const char* kNotes = "faults-fired";  // in the run's folder; a line a firing: rule, rank
constexpr std::size_t kEventsKept = 100;

struct OnlySimulated {
  FaultKind kind;
  const char* why;
};
constexpr const char* kNoModel = "real durations cannot be simulated on processes";
constexpr std::array<OnlySimulated, 10> kOnlySimulated = {{
    {FaultKind::straggler, kNoModel},
    {FaultKind::slow_disk, kNoModel},
    {FaultKind::partition, "it needs a time, and no process knows which ranks are on which side"},
    {FaultKind::zombie_message, "a message between processes is not sent twice"},
    {FaultKind::store_death, "the process with the control plane holds the job together: without it there is no job"},
    {FaultKind::node_crash, "killing a machine is beyond a process; use rank_crash"},
    {FaultKind::kernel_hang, "nothing can free a process from a call that does not return; use pause"},
    {FaultKind::clock_skew, "the clocks of processes are the machine's"},
    {FaultKind::preemption_notice, "no process gets an advance notice"},
    {FaultKind::init_failure, "building a communicator with wrong members is tried in the simulator only"},
}};

// Stops the process, wherever it is, until another process lets it go on.
void stop_for(TimeNs duration) {
  const pid_t stopped = ::getpid();
  if (::fork() == 0) {
    const timespec time{time_t(duration / runtime::kSecond), long(duration % runtime::kSecond)};
    ::nanosleep(&time, nullptr);
    ::kill(stopped, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

// As the rule says, and at once: nothing is unwound, finalized or said to anybody. Libraries catch signals to print a
// stack, and the system may keep a core file of gigabytes for each: what is asked for is the signal's own action alone.
[[noreturn]] void end_process(const faults::ProcessEnding& ending) {
  if (ending.how == faults::ProcessEnd::exit) ::_exit(ending.status);
  const int signal = ending.how == faults::ProcessEnd::segv   ? SIGSEGV
                     : ending.how == faults::ProcessEnd::abrt ? SIGABRT
                                                              : SIGKILL;
  ::prctl(PR_SET_DUMPABLE, 0);
  ::signal(signal, SIG_DFL);  // SIGKILL has no other, and refuses
  sigset_t ours;
  ::sigemptyset(&ours);
  ::sigaddset(&ours, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);  // not reached
}

}  // namespace

bool in_any_process(const Rule& rule) {
  const bool of_a_link = rule.kind == FaultKind::link_drop || rule.kind == FaultKind::slow_link;
  return of_a_link || (rule.when.sample && !rule.when.rank);
}

bool ends_a_process(const Rule& rule) { return rule.kind == FaultKind::rank_crash; }

std::string why_not_on_processes(const Rule& given) {
  for (const OnlySimulated& row : kOnlySimulated) {
    if (given.kind == row.kind) return row.why;
  }
  const Rule rule = faults::with_defaults(given);
  if (rule.kind == FaultKind::slow_link && rule.factor != 1.0)
    return "a bandwidth is not made up between processes; give it a \"delay_s\" alone";
  if (rule.mode == Mode::during || rule.mode == Mode::after)
    return "a process is ended on its way into an operation: only \"mode\": \"before\"";
  if (rule.mode == Mode::never) return "a process that never comes can only be killed; use rank_crash or pause";
  if (rule.returns_ns > 0) return "no process can join a job that is running (\"returns_s\")";
  if (rule.when.at_ns) return "it names a virtual time; name a step or a call";
  if (!rule.when.rank && !in_any_process(rule)) return "each process counts for itself: name the \"rank\"";
  return {};
}

RealFaults::RealFaults(const Scenario& scenario, int rank, const std::string& folder)
    : scenario_(scenario),
      rank_(rank),
      notes_(folder + "/" + kNotes),
      plan_(scenario.faults, scenario.world.seed, node_of(scenario.world)) {
  std::ifstream file(notes_);
  std::size_t rule = 0;
  for (int who = 0; file >> rule >> who;) {
    if (who == rank && rule < scenario.faults.size()) plan_.fired(rule, 0, rank);  // in a process before this one
  }
  plan_.on_fired([this](std::size_t which, TimeNs now, int, const runtime::Op* op) { strike(which, now, op); });
}

void RealFaults::forget(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::remove(folder + "/" + kNotes, ignored);
}

void RealFaults::strike(std::size_t which, TimeNs now, const runtime::Op* op) {
  const Rule& rule = scenario_.faults[which];
  const std::string line = fmt::format("{} {}\n", which, rank_);
  // Appended in one piece, since other processes write too: the note has to outlive this process.
  if (const int file = ::open(notes_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666); file >= 0) {
    const ssize_t written = ::write(file, line.data(), line.size());
    ::close(file);
    if (written != ssize_t(line.size()) && ends_a_process(rule)) return;  // else it would strike again and again
  }
  if (rule.kind == FaultKind::rank_crash)
    end_process(faults::process_ending(rule.signal).value_or(faults::ProcessEnding{}));
  if (rule.kind == FaultKind::pause) stop_for(faults::with_defaults(rule).delay_ns);
  if (events_.size() < kEventsKept)
    events_.push_back(
        {now, rank_, fmt::format("faults.{} fires: {}{}", which, name(rule.kind), op ? " in " + describe(*op) : "")});
}

}  // namespace seeksim::harness
