#include "harness/html/sweep_grid.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include <nlohmann/json.hpp>

#include "harness/html/charts.h"
#include "harness/html/escape.h"
#include "harness/html/page.h"

namespace seeksim::harness::html {
namespace {

constexpr std::size_t kGridRowsMost = 2000, kRedMost = 100, kColumnsMost = 24;

bool is_red(const Json& row) { return member(row, "exit_code") != Json(0); }

std::string value_text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The last word of a key, or as many as tell it from the others.
std::string short_key(const std::string& key, const std::vector<std::string>& keys) {
  for (std::size_t dot = key.rfind('.'); dot != std::string::npos && dot > 0; dot = key.rfind('.', dot - 1)) {
    const std::string tail = key.substr(dot);
    const auto same = std::count_if(keys.begin(), keys.end(),
                                    [&](const std::string& other) { return ("." + other).ends_with(tail); });
    if (same == 1) return tail.substr(1);
  }
  return key;
}

// An axis: a key, its values in the order in which they come, and in how many rows it stands.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
  std::vector<std::size_t> rows, red;  // by value
  std::size_t used = 0;
};

std::vector<SweepAxis> axes_of(const Json& rows) {
  std::vector<SweepAxis> axes;
  for (const Json& row : rows) {
    const Json& settings = member(row, "settings");
    if (!settings.is_object()) continue;
    for (const auto& [key, value] : settings.items()) {
      auto axis =
          std::find_if(axes.begin(), axes.end(), [&, &name = key](const SweepAxis& one) { return one.key == name; });
      if (axis == axes.end()) axis = axes.insert(axes.end(), SweepAxis{key, {}, {}, {}, 0});
      const std::string text = value_text(value);
      auto at = std::size_t(std::find(axis->values.begin(), axis->values.end(), text) - axis->values.begin());
      if (at == axis->values.size()) {
        axis->values.push_back(text);
        axis->rows.push_back(0);
        axis->red.push_back(0);
      }
      ++axis->used;
      ++axis->rows[at];
      axis->red[at] += is_red(row);
    }
  }
  return axes;
}

std::vector<std::string> keys_of(const std::vector<SweepAxis>& axes) {
  std::vector<std::string> keys;
  for (const SweepAxis& axis : axes) keys.push_back(axis.key);
  return keys;
}

// "stage=2 ranks_per_node=4".
std::string label(const Json& row, const std::vector<std::string>& keys) {
  std::string text;
  const Json& settings = member(row, "settings");
  if (!settings.is_object()) return text;
  for (const auto& [key, value] : settings.items())
    text += (text.empty() ? "" : " ") + short_key(key, keys) + "=" + value_text(value);
  return text;
}

std::string why(const Json& row) {
  std::string text = shown(member(row, "sentence"));
  const Json& problems = member(row, "problems");
  if (!problems.empty()) return shown(problems[0]);
  for (const Json& check : member(row, "checks")) {
    if (member(check, "ok") == Json(false))
      return text + "<br/><span class=\"note\">" + shown(member(check, "name")) + ": " +
             shown(member(check, "detail")) + "</span>";
  }
  return text;
}

std::string number(const Json& row) { return shown(member(row, "row")); }

const Json& rows_of(const Json& report) { return member(report, "rows"); }

// What a cell says besides its colour.
std::string cell_text(const Json& row) {
  const double time = number_of(member(row, "virtual_s"));
  return fmt::format("<a href=\"#row-{}\" title=\"row {}\">{} {}</a>", number(row), number(row),
                     is_red(row) ? "&#10007;" : "&#10003;", time == time ? seconds_shown(time) : "");
}

// The values of a row but that of the column's key, in the order of the keys.
std::vector<std::string> line_of(const Json& row, const std::string& column) {
  std::vector<std::string> values;
  for (const auto& [key, value] : member(row, "settings").items()) {
    if (key != column) values.push_back(value_text(value));
  }
  return values;
}

// Rows that set the same keys.
struct Group {
  std::vector<std::string> keys;
  Json rows = Json::array();
};

std::vector<Group> groups_of(const Json& rows) {
  std::vector<Group> groups;
  std::size_t count = 0;
  for (const Json& row : rows) {
    if (!member(row, "settings").is_object() || count++ >= kGridRowsMost) continue;
    std::vector<std::string> keys;
    for (const auto& [key, value] : row["settings"].items()) keys.push_back(key);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.keys == keys; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{keys, Json::array()});
    group->rows.push_back(row);
  }
  return groups;
}

// The setting with the most values that still fit; null: none does.
const SweepAxis* columns_of(const std::vector<SweepAxis>& axes) {
  const SweepAxis* columns = nullptr;
  for (const SweepAxis& axis : axes) {
    if (axis.values.size() <= kColumnsMost && (columns == nullptr || axis.values.size() > columns->values.size()))
      columns = &axis;
  }
  return columns;
}

