#include "harness/commands/list_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/campaign/study_file.h"
#include "harness/input/files.h"
#include "harness/input/json_text.h"
#include "harness/input/scenario_files.h"
#include "harness/input/schema.h"
#include "harness/loading/reference.h"
#include "harness/loading/scenario_json.h"
#include "harness/report/terminal.h"
#include "harness/torch/scenario.h"
#include "harness/verdict/figures.h"
#include "kernels/isa.h"
#include "runtime/rules/quirks.h"

namespace seeksim::harness {

extern const char* const kBuildInfo;

namespace {

std::string why_of(const std::string& file) {
  try {
    return parse_json(read_file(file, kJsonBytesMax), file).value.value("why", "");
  } catch (const std::exception& error) {
    return std::string("cannot be read: ") + error.what();
  }
}

// One thing that can be looked up, and what is said of it.
struct Entry {
  std::string name;
  std::string text;
};
struct Listing {
  std::vector<Entry> entries;
  std::string footer;  // behind all of them
};

// Those on top of the folder first, then folder by folder; `seeksim museum` lists its own.
Listing scenarios_listed(const Style& style) {
  const std::string folder = scenarios_folder();
  std::vector<std::string> files = scenarios_below(folder);
  std::erase_if(files, [&](const std::string& file) { return file.starts_with(folder + "/museum/"); });
  std::stable_partition(files.begin(), files.end(),
                        [&](const std::string& file) { return file.rfind('/') == folder.size(); });
  Listing all;
  for (const std::string& file : files)
    all.entries.push_back({file, fmt::format("{}\n    {}\n", style.bold(file), why_of(file))});
  return all;
}

Listing faults_listed(const Style& style) {
  Listing all;
  for (const faults::FaultInfo& info : faults::catalogue()) {
    std::string text =
        fmt::format("{}\n    {}\n", style.bold(fmt::format("{}  {}", name(info.kind), info.rows)), info.summary);
    text += fmt::format("    a rank sees   {}\n    recovery      {}\n", info.sees, info.recovery);
    text += fmt::format("    keys          {}\n", fmt::join(info.parameters, ", "));
    std::vector<std::string> modes;
    for (const faults::Mode mode : info.modes) modes.emplace_back(name(mode));
    if (!modes.empty()) text += fmt::format("    modes         {}\n", fmt::join(modes, ", "));
    text += fmt::format("    defaults      {}\n    in the field  {}\n", info.defaults, info.field);
    all.entries.push_back({std::string(name(info.kind)), text});
  }
  return all;
}

Listing checks_listed(const Style& style) {
  Listing all;
  std::vector<std::string> unasked;
  for (const CheckInfo& info : check_catalogue()) {
    const std::string usage = info.argument[0] ? fmt::format("{}:{}", info.name, info.argument) : info.name;
    all.entries.push_back({info.name, fmt::format("{}\n    {}\n", style.bold(usage), info.description)});
    if (info.unasked) unasked.emplace_back(info.name);
  }
  all.footer = fmt::format(
      "\nJudged unasked: finished (all steps, by the ranks that are left) in every run and, where there is something "
      "to "
      "judge, {}.\nA check that found nothing to look at is red. {{\"recoveries\": 1}} and \"recoveries:1\" are the "
      "same.\n",
      fmt::join(unasked, ", "));
  return all;
}

Listing bugs_listed(const Style& style) {
  Listing all;
  for (const runtime::BugInfo& info : runtime::bug_catalogue())
    all.entries.push_back(
        {info.name, style.bold(info.name) + "\n    " + info.does + "\n    caught by     " + info.caught + '\n'});
  all.footer = "\nAll of them, as \"bug\" of a scenario or with --set bug=NAME:\n";
  for (const std::string& name : runtime::bug_names()) all.footer += "    " + name + '\n';
  return all;
}

Listing quirks_listed(const Style& style) {
  Listing all;
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) {
    std::string text = fmt::format("{}  {}\n    {}\n", style.bold(std::string(row.name)),
                                   style.faint(fmt::format("({})", row.framework)), row.does);
    text += fmt::format("    seeksim       {}\n    point         {}: {}\n", row.instead, name(row.point), row.edits);
    text += fmt::format("    bits          {}\n",
                        row.split_dependent
                            ? "depend on ranks and micro-batches: no golden has them, quirk_differs says what "
                              "the difference is"
                        : row.by_micro_batch ? "depend on the size of micro-batches: a golden of its own for each"
                                             : "the same at every split: a golden of its own");
    text += fmt::format("    source        {}\n", row.source);
    all.entries.push_back({std::string(row.name), text});
  }
  all.footer =
      "\nAny number of them, as \"quirks\": [NAME, ...] of a scenario. What a quirk changed is judged by "
      "quirk_differs, and\none that changed nothing is red.\n";
  return all;
}

Listing keys_listed(const Json& schema, const Style& style) {
  Listing all;
  for (const KeyInfo& key : schema_keys(schema)) {
    const std::string standard = key.standard.empty()         ? ""
                                 : key.standard == "required" ? ", required"
                                                              : ", default " + key.standard;
    std::string text = fmt::format("{}  {}\n", style.bold(key.path), style.faint('(' + key.type + standard + ')'));
    if (!key.text.empty()) text += fmt::format("    {}\n", key.text);
    all.entries.push_back({key.path, text});
  }
  all.footer =
      "\nEach can be set from the command line: --set key.path=value; N stands for a place in a list, from 0.\n";
  return all;
}

Listing figures_listed(const Style& style) {
  Listing all;
  for (const FigureInfo& figure : figure_catalogue())
    all.entries.push_back({figure.name, fmt::format("{}\n    {}\n", style.bold(figure.name), figure.description)});
  all.footer =
      "\nA sweep's table has those that its checks are about, or \"show\": [NAME, ...]; --csv and the report have "
      "all.\n";
  return all;
}

// What a name means: the thing of that name and all below it, as deepspeed.fp16 is below deepspeed; where there is
// none, whatever has it in its name.
std::vector<Entry> named(const std::vector<Entry>& entries, const std::string& wanted) {
  std::vector<Entry> exact, near;
  for (const Entry& entry : entries) {
    if (entry.name == wanted || entry.name.starts_with(wanted + '.')) exact.push_back(entry);
    if (entry.name.find(wanted) != std::string::npos) near.push_back(entry);
  }
  return exact.empty() ? near : exact;
}

struct Kind {
  const char* name;
  Listing (*list)(const Style& style);
};
constexpr Kind kKinds[] = {
    {"scenarios", scenarios_listed},
    {"faults", faults_listed},
    {"checks", checks_listed},
    {"bugs", bugs_listed},
    {"quirks", quirks_listed},
    {"figures", figures_listed},
    {"keys", [](const Style& style) { return keys_listed(scenario_schema(), style); }},
    {"torch_keys", [](const Style& style) { return keys_listed(torch::torch_scenario_schema(), style); }},
    {"study_keys", [](const Style& style) { return keys_listed(campaign::study_schema(), style); }}};

struct Schema {
  const char* name;
  std::string (*text)();
};
constexpr Schema kSchemas[] = {{"schema", [] { return schema_text(); }},
                               {"torch_schema", [] { return torch::torch_schema_text(); }},
                               {"study_schema", [] { return schema_text(campaign::study_schema()); }}};

}  // namespace

