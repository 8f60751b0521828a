#include "harness/commands/watch.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>
#include <tuple>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/input/scenario_files.h"
#include "harness/report/terminal.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(200);

// When a file was changed last, and its size; all 0: there is none.
using Stamp = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
using Stamps = std::map<std::string, Stamp>;

Stamp stamp_of(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {};
  return {info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_size};
}

// The files that a scenario names: texts, weights, a ds_config.
void add_named_files(const Json& value, const std::string& scenario, Stamps& stamps) {
  if (value.is_structured()) {
    for (const Json& part : value) add_named_files(part, scenario, stamps);
  } else if (value.is_string() && !value.get_ref<const std::string&>().empty()) {
    const std::string& text = value.get_ref<const std::string&>();
    const std::string beside = (std::filesystem::path(scenario).parent_path() / text).string();
    std::error_code none;
    for (const std::string& file : {text, beside}) {
      if (std::filesystem::is_regular_file(file, none)) stamps[file] = stamp_of(file);
    }
  }
}

// A scenario that is no JSON just now is watched alone.
Stamps look(const std::string& program, const std::vector<std::string>& files) {
  Stamps stamps = {{program, stamp_of(program)}};
  for (const std::string& file : with_folders_expanded(files)) {
    stamps[file] = stamp_of(file);
    try {
      add_named_files(parse_json(read_file(file, kJsonBytesMax), file).value, file, stamps);
    } catch (const BadInput&) {
    }
  }
  return stamps;
}

pid_t start(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  pid_t child = -1;
  if (const int error = ::posix_spawn(&child, program.c_str(), nullptr, nullptr, argv.data(), environ); error != 0)
    throw BadInput("--watch", fmt::format("{} cannot be started: {}", program, std::strerror(error)),
                   "Build it again.");
  return child;
}

// What asks this process to end is passed on once.
ExitStatus ended(pid_t child) {
  bool told = false;
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) ? ExitStatus(WEXITSTATUS(status)) : ExitStatus::no_progress;
    if (runtime::interrupted() != 0 && !told) {
      ::kill(child, SIGTERM);
      told = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// True: something changed, and is as it was at the last look since. False: this process is to end.
bool changed(const std::string& program, const std::vector<std::string>& files, const Stamps& at_start) {
  Stamps before = at_start;
  while (runtime::interrupted() == 0) {
    const Stamps now = look(program, files);
    if (now == before && now != at_start) return true;
    before = now;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return false;
}

}  // namespace

ExitStatus watch(const std::string& program, const std::vector<std::string>& arguments,
                 const std::vector<std::string>& files) {
  const runtime::Interrupts noted;
  for (int run = 1;; ++run) {
    const Stamps at_start = look(program, files);
    const ExitStatus status = ended(start(program, arguments));
    if (runtime::interrupted() != 0) return status;
    note(fmt::format("run {} ended with status {}; watching {} files, Ctrl-C ends it\n", run, code(status),
                     at_start.size()));
    if (!changed(program, files, at_start)) return status;
  }
}

}  // namespace seeksim::harness