std::string head_of(const Group& group, const SweepAxis& columns) {
  std::string out =
      fmt::format("<caption>the last columns: {}; in a cell: verdict and virtual time</caption><thead><tr>",
                  escaped(short_key(columns.key, group.keys)));
  for (const std::string& key : group.keys) {
    if (key != columns.key) out += "<th scope=\"col\">" + escaped(short_key(key, group.keys)) + "</th>";
  }
  for (const std::string& value : columns.values) out += "<th scope=\"col\" class=\"v\">" + escaped(value) + "</th>";
  return out + "</tr></thead>\n";
}

std::string grid_of(const Group& group) {
  const std::vector<SweepAxis> axes = axes_of(group.rows);
  const SweepAxis* const columns = columns_of(axes);
  if (columns == nullptr) return "";
  std::vector<std::vector<std::string>> lines;  // in the order in which they come
  std::map<std::pair<std::vector<std::string>, std::string>, std::string> cells;
  for (const Json& row : group.rows) {
    const std::vector<std::string> line = line_of(row, columns->key);
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
    std::string& cell = cells[{line, value_text(row["settings"][columns->key])}];
    // Rows with the same settings share a cell, which is red if one of them is.
    cell = (is_red(row) || cell.starts_with("r") ? "r" : "g") + (cell.empty() ? "" : cell.substr(1) + " ") +
           cell_text(row);
  }
  std::string out =
      "<div class=\"wide\" tabindex=\"0\"><table class=\"sweep\">" + head_of(group, *columns) + "<tbody>\n";
  for (const std::vector<std::string>& line : lines) {
    out += "<tr>";
    for (const std::string& value : line) out += "<th scope=\"row\">" + escaped(value) + "</th>";
    for (const std::string& value : columns->values) {
      const auto cell = cells.find({line, value});
      out += cell == cells.end()
                 ? "<td></td>"
                 : fmt::format("<td class=\"{}\">{}</td>", cell->second.substr(0, 1), cell->second.substr(1));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

}  // namespace

std::string red_rows_part(const Json& report) {
  const std::vector<std::string> keys = keys_of(axes_of(rows_of(report)));
  std::vector<Cells> rows;
  std::size_t red = 0;
  for (const Json& row : rows_of(report)) {
    if (!is_red(row) || red++ >= kRedMost) continue;
    rows.push_back({"row " + number(row), escaped(label(row, keys)), why(row),
                    "<code>" + shown(member(row, "command")) + "</code>"});
  }
  if (rows.empty()) return "";
  const std::string caption = red > kRedMost ? fmt::format("the first {} of {}", kRedMost, red) : "";
  return table(caption, {"row", "settings", "why it is red", "alone"}, rows);
}

std::string axes_part(const Json& report) {
  const std::vector<SweepAxis> axes = axes_of(rows_of(report));
  const std::vector<std::string> keys = keys_of(axes);
  std::vector<Cells> rows;
  for (const SweepAxis& axis : axes) {
    for (std::size_t i = 0; i < axis.values.size() && i < kRedMost; ++i)
      rows.push_back({i == 0 ? escaped(short_key(axis.key, keys)) : "", escaped(axis.values[i]),
                      std::to_string(axis.rows[i]),
                      axis.red[i] > 0 ? fmt::format("<span class=\"no\">{}</span>", axis.red[i]) : "0",
                      axis.red[i] > 0 ? bar(double(axis.red[i]) / double(axis.rows[i])) : ""});
  }
  return rows.empty() ? "" : table("", {"axis", "value", "rows", "red", "share that is red"}, rows);
}

std::string grid_part(const Json& report) {
  std::string out;
  for (const Group& group : groups_of(rows_of(report))) out += grid_of(group);
  if (rows_of(report).size() > kGridRowsMost)
    out += paragraph(fmt::format("{} more rows are in the JSON report.", rows_of(report).size() - kGridRowsMost));
  return out;
}

std::string all_rows_part(const Json& report) {
  const std::vector<std::string> keys = keys_of(axes_of(rows_of(report)));
  std::vector<Cells> rows;
  for (const Json& row : rows_of(report)) {
    if (rows.size() >= kGridRowsMost) break;
    const Json& loss = member(row, "loss");
    rows.push_back(
        {fmt::format("<span id=\"row-{0}\">{0}</span>", number(row)), escaped(label(row, keys)),
         is_red(row) ? "<span class=\"no\">&#10007; red</span>" : "<span class=\"ok\">&#10003; as expected</span>",
         loss.empty() ? "&ndash;" : shown(loss.back()), shown(member(row, "virtual_s")),
         shown(member(row, "params_digest"))});
  }
  if (rows.empty()) return "";
  return table("", {"row", "settings", "verdict", "last loss", "virtual time, s", "weights"}, rows);
}

}  // namespace seeksim::harness::html
