#include "harness/torch/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "harness/torch/blame.h"
#include "harness/torch/collectives.h"

namespace seeksim::harness::torch {

using pytorch::CallEntry;
using pytorch::RankRecord;

namespace {

// The story's zero: when the first rank's record began.
std::int64_t beginning(const TorchRun& run) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const RankRun& rank : run.ranks)
    if (rank.record) first = std::min(first, rank.record->now.started_ns);
  return first == std::numeric_limits<std::int64_t>::max() ? 0 : first;
}

struct Line {
  double at_s = 0;
  std::string text;
};

void tell_rank(const RankRun& rank, std::int64_t zero, std::vector<Line>& lines) {
  const RankRecord& record = *rank.record;
  const auto since = [&](std::int64_t ns) { return double(ns - zero) * 1e-9; };
  for (const pytorch::FaultEntry& fault : record.faults) {
    std::string where = fmt::format("in step {}", fault.step);
    if (fault.call >= 0 && std::size_t(fault.call) < record.calls.size())
      where = "in " + describe(record, record.calls[std::size_t(fault.call)]);
    const std::string& what = record.text(fault.text);
    lines.push_back({since(fault.time_ns), fmt::format("rank {}: faults.{} fires {}{}", rank.rank, fault.rule, where,
                                                       what.empty() ? "" : ": " + what)});
  }
  for (const pytorch::VerdictEntry& verdict : record.verdicts) {
    std::string text = record.text(verdict.text);
    text = text.substr(0, text.find('\n'));
    lines.push_back({since(verdict.time_ns), fmt::format("rank {}: {}", rank.rank, text)});
  }
  if (!record.steps.empty())
    lines.push_back({since(record.steps.back().time_ns),
                     fmt::format("rank {}: step {} is done: its last", rank.rank, record.steps.back().step)});
}

std::string story_of(const TorchRun& run, const Style& style) {
  constexpr std::size_t kLinesMax = 40;
  std::vector<Line> lines;
  const std::int64_t zero = beginning(run);
  for (const RankRun& rank : run.ranks)
    if (rank.record) tell_rank(rank, zero, lines);
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) { return a.at_s < b.at_s; });
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines.size() > kLinesMax && i == kLinesMax / 2) {
      const std::size_t left_out = lines.size() - kLinesMax;
      text += style.faint(fmt::format("  ... {} more ...\n", left_out));
      i += left_out;
    }
    text += fmt::format("  {} {}\n", style.faint(fmt::format("{:>10.3f} s ", lines[i].at_s)), lines[i].text);
  }
  return text;
}

std::string endings_of(const TorchRun& run) {
  std::string text;
  for (const ProcessRun& process : run.job.processes) {
    if (process.ending.good()) continue;
    const std::string who = process.rank < 0 ? "launcher" : fmt::format("rank {}", process.rank);
    const std::string where = host_name(run, process.host);
    text += fmt::format("  {:<9} ended {} after {:.1f} s{}{}{}\n", who, how(process.ending), process.after_s,
                        where.empty() ? "" : " on " + where, process.ended_by_us ? ", by seeksim" : "",
                        process.last_words.empty() ? "" : ": " + process.last_words);
  }
  return text;
}

// Where ranks stood when they were ended.
std::string stacks_of(const TorchRun& run) {
  std::string text;
  for (const RankRun& rank : run.ranks) {
    const std::string frame = own_frame(rank.stack);
    if (!frame.empty())
      text += fmt::format("  stands    rank {}: {} ({}/stack-{}.txt)\n", rank.rank, frame, run.folder, rank.rank);
  }
  return text;
}

// The losses of one rank, the first and the last.
std::string losses_of(const TorchRun& run) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record || rank.record->losses.empty()) continue;
    const std::vector<pytorch::LossEntry>& losses = rank.record->losses;
    return fmt::format("  loss      {:.6f} -> {:.6f} on rank {}, in {} steps\n", value_of(losses.front()),
                       value_of(losses.back()), rank.rank, losses.back().step - losses.front().step + 1);
  }
  return "  loss      none was recorded\n";
}

std::map<std::string, std::uint64_t> counts_of(const RankRecord& record) {
  std::map<std::string, std::uint64_t> counts;
  for (const CallEntry& call : record.calls) ++counts[std::string(name(call.op))];
  return counts;
}

std::string calls_of(const TorchRun& run) {
  for (const RankRun& rank : run.ranks) {
    if (!rank.record || rank.record->calls.empty()) continue;
    std::vector<std::string> words;
    for (const auto& [op, count] : counts_of(*rank.record)) words.push_back(fmt::format("{} {}", count, op));
    return fmt::format("  calls     {} on rank {}\n", fmt::join(words, ", "), rank.rank);
  }
  return "";
}

