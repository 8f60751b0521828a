// --html and --redact of the program: files, sizes, refusals; a sweep's grid; and pages in a real browser.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/harness/html/page_reading.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

class Html : public ::testing::Test {
 protected:
  Html() : scenario(folder.write("small.json", small_text())) {}
  std::string page_of(std::vector<std::string> arguments, int status = 0) {
    arguments.insert(arguments.begin(), {"run", "--html", folder.file("page.html"), "--report", folder.file("r.json")});
    const Ran ran = seeksim(arguments);
    EXPECT_EQ(ran.status, status) << ran.out << ran.err;
    return read_all(folder.file("page.html"));
  }
  Json report() const { return Json::parse(read_all(folder.file("r.json"))); }
  // "small.json" with two axes; rows with nine layers of pipeline cannot be red here, so one check is.
  std::string sweep() const {
    return folder.write("sweep.json",
                        small_text_with(10, R"(  "checks": [ "ranks_agree", "recoveries:1" ], "sweep": [ {)"
                                            R"( "training_seed": [1, 2, 3], "faults.0.step": [1, 3, 9] } ])"));
  }

  TemporaryFolder folder;
  std::string scenario;
};

TEST_F(Html, ShowsTheReportOfTheSameRunAndChangesNothing) {
  const std::string page = page_of({scenario, "--set", "steps=3"});
  const Json with = report();
  EXPECT_EQ(missing_on(page, with), std::vector<std::string>());
  EXPECT_EQ(wrong_with_marks(page, with), "");
  EXPECT_NE(page.find("golden (one rank)"), std::string::npos);
  EXPECT_NE(page.find("seeksim run " + scenario + " --set steps=3 --schedule "), std::string::npos);
  ASSERT_EQ(seeksim({"run", scenario, "--set", "steps=3", "--report", folder.file("r.json")}).status, 0);
  EXPECT_EQ(report()["fingerprint"], with["fingerprint"]);
}

TEST_F(Html, TheCommandOnThePageMakesTheSameRun) {
  const std::string page = page_of({scenario, "--seed", "7"});
  const Json first = report();
  const PageBody body(page);
  const std::string command = body.all("//section[@id='again']/pre").at(0).text().get();
  const std::size_t schedule = command.find(" --schedule ");
  ASSERT_NE(schedule, std::string::npos) << command;
  ASSERT_EQ(command.substr(0, schedule), "seeksim run " + scenario);
  EXPECT_EQ(
      seeksim({"run", scenario, "--schedule", command.substr(schedule + 12), "--report", folder.file("r.json")}).status,
      0);
  EXPECT_EQ(report()["fingerprint"], first["fingerprint"]);
}

TEST_F(Html, EightRanksAndTwentyStepsStayBelowTwoMegabytes) {
  const std::string page = page_of({scenario, "--set", "steps=20", "--set", "world.ranks_per_node=4"});
  EXPECT_LT(page.size(), 2'000'000u);
  EXPECT_EQ(PageBody(page).all("//g[@data-rank]").size(), 8u);
}

TEST_F(Html, ARedactedPageNamesNeitherFileNorScenario) {
  const std::string file = folder.write("hush.json", small_text_with(2, R"(  "name": "hushhush",)"));
  const std::string page = page_of({file, "--redact"});
  EXPECT_EQ(page.find("hush"), std::string::npos);
  EXPECT_EQ(page.find(folder.path()), std::string::npos);
  EXPECT_NE(page_of({file}).find("hushhush"), std::string::npos);
}

TEST_F(Html, WhatCannotBeRunHasAPageThatSaysSo) {
  const std::string page = page_of({folder.write("bad.json", small_text_with(7, R"(  "steps": -4,)"))}, 2);
  EXPECT_NE(page.find("NOT RUN"), std::string::npos);
  EXPECT_NE(page.find("steps"), std::string::npos);
}

TEST_F(Html, BadUsesAreRefused) {
  EXPECT_EQ(seeksim({"run", scenario, scenario, "--html", folder.file("p.html")}).status, 2);
  EXPECT_EQ(seeksim({"run", scenario, "--redact"}).status, 2);
  EXPECT_EQ(seeksim({"run", scenario, "--html", folder.file("no/such/p.html")}).status, 2);
}

