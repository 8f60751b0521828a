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

// Those on top of the folder first, then folder by folder; `seeksim museum` lists its own.
void list_scenarios(const Style& style) {
  const std::string folder = scenarios_folder();
  std::vector<std::string> files = scenarios_below(folder);
  std::erase_if(files, [&](const std::string& file) { return file.starts_with(folder + "/museum/"); });
  std::stable_partition(files.begin(), files.end(),
                        [&](const std::string& file) { return file.rfind('/') == folder.size(); });
  for (const std::string& file : files) put(fmt::format("{}\n    {}\n", style.bold(file), why_of(file)));
}

void list_faults(const Style& style) {
  for (const faults::FaultInfo& info : faults::catalogue()) {
    put(fmt::format("{}\n    {}\n", style.bold(fmt::format("{}  {}", name(info.kind), info.rows)), info.summary));
    put(fmt::format("    a rank sees   {}\n    recovery      {}\n", info.sees, info.recovery));
    put(fmt::format("    keys          {}\n", fmt::join(info.parameters, ", ")));
    if (!info.modes.empty()) {
      std::vector<std::string> modes;
      for (const faults::Mode mode : info.modes) modes.emplace_back(name(mode));
      put(fmt::format("    modes         {}\n", fmt::join(modes, ", ")));
    }
    put(fmt::format("    defaults      {}\n    in the field  {}\n", info.defaults, info.field));
  }
}

void list_checks(const Style& style) {
  for (const CheckInfo& info : check_catalogue()) {
    const std::string usage = info.argument[0] ? fmt::format("{}:{}", info.name, info.argument) : info.name;
    put(fmt::format("{}\n    {}\n", style.bold(usage), info.description));
  }
  std::vector<std::string> unasked;
  for (const CheckInfo& info : check_catalogue()) {
    if (info.unasked) unasked.emplace_back(info.name);
  }
  put(
      fmt::format("\nJudged unasked: finished (all steps, by the ranks that are left) in every run and, where there is "
                  "something to judge, {}.\n",
                  fmt::join(unasked, ", ")));
  put("A check that found nothing to look at is red. {\"recoveries\": 1} and \"recoveries:1\" are the same.\n");
}

void list_bugs(const Style& style) {
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    put(style.bold(info.name) + "\n    " + info.does + "\n    caught by     " + info.caught + '\n');
  }
  put("\nAll of them, as \"bug\" of a scenario or with --set bug=NAME:\n");
  for (const std::string& name : runtime::bug_names()) put("    " + name + '\n');
}

void list_quirks(const Style& style) {
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) {
    put(fmt::format("{}  {}\n    {}\n", style.bold(std::string(row.name)),
                    style.faint(fmt::format("({})", row.framework)), row.does));
    put(fmt::format("    seeksim       {}\n    point         {}: {}\n", row.instead, name(row.point), row.edits));
    put(fmt::format("    bits          {}\n",
                    row.split_dependent
                        ? "depend on ranks and micro-batches: no golden has them, quirk_differs says what "
                          "the difference is"
                        : "the same at every split: a golden of its own"));
    put(fmt::format("    source        {}\n", row.source));
  }
  put("\nAny number of them, as \"quirks\": [NAME, ...] of a scenario. What a quirk changed is judged by "
      "quirk_differs, "
      "and\none that changed nothing is red.\n");
}

void list_keys(const Json& schema, const Style& style) {
  for (const KeyInfo& key : schema_keys(schema)) {
    const std::string standard = key.standard.empty()         ? ""
                                 : key.standard == "required" ? ", required"
                                                              : ", default " + key.standard;
    put(fmt::format("{}  {}\n", style.bold(key.path), style.faint('(' + key.type + standard + ')')));
    if (!key.text.empty()) put(fmt::format("    {}\n", key.text));
  }
  put("\nEach can be set from the command line: --set key.path=value; N stands for a place in a list, from 0.\n");
}

}  // namespace

ExitStatus list_command(const std::string& what, const Style& style) {
  if (what == "scenarios") {
    list_scenarios(style);
  } else if (what == "faults") {
    list_faults(style);
  } else if (what == "checks") {
    list_checks(style);
  } else if (what == "bugs") {
    list_bugs(style);
  } else if (what == "quirks") {
    list_quirks(style);
  } else if (what == "keys") {
    list_keys(scenario_schema(), style);
  } else if (what == "schema") {
    put_data(schema_text());
  } else if (what == "torch_keys") {
    list_keys(torch::torch_scenario_schema(), style);
  } else if (what == "torch_schema") {
    put_data(torch::torch_schema_text());
  } else if (what == "study_keys") {
    list_keys(campaign::study_schema(), style);
  } else if (what == "study_schema") {
    put_data(schema_text(campaign::study_schema()));
  } else {
    throw BadInput("list " + what, "there is no such list",
                   did_you_mean(what, {"scenarios", "faults", "checks", "bugs", "quirks", "keys", "schema", "schedule",
                                       "torch_keys", "torch_schema", "study_keys", "study_schema"}));
  }
  return ExitStatus::as_expected;
}

}  // namespace seeksim::harness
