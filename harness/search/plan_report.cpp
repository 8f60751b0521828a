#include "harness/search/plan_report.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/oracles/flops.h"
#include "runtime/seams/time.h"

namespace seeksim::harness {
namespace {

using runtime::seconds;

const char* fits_text(double bytes, std::size_t memory_bytes) { return bytes <= double(memory_bytes) ? "yes" : "no"; }

// By size, the largest first.
std::string ledger_text(std::vector<LedgerLine> lines, const std::string& title) {
  const double whole = sum_of(lines);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const LedgerLine& a, const LedgerLine& b) { return a.bytes > b.bytes; });
  std::string text = title;
  for (const LedgerLine& line : lines) {
    text += fmt::format("    {:<14} {:>12}  {:>5.1f} %", line.name, decimal_text(line.bytes),
                        whole > 0 ? 100 * line.bytes / whole : 0);
    text += line.formula.empty() ? "\n" : fmt::format("  {}\n", line.formula);
  }
  return text;
}

std::vector<LedgerLine> exact_lines(const DryRun& run) {
  std::vector<LedgerLine> lines;
  for (std::size_t tag = 0; tag < run.at_peak.size(); ++tag) {
    if (run.at_peak[tag] > 0)
      lines.push_back({std::string(name(runtime::MemoryTag(tag))), double(run.at_peak[tag]), ""});
  }
  return lines;
}

Json map_json(const std::vector<std::size_t>& at_peak) {
  Json map = Json::object();
  for (std::size_t tag = 0; tag < at_peak.size(); ++tag) {
    if (at_peak[tag] > 0) map[std::string(name(runtime::MemoryTag(tag)))] = at_peak[tag];
  }
  return map;
}

}  // namespace

std::string decimal_text(double bytes, int digits) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return fmt::format("{:.{}g} {}", bytes, digits, kUnits[unit]);
}

std::string plan_table(const Plan& plan, std::size_t memory_bytes) {
  std::size_t width = 13;
  for (const PlanRow& row : plan.rows) width = std::max(width, row.candidate.name.size());
  const auto third = [&](const std::string& bytes, const char* fits) {
    return plan.platform ? fmt::format(" {:>9} {:>4}", bytes, fits) : "";
  };
  constexpr const char* kLine = "  {:<{}} {:>9} {:>4} {:>9} {:>4}{} {:>8} {:>7} {:>8}\n";
  std::string text = fmt::format(kLine, "configuration", width, "seeksim", "fits", "DeepSpeed", "fits",
                                 third("platform", "fits"), "on host", "step", "sent");
  for (const PlanRow& row : plan.rows) {
    if (!row.run) {
      text += fmt::format("  {:<{}}  refused: {}\n", row.candidate.name, width, row.refused);
      continue;
    }
    const double exact = row.bytes(LedgerOf::seeksim), estimate = row.bytes(LedgerOf::deepspeed);
    const std::string there = row.by_platform.empty() ? third("unknown", "")
                                                      : third(decimal_text(sum_of(row.by_platform)),
                                                              fits_text(sum_of(row.by_platform), memory_bytes));
    text += fmt::format(
        kLine, row.candidate.name, width, decimal_text(exact), fits_text(exact, memory_bytes), decimal_text(estimate),
        fits_text(estimate, memory_bytes), there, decimal_text(double(row.run->host_peak_bytes), 3),
        fmt::format("{:.3g} s", seconds(row.run->step_ns)), decimal_text(double(row.run->sent_bytes), 3));
  }
  return text;
}

std::string ledgers_text(const PlanRow& row, std::size_t memory_bytes) {
  const double exact = row.bytes(LedgerOf::seeksim);
  const auto estimated = [&](const std::vector<LedgerLine>& lines, const char* whose) {
    if (lines.empty()) return std::string();
    const double bytes = sum_of(lines);
    return ledger_text(lines, fmt::format("  {}: {}, which {}\n", whose, decimal_text(bytes),
                                          bytes <= double(memory_bytes) ? "fits" : "does not fit"));
  };
  return ledger_text(exact_lines(*row.run), fmt::format("  seeksim: at its peak of {} ({} bytes) a rank holds\n",
                                                        decimal_text(exact), row.run->peak_bytes)) +
         estimated(row.by_deepspeed, "DeepSpeed with NCCL and fused kernels, by formulas") +
         estimated(row.by_platform, "the platform's stack, calibrated");
}

std::string flops_text(const PlanRow& row, const Scenario& scenario) {
  const runtime::Definition& definition = scenario.train.definition;
  const double step = flops_of_step(definition);
  if (step <= 0) return "";
  std::string parts;
  for (const ModuleFlops& one : flops_of_sample(definition.model))
    parts += fmt::format("{}{} {:.3g} %", parts.empty() ? "" : ", ", one.module,
                         100 * one.flops * definition.global_batch / step);
  return fmt::format("  a step computes {:.4g} TFLOP ({}); model FLOPs utilisation {:.3g} %\n", step / 1e12, parts,
                     100 * row.run->mfu);
}

Json flops_json(const Scenario& scenario) {
  Json modules = Json::object();
  for (const ModuleFlops& one : flops_of_sample(scenario.train.definition.model))
    modules[one.module] = one.flops * scenario.train.definition.global_batch;
  return modules;
}

Json row_json(const PlanRow& row, std::size_t memory_bytes) {
  Json json = {{"name", row.candidate.name}, {"patch", row.candidate.patch}, {"fits", row.fits}};
  if (!row.refused.empty()) json["refused"] = row.refused;
  if (!row.run) return json;
  json["peak_bytes_per_rank_max"] = row.run->peak_bytes;
  json["host_peak_bytes_per_rank_max"] = row.run->host_peak_bytes;
  json["step_s"] = seconds(row.run->step_ns);
  json["bytes_sent_per_step"] = row.run->sent_bytes;
  json["mfu"] = row.run->mfu;
  json["at_peak"] = map_json(row.run->at_peak);
  const auto add = [&](const char* whose, const std::vector<LedgerLine>& lines) {
    if (lines.empty()) return;
    Json& peer = json[whose];
    for (const LedgerLine& line : lines)
      peer["lines"].push_back({{"name", line.name}, {"bytes", line.bytes}, {"formula", line.formula}});
    peer["bytes"] = sum_of(lines);
    peer["fits"] = sum_of(lines) <= double(memory_bytes);
  };
  add("deepspeed", row.by_deepspeed);
  add("platform", row.by_platform);
  return json;
}

}  // namespace seeksim::harness
