#include "harness/report/rows_file.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/verdict/figures.h"

namespace seeksim::harness {
namespace {

Json failed_of(const Json& report) {
  Json failed = Json::array();
  for (const Json& check : report.value("checks", Json::array())) {
    if (!check.value("ok", true)) failed.push_back(check.value("name", "?"));
  }
  return failed;
}

Json row_of(const std::string& scenario, const Json& report) {
  const auto or_null = [&](const char* key) { return report.contains(key) ? report.at(key) : Json(nullptr); };
  return {{"scenario", scenario},
          {"row", or_null("row")},
          {"settings", report.value("settings", Json::object())},
          {"verdict", or_null("verdict")},
          {"exit_code", or_null("exit_code")},
          {"figures", report.value("figures", Json::object())},
          {"params_digest", or_null("params_digest")},
          {"wall_s", or_null("wall_s")},
          {"failed", failed_of(report)},
          {"command", or_null("command")}};
}

std::vector<Json> rows_of(const std::vector<Json>& reports) {
  std::vector<Json> rows;
  for (const Json& report : reports) {
    const std::string name = report.value("scenario", "?");
    if (!report.contains("rows")) {
      rows.push_back(row_of(name, report));
      continue;
    }
    for (const Json& row : report.at("rows")) rows.push_back(row_of(name, row));
  }
  return rows;
}

std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Quoted where it holds what separates cells or rows.
std::string cell(const Json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : dumped(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string line_of(const std::vector<Json>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i > 0 ? "," : "") + cell(cells[i]);
  return line + "\r\n";
}

std::vector<std::string> axes_of(const std::vector<Json>& rows) {
  std::vector<std::string> axes;
  for (const Json& row : rows) {
    for (const auto& [key, value] : row.at("settings").items()) {
      if (std::find(axes.begin(), axes.end(), key) == axes.end()) axes.push_back(key);
    }
  }
  return axes;
}

Json joined(const Json& names) {
  std::string text;
  for (const Json& name : names) text += (text.empty() ? "" : " ") + name.get<std::string>();
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

std::string rows_as_csv(const std::vector<Json>& reports) {
  const std::vector<Json> rows = rows_of(reports);
  const std::vector<std::string> axes = axes_of(rows), figures = figure_names();
  std::vector<Json> head = {"scenario", "row"};
  head.insert(head.end(), axes.begin(), axes.end());
  head.insert(head.end(), {"verdict", "exit_code"});
  head.insert(head.end(), figures.begin(), figures.end());
  head.insert(head.end(), {"params_digest", "wall_s", "failed", "command"});
  std::string out = line_of(head);
  for (const Json& row : rows) {
    const auto from = [](const Json& object, const std::string& key) {
      return object.contains(key) ? object.at(key) : Json(nullptr);
    };
    std::vector<Json> cells = {row.at("scenario"), row.at("row")};
    for (const std::string& axis : axes) cells.push_back(from(row.at("settings"), axis));
    cells.insert(cells.end(), {row.at("verdict"), row.at("exit_code")});
    for (const std::string& figure : figures) cells.push_back(from(row.at("figures"), figure));
    cells.insert(cells.end(), {row.at("params_digest"), row.at("wall_s"), joined(row.at("failed")), row.at("command")});
    out += line_of(cells);
  }
  return out;
}

std::string rows_as_json_lines(const std::vector<Json>& reports) {
  std::string out;
  for (const Json& row : rows_of(reports)) out += dumped(row) + '\n';
  return out;
}

}  // namespace seeksim::harness
