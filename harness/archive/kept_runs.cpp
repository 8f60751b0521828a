#include "harness/archive/kept_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"

namespace seeksim::harness {

extern const char* const kBuildInfo;

namespace {

constexpr std::uint64_t kRecordBytesMax = std::uint64_t(64) << 20;
constexpr int kDepthMost = 4;  // of folders below the one that is named
constexpr std::size_t kRunsMost = 10000;

bool is_number(const std::string& name) {
  return name.size() == 4 &&
         std::all_of(name.begin(), name.end(), [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

int newest_in(const std::string& folder) {
  int newest = 0;
  for (const std::string& name : list_folder(folder)) {
    if (is_number(name)) newest = std::max(newest, std::stoi(name));
  }
  return newest;
}

Json record(const std::string& name, const char* state) {
  return {{"schema", kKeptRunSchema}, {"program", kBuildInfo}, {"scenario", name}, {"state", state}};
}

// Of a report what another run is compared by.
Json result_of(const Json& report) {
  Json result;
  for (const char* key :
       {"seed", "training_seed", "backend", "device", "verdict", "exit_code", "sentence", "stopped", "steps_committed",
        "resumed_from", "loss", "grad_norm", "params_digest", "virtual_s", "figures", "golden"}) {
    if (const auto found = report.find(key); found != report.end()) result[key] = *found;
  }
  return result;
}

Json parsed(const std::string& path) { return parse_json(read_file(path, kRecordBytesMax), path).value; }

void look_into(const std::string& folder, int depth, std::vector<KeptRun>& found, std::vector<std::string>& problems) {
  for (const std::string& name : list_folder(folder)) {
    const std::string path = folder + '/' + name;
    std::error_code none;
    // A link could lead back to where it stands.
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(path, none))) continue;
    if (is_kept_run(path)) {
      if (found.size() >= kRunsMost)
        throw BadInput(folder, fmt::format("holds more than {} runs", kRunsMost), "Name a folder below it.");
      try {
        found.push_back(read_kept_run(path));
      } catch (const BadInput& bad) {
        problems.push_back(bad.problems().front().text());
      }
    } else if (depth < kDepthMost) {
      look_into(path, depth + 1, found, problems);
    }
  }
}

}  // namespace

RunKeeper::RunKeeper(const std::string& out, const Json& scenario, const std::string& name) : name_(name) {
  if (out.empty()) return;
  const std::string runs = out + "/runs";
  const int number = newest_in(runs) + 1;
  if (number > 9999) throw BadInput(runs, "holds 9999 runs already", "Take another --out, or move older runs away.");
  folder_ = fmt::format("{}/{:04}", runs, number);
  make_folder(folder_, "--out");
  write_file(folder_ + "/scenario.json", dump(scenario));
  write_file(folder_ + "/run.json", dump(record(name, "running")));
}

void RunKeeper::ended(const Json& report) const {
  if (folder_.empty()) return;
  Json run = record(name_, "ended");
  run.update(result_of(report));
  write_file(folder_ + "/run.json", dump(run));
}

bool is_kept_run(const std::string& path) {
  std::error_code none;
  return is_number(std::filesystem::path(path).filename()) &&
         std::filesystem::is_regular_file(path + "/run.json", none);
}

KeptRun read_kept_run(const std::string& path) {
  KeptRun kept{path, parsed(path + "/run.json"), parsed(path + "/scenario.json")};
  const std::string schema = kept.run.is_object() && kept.run.contains("schema") && kept.run["schema"].is_string()
                                 ? kept.run["schema"].get<std::string>()
                                 : "";
  if (schema != kKeptRunSchema)
    throw BadInput(path + "/run.json", fmt::format("its schema is \"{}\", not \"{}\"", schema, kKeptRunSchema),
                   "Use the seeksim that wrote it: its \"program\" says which.");
  return kept;
}

std::vector<KeptRun> kept_runs(const std::string& folder, std::vector<std::string>& problems) {
  std::error_code none;
  if (!std::filesystem::is_directory(folder, none))
    throw BadInput(folder, "is no folder", "Name a folder that --out wrote, or one above several.");
  std::vector<KeptRun> found;
  if (is_kept_run(folder))
    found.push_back(read_kept_run(folder));
  else
    look_into(folder, 0, found, problems);
  return found;
}

}  // namespace seeksim::harness
