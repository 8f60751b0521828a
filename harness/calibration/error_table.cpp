#include "harness/calibration/error_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace seeksim::harness::calibration {
namespace {

double predict(const Measurement& row) { return predicted_us(row, Constants{}); }

std::string percent(double share) { return fmt::format("{:.3g} %", 100 * share); }

std::string errors_row(const std::string& head, const Errors& e) {
  return fmt::format("{} | {} | {} | {} | {} | {} |\n", head, e.count, percent(e.median), percent(e.worst),
                     percent(e.within_10), percent(e.within_20));
}

// Series that run one model in many layouts.
std::string order_text(const std::vector<Measurement>& rows) {
  std::map<std::string, std::vector<const Measurement*>> layouts;
  for (const Measurement& row : rows)
    if (row.series.starts_with("layouts-")) layouts[row.series].push_back(&row);
  std::string unseen, others;
  for (const auto& [series, some] : layouts) {
    const std::string tau = fmt::format("{:.2f}", kendall(some, predict));
    if (some.front()->kept == Kept::series)
      unseen += fmt::format("{} ({} layouts)", tau, some.size());
    else
      others += (others.empty() ? "" : ", ") + tau;
  }
  return fmt::format(
      "\nKendall's tau of the order of layouts: {} where the fit has seen none of them.\n"
      "In the other tables: {}.\n",
      unseen, others);
}

constexpr std::pair<Kept, const char*> kKept[] = {{Kept::blind, "no; found after the model's form was fixed"},
                                                  {Kept::series, "no, nor any of its series"},
                                                  {Kept::row, "no, but others of its series"},
                                                  {Kept::fitted, "yes"}};
constexpr const char* kErrorsHead =
    "| measurements | in the fit | rows | median error | worst | within 10 % | within 20 % |\n"
    "|---|---|---|---|---|---|---|\n";

using What = MemoryMeasurement::What;
using MemoryRows = std::vector<const MemoryMeasurement*>;

MemoryRows those(const std::vector<MemoryMeasurement>& rows,
                 const std::function<bool(const MemoryMeasurement&)>& hold) {
  MemoryRows some;
  for (const MemoryMeasurement& row : rows)
    if (hold(row)) some.push_back(&row);
  return some;
}

const char* name(What what) {
  constexpr const char* kNames[] = {"allocated", "reserved", "used", "fits"};
  return kNames[std::size_t(what)];
}

double predict_bytes(const MemoryMeasurement& row) { return predicted_bytes(row, Constants{}); }

}  // namespace

std::string error_table(const std::vector<Measurement>& rows) {
  std::string table = kErrorsHead;
  for (const ErrorClass& one : error_classes()) {
    for (const auto& [kept, text] : kKept) {
      std::vector<const Measurement*> some;
      for (const Measurement& row : rows)
        if (row.kept == kept && one.holds(row)) some.push_back(&row);
      if (!some.empty()) table += errors_row(fmt::format("| {} | {}", one.name, text), errors(some, predict));
    }
  }
  return table + order_text(rows);
}

std::string series_table(const std::vector<Measurement>& rows) {
  std::string table =
      "| series | source | in the fit | rows | median error | worst | within 10 % | within 20 % | order |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  std::vector<std::string> seen;
  for (const Measurement& first : rows) {
    if (std::find(seen.begin(), seen.end(), first.series) != seen.end()) continue;
    seen.push_back(first.series);
    std::vector<const Measurement*> some;
    for (const Measurement& row : rows)
      if (row.series == first.series) some.push_back(&row);
    std::string line =
        errors_row(fmt::format("| {} | {} | {}", first.series, first.source,
                               first.kept == Kept::fitted || first.kept == Kept::row ? "half" : "none of it"),
                   errors(some, predict));
    line.pop_back();
    const bool ordered = first.step && some.size() > 2;
    table += line + (ordered ? fmt::format(" {:.2f} |\n", kendall(some, predict)) : " |\n");
  }
  return table;
}

std::string memory_table(const std::vector<MemoryMeasurement>& rows) {
  std::string table = kErrorsHead;
  constexpr std::pair<What, const char*> kWhat[] = {
      {What::allocated, "allocated"}, {What::reserved, "reserved"}, {What::used, "used (nvidia-smi)"}};
  for (const auto& [what, called] : kWhat) {
    for (const auto& [kept, text] : kKept) {
      const MemoryRows some = those(rows, [&](const MemoryMeasurement& m) { return m.kept == kept && m.what == what; });
      if (!some.empty()) table += errors_row(fmt::format("| {} | {}", called, text), errors(some, predict_bytes));
    }
  }
  const Fits all = fits(those(rows, [](const MemoryMeasurement& m) { return m.what == What::fits; }), Constants{});
  return table +
         fmt::format(
             "\nOf {} layouts of Llama 13B, 30B and 65B on GPUs of 80 GB, which are in no fit, {} ran: {} of them"
             "\nare said to fit. {} were out of memory: {} of them are said not to fit. {} are right.\n",
             all.ran + all.out_of_memory, all.ran, all.ran_predicted, all.out_of_memory, all.out_of_memory_predicted,
             percent(all.right()));
}

std::string memory_series_table(const std::vector<MemoryMeasurement>& rows) {
  std::string table =
      "| series | source | what | in the fit | rows | median error | worst | within 10 % | within 20 % |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  std::vector<std::string> seen;
  for (const MemoryMeasurement& first : rows) {
    const bool flag = first.what == What::fits;
    const std::string key = first.series + name(first.what);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
    seen.push_back(key);
    const MemoryRows some =
        those(rows, [&](const MemoryMeasurement& m) { return m.series == first.series && m.what == first.what; });
    if (flag) {
      const Fits all = fits(some, Constants{});
      table += fmt::format("| {} | {} | fits | none of it | {} | {} right | | | |\n", first.series, first.source,
                           some.size(), percent(all.right()));
      continue;
    }
    const bool half = first.kept == Kept::fitted || first.kept == Kept::row;
    table += errors_row(
        fmt::format("| {} | {} | {} | {}", first.series, first.source, name(first.what), half ? "half" : "none of it"),
        errors(some, predict_bytes));
  }
  return table;
}

std::string constant_table() {
  std::string table = "| constant | value | fitted | what it is |\n|---|---|---|---|\n";
  const Constants constants;
  for (const ConstantRow& row : constant_rows())
    table += fmt::format("| `{}` | {:.4g} | {} | {} |\n", row.name, constants.*row.member, row.fitted ? "yes" : "no",
                         row.text);
  return table;
}

std::string source_table(const std::vector<Source>& sources) {
  std::string table = "| source | title | year | where |\n|---|---|---|---|\n";
  for (const Source& one : sources)
    table += fmt::format("| {} | [{}]({}) | {} | {} |\n", one.name, one.title, one.url, one.year, one.where);
  return table;
}

}  // namespace seeksim::harness::calibration
