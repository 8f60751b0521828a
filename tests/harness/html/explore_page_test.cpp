// The page of an exploration: what its report says stands on it, whatever strangers wrote into it.
#include "harness/html/explore_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/harness/html/page_reading.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

constexpr const char* kTiny = R"({
  "name": "tiny", "model": { "layers": 1, "width": 8, "heads": 2, "context": 4, "vocab": 16 },
  "data": { "synthetic": true }, "world": { "nodes": 2, "ranks_per_node": 2 },
  "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 1 } },
  "steps": 3, "recovery": { "policy": "rebuild_and_redo", "watchdog_s": 60 }, "checks": [ "golden:bitwise" ] })";

struct Searched {
  Ran ran;
  Json report;
  std::string page;
};

Searched search(const TemporaryFolder& folder, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "explore", folder.write("tiny.json", kTiny), "--out", folder.file("found"), "--report", folder.file("r.json"),
      "--html",  folder.file("page.html")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Searched out{seeksim(arguments), {}, {}};
  out.report = Json::parse(read_all(folder.file("r.json")));
  out.page = read_all(folder.file("page.html"));
  return out;
}

TEST(ExplorePage, ShowsEachFindingWithTheCommandsThatShowItAgain) {
  TemporaryFolder folder;
  const Searched done = search(folder, {"--set", "bug=stale_copy", "--findings", "1", "--cases", "600", "--shrink"});
  ASSERT_EQ(done.ran.status, 1) << done.ran.out << done.ran.err;
  const PageBody body(done.page);
  const Json& found = done.report.at("found");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(body.all("//section[@id='findings']/h3").size(), found.size());
  for (const Json& one : found) {
    for (const char* key : {"check", "why", "file", "schedule", "shrunk"})
      EXPECT_NE(body.text().find(one.at(key).get<std::string>()), std::string::npos) << key;
  }
  EXPECT_NE(body.text().find("FAIL"), std::string::npos);
}

TEST(ExplorePage, ShowsWhatWasTriedAndReached) {
  TemporaryFolder folder;
  const Searched done = search(folder, {"--cases", "40", "-j", "2"});
  ASSERT_EQ(done.ran.status, 0) << done.ran.out << done.ran.err;
  const PageBody body(done.page);
  EXPECT_TRUE(body.all("//section[@id='findings']").empty());
  EXPECT_EQ(body.all("//section[@id='tried']//tbody/tr").size(), done.report.at("by").size());
  const Json& coverage = done.report.at("coverage");
  EXPECT_EQ(body.all("//section[@id='reached']//tbody/tr").size(),
            coverage.at("struck").size() + coverage.at("branches").size());
  const Json& progress = done.report.at("progress");
  ASSERT_FALSE(progress.empty());
  EXPECT_EQ(progress.back().at("cases"), done.report.at("cases"));
  EXPECT_EQ(body.all("//section[@id='progress']//tbody/tr").size(), progress.size());
  EXPECT_NE(body.text().find("80 cases"), std::string::npos);
  EXPECT_EQ(body.all("//section[@id='again']/pre").size(), 1u);
}

TEST(ExplorePage, JsonOfAnyShapeIsAPageWithoutMarkupOfAStranger) {
  const std::string bad = "<script>alert(1)</script>\"'&";
  const Json hostile = {{"scenario", bad},
                        {"strategy", bad},
                        {"found", {{{"check", bad}, {"why", bad}, {"file", bad}, {"shrunk", bad}, {"schedule", bad}}}},
                        {"by", {{bad, bad}}},
                        {"coverage", {{"struck", {{bad, 1}}}, {"branches", bad}}},
                        {"progress", {{{"cases", bad}}}},
                        {"exhaustive", {{bad, bad}}}};
  const std::string page = html::explore_page(hostile, bad);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert"), std::string::npos);
  EXPECT_FALSE(PageBody(page).all("//section").empty());
  for (const char* text : {"{}", "[]", "null", R"({"found": 1, "by": [2], "coverage": 3, "progress": {"a": 1}})",
                           R"({"found": [1], "progress": [2], "exhaustive": []})"})
    EXPECT_TRUE(html::explore_page(Json::parse(text), "").ends_with("</html>\n")) << text;
}

}  // namespace
}  // namespace seeksim::harness
