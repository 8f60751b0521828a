#include "harness/search/explore_worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

#include "harness/loading/schedule_string.h"
#include "harness/search/exploration.h"
#include "harness/search/shrink.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

using Time = std::chrono::steady_clock::time_point;
using How = PlannedEnd::How;

constexpr std::size_t kCaseBytes = 1 << 20;      // shared with the parent: the scenario that runs, and at its end
constexpr std::size_t kStopAt = kCaseBytes - 1;  // whether that is enough
constexpr std::size_t kCountAt = kStopAt - 15;   // cases so far, and before that red ones: 64 bits each
constexpr std::size_t kNewestAtATime = 16;       // findings of one process that are sent whole

double since(Time start) { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); }

// ---- in the child
// ----------------------------------------------------------------------------------------------------

class Child {
 public:
  Child(const ExploreWork& work, int worker, int pipe, char* shared, Time start)
      : work_(work), worker_(worker), pipe_(pipe), shared_(shared), start_(start) {}

  void explore() {
    Explorer explorer(work_.explored, work_.golden, work_.options, worker_);
    bool over = false;
    const volatile char& enough = shared_[kStopAt];
    while (!over && enough == 0 && runtime::interrupted() == 0 && since(start_) < work_.budget_s &&
           (work_.cases_max == 0 || cases_ < work_.cases_max)) {
      std::optional<ExploreCase> one = explorer.draw();
      over = !one;
      if (over) break;
      leave(*one);
      const Explorer::Ran ran = explorer.run(std::move(*one));
      if (runtime::interrupted() != 0) break;  // of that case nothing is known
      add(ran, explorer.record());
    }
    send({{"t", "end"},
          {"cases", cases_},
          {"red", red_},
          {"by", by_},
          {"stops", stops_},
          {"unjudged", unjudged_},
          {"times", times_},
          {"over", over},
          {"coverage", explorer.coverage().json()}});
  }

 private:
  // For the parent, should this process end in the middle of it.
  void leave(const ExploreCase& one) {
    const std::string text = case_document(work_.explored, one, nullptr).dump();
    std::memset(shared_, 0, 1);
    if (text.size() < kCountAt - sizeof red_) std::memcpy(shared_, text.c_str(), text.size() + 1);
  }

  void add(const Explorer::Ran& ran, const RunRecord& record) {
    ++cases_;
    red_ += ran.end.how == How::red;
    std::memcpy(shared_ + kCountAt, &cases_, sizeof cases_);
    std::memcpy(shared_ + kCountAt - sizeof red_, &red_, sizeof red_);
    ++by_[ran.one.from];
    if (ran.end.how == How::stopped) ++stops_[ran.end.why.substr(0, 60)];
    for (const std::string& check : ran.end.unjudged) ++unjudged_[check];
    if (ran.end.how != How::red) return;
    const std::string check =
        ran.end.red.empty() ? (ran.end.status == ExitStatus::no_progress ? "progress" : "bug") : ran.end.red.front();
    const std::string key = finding_key(check, ran.end.why);
    if (times_[key]++ > 0 || times_.size() > kNewestAtATime) return;
    // Alone, and without the faults that never came: does it fail alike?
    bool shown = false;
    Json document;
    for (const RunRecord* fired : {&record, static_cast<const RunRecord*>(nullptr)}) {
      document = case_document(work_.explored, ran.one, fired);
      document["why"] = fmt::format("Found by seeksim explore: {}", ran.end.why);
      const Trial trial = try_scenario(document, work_.explored.scenario.file, 3 * work_.options.wall_limit_s);
      shown = ran.end.red.empty() ? trial.status == ran.end.status
                                  : std::find(trial.red.begin(), trial.red.end(), check) != trial.red.end();
      if (shown) break;
    }
    send({{"t", "red"},
          {"check", check},
          {"why", ran.end.why},
          {"shown", shown},
          {"after_s", since(start_)},
          {"document", document}});
  }

