#include "harness/releases/environment.h"

#include <fmt/format.h>

#include <cstdlib>

#include "harness/input/files.h"
#include "harness/input/json.h"
#include "harness/input/problem.h"
#include "harness/torch/child.h"
#include "harness/torch/python.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness::releases {
namespace {

constexpr double kLimit_s = 3600;  // a torch to download, and stubs to compile

// The JSON object in the last line of what the tool prints.
Json ask(const std::string& python, const std::string& verb, const std::vector<std::string>& words) {
  std::vector<std::string> command = {torch::find_python(python),
                                      own_file("pytorch/tools/releases.py", "seeksim torch"), verb};
  command.insert(command.end(), words.begin(), words.end());
  const torch::Captured ran = torch::capture(command, {}, kLimit_s);
  if (ran.out_of_time) throw CannotBeHad(fmt::format("{} took more than {} s", verb, kLimit_s));
  if (!ran.ending.good()) {
    std::string words_of_it = torch::without_own_name(ran.last_words());
    if (words_of_it.empty()) words_of_it = fmt::format("{} ended {}", command[1], torch::how(ran.ending));
    if (ran.ending.over && ran.ending.signal == 0 && ran.ending.status == code(ExitStatus::cannot_be_had))
      throw CannotBeHad(words_of_it);
    throw BadInput("", words_of_it, "");
  }
  const std::size_t end = ran.out.find_last_not_of('\n');
  const std::size_t begin = end == std::string::npos ? end : ran.out.rfind('\n', end);
  Json answer = Json::parse(ran.out.substr(begin == std::string::npos ? 0 : begin + 1), nullptr, false);
  if (!answer.is_object()) throw BadInput(command[1], "it gave no answer", "Is seeksim's folder pytorch/ whole?");
  return answer;
}

}  // namespace

ReleaseEnvironment make_environment(const std::vector<std::string>& pins, const std::string& python) {
  const Json made = ask(python, "make", pins);
  return {made.value("python", ""), made.value("python_path", ""), made.value("made_s", 0.0)};
}

ReleaseEnvironment own_environment(const std::string& python) {
  const char* const path = std::getenv("PYTHONPATH");
  return {torch::find_python(python), path == nullptr ? "" : path, 0};
}

std::map<std::string, std::string> installed_versions(const ReleaseEnvironment& environment,
                                                      const std::vector<std::string>& packages) {
  return ask(environment.python, "installed", packages).value("versions", std::map<std::string, std::string>{});
}

torch::Environment variables_of(const ReleaseEnvironment& environment) {
  // No script loads anything, and on a machine without a GPU DeepSpeed has to be told.
  return {{"PYTHONPATH", environment.python_path}, {"DS_ACCELERATOR", "cpu"},    {"HF_HUB_OFFLINE", "1"},
          {"TOKENIZERS_PARALLELISM", "false"},     {"PYTHONWARNINGS", "ignore"}, {"COLUMNS", "0"}};
}

std::vector<std::string> releases_of(const std::string& package, const std::string& python) {
  std::vector<std::string> all;
  const Json answer = ask(python, "list", {package});
  for (const Json& version : answer.value("versions", Json::array())) all.push_back(version.get<std::string>());
  return all;
}

std::uint64_t clean_environments(const std::string& python) {
  return ask(python, "clean", {}).value("removed_bytes", std::uint64_t(0));
}

}  // namespace seeksim::harness::releases
