// A report as a page: what it shows is the JSON report and the timeline, read back by code of its own; it stays small,
// loads nothing, and takes a stranger's text as text.
#include "harness/html/report_page.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "harness/html/escape.h"
#include "harness/html/redact.h"
#include "harness/html/waits.h"
#include "harness/report/report.h"
#include "harness/report/story.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "tests/harness/html/page_reading.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// A run of the small scenario, its report, its timeline and its page.
struct Shown {
  Simulation simulation;
  RunRecord run;
  Json report;
  std::string page;
  explicit Shown(const Scenario& scenario) : simulation(scenario, with_timeline()), run(simulation.run()) {
    const Evidence evidence{scenario, run, nullptr, std::nullopt, {}};
    report = report_json(evidence, judge(evidence), {});
    page = html::report_page({report, "seeksim run s.json", false, &run, simulation.timeline(), nullptr});
  }
  static SimulationOptions with_timeline() {
    SimulationOptions options;
    options.timeline = true;
    return options;
  }
};

Scenario recovering() {
  Scenario scenario = small_scenario();
  std::erase_if(scenario.checks, [](const CheckSpec& check) { return check.name == "golden"; });
  return scenario;
}

std::string without(std::string page, const std::string& begin, const std::string& end) {
  const std::size_t at = page.find(begin);
  return at == std::string::npos ? page : page.erase(at, page.find(end, at) + end.size() - at);
}

TEST(HtmlPage, HoldsTheNumbersOfTheReport) {
  const Shown shown(recovering());
  EXPECT_EQ(missing_on(shown.page, shown.report), std::vector<std::string>());
}

TEST(HtmlPage, ANumberThatIsNotTheReportsIsSeen) {
  Shown shown(recovering());
  const std::string loss = shown.report["loss"][2].dump();
  for (std::size_t at; (at = shown.page.find(loss)) != std::string::npos;) shown.page[at + loss.size() - 1] ^= 1;
  EXPECT_EQ(missing_on(shown.page, shown.report), std::vector<std::string>{loss});
}

TEST(HtmlTimeline, MarksStandWhereTheReportSays) {
  const Shown shown(recovering());
  ASSERT_EQ(shown.report["recoveries"].size(), 1u);
  EXPECT_EQ(wrong_with_marks(shown.page, shown.report), "");
}

TEST(HtmlTimeline, ADroppedAndAMovedMarkAreSeen) {
  const Shown shown(recovering());
  const std::string dropped = without(shown.page, "<path class=\"m agreed\"", "/>");
  EXPECT_NE(wrong_with_marks(dropped, shown.report).find("no mark of agreed"), std::string::npos);
  std::string moved = shown.page;
  const std::size_t at = moved.find("d=\"M", moved.find("<path class=\"m rebuilt\"")) + 4;
  moved.insert(at, "1");
  EXPECT_NE(wrong_with_marks(moved, shown.report).find("the mark of rebuilt"), std::string::npos);
}

TEST(HtmlTimeline, BarsAreTheSpansOfTheTimeline) {
  const Shown shown(recovering());
  EXPECT_EQ(wrong_with_bars(shown.page, *shown.simulation.timeline()), "");
}

TEST(HtmlTimeline, ADroppedAndAnInventedBarAreSeen) {
  const Shown shown(recovering());
  const std::string dropped = without(shown.page, "<path class=\"comm\" stroke-width=\"5\" d=\"M", "/>");
  EXPECT_NE(wrong_with_bars(without(dropped, "<path class=\"comm\" stroke-width=\"5\" d=\"M", "/>"),
                            *shown.simulation.timeline())
                .find("no bar of comm"),
            std::string::npos);
  std::string invented = shown.page;
  const std::string begin = "<path class=\"compute\" stroke-width=\"9\" d=\"";
  invented.insert(invented.find(begin, invented.find("data-rank")) + begin.size(), "M55555 5.5h999");
  EXPECT_NE(wrong_with_bars(invented, *shown.simulation.timeline()).find("where no span does"), std::string::npos);
}

TEST(HtmlPage, LoadsNothing) {
  const Shown shown(recovering());
  for (const char* word : {"http:", "https:", " src=", "@import", "url(", "<iframe", "<object", "fetch("})
    EXPECT_EQ(shown.page.find(word), std::string::npos) << word;
}

TEST(HtmlPage, AStrangersTextStaysText) {
  Scenario scenario = recovering();
  scenario.name = "</h1><script>alert(1)</script>\"'&\x01\xff";
  const Shown shown(scenario);
  EXPECT_EQ(shown.page.find("alert(1)</script>"), std::string::npos);
  EXPECT_NE(shown.page.find("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"), std::string::npos);
  EXPECT_NO_THROW(PageBody{shown.page});
  EXPECT_EQ(html::escaped("a<b>\"'&\n"), "a&lt;b&gt;&quot;&#39;&amp;\n");
}

TEST(HtmlPage, ReadsWithHeadingsAndTextAlternatives) {
  const Shown shown(recovering());
  const PageBody body(shown.page);
  EXPECT_GE(body.all("//h2").size(), 7u);
  for (const pugi::xml_node& svg : body.all("//svg"))
    EXPECT_TRUE(svg.attribute("aria-label") || svg.attribute("aria-hidden")) << "an svg without a text alternative";
  for (const pugi::xml_node& link : body.all("//a[starts-with(@href,'#')]"))
    EXPECT_EQ(body.all(fmt::format("//*[@id='{}']", link.attribute("href").value() + 1)).size(), 1u);
}

TEST(HtmlPage, AnUnusualReportIsNoReasonToFail) {
  for (const char* text :
       {"{}", R"({"rows": [{}], "checks": 3, "faults": "x"})", R"({"recoveries": [3], "loss": ["NaN"]})",
        R"({"memory": {"by_tag": []}, "comm": [1], "names": {"have": 1}})"})
    EXPECT_NO_THROW(PageBody{html::report_page({Json::parse(text), ""})}) << text;
}

TEST(HtmlRedaction, LeavesOutPathsHostsAndNames) {
  const html::Redaction redaction(true, "secret", "node17");
  EXPECT_EQ(redaction.of("file /somewhere/x.json: secret, not secrets, on node17:80"),
            "file [path]: [scenario], not secrets, on [host]:80");
  EXPECT_EQ(redaction.of("2 of 3 ranks, 1/4 of it, rank 2 -> 3"), "2 of 3 ranks, 1/4 of it, rank 2 -> 3");
  EXPECT_EQ(html::Redaction(false, "secret", "node17").of("/secret"), "/secret");
}

TEST(HtmlWaits, AreReadFromTheGraphsLines) {
  const html::Wait wait = html::wait_of("ranks 0-4: communication queue: all_reduce #8 waits for rank 5 (to join)");
  EXPECT_EQ(wait.who, "ranks 0-4");
  EXPECT_EQ(wait.what, "communication queue: all_reduce #8");
  EXPECT_EQ(wait.whom, "rank 5 (to join)");
  EXPECT_EQ(html::wait_of("rank 3: host waits for nothing (it hangs)").whom, "nothing (it hangs)");
  EXPECT_EQ(html::wait_of("agreement of epoch 0 waits for rank 1").who, "agreement of epoch 0");
  const Shown shown(recovering());
  const std::vector<std::string> lines = waits_of(shown.report["wait_for_graph"]);
  ASSERT_FALSE(lines.empty());
  const PageBody body(shown.page);
  EXPECT_EQ(body.all("//section[@id='waits']//tbody/tr").size(), lines.size());
}

}  // namespace
}  // namespace seeksim::harness
