// A report as a page: what it shows is the JSON report and the timeline, read back by code of its own; it stays small,
// loads nothing, and takes a stranger's text as text.
#include "harness/html/report_page.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <set>

#include "harness/html/escape.h"
#include "harness/html/redact.h"
#include "harness/html/waits.h"
#include "harness/report/report.h"
#include "harness/report/story.h"
#include "harness/simulate/simulate.h"
#include "harness/verdict/checks.h"
#include "runtime/host/stepped_queue.h"
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

// ---- memory --------------------------------------------------------------------------------------------------------

// What is wrong with the chart of memory, held against the timeline; empty: nothing.
std::string wrong_with_memory(const std::string& page, const sim::Timeline& timeline) {
  const PageBody body(page);
  const auto charts = body.all("//figure[@class='mem']/svg");
  if (charts.size() != 1) return fmt::format("{} charts", charts.size());
  const pugi::xml_node chart = charts[0];
  std::size_t most = 0;
  int fullest = -1;
  std::set<std::size_t> tags;
  for (const sim::Timeline::Memory& memory : timeline.memory()) {
    if (memory.total() <= most) continue;
    most = memory.total();
    fullest = memory.rank;
  }
  const sim::Timeline::Memory* at_peak = nullptr;
  for (const sim::Timeline::Memory& memory : timeline.memory()) {
    if (memory.rank != fullest) continue;
    if (at_peak == nullptr && memory.total() == most) at_peak = &memory;
    for (std::size_t tag = 0; tag < memory.bytes.size(); ++tag) {
      if (memory.bytes[tag] > 0) tags.insert(tag);
    }
  }
  if (chart.attribute("data-rank").as_int() != fullest) return "another rank";
  if (chart.attribute("data-peak-bytes").as_ullong() != most) return "another peak";
  if (chart.attribute("data-peak-ns").as_llong() != at_peak->at) return "a peak at another time";
  if (chart.select_nodes("path[starts-with(@class,'k')]").size() != tags.size()) return "not an area for each tag";
  // The highest point of all areas is the peak, below the mark of it.
  double highest = 1e9;
  for (const pugi::xpath_node& area : chart.select_nodes("path[starts-with(@class,'k')]")) {
    const std::string path = area.node().attribute("d").value();
    for (std::size_t at = path.find('V'); at != std::string::npos; at = path.find('V', at + 1))
      highest = std::min(highest, std::strtod(path.c_str() + at + 1, nullptr));
  }
  const double mark = chart.select_node("circle[@class='peak']").node().attribute("cy").as_double();
  if (std::abs(mark - highest) > 0.2) return fmt::format("the mark at {}, the highest area at {}", mark, highest);
  // The table says the same in numbers.
  for (const std::size_t tag : tags) {
    const std::string path =
        fmt::format("//section[@id='memory']//tr[contains(th,'{}')]/td[2]", name(runtime::MemoryTag(tag)));
    if (body.all(path).empty() || body.all(path)[0].text().as_ullong() != at_peak->bytes[tag])
      return fmt::format("other bytes of {} in the table", name(runtime::MemoryTag(tag)));
  }
  return "";
}

TEST(HtmlMemory, HasAnAreaForEachTagAndMarksThePeak) {
  const Shown shown(recovering());
  EXPECT_EQ(wrong_with_memory(shown.page, *shown.simulation.timeline()), "");
}

TEST(HtmlMemory, AMovedMarkAndADroppedAreaAreSeen) {
  const Shown shown(recovering());
  const sim::Timeline& timeline = *shown.simulation.timeline();
  EXPECT_NE(wrong_with_memory(without(shown.page, "<path class=\"k", "/>"), timeline), "");
  std::string moved = shown.page;
  moved.insert(moved.find("cy=\"", moved.find("class=\"peak\"")) + 4, "1");
  EXPECT_NE(wrong_with_memory(moved, timeline).find("the mark at"), std::string::npos);
  std::string other = shown.page;
  other.insert(other.find("data-peak-bytes=\"") + 17, "1");
  EXPECT_EQ(wrong_with_memory(other, timeline), "another peak");
}

// 1,024 ranks that all do something else, 450 spans each, on the host and on two queues.
TEST(HtmlPage, OfAThousandRanksStaysBelowTenMegabytes) {
  struct Nobody final : runtime::Executor {
    void make_ready(runtime::SteppedQueue&) override {}
    void step_after(runtime::SteppedQueue&, runtime::TimeNs) override {}
    runtime::TimeNs duration(const runtime::SteppedQueue&, const runtime::Op&, runtime::Cost) override { return 0; }
    void host_place_reached(runtime::SteppedQueue&) override {}
    void kernel_failed(runtime::SteppedQueue&, const runtime::Op&, std::string_view) override {}
  } nobody;
  constexpr int kRanks = 1024;
  sim::Timeline timeline(kRanks);
  std::deque<runtime::SteppedQueue> queues;
  for (int rank = 0; rank < kRanks; ++rank) {
    queues.emplace_back(nobody, "compute queue", 0);
    queues.emplace_back(nobody, "communication queue", 0);
  }
  for (std::int64_t i = 0; i < 150; ++i) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const runtime::TimeNs at = i * 10'000 + (rank * 37 + i * 101) % 4000;
      runtime::Op op;
      op.rank = rank;
      op.step = i / 30;
      timeline.ran(queues[std::size_t(rank) * 2], rank, op, at, at + 3000);
      timeline.ran(queues[std::size_t(rank) * 2 + 1], rank, op, at + 2000, at + 5000);
      timeline.waited(rank, sim::Blocked::event, at, at + 4000);
      runtime::BytesByTag bytes{};
      bytes[std::size_t(i) % bytes.size()] = std::size_t(at);
      timeline.holds(rank, at, bytes);
    }
  }
  const RunRecord run;
  const Json report = {{"virtual_s", 0.0015}, {"memory", Json::object()}};
  const std::string page = html::report_page({report, "", false, &run, &timeline, nullptr});
  EXPECT_LT(page.size(), 10'000'000u);
  EXPECT_GT(page.size(), 100'000u) << "nothing is drawn";
  const PageBody body(page);
  EXPECT_LE(body.all("//g[@data-rank]").size(), 64u) << "ranks share rows";
  EXPECT_EQ(body.all("//figure[@class='mem']").size(), 1u);
}

TEST(HtmlPage, IsTheSameForTheSameRun) {
  const Shown once(recovering()), again(recovering());
  const auto timeless = [](const std::string& page) { return without(page, "<dt>wall time", "</dd>"); };
  EXPECT_TRUE(timeless(once.page) == timeless(again.page));
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
