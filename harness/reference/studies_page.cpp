#include "harness/campaign/ledger.h"
#include "harness/campaign/metrics.h"
#include "harness/campaign/study_file.h"
#include "harness/loading/reference.h"
#include "harness/reference/markdown.h"
#include "harness/reference/pages.h"

namespace seeksim::harness {
namespace {

std::string figure_rows() {
  std::string table = table_header({"figure", "what it is"});
  for (const campaign::Metric& metric : campaign::metrics())
    table += table_row({code_span(metric.name), plain(metric.text, true)});
  return table;
}

std::string cause_rows() {
  std::string table = table_header({"cause", "the time in which"});
  for (std::size_t i = 0; i < campaign::kSpent; ++i) {
    const auto spent = campaign::Spent(i);
    table += table_row({code_span(name(spent)), plain(text(spent), true)});
  }
  return table;
}

}  // namespace

Page studies_page() {
  std::string text = page_head(
      "What can a study say?",
      "A study is a file for `seeksim study` ([campaigns](../campaigns.md)): a cluster, what fails in it, and policies "
      "to compare. Its keys, its figures, and the causes to which all of its time is booked.");
  text += key_sections(campaign::study_schema(), "The study");
  text += "\n## The figures\n\n" + figure_rows();
  text += "\n## Where time goes\n\n" + cause_rows();
  return {"studies.md", text};
}

}  // namespace seeksim::harness
