#include "harness/torch/table/table_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "harness/input/problem.h"
#include "harness/input/reader.h"

namespace seeksim::harness::torch {
namespace {

namespace fs = std::filesystem;

constexpr int kRanksMax = 64;
constexpr std::size_t kCellsMost = 10000;

const char* const kAxisForm = "Write {\"name\": \"np\", \"values\": [2, 4]}.";

bool holds(const std::vector<std::string>& values, const std::string& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// One value or a list of them, as texts.
std::vector<std::string> texts_of(const Json& value) {
  std::vector<std::string> texts;
  if (!value.is_array()) return {text_of(value)};
  for (const Json& one : value) texts.push_back(text_of(one));
  return texts;
}

const Axis* find_axis(const Table& table, const std::string& name) {
  const auto found = std::find_if(table.axes.begin(), table.axes.end(), [&](const Axis& a) { return a.name == name; });
  return found == table.axes.end() ? nullptr : &*found;
}

std::vector<std::string> axis_names(const Table& table) {
  std::vector<std::string> names;
  for (const Axis& axis : table.axes) names.push_back(axis.name);
  return names;
}

bool is_ranks(const std::string& value) {
  int ranks = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), ranks);
  return error == std::errc() && end == value.data() + value.size() && ranks >= 1 && ranks <= kRanksMax;
}

void read_axes(const Reader& top, Table& table) {
  const Json* list = top.find("axes");
  if (list == nullptr || !list->is_array() || list->empty()) {
    top.problem("axes", "it has to be a list of what varies", kAxisForm);
    return;
  }
  std::size_t cells = 1;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string pointer = fmt::format("/axes/{}", i);
    const Reader one((*list)[i], pointer, top.findings());
    Axis axis{one.text("name"), one.has("values") ? texts_of(*one.find("values")) : std::vector<std::string>()};
    const bool twice = std::set<std::string>(axis.values.begin(), axis.values.end()).size() != axis.values.size();
    if (axis.name.empty() || axis.values.empty() || twice || find_axis(table, axis.name) != nullptr)
      top.findings().add(pointer, "an axis has a name of its own and values, each once", kAxisForm);
    if (axis.name == "np" && !std::all_of(axis.values.begin(), axis.values.end(), is_ranks))
      top.findings().add(pointer, fmt::format("np is a number of ranks from 1 to {}", kRanksMax), kAxisForm);
    cells *= std::max<std::size_t>(axis.values.size(), 1);
    table.axes.push_back(std::move(axis));
  }
  if (cells > kCellsMost) top.problem("axes", fmt::format("{} cells", cells), fmt::format("{} at most.", kCellsMost));
}

void read_when(const Reader& rule, const Table& table, Rule& to) {
  const Json* when = rule.find("when");
  if (when == nullptr || !when->is_object() || when->empty()) {
    rule.problem("when", "it has to say which cells", "For example {\"np\": [3], \"layout\": \"zero2\"}.");
    return;
  }
  for (const auto& [name, values] : when->items()) {
    const Axis* axis = find_axis(table, name);
    if (axis == nullptr) {
      rule.problem("when", fmt::format("there is no axis {}", in_quotes(name)), did_you_mean(name, axis_names(table)));
      continue;
    }
    to.when[name] = texts_of(values);
    for (const std::string& value : to.when[name]) {
      if (!holds(axis->values, value))
        rule.problem("when", fmt::format("{} has no value {}", name, in_quotes(value)),
                     did_you_mean(value, axis->values));
    }
  }
}

void read_rules(const Reader& top, const char* key, bool graded, const Table& table, std::vector<Rule>& to) {
  const Json* list = top.find(key);
  for (std::size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
    const Reader one((*list)[i], fmt::format("/{}/{}", key, i), top.findings());
    Rule rule;
    read_when(one, table, rule);
    rule.why = one.text("why");
    if (rule.why.empty()) one.problem("why", "a reason is missing", "Say in a sentence why.");
    const std::string grade = one.text("grade");
    if (graded && grade != "bits" && grade != "reassociated" && grade != "rounding")
      one.problem("grade", fmt::format("{} is no grade", in_quotes(grade)), "Use bits, reassociated or rounding.");
    rule.grade = grade == "rounding" ? Grade::rounding : grade == "reassociated" ? Grade::reassociated : Grade::bits;
    to.push_back(std::move(rule));
  }
}

void read_rounding(const Reader& top, Table& table) {
  const Json* by = top.find("rounding_by");
  if (by == nullptr) return;
  if (!by->is_object()) {
    top.problem("rounding_by", "it has to name an axis and its value without rounding", "{\"precision\": \"fp32\"}");
    return;
  }
  for (const auto& [name, value] : by->items()) {
    const Axis* axis = find_axis(table, name);
    if (axis == nullptr || !holds(axis->values, text_of(value)))
      top.problem("rounding_by", fmt::format("there is no {} of {}", in_quotes(text_of(value)), in_quotes(name)),
                  did_you_mean(name, axis_names(table)));
    table.rounding_by[name] = text_of(value);
  }
}

