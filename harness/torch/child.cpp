#include "harness/torch/child.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "harness/input/problem.h"
#include "harness/torch/outlet.h"
#include "runtime/backend/machine/interrupts.h"

extern char** environ;

namespace seeksim::harness::torch {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> merged(const Environment& added) {
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string variable = *one;
    if (!added.contains(variable.substr(0, variable.find('=')))) all.push_back(variable);
  }
  for (const auto& [name, value] : added) all.push_back(name + '=' + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::array<int, 2> pipe_of_two() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  return ends;
}

// Where a program is: in the folders of the PATH that it is started with, which is not this process's own.
std::string found_program(const std::string& name, const std::vector<std::string>& variables) {
  constexpr std::string_view kPath = "PATH=";
  if (name.find('/') != std::string::npos) return name;
  for (const std::string& variable : variables) {
    if (!variable.starts_with(kPath)) continue;
    std::istringstream folders(variable.substr(kPath.size()));
    for (std::string folder; std::getline(folders, folder, ':');) {
      const std::string program = (folder.empty() ? "." : folder) + '/' + name;
      if (::access(program.c_str(), X_OK) == 0 && !std::filesystem::is_directory(program)) return program;
    }
  }
  return name;
}

// In the child: nothing here allocates, and whatever fails goes through `report` as a number.
[[noreturn]] void become(const char* program, char* const* argv, char* const* envp, int out, int err, int report,
                         pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program, argv, envp);
  const int error = errno;
  if (::write(report, &error, sizeof error) < 0) ::_exit(126);
  ::_exit(127);
}

// Reads what is there; false: the other end is closed.
bool take(int fd, std::string& to) {
  char buffer[1 << 14];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0) to.append(buffer, std::size_t(n));
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

// Children that serve several jobs.
std::set<pid_t>& spared() {
  static std::set<pid_t> pids;
  return pids;
}

// Processes whose parent is this one, but those that are spared.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t pid = pid_t(std::atoi(entry->d_name));
    if (pid <= 0) continue;
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const std::size_t name_end = text.rfind(')');  // a process may be called anything
    if (name_end == std::string::npos) continue;
    std::istringstream rest(text.substr(name_end + 1));
    std::string state;
    pid_t parent = 0;
    rest >> state >> parent;
    if (parent == ::getpid() && !spared().contains(pid)) found.push_back(pid);
  }
  ::closedir(folder);
  return found;
}

}  // namespace

std::string how(const Ending& ending) {
  if (!ending.over) return "not at all";
  if (ending.signal != 0) return fmt::format("by signal {} ({})", ending.signal, ::strsignal(ending.signal));
  return fmt::format("with status {}", ending.status);
}

Ending ending_of(int wait_status) {
  if (WIFEXITED(wait_status)) return {true, WEXITSTATUS(wait_status), 0};
  return {true, 0, WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0};
}

pid_t spawn(const std::vector<std::string>& command, const Environment& environment, int out, int err) {
  std::vector<std::string> words = command, variables = merged(environment);
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  const std::string program = found_program(command.front(), variables);
  const std::array<int, 2> report = pipe_of_two();
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (pid == 0) become(program.c_str(), argv.data(), envp.data(), out, err, report[1], parent);
  ::setpgid(pid, pid);  // both sides do it: whoever comes first
  ::close(report[1]);
  int error = 0;
  ssize_t told = 0;
  while ((told = ::read(report[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  ::close(report[0]);
  if (told != ssize_t(sizeof error)) return pid;
  ::waitpid(pid, nullptr, 0);
  throw BadInput(command.front(), fmt::format("cannot be started: {}", std::strerror(error)),
                 "Check the name, and that it is installed.");
}

std::string Captured::last_words() const {
  std::istringstream lines(err);
  LastWords last;
  for (std::string line; std::getline(lines, line);) last.hear(line);
  return last.text();
}

std::string without_own_name(const std::string& words) {
  constexpr std::string_view kName = "seeksim: ";
  return words.starts_with(kName) ? words.substr(kName.size()) : words;
}

AskedToStop::AskedToStop() : std::runtime_error("seeksim was asked to stop: " + runtime::interrupt_text()) {}

Captured capture(const std::vector<std::string>& command, const Environment& environment, double limit_s,
                 const OnLine& on_error_line) {
  const std::array<int, 2> out = pipe_of_two(), err = pipe_of_two();
  Captured result;
  pid_t pid = 0;
  try {
    pid = spawn(command, environment, out[1], err[1]);
  } catch (...) {
    for (const int end : {out[0], out[1], err[0], err[1]}) ::close(end);
    throw;
  }
  ::close(out[1]);
  ::close(err[1]);
  const auto deadline = Clock::now() + std::chrono::duration<double>(limit_s);
  std::size_t told = 0;  // of standard error
  std::array<pollfd, 2> waiting = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  while (waiting[0].fd >= 0 || waiting[1].fd >= 0) {
    if (const bool late = Clock::now() > deadline; late || runtime::interrupted() != 0) {
      result.out_of_time = late;
      ::kill(-pid, SIGKILL);
      break;
    }
    if (::poll(waiting.data(), waiting.size(), 100) < 0 && errno != EINTR) break;
    if (waiting[0].fd >= 0 && waiting[0].revents != 0 && !take(out[0], result.out)) waiting[0].fd = -1;
    if (waiting[1].fd >= 0 && waiting[1].revents != 0 && !take(err[0], result.err)) waiting[1].fd = -1;
    for (std::size_t end; on_error_line && (end = result.err.find('\n', told)) != std::string::npos; told = end + 1)
      on_error_line(result.err.substr(told, end - told));
  }
  ::close(out[0]);
  ::close(err[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (runtime::interrupted() != 0) throw AskedToStop();
  result.ending = ending_of(status);
  return result;
}

Subreaper::Subreaper() {
  int now = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &now, 0, 0, 0);
  was_ = now != 0;
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

void Subreaper::spare(pid_t pid) { spared().insert(pid); }
void Subreaper::give_back(pid_t pid) { spared().erase(pid); }

Subreaper::~Subreaper() {
  kill_the_left();
  if (!was_) ::prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

// A killed process hands its own children over, so that they come up in the next round.
int Subreaper::kill_the_left() {
  int killed = 0;
  for (std::vector<pid_t> left = children(); !left.empty(); left = children()) {
    for (const pid_t pid : left) {
      if (::waitpid(pid, nullptr, WNOHANG) == pid) continue;  // it had ended already
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      ++killed;
    }
  }
  return killed;
}

long processor_ticks(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) rest >> skipped;
  long user = 0, system = 0, user_below = 0, system_below = 0;
  rest >> user >> system >> user_below >> system_below;
  return user + system + user_below + system_below;
}

}  // namespace seeksim::harness::torch