std::string waits_line(const TorchRun& run) {
  const std::string text = sentence(waits_of(run));
  return text.empty() ? "" : fmt::format("  waits     {}\n", text);
}

// What was not watched, and why.
std::string notes_of(const TorchRun& run) {
  std::vector<std::string> said;
  for (const RankRun& rank : run.ranks) {
    if (!rank.record) continue;
    for (const pytorch::NoteEntry& note : rank.record->notes) {
      const std::string& text = rank.record->text(note.text);
      if (std::find(said.begin(), said.end(), text) == said.end()) said.push_back(text);
    }
  }
  std::string text;
  for (const std::string& one : said) text += fmt::format("  note      {}\n", one);
  return text;
}

// A number for all weights that the last recorded forward pass used, the same on all ranks where replicas are equal.
std::string last_weights(const TorchRun& run) {
  if (run.ranks.empty() || !run.ranks.front().record) return "";
  const RankRecord& record = *run.ranks.front().record;
  std::int64_t last = -1;
  std::uint64_t all = 0;
  for (const pytorch::TensorEntry& tensor : record.tensors) {
    if (tensor.use != pytorch::TensorUse::weight) continue;
    if (tensor.step != last) all = 0;
    last = tensor.step;
    all = (all ^ tensor.hash) * 0x9e3779b97f4a7c15ull;
  }
  return last < 0 ? "" : fmt::format(", weights {:016x}", all);
}

Json json_number(double value) {
  if (value != value) return "NaN";
  if (value == std::numeric_limits<double>::infinity()) return "Infinity";
  if (value == -std::numeric_limits<double>::infinity()) return "-Infinity";
  return value;
}

Json rank_json(const RankRun& rank) {
  Json json = {{"rank", rank.rank}, {"host", rank.host}, {"recorded", rank.record.has_value()}};
  if (!rank.problem.empty()) json["problem"] = rank.problem;
  if (!rank.refused.empty()) json["refused"] = rank.refused;
  if (!rank.stack.empty()) json["stands_at"] = own_frame(rank.stack);
  if (!rank.record) return json;
  const RankRecord& record = *rank.record;
  json["steps"] = record.steps.size();
  json["left_out"] = record.now.left_out;
  json["calls"] = Json::object();
  for (const auto& [op, count] : counts_of(record)) json["calls"][op] = count;
  json["loss"] = Json::array();
  for (const pytorch::LossEntry& loss : record.losses) json["loss"].push_back(json_number(value_of(loss)));
  return json;
}

Json process_json(const ProcessRun& process) {
  return {{"rank", process.rank < 0 ? Json(nullptr) : Json(process.rank)},
          {"host", process.host},
          {"exit_status", process.ending.signal != 0 ? Json(nullptr) : Json(process.ending.status)},
          {"signal", process.ending.signal == 0 ? Json(nullptr) : Json(process.ending.signal)},
          {"ended_by_seeksim", process.ended_by_us},
          {"after_s", process.after_s},
          {"last_words", process.last_words}};
}

Json hosts_json(const TorchRun& run) {
  Json hosts = Json::array();
  for (const HostRun& host : run.hosts)
    hosts.push_back({{"name", host.name},
                     {"ranks", host.ranks},
                     {"problem", host.problem.empty() ? Json(nullptr) : Json(host.problem)},
                     {"clock_ns", host.clock_ns}});
  return hosts;
}

Json waits_json(const TorchRun& run) {
  const Waits waits = waits_of(run);
  if (waits.collectives == 0) return nullptr;
  Json ranks = Json::array();
  for (const Waits::OfRank& one : waits.ranks) {
    Json phases = Json::object();
    for (const auto& [phase, kept_s] : one.kept_in_s) phases[std::string(name(phase))] = kept_s;
    ranks.push_back(
        {{"came_last", one.last}, {"kept_s", one.kept_s}, {"kept_in_s", phases}, {"waited_s", one.waited_s}});
  }
  return {{"collectives", waits.collectives},
          {"span_s", waits.span_s},
          {"slowest", waits.slowest() < 0 ? Json(nullptr) : Json(waits.slowest())},
          {"ranks", ranks}};
}

Json culprits_json(const TorchRun& run) {
  const std::optional<Culprits> culprits = culprits_of(run);
  if (!culprits) return nullptr;
  return {{"blame", std::string(name(culprits->blame))},
          {"ranks", culprits->ranks},
          {"waiting", culprits->waiting},
          {"collective", culprits->collective},
          {"step", culprits->step},
          {"waited_s", culprits->waited_s},
          {"joined", culprits->joined},
          {"sentence", sentence(*culprits, run)}};
}

