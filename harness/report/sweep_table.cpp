#include "harness/report/sweep_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/verdict/figures.h"

namespace seeksim::harness {
namespace {

constexpr std::size_t kRowsWhole = 24;
constexpr std::size_t kEnds = 3;       // of a longer sweep, at either end
constexpr std::size_t kRedShown = 40;  // likewise
constexpr std::size_t kTableColumns = 100;
constexpr std::size_t kValueMost = 24;     // characters of an axis's value
constexpr std::size_t kTogetherMost = 64;  // of all axes' values in one cell

struct Column {
  std::string title;
  bool right = true;  // numbers
  std::vector<std::string> cells;
  std::size_t width() const {
    std::size_t most = title.size();
    for (const std::string& cell : cells) most = std::max(most, cell.size());
    return most;
  }
};

bool row_is_red(const RowResult& row) { return is_red(row.outcome); }

std::vector<std::size_t> rows_shown(const SweepResult& sweep, bool all) {
  std::vector<std::size_t> shown;
  const std::size_t n = sweep.rows.size();
  std::size_t red = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const bool at_an_end = i < kEnds || i + kEnds >= n;
    const bool told = row_is_red(sweep.rows[i]) && red++ < kRedShown;
    if (all || n <= kRowsWhole || at_an_end || told) shown.push_back(i);
  }
  return shown;
}

// As written, without the quotes of a string.
std::string value_text(const std::string& json) {
  const bool quoted = json.size() >= 2 && json.front() == '"' && json.back() == '"';
  std::string text = quoted ? json.substr(1, json.size() - 2) : json;
  if (text.size() > kValueMost) text = text.substr(0, kValueMost - 3) + "...";
  return text;
}

std::string setting_of(const RowResult& row, const std::string& key) {
  const auto found =
      std::find_if(row.settings.begin(), row.settings.end(), [&](const auto& setting) { return setting.first == key; });
  return found == row.settings.end() ? "-" : value_text(found->second);
}

// What a row sets, in one cell: "stage=1 overlap_comm=false".
std::string settings_together(const RowResult& row, const std::vector<std::string>& keys) {
  std::string text;
  for (const auto& [key, value] : row.settings)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", short_name(key, keys), value_text(value));
  return text.size() <= kTogetherMost ? text : text.substr(0, kTogetherMost - 3) + "...";
}

// together: one column for all axes.
std::vector<Column> columns_of(const SweepResult& sweep, const std::vector<std::size_t>& shown, bool together) {
  const std::vector<std::string> keys = axis_keys(sweep.base.sweep), figures = shown_figures(sweep.base);
  std::vector<Column> columns;
  columns.push_back({"row", true, {}});
  if (together) columns.push_back({"settings", false, {}});
  for (const std::string& key : together ? std::vector<std::string>{} : keys)
    columns.push_back({short_name(key, keys), true, {}});
  columns.push_back({"verdict", false, {}});
  for (const std::string& figure : figures) columns.push_back({figure, true, {}});
  for (const std::size_t i : shown) {
    const RowResult& row = sweep.rows[i];
    const Json of_row = row.outcome.report.value("figures", Json::object());
    auto column = columns.begin();
    const auto put = [&](std::string cell) { (column++)->cells.push_back(std::move(cell)); };
    put(std::to_string(row.number));
    if (together) put(settings_together(row, keys));
    for (const std::string& key : together ? std::vector<std::string>{} : keys) put(setting_of(row, key));
    put(row_is_red(row) ? "FAIL" : "pass");
    for (const std::string& figure : figures)
      put(figure_text(figure, of_row.contains(figure) ? of_row.at(figure) : Json(nullptr)));
  }
  return columns;
}

std::size_t width_of(const std::vector<Column>& columns) {
  return std::accumulate(columns.begin(), columns.end(), std::size_t(0),
                         [](std::size_t sum, const Column& column) { return sum + 2 + column.width(); });
}

// At least one figure stays.
std::vector<std::string> leave_out_what_is_too_wide(std::vector<Column>& columns, std::size_t figures) {
  std::vector<std::string> left_out;
  for (; figures > 1 && width_of(columns) > kTableColumns; --figures) {
    left_out.insert(left_out.begin(), columns.back().title);
    columns.pop_back();
  }
  return left_out;
}

std::string line_of(const std::vector<Column>& columns, const std::vector<std::size_t>& widths,
                    const std::function<const std::string&(const Column&)>& cell) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i)
    line += columns[i].right ? fmt::format("  {:>{}}", cell(columns[i]), widths[i])
                             : fmt::format("  {:<{}}", cell(columns[i]), widths[i]);
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

std::string figure_text(const std::string& name, const Json& value) {
  const FigureInfo* figure = find_figure(name);
  if (figure == nullptr || !value.is_number()) return "-";
  const double number = value.get<double>();
  switch (figure->unit) {
    case FigureUnit::bytes:
      return bytes_text(number);
    case FigureUnit::gigabytes:
      return fmt::format("{:.4g}", number);
    case FigureUnit::share:
      return fmt::format("{:.3g} %", 100 * number);
    case FigureUnit::count:
      return fmt::format("{:.0f}", number);
    default:
      return fmt::format("{:.7g}", number);
  }
}

std::string table_of(const SweepResult& sweep, bool all, const Style& style) {
  const std::vector<std::size_t> shown = rows_shown(sweep, all);
  const std::size_t figures = shown_figures(sweep.base).size();
  std::vector<Column> columns = columns_of(sweep, shown, false);
  std::vector<std::string> left_out = leave_out_what_is_too_wide(columns, figures);
  if (width_of(columns) > kTableColumns) {
    columns = columns_of(sweep, shown, true);
    left_out = leave_out_what_is_too_wide(columns, figures);
  }
  std::vector<std::size_t> widths;
  for (const Column& column : columns) widths.push_back(column.width());
  std::string out =
      style.bold(line_of(columns, widths, [](const Column& c) -> const std::string& { return c.title; })) + '\n';
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const std::size_t gap = i == 0 ? 0 : shown[i] - shown[i - 1] - 1;
    if (gap > 0) out += style.faint(fmt::format("  ... {} more row{} (--all)\n", gap, gap == 1 ? "" : "s"));
    const std::string line =
        line_of(columns, widths, [&](const Column& c) -> const std::string& { return c.cells[i]; });
    out += (row_is_red(sweep.rows[shown[i]]) ? style.bad(line) : line) + '\n';
  }
  if (!left_out.empty())
    out += style.faint(fmt::format("  no room for {}; --csv FILE has them\n", fmt::join(left_out, ", ")));
  return out;
}

}  // namespace seeksim::harness
