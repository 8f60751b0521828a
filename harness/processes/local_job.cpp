#include "harness/processes/local_job.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kNoProgram = 127;
constexpr int kNoPort = 2;
// How long processes may take to heed a SIGTERM, and to be gone after a SIGKILL.
constexpr milliseconds kToHeed{1000};

// A port of loopback that nobody else is given while this process lives. Rank 0 listens there: both sockets may reuse
// the address, and this one does not listen.
int reserved_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd, reinterpret_cast<const sockaddr*>(&at), length) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    std::fprintf(stderr, "seeksim: no port of 127.0.0.1 for the job: %s\n", std::strerror(errno));
    ::_exit(kNoPort);
  }
  return ntohs(at.sin_port);
}

pid_t start(const std::vector<std::string>& words, int rank, int ranks, int port) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (const auto& [name, value] : {std::pair{"RANK", rank},
                                    {"LOCAL_RANK", rank},
                                    {"WORLD_SIZE", ranks},
                                    {"LOCAL_WORLD_SIZE", ranks},
                                    {"MASTER_PORT", port}})
    ::setenv(name, std::to_string(value).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");  // it would name another port
  ::execvp(argv[0], argv.data());
  std::fprintf(stderr, "seeksim: %s cannot be started: %s\n", argv[0], std::strerror(errno));
  ::_exit(kNoProgram);
}

class Job {
 public:
  explicit Job(int ranks) { children_.reserve(std::size_t(ranks)); }
  void add(pid_t child) { children_.push_back(child); }
  // 0: all have ended, or still run. An end of its own comes before one that a signal of ours explains, whichever was
  // reaped first: the sockets of a process close before its status can be had.
  int first_bad() const { return first_bad_ != 0 ? first_bad_ : ended_by_us_; }
  bool any() const { return !children_.empty(); }

  void reap() {
    for (std::size_t i = 0; i < children_.size();) {
      int status = 0;
      if (::waitpid(children_[i], &status, WNOHANG) != children_[i]) {
        ++i;
        continue;
      }
      const int how = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      int& bad = sent_ != 0 && how == 128 + sent_ ? ended_by_us_ : first_bad_;
      if (bad == 0) bad = how;
      children_.erase(children_.begin() + std::ptrdiff_t(i));
    }
  }
  void reap_for(milliseconds time) {
    for (const auto end = Clock::now() + time; any() && Clock::now() < end; reap())
      std::this_thread::sleep_for(milliseconds(5));
  }
  void send(int signal) {
    sent_ = signal;
    for (const pid_t child : children_) {
      ::kill(child, signal);
      if (signal == SIGTERM) ::kill(child, SIGCONT);  // it may be stopped
    }
  }

 private:
  std::vector<pid_t> children_;  // that have not ended
  int first_bad_ = 0;
  int ended_by_us_ = 0;
  int sent_ = 0;  // the last signal
};

}  // namespace

void run_local_job(const std::vector<std::string>& words, int ranks) {
  const int port = reserved_port();
  Job job(ranks);
  int status = 0;
  for (int rank = 0; rank < ranks && status == 0; ++rank) {
    const pid_t child = start(words, rank, ranks, port);
    if (child > 0) {
      job.add(child);
    } else {
      std::fprintf(stderr, "seeksim: rank %d cannot be started: fork: %s\n", rank, std::strerror(errno));
      status = kNoProgram;
    }
  }
  while (job.any() && status == 0 && job.first_bad() == 0 && runtime::interrupted() == 0)
    job.reap_for(milliseconds(10));
  job.reap();         // who ended by itself comes before who is ended now
  job.send(SIGTERM);  // at once: over TCP the others could go on without one, and come to another end
  job.reap_for(kToHeed);
  job.send(SIGKILL);
  job.reap_for(kToHeed);
  if (status == 0) status = job.first_bad();
  ::_exit(runtime::interrupted() != 0 && status == 0 ? 128 + runtime::interrupted() : status);
}

}  // namespace seeksim::harness
