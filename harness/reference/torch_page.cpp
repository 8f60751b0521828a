#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "faults/catalogue.h"
#include "harness/loading/reference.h"
#include "harness/reference/markdown.h"
#include "harness/reference/pages.h"
#include "harness/torch/cases/features.h"
#include "harness/torch/check/switches.h"
#include "harness/torch/faults.h"
#include "harness/torch/judges.h"
#include "harness/torch/scenario.h"

namespace seeksim::harness {
namespace {

const torch::TorchFault* row_of(faults::FaultKind kind) {
  const std::vector<torch::TorchFault>& rows = torch::torch_faults();
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const torch::TorchFault& row) { return row.kind == kind; });
  return found == rows.end() ? nullptr : &*found;
}

// Modes and sites that scripts can be given.
std::string forms_of(const torch::TorchFault& row) {
  std::vector<std::string> words;
  for (const faults::Mode mode : row.modes) words.push_back(code_span(name(mode)));
  for (const faults::Site site : row.sites) words.push_back(code_span(name(site)));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string fault_rows() {
  std::string table = table_header({"kind", "in scripts", "modes, sites", "what happens"});
  for (const faults::FaultInfo& info : faults::catalogue()) {
    const torch::TorchFault* row = row_of(info.kind);
    table += row == nullptr ? table_row({code_span(info.name), "not yet", "", ""})
                            : table_row({code_span(info.name), "yes", forms_of(*row), plain(row->what, true)});
  }
  return table;
}

std::string judge_rows() {
  std::string table = table_header({"check", "made", "what it says"});
  for (const torch::Judge& judge : torch::judges()) {
    const std::string written = judge.argument[0] != 0 ? fmt::format("{}:{}", judge.name, judge.argument) : judge.name;
    table += table_row({code_span(written), judge.unasked ? "always" : "if asked for", plain(judge.description, true)});
  }
  return table;
}

std::string switch_rows() {
  std::string table = table_header({"switch", "what is turned", "what has to hold", "does not apply where"});
  for (const torch::Switch& one : torch::switches())
    table += table_row(
        {code_span(one.name), plain(one.description, true), std::string(name(one.demand)), plain(one.lacks, true)});
  return table;
}

std::string wrappers_of(const torch::Feature& feature) {
  const std::vector<std::string>& all = torch::features().front().values;  // the last one is a pipeline
  if (feature.wrappers.empty()) return "all";
  if (std::equal(feature.wrappers.begin(), feature.wrappers.end(), all.begin(), all.end() - 1)) return "all but pipe";
  return fmt::format("{}", fmt::join(feature.wrappers, ", "));
}

std::string feature_rows() {
  std::string table = table_header({"feature", "values", "of", "what it is"});
  for (const torch::Feature& one : torch::features())
    table += table_row({code_span(one.name), fmt::format("{}", fmt::join(one.values, ", ")), wrappers_of(one),
                        plain(one.description, true)});
  return table;
}

}  // namespace

Page torch_page() {
  std::string text = page_head(
      "What can a scenario of seeksim torch say?",
      "A scenario with `torch` is for a script of yours ([PyTorch](../pytorch.md)). Its keys, the judges of a run, and "
      "which faults of the [catalogue](faults.md) can be injected into a script.");
  text += key_sections(torch::torch_scenario_schema(), "The scenario");
  text += "\n## The judges\n\n" + judge_rows();
  text += "\n## The faults\n\n" + fault_rows();
  text += "\n## The switches of seeksim torch check\n\n" + switch_rows();
  text += "\n## What seeksim torch hunt draws\n\n" + feature_rows();
  return {"torch.md", text};
}

}  // namespace seeksim::harness
