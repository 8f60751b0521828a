#include "harness/torch/python.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/problem.h"

namespace seeksim::harness::torch {
namespace {

constexpr double kBuildLimit_s = 1800;
constexpr double kLookLimit_s = 300;

// What takes long is announced: a line "note: ..." of the package goes to this program's own standard error at once.
void pass_on_note(const std::string& line) {
  constexpr std::string_view kNote = "note: ";
  if (line.starts_with(kNote)) fmt::print(stderr, "seeksim torch: {}\n", line.substr(kNote.size()));
}

// The JSON object that a command of the package prints. module: its name, for messages. Throws BadInput with its own
// line.
Json told_by(const std::vector<std::string>& command, const std::string& module, const Environment& environment,
             double limit_s) {
  const std::string& python = command.front();
  const Captured ran = capture(command, environment, limit_s, pass_on_note);
  if (ran.out_of_time)
    throw BadInput(python, fmt::format("{} did not end within {} s", module, limit_s), "Run it by hand to see why.");
  if (!ran.ending.good()) {
    const std::string words = without_own_name(ran.last_words());
    throw BadInput("", words.empty() ? fmt::format("{}: {} ended {}", python, module, how(ran.ending)) : words, "");
  }
  Json answer = Json::parse(ran.out, nullptr, false);
  std::istringstream lines(ran.out);
  for (std::string line; !answer.is_object() && std::getline(lines, line);) answer = Json::parse(line, nullptr, false);
  if (!answer.is_object())
    throw BadInput(python, fmt::format("{} gave no answer", module), "Is seeksim's folder pytorch/ whole?");
  return answer;
}

Json told_by(const std::string& python, const std::string& module, const std::vector<std::string>& options,
             double limit_s) {
  std::vector<std::string> command = {python, "-m", module};
  command.insert(command.end(), options.begin(), options.end());
  return told_by(command, module, {{"PYTHONPATH", python_path_with(package_folder())}}, limit_s);
}

bool is_program(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

}  // namespace

std::string find_python(const std::string& given) {
  if (!given.empty()) {
    if (given.find('/') != std::string::npos && !is_program(given))
      throw BadInput("--python " + given, "there is no such program", "Name the Python that has torch.");
    return given;
  }
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr && *environment != 0) {
    const std::string python = std::string(environment) + "/bin/python";
    if (is_program(python)) return python;
  }
  return "python3";
}

std::string python_path_with(const std::string& folder) {
  const char* own = std::getenv("PYTHONPATH");
  return own == nullptr || *own == 0 ? folder : folder + ':' + own;
}

std::string package_folder() {
  // torch imports the package by this entry point: without it nothing would be recorded.
  own_file("pytorch/python/seeksim_torch-1.dist-info/entry_points.txt", "seeksim torch");
  const std::string file = own_file("pytorch/python/seeksim_torch/__init__.py", "seeksim torch");
  return std::filesystem::absolute(file).parent_path().parent_path().string();
}

Built build_backend(const std::string& python, const std::vector<std::string>& warm) {
  std::vector<std::string> command = warm;
  command.push_back(package_folder() + "/seeksim_torch/build.py");
  const Json told = warm.empty() ? told_by(python, "seeksim_torch.build", {}, kBuildLimit_s)
                                 : told_by(command, "seeksim_torch.build",
                                           {{"PYTHONPATH", python_path_with(package_folder())}}, kBuildLimit_s);
  Built built{told.value("torch", ""), told.value("module", ""), told.value("python_path", ""),
              told.value("built_s", 0.0)};
  if (built.module.empty() || built.python_path.empty())
    throw BadInput(python, "the build of the backend names no module", "Is seeksim's folder pytorch/ whole?");
  return built;
}

Warm keep_warm(const std::string& python, const Environment& environment, double seconds,
               const std::vector<std::string>& modules) {
  std::vector<std::string> command = {python, "-m", "seeksim_torch.stay", fmt::format("{}", seconds)};
  command.insert(command.end(), modules.begin(), modules.end());
  const Json told = told_by(command, "seeksim_torch.stay", environment, kLookLimit_s);
  return {{python, "-I", "-S", package_folder() + "/seeksim_torch/warm.py", told.value("socket", "")},
          told.value("fresh", false)};
}

Json facts_of(const std::string& python) { return told_by(python, "seeksim_torch.doctor", {}, kLookLimit_s); }

std::uint64_t clean_cache(const std::string& python) {
  return told_by(python, "seeksim_torch.build", {"--clean"}, kLookLimit_s).value("removed_bytes", std::uint64_t(0));
}

}  // namespace seeksim::harness::torch
