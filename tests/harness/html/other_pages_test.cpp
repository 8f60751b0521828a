// Pages of a study, a plan and a hang: what their JSON says stands on them, whatever strangers wrote into it.
#include "harness/html/other_pages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/harness/html/page_reading.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

const std::string kHere = paths::source_dir();

TEST(OtherPages, AHangShowsWhoWaitsForWhomAndItsReproduction) {
  TemporaryFolder folder;
  const std::string page = folder.file("hang.html");
  const Ran ran = seeksim({"analyse", kHere + "/tests/harness/analyse/dumps/subgroup", "--json", "--html", page,
                           "--reproduce", folder.file("again.json")});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const std::string text = read_all(page);
  const PageBody body(text);
  const Json json = Json::parse(ran.out);
  EXPECT_NE(text.find("never came to all_reduce #2 of group &quot;2&quot;"), std::string::npos);
  EXPECT_EQ(body.all("//section[@id='graph']//*[local-name()='svg']").size(), 1u);
  EXPECT_EQ(body.all("//section[@id='waiting']//tbody/tr").size(), json.at("waiting").size());
  EXPECT_EQ(body.all("//section[@id='certain']//li").size(), json.at("certain").size());
  EXPECT_EQ(body.all("//section[@id='reproduction']//tbody/tr").size(), 4u);
  EXPECT_EQ(body.all("//section[@id='again']/pre").size(), 1u);
}

TEST(OtherPages, APlanShowsBothLedgersOfWhatItRecommends) {
  TemporaryFolder folder;
  const std::string page = folder.file("plan.html"), report = folder.file("plan.json");
  ASSERT_EQ(seeksim({"plan", kHere + "/scenarios/baseline.json", "--html", page, "--report", report, "--all"}).status,
            0);
  const PageBody body(read_all(page));
  const Json plan = Json::parse(read_all(report));
  EXPECT_EQ(body.all("//section[@id='candidates']//tbody/tr").size(), plan.at("candidates").size());
  const Json& chosen = plan["candidates"][plan["recommended"].get<std::size_t>()];
  EXPECT_EQ(body.all("//section[@id='ledger']//tbody/tr").size(),
            chosen["at_peak"].size() + chosen["deepspeed"]["lines"].size());
  for (const auto& [tag, bytes] : chosen["at_peak"].items())
    EXPECT_NE(read_all(page).find(bytes.dump()), std::string::npos) << tag;
  EXPECT_EQ(seeksim({"plan", kHere + "/scenarios/baseline.json", "--html", folder.path()}).status, 2);
}

TEST(OtherPages, AStudyShowsItsPoliciesCausesAndPictures) {
  TemporaryFolder folder;
  const std::string page = folder.file("study.html"), report = folder.file("study.json");
  ASSERT_EQ(seeksim({"study", kHere + "/scenarios/studies/young_daly_16k.json", "--set", "seeds=3", "--html", page,
                     "--json", report})
                .status,
            0);
  const std::string text = read_all(page);
  const PageBody body(text);
  const Json study = Json::parse(read_all(report));
  EXPECT_EQ(body.all("//section[@id='policies']//tbody/tr").size(), study.at("policies").size());
  EXPECT_EQ(body.all("//section[@id='pictures']//*[local-name()='svg']").size(), 3u);
  ASSERT_EQ(body.all("//section[@id='survival']//tbody/tr").size(), study.at("policies").size());
  const Json& survival = study["policies"][0]["survival"];
  ASSERT_GT(survival.size(), 8u);
  EXPECT_EQ(body.all("//section[@id='survival']//tbody/tr[1]/td[3]")[0].text().get(),
            fmt::format("{:.1f} %", 100 * survival[8]["share"].get<double>()));
  for (std::size_t i = 1; i < survival.size(); ++i) EXPECT_LE(survival[i]["share"], survival[i - 1]["share"]);
  EXPECT_EQ(body.all("//section[@id='policies']//tbody/tr[1]/td[3]")[0].text().get(), std::string("3")) << "seeds";
  const double goodput = study["policies"][0]["figures"]["goodput"]["mean"];
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.2f %%", 100 * goodput);
  EXPECT_NE(text.find(shown), std::string::npos) << shown;
  EXPECT_LT(text.size(), std::size_t(2) << 20);
}

TEST(OtherPages, NothingThatAStrangerWroteIsMarkup) {
  const std::string bad = "<script>alert(1)</script>\"'&";
  // Every BAD is that text.
  const auto with_bad = [&](std::string text) {
    const std::string quoted = Json(bad).dump();
    for (std::size_t at = text.find("BAD"); at != std::string::npos; at = text.find("BAD", at + quoted.size()))
      text.replace(at, 3, quoted);
    return Json::parse(text);
  };
  const Json hang =
      with_bad(R"({ "headline": BAD, "verdict": BAD, "certain": [BAD], "likely": [BAD], "next_time": [BAD],
    "waiting": [{ "rank": BAD, "operation": BAD, "group": BAD, "sizes": BAD, "frame": BAD }],
    "troubles": [{ "waiting": [0], "absent": [BAD], "operation": BAD, "group": BAD, "number": BAD }],
    "reproduction": { "cause": BAD, "ranks": [{ "rank": BAD, "job": BAD, "simulation": BAD }] } })");
  const Json plan = with_bad(R"({ "candidates": [{ "name": BAD, "refused": BAD }, { "name": BAD, "at_peak": { BAD: 3 },
    "deepspeed": { "lines": [{ "name": BAD, "formula": BAD }] } }], "recommended": 1, "patch": { BAD: BAD },
    "gpus": BAD, "nodes": BAD, "parameters": BAD })");
  const Json study =
      with_bad(R"({ "study": BAD, "verdict": BAD, "checks": [{ "check": BAD, "ok": false, "detail": BAD }],
    "policies": [{ "settings": { BAD: BAD }, "time": { BAD: { "mean": 0.5 } }, "campaigns": BAD }] })");
  for (const std::string& page :
       {html::hang_page(hang, bad), html::plan_page(plan, bad), html::study_page(study, {}, bad)}) {
    EXPECT_EQ(page.find("<script>alert"), std::string::npos);
    EXPECT_NE(page.find("&lt;script&gt;alert"), std::string::npos);
    const PageBody body(page);  // it reads as a tree
    EXPECT_FALSE(body.all("//section").empty());
  }
}

// Members that are missing, or of another type.
TEST(OtherPages, JsonOfAnyShapeIsAPage) {
  for (const char* text :
       {"{}", "[]", "null", R"({"candidates": 3, "recommended": 9, "policies": 1, "troubles": 2})",
        R"({"candidates": [1], "recommended": 0, "policies": [2], "troubles": [3], "waiting": [4]})"}) {
    const Json json = Json::parse(text);
    for (const std::string& page :
         {html::hang_page(json, ""), html::plan_page(json, ""), html::study_page(json, {}, "")})
      EXPECT_TRUE(page.ends_with("</html>\n")) << text;
  }
}

}  // namespace
}  // namespace seeksim::harness
