#include "harness/reference/pages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "faults/catalogue.h"
#include "harness/input/problem.h"
#include "harness/loading/reference.h"
#include "harness/reference/markdown.h"
#include "harness/verdict/checks.h"
#include "runtime/rules/bug.h"
#include "runtime/rules/mutants.h"
#include "runtime/rules/quirks.h"
#include "runtime/seams/edges.h"

namespace seeksim::harness {
namespace {

template <class Names>
std::string code_list(const Names& names) {
  std::vector<std::string> spans;
  for (const auto& name : names) spans.push_back(code_span(name));
  return fmt::format("{}", fmt::join(spans, ", "));
}

// "## name" and a sentence or more below it.
std::string section(std::string_view title, std::string_view text) {
  return fmt::format("\n## {}\n\n{}", title, paragraph(plain(text)));
}

// Rows of a name and a text, without those of no text.
std::string attributes(const std::vector<std::pair<std::string, std::string>>& rows) {
  std::string table = '\n' + table_header({"", ""});
  for (const auto& [name, text] : rows)
    if (!text.empty()) table += table_row({name, text});
  return table;
}

std::string cell(std::string_view text) { return plain(text, true); }

}  // namespace

std::string page_head(const std::string& title, const std::string& introduction) {
  return fmt::format("# {}\n\n<!-- Made by `seeksim reference`. Change the rows of the program, then run it. -->\n\n{}",
                     title, paragraph(introduction));
}

Page keys_page() { return {"keys.md", keys_reference()}; }

Page faults_page() {
  std::string text = page_head("Which faults can be injected?",
                               "An entry of `faults` names one of these as its `kind`. `seeksim list faults` prints "
                               "the same rows; the [keys](keys.md#faultsn) say what each parameter means.");
  for (const faults::FaultInfo& info : faults::catalogue()) {
    std::vector<std::string_view> modes, sites;
    for (const faults::Mode mode : info.modes) modes.push_back(name(mode));
    for (const faults::Site site : info.sites) sites.push_back(name(site));
    text += section(name(info.kind), info.summary);
    text += attributes({{"what a rank sees", cell(info.sees)},
                        {"recovery", cell(info.recovery)},
                        {"keys", code_list(info.parameters)},
                        {"modes", code_list(modes)},
                        {"sites", code_list(sites)},
                        {"defaults", cell(info.defaults)},
                        {"in the field", cell(info.field)}});
  }
  return {"faults.md", text};
}

Page checks_page() {
  std::string text = page_head(
      "What can a scenario check?",
      "An entry of `checks` names one of these, with its argument after a colon. A check that found nothing to look at "
      "is red. `seeksim list checks` prints the same rows.");
  for (const CheckInfo& info : check_catalogue()) {
    text += section(info.name, info.description);
    if (info.argument[0] != 0) text += fmt::format("\nWritten `{}:{}`.\n", info.name, info.argument);
  }
  return {"checks.md", text};
}

Page quirks_page() {
  std::string text = page_head(
      "Which deviations of other frameworks can be switched on?",
      "A quirk is a documented difference between seeksim and another framework. `quirks` of a scenario names any "
      "number of them; the check `quirk_differs` says what they changed. `seeksim list quirks` prints the same rows.");
  for (const runtime::QuirkInfo& row : runtime::quirk_catalogue()) {
    text += section(row.name, row.does);
    text += attributes({{"framework", cell(row.framework)},
                        {"seeksim instead", cell(row.instead)},
                        {"acts at", fmt::format("`{}`: {}", name(row.point), cell(row.edits))},
                        {"depends on the number of ranks or micro-batches",
                         row.split_dependent  ? "yes"
                         : row.by_micro_batch ? "on the size of a micro-batch, which is part of the golden's key"
                                              : "no"},
                        {"source", cell(row.source)}});
  }
  return {"quirks.md", text};
}

Page planted_bugs_page() {
  std::string text = page_head(
      "Which bugs can be planted?",
      "`bug` of a scenario, or `--set bug=NAME`, plants one of these, so that the check which should catch it can be "
      "seen to fail. `seeksim list bugs` prints the same rows.");
  for (const runtime::BugInfo& info : runtime::bug_catalogue()) {
    text += section(info.name, info.does);
    text += attributes({{"caught by", cell(info.caught)}});
  }
  text +=
      section("The mistakes that definition can make",
              "`definition:NAME` plants a mistake in what a step is, in the run and in its one-rank golden alike, so "
              "that the check `reference` alone can see it. Numbers of sources are those of a corpus of real bugs; "
              "\"contract\" is a line of the [numeric contract](../numerics.md).");
  text += '\n' + table_header({"mistake", "what is wrong", "source"});
  for (const runtime::MutantInfo& row : runtime::mutant_catalogue())
    text += table_row({code_span(row.name), cell(row.does), cell(row.source)});
  text += section("The waits that skip_wait can leave out",
                  "`skip_wait:NAME` leaves one wait of one queue out, always and on every rank; the race detector "
                  "(`no_races`) has to notice.");
  text += '\n' + table_header({"wait", "which queue waits, and for what"});
  for (int edge = int(runtime::Edge::none) + 1; edge < int(runtime::Edge::count_); ++edge)
    text += table_row({code_span(name(runtime::Edge(edge))), cell(waits(runtime::Edge(edge)))});
  return {"planted-bugs.md", text};
}

std::string with_part_replaced(const std::string& text, const std::string& name, const std::string& part,
                               const std::string& file) {
  const std::string begin = fmt::format("<!-- {} -->\n", name);
  const std::size_t at = text.find(begin);
  const std::size_t end = at == std::string::npos ? at : text.find("<!-- end -->\n", at);
  if (end == std::string::npos)
    throw BadInput(file, fmt::format("there is no line <!-- {} --> with a line <!-- end --> below it", name),
                   "Write both where the part is to stand.");
  return text.substr(0, at) + begin + part + text.substr(end);
}

}  // namespace seeksim::harness
