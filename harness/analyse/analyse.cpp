#include "harness/analyse/analyse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "harness/analyse/hang.h"
#include "harness/analyse/logs.h"
#include "harness/export/flight_recorder.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kFilesMost = 1 << 16;

// Whether a name could be of a rank's dump: nccl_trace_rank_3, comm_lib_trace_rank_3.json.
bool ends_in_number(const std::string& name) {
  const std::string stem = name.substr(0, name.rfind('.') == 0 ? name.size() : name.rfind('.'));
  return !stem.empty() && std::isdigit(static_cast<unsigned char>(stem.back())) != 0;
}

// Whether a name says that it is text: never a dump.
bool is_log_name(const std::string& name) {
  return name.ends_with(".log") || name.ends_with(".txt") || name.ends_with(".out") || name.ends_with(".err");
}

// What a path holds: itself, or the dumps and logs of a folder.
std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code none;  // read_file says what is wrong
    if (!std::filesystem::is_directory(path, none)) {
      files.push_back(path);
      continue;
    }
    for (const std::string& name : list_folder(path)) {
      const bool known = ends_in_number(name) || is_log_name(name);
      if (known && std::filesystem::is_regular_file(path + '/' + name, none)) files.push_back(path + '/' + name);
    }
  }
  if (files.size() > kFilesMost)
    throw BadInput(paths[0], fmt::format("holds more than {} files", kFilesMost), "Name the folder of the dumps.");
  return files;
}

// Dumps of `seeksim run --flight-recorder` say more than PyTorch's: votes, epochs, who was given up.
struct OwnDumps {
  ReadDumps read;
  bool any = false;
};

bool is_own(const Tree& tree) { return tree.is_object() && tree.contains("seeksim"); }

std::string own_text(const Json& analysis) {
  std::string text = analysis.at("text").get<std::string>() + "\n";
  if (!analysis.at("chain").get<std::string>().empty())
    text += fmt::format("  {:<10} {}\n", "certain", analysis.at("chain").get<std::string>());
  return text;
}

}  // namespace

Analysed analyse(const std::vector<std::string>& paths) {
  OwnDumps own;
  std::vector<Dump> dumps;
  LogFacts logs;
  for (const std::string& file : files_of(paths)) {
    const std::string bytes = read_file(file, kDumpFileBytesMax);
    if (is_log_name(file) || !looks_like_dump(bytes)) {
      if (bytes.find('\0') != std::string::npos)
        throw BadInput(file, "is neither a dump of a flight recorder nor text", "Give dumps, or a launcher's output.");
      read_log(bytes, file, logs);
      continue;
    }
    const Tree tree = dump_tree(bytes, file);
    if (is_own(tree)) {
      own.any = true;
      read_dump(Json(tree), file, own.read);
    } else {
      dumps.push_back(read_torch_dump(tree, file));
    }
  }
  if (own.any && !dumps.empty())
    throw BadInput(dumps[0].file, "is PyTorch's dump among those of seeksim", "Give the dumps of one job.");
  if (own.any) {
    add_missing_ranks(own.read);
    const Json analysis = analysis_json(runtime::analyse(own.read.dumps));
    return {std::nullopt, own_text(analysis), dump(analysis)};
  }
  if (dumps.empty() && logs.lines == 0)
    throw BadInput(paths[0], "holds no dump of a flight recorder and no log",
                   "PyTorch writes nccl_trace_rank_0 and so on, `seeksim run --flight-recorder DIR` likewise; logs end "
                   "in .log, .txt, .out or .err.");
  return {dumps.empty() ? judge_logs(logs) : judge_dumps(std::move(dumps)), "", ""};
}

}  // namespace seeksim::harness
