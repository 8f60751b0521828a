#include "harness/torch/job.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>

#include "harness/torch/outlet.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/seams/rank_names.h"

namespace seeksim::harness::torch {
namespace {

using Clock = std::chrono::steady_clock;

// How often the job is looked at, beside what it prints.
constexpr double kLook_s = 0.5;
// How long the others may take to follow a rank that ended with an error, before stacks are taken and they are ended.
constexpr double kToFollow_s = 5;
// How long a process may take to write its stacks, and to end when it is told to.
constexpr double kToTell_s = 1;
constexpr double kToEnd_s = 5;
// Less of a core than this, or of a second, and a process counts as idle.
constexpr double kIdleShare = 0.02;
constexpr double kIdle_s = 0.05;

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

// This port of the loopback interface where nobody uses it, or any for 0; -1: somebody does, and errno says more.
int port_if_free(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(std::uint16_t(port));
  socklen_t size = sizeof address;
  const bool fine = fd >= 0 && ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  errno = error;
  return fine ? ntohs(address.sin_port) : -1;
}

struct Started {
  pid_t pid = -1;
  bool running = true;
  ProcessRun run;
};

class Job {
 public:
  explicit Job(const JobPlan& plan) : plan_(plan), began_(Clock::now()), progressed_(began_) {}
  ~Job() {
    for (const Started& one : processes_) {
      if (one.running) ::kill(-one.pid, SIGKILL);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  JobRun run();

 private:
  void start_all();
  void start_one(int rank, const Environment& environment);
  void listen(double wait_s);
  void reap();
  bool anybody_runs() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const Started& one) { return one.running; });
  }
  void look();
  bool progressed();
  std::vector<std::pair<int, pytorch::RankNow>> heads() const;
  void end(Stopped why, std::string text);
  void take_stacks();
  void signal_all(int signal) const;
  void wait_for_end(double limit_s);

  const JobPlan& plan_;
  Clock::time_point began_, progressed_;
  std::optional<HeldPort> port_;
  std::optional<Clock::time_point> failed_;  // when the first process ended with an error
  std::deque<Outlet> outlets_;               // one a process
  std::vector<Started> processes_;
  JobRun result_;
  std::vector<std::uint64_t> seen_;  // what the last look found, to see progress
  long ticks_ = 0;                   // of processor time, at the last progress
  std::string elsewhere_;            // what has failed on another host
};

void Job::start_one(int rank, const Environment& environment) {
  const std::string file =
      rank < 0 ? plan_.folder + "/output.txt" : fmt::format("{}/output-{}.txt", plan_.folder, rank);
  Outlet& outlet = outlets_.emplace_back(rank < 0 ? "" : fmt::format("[rank {}] ", rank), file, plan_.quiet);
  Started one;
  one.pid = spawn(plan_.command, environment, outlet.out_end(), outlet.err_end());
  one.run.rank = rank;
  outlet.close_write_ends();
  processes_.push_back(std::move(one));
}

void Job::start_all() {
  if (!plan_.direct) {
    start_one(-1, plan_.environment);
    return;
  }
  const int here = plan_.ranks / plan_.hosts;
  if (plan_.port == 0) port_.emplace();
  const std::string port = std::to_string(plan_.port != 0 ? plan_.port : port_->number());
  for (int local = 0; local < here; ++local) {
    const int rank = plan_.host * here + local;
    Environment environment = plan_.environment;
    environment["RANK"] = std::to_string(rank);
    environment["LOCAL_RANK"] = std::to_string(local);
    environment["WORLD_SIZE"] = std::to_string(plan_.ranks);
    environment["LOCAL_WORLD_SIZE"] = std::to_string(here);
    environment["GROUP_RANK"] = std::to_string(plan_.host);
    environment["MASTER_ADDR"] = plan_.master;
    environment["MASTER_PORT"] = port;
    start_one(rank, environment);
  }
}

// Waits until a rank prints, at most this long.
void Job::listen(double wait_s) {
  std::vector<pollfd> waiting;
  for (const Outlet& outlet : outlets_) {
    for (const int fd : {outlet.out_fd(), outlet.err_fd()}) {
      if (fd >= 0) waiting.push_back({fd, POLLIN, 0});
    }
  }
  ::poll(waiting.data(), waiting.size(), int(wait_s * 1000));
  for (Outlet& outlet : outlets_) outlet.pump();
}

void Job::reap() {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    Started& one = processes_[i];
    int status = 0;
    if (!one.running || ::waitpid(one.pid, &status, WNOHANG) != one.pid) continue;
    one.running = false;
    one.run.ending = ending_of(status);
    one.run.after_s = seconds_since(began_);
    one.run.ended_by_us = result_.stopped != Stopped::no;
    outlets_[i].finish();
    one.run.last_words = outlets_[i].last_words();
    progressed_ = Clock::now();
    if (one.run.ending.good() || failed_) continue;
    failed_ = Clock::now();
    if (plan_.on_failure)
      plan_.on_failure(fmt::format("{} ended {}",
                                   one.run.rank < 0 ? "the launcher" : fmt::format("rank {}", one.run.rank),
                                   how(one.run.ending)));
  }
}

std::vector<std::pair<int, pytorch::RankNow>> Job::heads() const {
  std::vector<std::pair<int, pytorch::RankNow>> found;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    const std::string file = record_file(plan_.folder, rank);
    if (file.empty()) continue;
    try {
      found.emplace_back(rank, pytorch::read_now(file));
    } catch (const std::runtime_error&) {
      continue;  // it is being made
    }
  }
  return found;
}