TEST_F(Html, ASweepShowsItsRedRowsFirstAndAllRowsInAGrid) {
  const std::string page = page_of({sweep()}, 1);
  const Json sweep = report();
  const PageBody body(page);
  ASSERT_EQ(sweep["rows"].size(), 9u);
  EXPECT_EQ(sweep["rows_red"], 3) << "a fault in step 9 never comes";
  EXPECT_EQ(body.all("//table[@class='sweep']//td[@class='g']").size(), 6u);
  EXPECT_EQ(body.all("//table[@class='sweep']//td[@class='r']").size(), 3u);
  EXPECT_EQ(body.all("//section[@id='red']//tbody/tr").size(), 3u);
  EXPECT_LT(page.find("id=\"red\""), page.find("id=\"grid\""));
  for (const Json& row : sweep["rows"]) {
    const std::string number = row["row"].dump();
    const auto place = body.all("//span[@id='row-" + number + "']/../..");
    ASSERT_EQ(place.size(), 1u) << number;
    EXPECT_STREQ(place[0].select_node("td[5]").node().text().get(), row["params_digest"].get<std::string>().c_str());
    const auto cell = body.all("//table[@class='sweep']//a[@href='#row-" + number + "']/..");
    ASSERT_EQ(cell.size(), 1u) << number;
    EXPECT_STREQ(cell[0].attribute("class").value(), row["exit_code"] == 0 ? "g" : "r");
  }
}

// ---- in a browser --------------------------------------------------------------------------------------------------

struct Browsed {
  std::string page;      // as it is after its script has run
  std::string messages;  // lines of the console
};

std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> bytes;
  for (std::size_t n = 0; (n = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) out.append(bytes.data(), n);
  ::pclose(pipe);
  return out;
}

std::string browser() {
  std::string found = output_of("command -v chromium || command -v chromium-browser || command -v google-chrome");
  return found.substr(0, found.find('\n'));
}

// folder: for the browser's own files.
Browsed browse(const std::string& folder, const std::string& page) {
  const std::string command = fmt::format(
      "timeout 120 '{0}' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir='{1}/browser' "
      "--enable-logging=stderr --virtual-time-budget=2000 --dump-dom 'file://{1}/{2}' 2>'{1}/stderr' </dev/null",
      browser(), folder, page);
  Browsed browsed{output_of(command), ""};
  const std::string all = read_all(folder + "/stderr");
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    if (const std::string line = all.substr(at, end - at); line.find("CONSOLE") != std::string::npos)
      browsed.messages += line + '\n';
    at = end + 1;
  }
  return browsed;
}

TEST_F(Html, PagesOpenInABrowserWithoutAMessage) {
  if (browser().empty()) GTEST_SKIP() << "there is no browser here (chromium)";
  page_of({scenario});
  const Browsed run = browse(folder.path(), "page.html");
  EXPECT_EQ(run.messages, "");
  EXPECT_NE(run.page.find("<html lang=\"en\" class=\"js\">"), std::string::npos) << "its script did not run";
  EXPECT_EQ(wrong_with_marks(run.page, report()), "") << "in the browser";
  page_of({sweep()}, 1);
  EXPECT_EQ(browse(folder.path(), "page.html").messages, "");
}

TEST_F(Html, PagesOfOtherCommandsOpenInABrowserWithoutAMessage) {
  if (browser().empty()) GTEST_SKIP() << "there is no browser here (chromium)";
  const std::string top = paths::source_dir(), page = folder.file("page.html");
  const std::vector<std::vector<std::string>> commands = {
      {"study", top + "/scenarios/studies/young_daly_16k.json", "--set", "seeds=2"},
      {"plan", top + "/scenarios/baseline.json"},
      {"analyse", top + "/tests/harness/analyse/dumps/subgroup"},
      {"explore", scenario, "--budget", "1s", "-j", "1", "--out", folder.file("found")}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--html", page});
    seeksim(command);
    const Browsed browsed = browse(folder.path(), "page.html");
    EXPECT_EQ(browsed.messages, "") << command[0];
    EXPECT_NE(browsed.page.find("<h2"), std::string::npos) << command[0];
    std::filesystem::remove(page);
  }
}

TEST_F(Html, AnErrorOfAScriptInABrowserIsSeen) {
  if (browser().empty()) GTEST_SKIP() << "there is no browser here (chromium)";
  std::string page = page_of({scenario});
  page.insert(page.find("<script>") + 8, "nobody.knows();");
  folder.write("broken.html", page);
  EXPECT_NE(browse(folder.path(), "broken.html").messages.find("nobody is not defined"), std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