Json faults_json(const TorchRun& run) {
  Json list = Json::array();
  for (std::size_t i = 0; i < run.scenario.faults.size(); ++i) {
    std::uint64_t fired = 0;
    Json ranks = Json::array();
    for (const RankRun& rank : run.ranks) {
      if (!rank.record) continue;
      const auto here = std::count_if(rank.record->faults.begin(), rank.record->faults.end(),
                                      [&](const pytorch::FaultEntry& fault) { return fault.rule == int(i); });
      fired += std::uint64_t(here);
      if (here > 0) ranks.push_back(rank.rank);
    }
    list.push_back({{"rule", Json::parse(faults::text(run.scenario.faults[i]))}, {"fired", fired}, {"ranks", ranks}});
  }
  return list;
}

}  // namespace

std::string header_text(const TorchScenario& scenario, const std::vector<std::string>& command,
                        const std::string& torch, int hosts, const Style& style) {
  std::string text =
      fmt::format("{}  torch {}, backend {}\n", style.bold(scenario.name), torch, name(scenario.torch.backend));
  if (!scenario.why.empty()) text += fmt::format("  {}\n", scenario.why);
  text += fmt::format("  script    {}\n", fmt::join(command, " "));
  text += fmt::format("  world     {} rank{}{}; a collective waits {} s\n", scenario.torch.ranks,
                      scenario.torch.ranks == 1 ? "" : "s",
                      hosts > 1 ? fmt::format(" on {} hosts", hosts) : " on this machine", scenario.torch.timeout_s);
  for (std::size_t i = 0; i < scenario.faults.size(); ++i)
    text += fmt::format("  faults.{}  {}\n", i, faults::text(faults::with_defaults(scenario.faults[i])));
  return text + '\n';
}

std::string verdict_text(const TorchRun& run, const Judgement& j, const Style& style) {
  std::string text;
  std::size_t width = 0;
  for (const CheckResult& check : j.checks) width = std::max(width, check.name.size());
  for (const CheckResult& check : j.checks)
    text += fmt::format("  {}  {:<{}}  {}\n", check.ok ? style.good("ok  ") : style.bad("FAIL"), check.name, width,
                        check.detail);
  const bool good = j.status == ExitStatus::as_expected;
  const std::string word = good ? "PASS" : j.status == ExitStatus::no_progress ? "NO PROGRESS" : "FAIL";
  text += fmt::format("{} {}: {}  (wall {:.2f} s{})\n", good ? style.good(word) : style.bad(word), run.scenario.name,
                      j.sentence, run.job.wall_s, last_weights(run));
  return text;
}

std::string story_text(const TorchRun& run, const Judgement& j, const Style& style) {
  std::string text = '\n' + story_of(run, style) + '\n' + losses_of(run) + calls_of(run) + waits_line(run) +
                     notes_of(run) + endings_of(run) + stacks_of(run);
  if (!run.job.why.empty()) text += fmt::format("  stop      {}\n", run.job.why);
  return text + '\n' + verdict_text(run, j, style);
}

Json report_json(const TorchRun& run, const Judgement& j) {
  Json checks = Json::array(), processes = Json::array(), ranks = Json::array();
  for (const CheckResult& check : j.checks)
    checks.push_back({{"name", check.name}, {"ok", check.ok}, {"looked", check.looked}, {"detail", check.detail}});
  for (const ProcessRun& process : run.job.processes) processes.push_back(process_json(process));
  for (const RankRun& rank : run.ranks) ranks.push_back(rank_json(rank));
  const bool known = !run.ranks.empty() && run.ranks.front().record;
  return {{"schema", kReportSchema},
          {"scenario", run.scenario.name},
          {"verdict", j.verdict},
          {"exit_code", code(j.status)},
          {"sentence", j.sentence},
          {"command", run.command},
          {"folder", run.folder},
          {"torch", known ? Json(run.ranks.front().record->now.torch) : Json(nullptr)},
          {"backend", std::string(name(run.scenario.torch.backend))},
          {"np", run.scenario.torch.ranks},
          {"hosts", hosts_json(run)},
          {"wall_s", run.job.wall_s},
          {"stopped", run.job.why.empty() ? Json(nullptr) : Json(run.job.why)},
          {"checks", checks},
          {"culprits", culprits_json(run)},
          {"waits", waits_json(run)},
          {"faults", faults_json(run)},
          {"processes", processes},
          {"ranks", ranks}};
}

}  // namespace seeksim::harness::torch