// Whether anything has happened since the last look: an entry in a record, output, or processor time.
bool Job::progressed() {
  std::vector<std::uint64_t> seen;
  long ticks = 0;
  for (const Outlet& outlet : outlets_) seen.push_back(outlet.bytes());
  for (const auto& [rank, now] : heads()) {
    seen.push_back(now.entries);
    if (now.pid > 0) ticks += processor_ticks(pid_t(now.pid));
  }
  if (plan_.direct && ticks == 0) {
    for (const Started& one : processes_) ticks += one.running ? processor_ticks(one.pid) : 0;
  }
  const double used_s = double(ticks - ticks_) / double(::sysconf(_SC_CLK_TCK));
  const bool busy = used_s > std::max(kIdleShare * seconds_since(progressed_) * plan_.ranks, kIdle_s);
  const bool moved = seen != seen_ || busy;
  if (moved) {
    seen_ = std::move(seen);
    ticks_ = ticks;
  }
  return moved;
}

void Job::look() {
  if (progressed()) progressed_ = Clock::now();
  if (!failed_ && plan_.direct && plan_.failed_elsewhere) {
    elsewhere_ = plan_.failed_elsewhere();
    if (!elsewhere_.empty()) failed_ = Clock::now();
  }
  if (runtime::interrupted() != 0) {
    end(Stopped::interrupted, "seeksim was asked to stop: " + runtime::interrupt_text());
  } else if (failed_ && plan_.direct && seconds_since(*failed_) > kToFollow_s) {
    std::vector<int> ranks;
    for (const Started& one : processes_) {
      if (one.running) ranks.push_back(one.run.rank);
    }
    end(Stopped::after_a_failure,
        fmt::format("{} did not end within {} s after the first rank that failed{}", runtime::rank_names(ranks),
                    kToFollow_s, elsewhere_.empty() ? "" : " on " + elsewhere_));
  } else if (seconds_since(progressed_) > plan_.patience_s) {
    end(Stopped::no_progress,
        fmt::format("no rank recorded, printed or computed anything for {:.1f} s", seconds_since(progressed_)));
  } else if (plan_.wall_limit_s > 0 && seconds_since(began_) > plan_.wall_limit_s) {
    end(Stopped::out_of_time, fmt::format("the limit of {} s was reached (--wall-limit)", plan_.wall_limit_s));
  }
}

// Python's own handler writes the stacks; who has no record has no handler either, and the signal would kill it.
void Job::take_stacks() {
  for (const auto& [rank, now] : heads()) {
    if (now.pid > 0 && !now.ended) ::kill(pid_t(now.pid), SIGUSR2);
  }
  wait_for_end(kToTell_s);
}

void Job::signal_all(int signal) const {
  for (const Started& one : processes_) {
    if (one.running) ::kill(-one.pid, signal);
  }
}

void Job::wait_for_end(double limit_s) {
  const auto began = Clock::now();
  while (anybody_runs() && seconds_since(began) < limit_s) {
    listen(0.05);
    reap();
  }
}

void Job::end(Stopped why, std::string text) {
  if (result_.stopped != Stopped::no) return;
  result_.stopped = why;
  result_.why = std::move(text);
  take_stacks();
  signal_all(SIGCONT);  // a stopped process cannot end
  signal_all(SIGTERM);
  wait_for_end(kToEnd_s);
  signal_all(SIGKILL);
  wait_for_end(kToEnd_s);
}

JobRun Job::run() {
  const runtime::Interrupts noted;
  start_all();
  auto looked = Clock::now();
  while (anybody_runs()) {
    listen(0.05);
    reap();
    if (seconds_since(looked) < kLook_s && runtime::interrupted() == 0) continue;
    looked = Clock::now();
    look();
  }
  Subreaper::kill_the_left();  // processes that a launcher or a data loader left behind
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    outlets_[i].finish();
    result_.processes.push_back(processes_[i].run);
  }
  result_.wall_s = seconds_since(began_);
  return std::move(result_);
}

}  // namespace

HeldPort::HeldPort()
    : HeldPort([] {
        static long jobs = 0;
        return long(::getpid()) * 61 + jobs++;
      }()) {}

HeldPort::HeldPort(long from) {
  constexpr int kFirst = 20000, kPorts = 12000, kTries = 1000;
  for (int i = 0; i < kTries && number_ <= 0; ++i) {
    const int port = kFirst + int((from + i) % kPorts);
    if (hold(port)) number_ = port_if_free(port);
  }
  if (number_ <= 0) number_ = port_if_free(0);
  if (number_ < 0) throw std::runtime_error(fmt::format("no port of the loopback interface: {}", std::strerror(errno)));
}

HeldPort::~HeldPort() { release(); }

bool HeldPort::hold(int port) {
  release();
  fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("seeksim-port-{}", port);
  std::copy(text.begin(), text.end(), name.sun_path + 1);  // behind a zero: not a file
  const auto size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return fd_ >= 0 && ::bind(fd_, reinterpret_cast<const sockaddr*>(&name), size) == 0;
}

void HeldPort::release() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool is_script(const std::string& word) { return word.size() > 3 && word.ends_with(".py"); }

JobRun run_job(const JobPlan& plan) {
  const Subreaper reaper;
  return Job(plan).run();
}

}  // namespace seeksim::harness::torch