Table read(const Document& document) {
  Findings findings(document);
  const Reader top(document.json(), "", findings);
  Table table;
  table.file = document.file();
  const std::string script = top.text("script");
  if (script.empty()) top.problem("script", "which script is run?", "Name it, as seen from this file.");
  table.script = (fs::path(table.file).parent_path() / script).string();
  if (const Json* arguments = top.find("arguments"); arguments != nullptr && arguments->is_array())
    table.arguments = texts_of(*arguments);
  if (const Json* imports = top.find("imports"); imports != nullptr) table.imports = texts_of(*imports);
  read_axes(top, table);
  if (findings.empty()) {
    read_rules(top, "expect", true, table, table.expect);
    read_rules(top, "cannot", false, table, table.cannot);
    read_rounding(top, table);
  }
  if (!findings.empty()) throw BadInput(findings.take());
  return table;
}

}  // namespace

bool Rule::covers(const Cell& cell) const {
  return std::all_of(when.begin(), when.end(), [&](const auto& one) { return holds(one.second, cell.at(one.first)); });
}

std::vector<Cell> Table::rows() const {
  std::vector<Cell> all = {{{compared().name, compared().values.front()}}};
  for (std::size_t i = 1; i < axes.size(); ++i) {
    std::vector<Cell> longer;
    for (const Cell& cell : all) {
      for (const std::string& value : axes[i].values) {
        longer.push_back(cell);
        longer.back()[axes[i].name] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

Rule Table::expected_of(const Cell& cell) const {
  const auto found = std::find_if(expect.begin(), expect.end(), [&](const Rule& rule) { return rule.covers(cell); });
  return found == expect.end() ? Rule() : *found;
}

std::string Table::cannot_run(const Cell& cell) const {
  const auto found = std::find_if(cannot.begin(), cannot.end(), [&](const Rule& rule) { return rule.covers(cell); });
  return found == cannot.end() ? "" : found->why;
}

Table load_table(const std::string& file) { return read(Document::load(file)); }
Table table_of(const std::string& text, const std::string& file) { return read(Document::from_text(text, file)); }

void keep_only(Table& table, const std::string& given) {
  const std::size_t sign = given.find('=');
  const std::string name = given.substr(0, sign);
  const Axis* found = find_axis(table, name);
  if (sign == std::string::npos || found == nullptr)
    throw BadInput("--only " + given, fmt::format("there is no axis {}", in_quotes(name)),
                   did_you_mean(name, axis_names(table)) + " Write --only np=2,4.");
  std::vector<std::string> wanted;
  for (std::size_t at = sign; at != std::string::npos;) {
    const std::size_t comma = given.find(',', at + 1);
    wanted.push_back(given.substr(at + 1, comma == std::string::npos ? comma : comma - at - 1));
    at = comma;
  }
  for (const std::string& value : wanted) {
    if (!holds(found->values, value))
      throw BadInput("--only " + given, fmt::format("{} has no value {}", name, in_quotes(value)),
                     did_you_mean(value, found->values));
  }
  Axis& axis = table.axes[std::size_t(found - table.axes.data())];
  const std::string first = axis.values.front();
  const bool compared = &axis == &table.axes.front();
  std::erase_if(axis.values,
                [&](const std::string& value) { return !holds(wanted, value) && !(compared && value == first); });
}

std::string row_name(const Table& table, const Cell& cell) {
  std::vector<std::string> words;
  for (std::size_t i = 1; i < table.axes.size(); ++i)
    words.push_back(fmt::format("{} {}", table.axes[i].name, cell.at(table.axes[i].name)));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string folder_name(const Table& table, const Cell& cell) {
  std::string name;
  for (const Axis& axis : table.axes) {
    name += (name.empty() ? "" : "_") + axis.name + '-';
    for (const char c : cell.at(axis.name))
      name += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ? c : '-';
  }
  return name;
}

std::vector<std::string> command_of(const Table& table, const Cell& cell) {
  std::vector<std::string> command = {table.script};
  command.insert(command.end(), table.arguments.begin(), table.arguments.end());
  for (const Axis& axis : table.axes) {
    if (axis.name == "np") continue;
    command.push_back("--" + axis.name);
    command.push_back(cell.at(axis.name));
  }
  return command;
}

int ranks_of(const Cell& cell) {
  const auto found = cell.find("np");
  return found == cell.end() ? 2 : std::stoi(found->second);
}

}  // namespace seeksim::harness::torch
