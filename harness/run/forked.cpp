#include "harness/run/forked.h"
#include "harness/loading/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include <nlohmann/json.hpp>

#include "harness/report/report.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

// What a child sends of each job: text as it is printed, a zero byte, the outcome as JSON, a zero byte. Neither text
// nor JSON holds one.
constexpr char kSeparator = '\0';

// A child, which does one job after the other.
struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::size_t job = 0, end = 0;  // it is at `job`, and ends before `end`
  std::string sent;              // of that job, so far
};

struct Done {
  bool over = false;
  std::string output;
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

[[noreturn]] void be_child(int pipe, std::size_t job, std::size_t end, const Forked& work) {
  const Print print = [pipe](std::string_view text) {
    std::string clean(text);
    std::replace(clean.begin(), clean.end(), kSeparator, '?');
    send(pipe, clean);
  };
  for (; job < end && runtime::interrupted() == 0; ++job) {
    const Outcome outcome = work.run(job, print);
    for (const std::string& problem : outcome.problems) print("seeksim: " + problem + '\n');
    const Json sent = {{"status", code(outcome.status)},
                       {"name", outcome.name},
                       {"report", outcome.report},
                       {"problems", outcome.problems}};
    send(pipe, kSeparator + sent.dump(-1, ' ', false, Json::error_handler_t::replace) + kSeparator);
  }
  // Not exit(): what the parent registered or buffered is the parent's.
  ::_exit(0);
}

Child start(std::size_t job, std::size_t end, const Forked& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  Child child{::fork(), ends[0], job, end, {}};
  if (child.pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (child.pid == 0) {
    runtime::become_worker(parent);
    ::close(ends[0]);
    be_child(ends[1], job, end, work);
  }
  ::close(ends[1]);
  return child;
}

// Takes what it has sent whole.
void take(Child& child, std::vector<Done>& done) {
  for (;;) {
    const std::size_t text = child.sent.find(kSeparator);
    const std::size_t json = text == std::string::npos ? text : child.sent.find(kSeparator, text + 1);
    if (json == std::string::npos) return;
    const Json sent = Json::parse(child.sent.substr(text + 1, json - text - 1));
    const auto status = ExitStatus(sent["status"].get<int>());
    const bool undone = status == ExitStatus::no_progress && runtime::interrupted() != 0;
    done[child.job++] = {true,
                         child.sent.substr(0, text),
                         {status, sent["name"].get<std::string>(), sent["report"],
                          sent["problems"].get<std::vector<std::string>>(), undone}};
    child.sent.erase(0, json + 1);
  }
}

// It has closed its pipe. If it was not through, the job that it was at is the one it crashed in.
void gather(Child& child, const Forked& work, std::vector<Done>& done) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  child.pipe = -1;
  if (child.job == child.end) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {  // it was told to end
    child.job = child.end;
    return;
  }
  const bool exited = WIFEXITED(status);
  const std::string how =
      exited ? fmt::format("ended early with status {}", WEXITSTATUS(status))
             : fmt::format("was ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  const std::string next = !exited && WTERMSIG(status) == SIGKILL
                               ? "If the machine ran out of memory, use -j 1."
                               : "This is a bug in seeksim: please report it with the scenario.";
  const std::string name = work.name(child.job);
  const std::string problem = fmt::format("{}: the process of this scenario {}. {}", name, how, next);
  done[child.job++] = {true,
                       child.sent.substr(0, child.sent.find(kSeparator)) + "seeksim: " + problem + '\n',
                       {ExitStatus::bug, name, failure_json(name, ExitStatus::bug, {problem}), {problem}}};
}

// What nobody began, or came to the end of, before a signal ended all.
void leave_undone(const Forked& work, std::vector<Done>& done, std::size_t from) {
  for (std::size_t job = from; job < work.count; ++job) {
    if (done[job].over) continue;
    const std::string name = work.name(job), problem = name + ": not run: " + runtime::interrupt_text();
    done[job] = {
        true, "", {ExitStatus::no_progress, name, failure_json(name, ExitStatus::no_progress, {problem}), {}, true}};
  }
}

void read_some(Child& child, const Forked& work, std::vector<Done>& done) {
  char buffer[1 << 16];
  const ssize_t n = ::read(child.pipe, buffer, sizeof buffer);
  if (n > 0) {
    child.sent.append(buffer, std::size_t(n));
    take(child, done);
  }
  if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) return;
  ::close(child.pipe);
  gather(child, work, done);
}

}  // namespace

std::vector<Outcome> run_forked(const Forked& work) {
  const std::size_t processes =
      work.processes > 0 ? std::size_t(work.processes) : std::max(1u, std::thread::hardware_concurrency());
  // Enough stretches that none of the processes has to wait for another's last one.
  const std::size_t each = std::clamp<std::size_t>(work.count / (8 * processes), 1, std::max(1, work.jobs_each));
  std::vector<Done> done(work.count);
  std::vector<Child> children;
  std::size_t started = 0, told = 0;
  bool ending = false;
  while (told < work.count) {
    if (runtime::interrupted() != 0 && !ending) {
      ending = true;
      for (const Child& child : children) ::kill(child.pid, runtime::interrupted());
    }
    if (ending && children.empty()) leave_undone(work, done, told);
    while (!ending && started < work.count && children.size() < processes) {
      const std::size_t end = std::min(started + each, work.count);
      children.push_back(start(started, end, work));
      started = end;
    }
    std::vector<pollfd> waiting;
    for (const Child& child : children) waiting.push_back({child.pipe, POLLIN, 0});
    constexpr int kLook_ms = 1000;  // for a signal that came just before
    if (!waiting.empty() && ::poll(waiting.data(), waiting.size(), kLook_ms) < 0 && errno != EINTR)
      throw std::runtime_error(fmt::format("poll: {}", std::strerror(errno)));
    for (std::size_t k = 0; k < children.size(); ++k) {
      if (waiting[k].revents != 0) read_some(children[k], work, done);
    }
    for (Child& child : children) {  // after a crash, another does the rest
      if (child.pipe < 0 && child.job < child.end && !ending) child = start(child.job, child.end, work);
    }
    std::erase_if(children, [](const Child& child) { return child.pipe < 0; });
    for (; told < work.count && done[told].over; ++told) {
      work.done(told, done[told].output, done[told].outcome);
      done[told].output.clear();
    }
  }
  std::vector<Outcome> outcomes;
  for (Done& one : done) outcomes.push_back(std::move(one.outcome));
  return outcomes;
}

std::vector<Outcome> run_here(const Forked& work) {
  std::vector<Outcome> outcomes;
  for (std::size_t job = 0; job < work.count && runtime::interrupted() == 0; ++job) {
    std::string text;
    outcomes.push_back(work.run(job, [&](std::string_view part) { text += part; }));
    for (const std::string& problem : outcomes.back().problems) text += "seeksim: " + problem + '\n';
    work.done(job, text, outcomes.back());
  }
  return outcomes;
}

}  // namespace seeksim::harness