  void send(const Json& json) {
    const std::string line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
    for (std::size_t at = 0; at < line.size();) {
      const ssize_t n = ::write(pipe_, line.data() + at, line.size() - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ::_exit(0);  // the parent is gone
      at += std::size_t(n);
    }
  }

  const ExploreWork& work_;
  int worker_;
  int pipe_;
  char* shared_;
  Time start_;
  std::uint64_t cases_ = 0, red_ = 0;
  std::map<std::string, std::uint64_t> by_, stops_, unjudged_, times_;
};

// ---- in the parent
// ---------------------------------------------------------------------------------------------------

class Parent {
 public:
  explicit Parent(const ExploreWork& work) : work_(work), start_(std::chrono::steady_clock::now()) {}

  ExploreResult run() {
    processes_.resize(std::size_t(work_.processes));
    for (int i = 0; i < work_.processes; ++i) start(i);
    // A case that began within the time may end after it, and is run once more to be shown.
    const double patience_s = work_.budget_s + 5 * work_.options.wall_limit_s + 10;
    while (std::any_of(processes_.begin(), processes_.end(), [](const Process& p) { return p.pipe >= 0; })) {
      std::vector<pollfd> waiting;
      std::vector<std::size_t> whose;
      for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].pipe < 0) continue;
        waiting.push_back({processes_[i].pipe, POLLIN, 0});
        whose.push_back(i);
      }
      if (::poll(waiting.data(), waiting.size(), 1000) < 0 && errno != EINTR) break;
      for (std::size_t k = 0; k < waiting.size(); ++k) {
        if (waiting[k].revents != 0) read_some(whose[k]);
      }
      if (runtime::interrupted() != 0 && !std::exchange(ending_, true)) {
        for (const Process& process : processes_) {
          if (process.pipe >= 0) ::kill(process.pid, runtime::interrupted());
        }
      }
      if (work_.findings_max > 0 && result_.found.size() >= work_.findings_max) {
        for (Process& process : processes_) process.shared[kStopAt] = 1;
      }
      if (since(start_) > patience_s) end_all();
      say_how_far();
    }
    for (const Process& process : processes_) ::munmap(process.shared, kCaseBytes);
    result_.wall_s = since(start_);
    return std::move(result_);
  }

 private:
  struct Process {
    pid_t pid = -1;
    int pipe = -1;
    char* shared = nullptr;
    std::string text;
    bool ended = false;  // it said so
  };

  void start(int number) {
    Process& process = processes_[std::size_t(number)];
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
    void* shared = ::mmap(nullptr, kCaseBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw std::runtime_error(fmt::format("mmap: {}", std::strerror(errno)));
    process.shared = static_cast<char*>(shared);
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    process.pid = ::fork();
    if (process.pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
    if (process.pid == 0) {
      runtime::become_worker(parent);
      ::close(ends[0]);
      Child(work_, work_.first_worker + number, ends[1], process.shared, start_).explore();
      ::_exit(0);  // not exit(): what the parent registered or buffered is the parent's
    }
    ::close(ends[1]);
    process.pipe = ends[0];
  }

  void read_some(std::size_t number) {
    Process& process = processes_[number];
    char buffer[1 << 16];
    const ssize_t n = ::read(process.pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) return;
    if (n > 0) process.text.append(buffer, std::size_t(n));
    for (std::size_t end; (end = process.text.find('\n')) != std::string::npos;) {
      take(process, Json::parse(process.text.substr(0, end)));
      process.text.erase(0, end + 1);
    }
    if (n > 0) return;
    ::close(process.pipe);
    process.pipe = -1;
    int status = 0;
    while (::waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (!process.ended) crashed(process, status);
  }

  void take(Process& process, const Json& line) {
    if (line["t"] == "red") {
      ExploreResult::Found found;
      found.check = line["check"];
      found.why = line["why"];
      found.document = line["document"];
      found.after_s = line["after_s"];
      found.shown = line["shown"];
      add(std::move(found));
      return;
    }
    process.ended = true;
    result_.cases += line["cases"].get<std::uint64_t>();
    result_.red += line["red"].get<std::uint64_t>();
    result_.complete = result_.complete && line["over"].get<bool>();
    const auto add_all = [](const Json& from, std::map<std::string, std::uint64_t>& to) {
      for (const auto& [what, n] : from.items()) to[what] += n.get<std::uint64_t>();
    };
    add_all(line["by"], result_.by);
    add_all(line["stops"], result_.stops);
    add_all(line["unjudged"], result_.unjudged);
    for (const auto& [key, n] : line["times"].items()) {
      if (const auto found = result_.found.find(key); found != result_.found.end())
        found->second.times += n.get<std::uint64_t>();
    }
    result_.coverage.add(line["coverage"]);
  }

  void add(ExploreResult::Found found) {
    found.of_twin = work_.of_twin;
    std::string key = finding_key(found.check, found.why);
    const auto [at, is_new] = result_.found.emplace(std::move(key), std::move(found));
    if (is_new && work_.tell) work_.tell(at->second);
  }

  void crashed(const Process& process, int status) {
    result_.complete = false;
    ExploreResult::Found found;
    found.check = "crash";
    found.why = WIFSIGNALED(status) ? fmt::format("the process was ended by signal {} ({})", WTERMSIG(status),
                                                  ::strsignal(WTERMSIG(status)))
                                    : fmt::format("the process ended early with status {}", WEXITSTATUS(status));
    found.after_s = since(start_);
    found.times = 1;
    found.shown = false;
    if (process.shared[0] != 0) {
      found.document = Json::parse(std::string(process.shared));
      found.shown = WIFSIGNALED(status) && ends_by_signal(found.document, WTERMSIG(status));
    }
    ++result_.cases;  // those before it went with the process that counted them
    ++result_.red;
    add(std::move(found));
  }

  // Run by itself, in a process of its own: does that one end by the same signal?
  bool ends_by_signal(const Json& document, int signal) const {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) return false;
    if (pid == 0) {
      try_scenario(document, work_.explored.scenario.file, 3 * work_.options.wall_limit_s);
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
  }

  // What the processes have counted so far. A number that is half written is wrong once, for a tenth of a second.
  void say_how_far() const {
    if (!work_.tick) return;
    std::uint64_t cases = 0, red = 0;
    for (const Process& process : processes_) {
      std::uint64_t of_one[2];
      std::memcpy(of_one, process.shared + kCountAt - sizeof of_one[0], sizeof of_one);
      red += of_one[0];
      cases += of_one[1];
    }
    work_.tick(cases, red);
  }

  // They hang: reported as a case that never ends.
  void end_all() {
    for (const Process& process : processes_) {
      if (process.pipe >= 0) ::kill(process.pid, SIGKILL);
    }
  }

  const ExploreWork& work_;
  Time start_;
  std::vector<Process> processes_;
  bool ending_ = false;  // they were told
  ExploreResult result_;
};

}  // namespace

void ExploreResult::add(const ExploreResult& other) {
  const auto add_all = [](const std::map<std::string, std::uint64_t>& from, std::map<std::string, std::uint64_t>& to) {
    for (const auto& [what, n] : from) to[what] += n;
  };
  cases += other.cases, red += other.red, wall_s += other.wall_s;
  complete = complete && other.complete;
  add_all(other.by, by), add_all(other.stops, stops), add_all(other.unjudged, unjudged);
  coverage.add(other.coverage.json());
  for (const auto& [key, one] : other.found) {
    const auto [at, is_new] = found.emplace(key, one);
    if (!is_new) at->second.times += one.times;
  }
}

ExploreResult explore(const ExploreWork& work) { return Parent(work).run(); }

}  // namespace seeksim::harness
