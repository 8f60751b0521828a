#include "harness/torch/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "harness/input/files.h"

namespace seeksim::harness::torch {
namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_ours(const std::string& name) {
  for (const char* start : {"rank-", "stack-", "refused-", "output-"}) {
    if (name.starts_with(start)) return true;
  }
  return name == "plan.json" || name == "report.json" || name == "junit.xml" || name == "scenario.json" ||
         name == "story.txt";
}

bool is_foreign(const std::string& file) {
  for (const char* part : {"/site-packages/", "/dist-packages/", "/seeksim_torch/", "/lib/python"}) {
    if (file.find(part) != std::string::npos) return true;
  }
  return false;
}

struct Frame {
  std::string file, line, function;
  std::string text() const {
    const std::string name = file.substr(file.rfind('/') + 1);
    return function.empty() ? name + ':' + line : fmt::format("{}:{} {}", name, line, function);
  }
};

// faulthandler's `  File "/x/train.py", line 51 in main`.
std::optional<Frame> dumped(const std::string& line) {
  const std::size_t begin = line.find("File \"");
  const std::size_t end = begin == std::string::npos ? begin : line.find("\", line ", begin);
  if (end == std::string::npos) return std::nullopt;
  const std::size_t number = end + 8;
  const std::size_t in = line.find(" in ", number);
  return Frame{line.substr(begin + 6, end - begin - 6), line.substr(number, std::min(in, line.size()) - number),
               in == std::string::npos ? "" : line.substr(in + 4)};
}

// The record's "/x/train.py:51 main".
std::optional<Frame> recorded(const std::string& line) {
  const std::size_t space = line.rfind(' ');
  const std::string place = line.substr(0, space);
  const std::size_t colon = place.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  return Frame{place.substr(0, colon), place.substr(colon + 1),
               space == std::string::npos ? "" : line.substr(space + 1)};
}

}  // namespace

std::string record_file(const std::string& folder, int rank) {
  const std::string first = fmt::format("{}/rank-{}.rec", folder, rank);
  std::string found = std::filesystem::exists(first) ? first : "";
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const std::string next = fmt::format("{}/rank-{}.attempt-{}.rec", folder, rank, attempt);
    if (!std::filesystem::exists(next)) break;
    found = next;
  }
  return found;
}

std::vector<RankRun> read_ranks(const std::string& folder, int ranks) {
  std::vector<RankRun> runs;
  for (int rank = 0; rank < ranks || (ranks == 0 && !record_file(folder, rank).empty()); ++rank) {
    RankRun& run = runs.emplace_back();
    run.rank = rank;
    run.stack = content(fmt::format("{}/stack-{}.txt", folder, rank));
    run.refused = content(fmt::format("{}/refused-{}.txt", folder, rank));
    while (!run.refused.empty() && run.refused.back() == '\n') run.refused.pop_back();
    run.refused = without_own_name(run.refused);
    const std::string file = record_file(folder, rank);
    if (file.empty()) continue;
    try {
      run.record = pytorch::read_record(file);
    } catch (const std::runtime_error& error) {
      run.problem = error.what();
    }
  }
  return runs;
}

void clear_run_folder(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    std::error_code ignored;
    if (is_ours(name)) std::filesystem::remove(folder + '/' + name, ignored);
  }
}

GroupId group_of(const pytorch::RankRecord& record, std::int32_t group) {
  GroupId id;
  if (group < 0 || std::size_t(group) >= record.groups.size()) return id;
  const pytorch::GroupEntry& entry = record.groups[std::size_t(group)];
  id.name = record.text(entry.name);
  std::istringstream list(record.text(entry.ranks));
  for (std::string one; std::getline(list, one, ',');) {
    int rank = -1;
    std::from_chars(one.data(), one.data() + one.size(), rank);
    id.ranks.push_back(rank);
  }
  return id;
}

double value_of(const pytorch::LossEntry& loss) { return std::bit_cast<double>(loss.bits); }

std::string own_frame(const std::string& stack) {
  std::istringstream lines(stack);
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    const bool is_dump = line.find("File \"") != std::string::npos;
    const std::optional<Frame> frame = is_dump ? dumped(line) : recorded(line);
    if (!frame || frame->file.starts_with('<')) continue;
    if (first.empty()) first = frame->text();
    if (!is_foreign(frame->file)) return frame->text();
  }
  return first;
}

std::string describe(const pytorch::RankRecord& record, const pytorch::CallEntry& call) {
  const std::string number = call.seq > 0 ? fmt::format(" #{}", call.seq) : "";
  return fmt::format("{}{} of group {} (step {}, {})", name(call.op), number, group_of(record, call.group).name,
                     call.step, name(call.phase));
}

}  // namespace seeksim::harness::torch
