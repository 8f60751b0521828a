#include "harness/torch/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "runtime/backend/wire/bytes.h"

namespace seeksim::harness::torch {
namespace {

constexpr std::size_t kWordsMax = 4096;  // of what another host says

// What travels of a JobRun.
struct ProcessSaid {
  std::int32_t rank = -1;
  bool over = false;
  std::int32_t status = 0, signal = 0;
  bool ended_by_us = false;
  double after_s = 0;
  std::string last_words;
};
struct JobSaid {
  std::vector<std::int32_t> ranks;
  std::vector<ProcessSaid> processes;
  Stopped stopped = Stopped::no;
  std::string why;
};

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_ours(const std::string& name) {
  for (const char* start : {"rank-", "stack-", "refused-", "output-"}) {
    if (name.starts_with(start)) return true;
  }
  return name == "plan.json" || name == "hosts.json" || name == "report.json" || name == "junit.xml" ||
         name == "scenario.json" || name == "story.txt";
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

std::string host_name(const TorchRun& run, int host) {
  if (host < 0 || std::size_t(host) >= run.hosts.size()) return "";
  return fmt::format("host {} ({})", host, run.hosts[std::size_t(host)].name);
}

int host_of(const TorchRun& run, int rank) {
  for (std::size_t host = 0; host < run.hosts.size(); ++host) {
    const std::vector<int>& ranks = run.hosts[host].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return int(host);
  }
  return -1;
}

std::string summary_text(const JobRun& job, const std::vector<int>& ranks) {
  JobSaid said;
  said.ranks.assign(ranks.begin(), ranks.end());
  for (const ProcessRun& one : job.processes)
    said.processes.push_back({one.rank, one.ending.over, one.ending.status, one.ending.signal, one.ended_by_us,
                              one.after_s, one.last_words.substr(0, kWordsMax)});
  said.stopped = job.stopped;
  said.why = job.why;
  const std::vector<std::byte> bytes = runtime::to_bytes(said);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void add_summary(TorchRun& run, int host, const std::string& text) {
  HostRun& here = run.hosts.at(std::size_t(host));
  JobSaid said;
  try {
    runtime::from_bytes(std::as_bytes(std::span(text)), said);
  } catch (const runtime::Malformed& wrong) {
    here.problem = fmt::format("what it says of its job {}", wrong.what());
    return;
  }
  for (const std::int32_t rank : said.ranks)
    if (rank >= 0 && rank < run.scenario.torch.ranks && host_of(run, rank) < 0) here.ranks.push_back(rank);
  for (const ProcessSaid& one : said.processes) {
    ProcessRun& process = run.job.processes.emplace_back();
    process.rank = std::clamp(one.rank, -1, run.scenario.torch.ranks - 1);
    process.host = host;
    process.ending = {one.over, one.status, one.signal};
    process.ended_by_us = one.ended_by_us;
    process.after_s = one.after_s;
    process.last_words = one.last_words.substr(0, kWordsMax);
  }
  if (run.job.stopped != Stopped::no || said.stopped == Stopped::no || said.stopped == Stopped::count_) return;
  run.job.stopped = said.stopped;
  run.job.why = fmt::format("{}: {}", host_name(run, host), said.why.substr(0, kWordsMax));
}

void add_lost_ranks(TorchRun& run) {
  HostRun* lost = nullptr;
  for (HostRun& host : run.hosts) {
    if (!host.ranks.empty()) continue;
    if (lost != nullptr) return;
    lost = &host;
  }
  std::vector<int> missing;
  for (int rank = 0; rank < run.scenario.torch.ranks; ++rank)
    if (host_of(run, rank) < 0) missing.push_back(rank);
  if (lost != nullptr) lost->ranks = std::move(missing);
}

std::vector<int> ranks_in(const std::string& folder, int ranks, const std::vector<std::string>& but) {
  std::vector<int> found;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const std::string& file : {record_file(folder, rank), fmt::format("{}/refused-{}.txt", folder, rank)}) {
      const std::string name = file.substr(file.rfind('/') + 1);
      if (name.empty() || !std::filesystem::exists(file) || std::find(but.begin(), but.end(), name) != but.end())
        continue;
      found.push_back(rank);
      break;
    }
  }
  return found;
}

void write_hosts(const std::string& folder, const std::vector<HostRun>& hosts) {
  Json list = Json::array();
  for (const HostRun& host : hosts)
    list.push_back({{"name", host.name}, {"ranks", host.ranks}, {"clock_ns", host.clock_ns}});
  write_file(folder + "/hosts.json", dump({{"hosts", list}}));
}

namespace {

// Each rank's host and what is to be taken from its times; empty where all was on one host.
std::map<int, std::pair<int, std::int64_t>> clocks_in(const std::string& folder) {
  std::map<int, std::pair<int, std::int64_t>> clocks;
  const std::string file = folder + "/hosts.json";
  if (!std::filesystem::exists(file)) return clocks;
  const Json all = parse_json(content(file), file).value;
  try {
    int host = 0;
    for (const Json& one : all.at("hosts")) {
      for (const int rank : one.at("ranks").get<std::vector<int>>())
        clocks[rank] = {host, one.at("clock_ns").get<std::int64_t>()};
      ++host;
    }
  } catch (const Json::exception&) {
    throw BadInput(file, "it does not say which rank was on which host", "It is written by seeksim torch run.");
  }
  return clocks;
}

void set_back(pytorch::RankRecord& record, std::int64_t ns) {
  const auto set = [ns](std::int64_t& time) {
    if (time != 0) time -= ns;
  };
  set(record.now.started_ns);
  for (pytorch::GroupProgress& one : record.now.groups) set(one.since_ns);
  for (pytorch::CallEntry& one : record.calls) set(one.created_ns), set(one.started_ns), set(one.finished_ns);
  for (pytorch::StepEntry& one : record.steps) set(one.time_ns);
  for (pytorch::LossEntry& one : record.losses) set(one.time_ns);
  for (pytorch::FaultEntry& one : record.faults) set(one.time_ns);
  for (pytorch::VerdictEntry& one : record.verdicts) set(one.time_ns);
  for (pytorch::PhaseEntry& one : record.phases) set(one.time_ns);
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
  const auto clocks = clocks_in(folder);
  for (int rank = 0; rank < ranks || (ranks == 0 && !record_file(folder, rank).empty()); ++rank) {
    RankRun& run = runs.emplace_back();
    run.rank = rank;
    const auto clock = clocks.find(rank);
    if (clock != clocks.end()) run.host = clock->second.first;
    run.stack = content(fmt::format("{}/stack-{}.txt", folder, rank));
    run.refused = content(fmt::format("{}/refused-{}.txt", folder, rank));
    while (!run.refused.empty() && run.refused.back() == '\n') run.refused.pop_back();
    run.refused = without_own_name(run.refused);
    const std::string file = record_file(folder, rank);
    if (file.empty()) continue;
    try {
      run.record = pytorch::read_record(file);
      if (clock != clocks.end()) set_back(*run.record, clock->second.second);
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
