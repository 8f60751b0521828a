#include "harness/campaign/incident_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "harness/input/limits.h"
#include "runtime/seams/bounded.h"

namespace seeksim::harness::campaign {
namespace {

constexpr std::size_t kColumnsMax = 64, kCauseMax = 100;
constexpr double kHoursMax = 1'000'000;

// Fields of one line; a field in double quotes may hold commas, and "" for a quote. None: a quote is left open.
std::optional<std::vector<std::string>> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      if (fields.size() == kColumnsMax) return fields;
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) return std::nullopt;
  for (std::string& field : fields) {
    const std::size_t begin = field.find_first_not_of(" \t"), end = field.find_last_not_of(" \t");
    field = begin == std::string::npos ? "" : field.substr(begin, end - begin + 1);
  }
  return fields;
}

std::optional<double> finite_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

class Reading {
 public:
  Reading(const std::string& file, std::int64_t nodes) : file_(file), nodes_(nodes) {}

  void line(std::string_view text) {
    ++number_;
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (text.empty() || text[0] == '#') return;
    const auto fields = fields_of(text);
    if (!fields) return wrong("a quote is left open", "Close it with \".");
    if (!has_names_) return names(*fields);
    incident(*fields);
  }

  IncidentLog finish() {
    if (!has_names_) wrong("no line names the columns", kExample);
    std::stable_sort(log_.incidents.begin(), log_.incidents.end(),
                     [](const Incident& a, const Incident& b) { return a.at_ns < b.at_ns; });
    if (more_ > 0) log_.problems.push_back({file_, "", fmt::format("and {} more bad lines", more_), ""});
    return std::move(log_);
  }

 private:
  static constexpr const char* kExample = "The first line is hours,node,cause,repair_hours.";

  void wrong(std::string what, std::string next) {
    if (log_.problems.size() < kProblemsTold)
      log_.problems.push_back({fmt::format("{}:{}", file_, number_), "", std::move(what), std::move(next)});
    else
      ++more_;
  }

  void names(const std::vector<std::string>& fields) {
    has_names_ = true;
    for (const char* wanted : {"hours", "node", "cause", "repair_hours"}) {
      const auto found = std::find(fields.begin(), fields.end(), wanted);
      columns_.push_back(found == fields.end() ? -1 : int(found - fields.begin()));
    }
    if (columns_[0] < 0) wrong("there is no column hours", kExample);
    if (columns_[1] < 0) wrong("there is no column node", kExample);
  }

  std::string field(const std::vector<std::string>& fields, int which) const {
    const int column = columns_[std::size_t(which)];
    return column >= 0 && column < int(fields.size()) ? fields[std::size_t(column)] : "";
  }

  void incident(const std::vector<std::string>& fields) {
    if (columns_[0] < 0 || columns_[1] < 0) return;
    const std::string hours = field(fields, 0), node = field(fields, 1), repair = field(fields, 3);
    const std::optional<double> at = finite_of(hours), of = finite_of(node);
    const std::optional<double> away = repair.empty() ? std::optional(0.0) : finite_of(repair);
    if (!at || *at < 0 || *at > kHoursMax)
      return wrong(fmt::format("{} is no number of hours from 0 to {}", in_quotes(hours), kHoursMax), "");
    if (!of || *of != std::floor(*of) || *of < 0 || *of >= double(nodes_))
      return wrong(fmt::format("{} is no node", in_quotes(node)), fmt::format("Nodes go from 0 to {}.", nodes_ - 1));
    if (!away || *away < 0 || *away > kHoursMax)
      return wrong(fmt::format("{} is no number of hours from 0 to {}", in_quotes(repair), kHoursMax), "");
    log_.incidents.push_back({runtime::to_time_ns(*at * 3600e9), std::int64_t(*of),
                              field(fields, 2).substr(0, kCauseMax), runtime::to_time_ns(*away * 3600e9)});
  }

  const std::string& file_;
  std::int64_t nodes_;
  int number_ = 0;
  bool has_names_ = false;
  std::vector<int> columns_;  // of hours, node, cause, repair_hours; -1: there is none
  IncidentLog log_;
  std::size_t more_ = 0;
};

}  // namespace

IncidentLog read_incidents(std::string_view text, const std::string& file, std::int64_t nodes) {
  Reading reading(file, nodes);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reading.line(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return reading.finish();
}

}  // namespace seeksim::harness::campaign
