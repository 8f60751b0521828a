#include "harness/input/scenario_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

namespace fs = std::filesystem;

// The keys of a scenario's top level that no other JSON file of training has.
bool looks_like_a_scenario(const Json& json) {
  if (!json.is_object()) return false;
  const bool is_report = json.contains("exit_code");
  return !is_report && (json.contains("world") || json.contains("model") || json.contains("steps"));
}

bool is_scenario_file(const std::string& path) {
  try {
    return looks_like_a_scenario(parse_json(read_file(path, kJsonBytesMax), path).value);
  } catch (const BadInput&) {
    return true;
  }
}

std::string name_in(const std::string& path) {
  try {
    const Json json = parse_json(read_file(path, kJsonBytesMax), path).value;
    const auto name = json.find("name");
    return name != json.end() && name->is_string() ? name->get<std::string>() : "";
  } catch (const BadInput&) {
    return "";
  }
}

std::string stem_of(const std::string& path) { return fs::path(path).stem().string(); }

// Those of `files` whose stem, or else whose "name", is `stem`.
std::vector<std::string> namesakes(const std::vector<std::string>& files, const std::string& stem) {
  std::vector<std::string> found;
  std::copy_if(files.begin(), files.end(), std::back_inserter(found),
               [&](const std::string& file) { return stem_of(file) == stem; });
  if (!found.empty()) return found;
  std::copy_if(files.begin(), files.end(), std::back_inserter(found),
               [&](const std::string& file) { return name_in(file) == stem; });
  return found;
}

// "a/scenarios" of "a/scenarios/deaths/x.json"; empty where no part is called so. Other folders may be as large as a
// home, and are not searched.
std::string scenarios_part_of(const fs::path& path) {
  fs::path part;
  for (const fs::path& step : path.parent_path()) {
    part /= step;
    if (step == "scenarios") return part.string();
  }
  return "";
}

// The nearest by spelling; at most one.
std::vector<std::string> spelt_alike(const std::vector<std::string>& files, const std::string& stem) {
  std::vector<std::string> stems;
  for (const std::string& file : files) stems.push_back(stem_of(file));
  const std::string near = closest(stem, stems);
  if (near.empty()) return {};
  return {files[std::size_t(std::find(stems.begin(), stems.end(), near) - stems.begin())]};
}

}  // namespace

std::vector<std::string> scenarios_below(const std::string& folder) {
  std::vector<std::string> files;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string path = entry.path().string();
      if (entry.path().extension() == ".json" && entry.is_regular_file() && is_scenario_file(path))
        files.push_back(path);
    }
  } catch (const fs::filesystem_error& error) {
    throw BadInput(folder, "the folder cannot be read: " + error.code().message(), "Check its permissions.");
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string scenario_named(const std::string& name) {
  std::error_code none;
  const bool bare = !name.empty() && name.find_first_of("/.") == std::string::npos;
  if (!bare || fs::exists(name, none)) return name;
  for (const std::string& folder : {std::string("scenarios"), scenarios_folder()}) {
    std::vector<std::string> found;
    if (!fs::is_directory(folder, none)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder, none))
      if (entry.path().extension() == ".json" && entry.path().stem() == name) found.push_back(entry.path().string());
    if (!found.empty()) return found.size() == 1 ? found.front() : name;
  }
  return name;
}

std::vector<std::string> with_folders_expanded(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& given : names) {
    std::string name = scenario_named(given);
    std::error_code none;
    if (!fs::is_directory(name, none)) {
      files.push_back(name);
      continue;
    }
    while (name.size() > 1 && name.back() == '/') name.pop_back();
    const std::vector<std::string> inside = scenarios_below(name);
    if (inside.empty())
      throw BadInput(name, "there is no scenario in this folder", "Scenarios are .json files: see `list scenarios`.");
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

// A project of somebody else's may have a folder of that name; this one has its schema beside it.
std::string scenarios_folder() {
  std::error_code none;
  return fs::exists("scenarios/schema.json", none) ? "scenarios" : own_folder() + "/scenarios";
}

std::string where_it_may_be(const std::string& missing) {
  constexpr std::size_t kNamedMax = 3;
  const std::string stem = stem_of(missing);
  std::vector<std::vector<std::string>> places;
  for (const std::string& folder : {scenarios_part_of(missing), scenarios_folder()}) {
    std::error_code none;
    if (!folder.empty() && fs::is_directory(folder, none)) places.push_back(scenarios_below(folder));
  }
  for (const auto& search : {namesakes, spelt_alike}) {
    for (const std::vector<std::string>& files : places) {
      std::vector<std::string> found = search(files, stem);
      if (found.size() > kNamedMax) found.resize(kNamedMax);
      if (!found.empty()) return fmt::format("Did you mean {}?", fmt::join(found, ", or "));
    }
  }
  return "";
}

}  // namespace seeksim::harness
