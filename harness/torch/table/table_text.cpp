// A table of equalities, for people and for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "harness/torch/table/table.h"

namespace seeksim::harness::torch {
namespace {

using State = CellResult::State;

double farthest(const RunComparison& found) { return std::max(found.weight_distance, found.loss_distance); }

// What was found: "bits", "1.2e-07 (0.31)" with the part of what is allowed, where that was measured, "8.4e-04".
std::string found_text(const CellResult& result) {
  if (result.state == State::left_out) return "";
  if (!result.problem.empty() || !result.found) return "failed";
  const RunComparison& found = *result.found;
  if (found.grade == Grade::bits) return "bits";
  return fmt::format("{:.1e}{}", farthest(found), found.of_allowed ? fmt::format(" ({:.2f})", *found.of_allowed) : "");
}

std::string marked(const CellResult& result) {
  const std::string text = found_text(result);
  if (result.state == State::left_out) return "-";
  if (result.state == State::red) return fmt::format("**RED** {}", text);
  return result.state == State::nearer && text == "bits" ? "bits ≤ " + std::string(name(result.expected)) : text;
}

const CellResult* find(const std::vector<CellResult>& results, const Cell& cell) {
  const auto found =
      std::find_if(results.begin(), results.end(), [&](const CellResult& one) { return one.cell == cell; });
  return found == results.end() ? nullptr : &*found;
}

std::string line(const std::vector<std::string>& words) { return fmt::format("| {} |\n", fmt::join(words, " | ")); }

std::string_view state_name(State state) {
  constexpr std::string_view kNames[] = {"as_expected", "nearer", "red", "left_out"};
  return kNames[std::size_t(state)];
}

Json finite(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return "Infinity";
  return value;
}

}  // namespace

std::string cell_text(const Table& table, const CellResult& result, const Style& style) {
  const bool red = result.state == State::red;
  std::string text =
      fmt::format("  {}  {:<6} {}: {}", red ? style.bad("FAIL") : style.good("ok  "),
                  result.cell.at(table.compared().name), row_name(table, result.cell), found_text(result));
  text += fmt::format(", expected {}", name(result.expected));
  if (!result.problem.empty()) text += ": " + result.problem;
  if (red && result.found && result.found->first)
    text += fmt::format("; first at step {}: {}; {}", result.found->first->step, result.found->first->what,
                        result.found->first->origin_text);
  if (red && result.found && result.found->of_allowed && !result.found->of_what.empty())
    text += fmt::format("; farthest beyond what is allowed at {}", result.found->of_what);
  return text + '\n';
}

std::string table_text(const Table& table, const std::vector<CellResult>& results) {
  std::vector<std::string> head, rule;
  for (std::size_t i = 1; i < table.axes.size(); ++i) head.push_back(table.axes[i].name);
  const std::vector<std::string>& columns = table.compared().values;
  head.insert(head.end(), columns.begin() + 1, columns.end());
  rule.assign(head.size(), "---");
  std::string text = line(head) + line(rule);
  for (const Cell& first : table.rows()) {
    std::vector<std::string> words;
    for (std::size_t i = 1; i < table.axes.size(); ++i) words.push_back(first.at(table.axes[i].name));
    bool any = false;
    for (std::size_t i = 1; i < columns.size(); ++i) {
      Cell cell = first;
      cell[table.compared().name] = columns[i];
      const CellResult* result = find(results, cell);
      any |= result != nullptr;
      words.push_back(result == nullptr ? "" : marked(*result));
    }
    if (any) text += line(words);
  }
  return text;
}

Json table_json(const Table& table, const std::vector<CellResult>& results, const std::string& torch) {
  Json cells = Json::array();
  for (const CellResult& result : results) {
    Json cell = {{"cell", result.cell},
                 {"state", std::string(state_name(result.state))},
                 {"expected", std::string(name(result.expected))},
                 {"why", result.why},
                 {"problem", result.problem}};
    if (result.found) {
      cell["grade"] = std::string(name(result.found->grade));
      cell["weights"] = result.found->weights;
      cell["losses"] = result.found->losses;
      cell["weight_distance"] = finite(result.found->weight_distance);
      cell["loss_distance"] = finite(result.found->loss_distance);
      if (const auto& first = result.found->first)
        cell["first"] = fmt::format("step {}: {}; {}", first->step, first->what, first->origin_text);
      cell["of_allowed"] = result.found->of_allowed ? finite(*result.found->of_allowed) : Json(nullptr);
    }
    cells.push_back(std::move(cell));
  }
  return {{"schema", kTableSchema},
          {"table", table.file},
          {"torch", torch},
          {"against", table.compared().values.front()},
          {"cells", cells}};
}

}  // namespace seeksim::harness::torch