ExitStatus list_command(const ListArguments& a, const Style& style) {
  std::vector<std::string> kinds = {"schedule"};
  for (const Schema& schema : kSchemas) {
    kinds.emplace_back(schema.name);
    if (a.what != schema.name) continue;
    if (!a.name.empty())
      throw BadInput("list " + a.what + ' ' + a.name, "a schema is printed whole", "Leave the name out.");
    put_data(schema.text());
    return ExitStatus::as_expected;
  }
  for (const Kind& kind : kKinds) {
    kinds.emplace_back(kind.name);
    if (a.what != kind.name) continue;
    const Listing all = kind.list(style);
    const std::vector<Entry> chosen = a.name.empty() ? all.entries : named(all.entries, a.name);
    for (const Entry& entry : chosen) put(entry.text);
    if (a.name.empty()) put(all.footer);
    if (!chosen.empty() || a.name.empty()) return ExitStatus::as_expected;
    std::vector<std::string> names;
    for (const Entry& entry : all.entries) names.push_back(entry.name);
    throw BadInput(fmt::format("list {} {}", a.what, a.name),
                   fmt::format("none of the {} has this in its name", kind.name), did_you_mean(a.name, names));
  }
  throw BadInput("list " + a.what, "there is no such list", did_you_mean(a.what, kinds));
}

}  // namespace seeksim::harness
