#include "harness/report/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "harness/report/sweep_table.h"
#include "runtime/backend/machine/interrupts.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kRowsDrawnTold = 200;
constexpr std::size_t kRedRowsTold = 40;
constexpr std::size_t kRedRowsInFull = 3;
constexpr std::size_t kRowsCounted = 24;  // beyond, the table has a part of them only

bool is_red(const RowResult& row) { return is_red(row.outcome); }

std::size_t red_rows(const SweepResult& sweep) {
  return std::size_t(std::count_if(sweep.rows.begin(), sweep.rows.end(), is_red));
}

std::size_t undone_rows(const SweepResult& sweep) {
  return std::size_t(
      std::count_if(sweep.rows.begin(), sweep.rows.end(), [](const RowResult& row) { return row.outcome.undone; }));
}

// Why a row is red: its sentence and what the first red check says, or its first problem.
std::string why_red(const Json& report) {
  const Json problems = report.value("problems", Json::array());
  if (!problems.empty()) return problems[0].get<std::string>();
  std::string why = report.value("sentence", "");
  for (const Json& check : report.value("checks", Json::array())) {
    if (!check.value("ok", true)) return why + ": " + check.value("detail", "");
  }
  return why;
}

std::string sentence(const SweepResult& sweep) {
  const std::size_t red = red_rows(sweep), undone = undone_rows(sweep), run = sweep.rows.size() - undone;
  std::string out = red > 0      ? fmt::format("{} of {} rows are red", red, run)
                    : undone > 0 ? fmt::format("{} rows are as expected", run)
                                 : fmt::format("all {} rows are as expected", run);
  if (undone > 0)
    out += fmt::format("; {} {} not run: {}", undone, undone == 1 ? "was" : "were", runtime::interrupt_text());
  if (const TooLarge& left_out = sweep.too_large; left_out.rows > 0) {
    out += fmt::format("; {} more {} not run, with more ranks than the {} process{} here (mpirun -np {} runs all)",
                       left_out.rows, left_out.rows == 1 ? "was" : "were", left_out.processes,
                       left_out.processes == 1 ? "" : "es", left_out.ranks_wanted);
  }
  if (const UnsupportedRows& left_out = sweep.unsupported; left_out.rows > 0)
    out += fmt::format("; {} more {} not run: {}", left_out.rows, left_out.rows == 1 ? "was" : "were", left_out.why);
  return out;
}

// "stage                0 63 rows, 1 63 rows" or, where rows are red, "stage   0 all 63 red, 1 none of 63".
std::string counts_by_axis(const SweepResult& sweep, const Style& style) {
  struct Count {
    std::size_t rows = 0, red = 0;
  };
  const std::vector<std::string> keys = axis_keys(sweep.base.sweep);
  const bool any_red = red_rows(sweep) > 0;
  std::size_t width = 0;
  for (const std::string& key : keys) width = std::max(width, short_name(key, keys).size());
  std::string out;
  for (const std::string& key : keys) {
    std::vector<std::string> order;
    std::map<std::string, Count> counts;
    for (const RowResult& row : sweep.rows) {
      for (const auto& [name, value] : row.settings) {
        if (name != key) continue;
        if (counts.count(value) == 0) order.push_back(value);
        ++counts[value].rows;
        counts[value].red += is_red(row);
      }
    }
    std::vector<std::string> parts;
    for (const std::string& value : order) {
      const Count& count = counts[value];
      const std::string part = any_red ? fmt::format("{}: {} of {} red", value, count.red, count.rows)
                                       : fmt::format("{}: {}", value, count.rows);
      parts.push_back(any_red && count.red == count.rows ? style.bad(part) : part);
    }
    out += fmt::format("  {:<{}}  {}\n", short_name(key, keys), width, fmt::join(parts, ",  "));
  }
  return out;
}

std::string in_full(const SweepResult& sweep, const RowResult& row, const Style& style) {
  std::string out =
      fmt::format("\n{}  {}\n", style.bold(fmt::format("row {}", row.number)), why_red(row.outcome.report));
  for (const auto& [key, value] : row.settings) out += fmt::format("    {} = {}\n", key, value);
  out += fmt::format("  alone: {}\n", row.command);
  if (!sweep.base.golden.shared) out += fmt::format("  or with --row {} added to this command\n", row.number);
  return out;
}

}  // namespace

