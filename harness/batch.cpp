#include "harness/batch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include <nlohmann/json.hpp>

namespace seeksim::harness {
namespace {

// What a child sends: text as it is printed, then the separator and its report. Text never holds a zero byte.
constexpr char kSeparator = '\0';

struct Child {
  pid_t pid = -1;
  int pipe = -1;  // -1: not started, or at its end
  std::string output;
  bool over = false;
  Outcome outcome;
};

void send(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(code(ExitStatus::bug));  // the parent is gone
    bytes.remove_prefix(std::size_t(n));
  }
}

[[noreturn]] void be_child(int pipe, std::size_t job, const Forked& work) {
  const Print print = [pipe](std::string_view text) {
    std::string clean(text);
    std::replace(clean.begin(), clean.end(), kSeparator, '?');
    send(pipe, clean);
  };
  const Outcome outcome = work.run(job, print);
  for (const std::string& problem : outcome.problems) print("seeksim: " + problem + '\n');
  const Json sent = {{"name", outcome.name}, {"report", outcome.report}, {"problems", outcome.problems}};
  send(pipe, std::string(1, kSeparator) + sent.dump(-1, ' ', false, Json::error_handler_t::replace));
  // Not exit(): what the parent registered or buffered is the parent's.
  ::_exit(code(outcome.status));
}

void start(Child& child, std::size_t job, const Forked& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  child.pid = ::fork();
  if (child.pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (child.pid == 0) {
    ::close(ends[0]);
    be_child(ends[1], job, work);
  }
  ::close(ends[1]);
  child.pipe = ends[0];
}

// The child has closed its pipe: how did it end?
void gather(Child& child, const std::string& name) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.over = true;
  const std::size_t separator = child.output.find(kSeparator);
  const bool exited = WIFEXITED(status);
  if (exited && separator != std::string::npos) {
    const Json sent = Json::parse(child.output.substr(separator + 1));
    child.outcome = {ExitStatus(WEXITSTATUS(status)), sent["name"].get<std::string>(), sent["report"],
                     sent["problems"].get<std::vector<std::string>>()};
    child.output.resize(separator);
    return;
  }
  const std::string how =
      exited ? fmt::format("ended early with status {}", WEXITSTATUS(status))
             : fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  const std::string next = !exited && WTERMSIG(status) == SIGKILL
                               ? "If the machine ran out of memory, use -j 1."
                               : "This is a bug in seeksim: please report it with the scenario.";
  const std::string problem = fmt::format("{}: the process of this scenario {}. {}", name, how, next);
  child.output = child.output.substr(0, separator) + "seeksim: " + problem + '\n';
  child.outcome = {ExitStatus::bug, name, failure_json(name, "bug", ExitStatus::bug, {problem}), {problem}};
}

void read_some(Child& child, std::size_t job, const Forked& work) {
  char buffer[1 << 16];
  const ssize_t n = ::read(child.pipe, buffer, sizeof buffer);
  if (n > 0) child.output.append(buffer, std::size_t(n));
  if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
  ::close(child.pipe);
  child.pipe = -1;
  gather(child, work.name(job));
}

}  // namespace

std::vector<Outcome> run_forked(const Forked& work) {
  const int processes = work.processes > 0 ? work.processes : int(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<Child> children(work.count);
  std::size_t started = 0, told = 0;
  while (told < work.count) {
    std::vector<pollfd> waiting;
    std::vector<std::size_t> whose;
    for (std::size_t i = told; i < started; ++i) {
      if (children[i].pipe < 0) continue;
      waiting.push_back({children[i].pipe, POLLIN, 0});
      whose.push_back(i);
    }
    if (started < work.count && int(waiting.size()) < processes) {
      start(children[started], started, work);
      ++started;
      continue;
    }
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR)
      throw std::runtime_error(fmt::format("poll: {}", std::strerror(errno)));
    for (std::size_t k = 0; k < waiting.size(); ++k) {
      if (waiting[k].revents != 0) read_some(children[whose[k]], whose[k], work);
    }
    for (; told < work.count && children[told].over; ++told) {
      work.done(told, children[told].output, children[told].outcome);
      children[told].output.clear();
    }
  }
  std::vector<Outcome> outcomes;
  for (Child& child : children) outcomes.push_back(std::move(child.outcome));
  return outcomes;
}

std::vector<Outcome> run_here(const Forked& work) {
  std::vector<Outcome> outcomes;
  for (std::size_t job = 0; job < work.count; ++job) {
    std::string text;
    outcomes.push_back(work.run(job, [&](std::string_view part) { text += part; }));
    for (const std::string& problem : outcomes.back().problems) text += "seeksim: " + problem + '\n';
    work.done(job, text, outcomes.back());
  }
  return outcomes;
}

std::vector<Outcome> run_all(const std::vector<Job>& jobs, const LoadOptions& load, int processes, const Print& print) {
  Forked work;
  work.count = jobs.size();
  work.processes = processes;
  work.run = [&](std::size_t i, const Print& say) { return run_file(jobs[i].file, load, jobs[i].options, say); };
  work.name = [&](std::size_t i) { return jobs[i].file; };
  work.done = [&](std::size_t i, const std::string& text, const Outcome&) { print((i > 0 ? "\n" : "") + text); };
  return run_forked(work);
}

}  // namespace seeksim::harness