ExitStatus status_of(const SweepResult& sweep) {
  ExitStatus status = ExitStatus::as_expected;
  for (const RowResult& row : sweep.rows) status = std::max(status, row.outcome.status);
  return status;
}

std::string sweep_header_text(const Scenario& base, const std::vector<Settings>& rows, std::size_t combinations,
                              const Style& style) {
  std::string out = header_text(base, style);
  const char* how = base.sweep.mode == Sweep::Mode::pairwise ? ", every two values in some row"
                    : base.sweep.mode == Sweep::Mode::sample ? ", drawn by the seed"
                                                             : "";
  out += fmt::format("  sweep     {} row{} of {} combination{}{}\n", rows.size(), rows.size() == 1 ? "" : "s",
                     combinations, combinations == 1 ? "" : "s", how);
  if (base.sweep.mode != Sweep::Mode::sample) return out;
  const std::vector<std::string> keys = axis_keys(base.sweep);
  for (std::size_t i = 0; i < std::min(rows.size(), kRowsDrawnTold); ++i)
    out += style.faint(fmt::format("    row {:<4} {}\n", i, label(rows[i], keys)));
  if (rows.size() > kRowsDrawnTold)
    out += style.faint(fmt::format("    ... {} more, in the report\n", rows.size() - kRowsDrawnTold));
  return out;
}

std::string red_row_text(const SweepResult& sweep, const RowResult& row, const Style& style) {
  if (!is_red(row)) return "";
  const std::size_t red = red_rows(sweep);
  if (red > kRedRowsTold) return "";
  std::string out = fmt::format("  {}  row {:<4} {}  {}\n", style.bad("RED "), row.number,
                                label(row.settings, axis_keys(sweep.base.sweep)), why_red(row.outcome.report));
  if (red == kRedRowsTold) out += "  ... further red rows are counted below and listed in the report\n";
  return out;
}

std::string sweep_text(const SweepResult& sweep, bool all, const Style& style) {
  std::string out = '\n' + table_of(sweep, all, style);
  if (sweep.rows.size() > kRowsCounted || red_rows(sweep) > 0) out += '\n' + counts_by_axis(sweep, style);
  std::size_t shown = 0;
  for (const RowResult& row : sweep.rows) {
    if (is_red(row) && shown++ < kRedRowsInFull) out += in_full(sweep, row, style);
  }
  const ExitStatus status = status_of(sweep);
  const bool good = status == ExitStatus::as_expected;
  const std::string word = good ? "PASS" : status == ExitStatus::bug ? "BUG" : "FAIL";
  std::string digests;
  std::map<std::string, std::size_t> params;
  for (const RowResult& row : sweep.rows) {
    const Json digest = row.outcome.report.value("params_digest", Json());
    if (digest.is_string()) ++params[digest.get<std::string>()];
  }
  if (params.size() == 1) digests = ", params " + params.begin()->first;
  if (params.size() > 1) digests = fmt::format(", {} different params", params.size());
  return out + fmt::format("\n{} {}: {}  (wall {:.2f} s{})\n", good ? style.good(word) : style.bad(word),
                           sweep.base.name, sentence(sweep), sweep.wall_s, digests);
}

Json sweep_json(const SweepResult& sweep) {
  const ExitStatus status = status_of(sweep);
  Json report;
  report["schema"] = kReportSchema;
  report["scenario"] = sweep.base.name;
  report["seed"] = sweep.base.world.seed;
  report["training_seed"] = sweep.base.train.definition.training_seed;
  report["verdict"] = name(status);
  report["exit_code"] = code(status);
  report["wall_s"] = sweep.wall_s;
  report["sentence"] = sentence(sweep);
  report["combinations"] = sweep.combinations;
  report["rows_red"] = red_rows(sweep);
  if (const std::size_t not_run = sweep.too_large.rows + sweep.unsupported.rows + undone_rows(sweep); not_run > 0)
    report["rows_not_run"] = not_run;
  report["goldens"] = sweep.goldens;
  report["rows"] = Json::array();
  for (const RowResult& row : sweep.rows) {
    Json one = {{"row", row.number}};
    one["settings"] = Json::object();
    for (const auto& [key, value] : row.settings) one["settings"][key] = Json::parse(value);
    one["command"] = row.command;
    one.update(row.outcome.report);
    report["rows"].push_back(std::move(one));
  }
  return report;
}

}  // namespace seeksim::harness
