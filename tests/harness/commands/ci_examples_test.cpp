// What other programs are given in this repository calls seeksim as it is: the examples of CI, and the hook for
// pre-commit.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include <pugixml.hpp>

#include "harness/torch/table/table_file.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// The arguments of each call of seeksim in a file, behind "- run: " or "- " or "entry: ".
std::vector<std::vector<std::string>> calls_in(const std::string& text) {
  std::vector<std::vector<std::string>> calls;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find("seeksim run");
    if (at == std::string::npos || line.find('#') < at) continue;
    std::istringstream words(line.substr(at + 8));
    calls.emplace_back();
    for (std::string word; words >> word;) calls.back().push_back(word);
  }
  return calls;
}

TEST(CiExamples, KeepAJunitFileWithACaseForEachCheck) {
  for (const char* name : {"github.yml", "gitlab.yml"}) {
    const std::string text = read_all(paths::source_dir() + "/examples/ci/" + name);
    const auto calls = calls_in(text);
    ASSERT_EQ(calls.size(), 1u) << name;
    EXPECT_EQ(text.find('\t'), std::string::npos) << name << ": YAML has no tabs";
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.file("scenarios"));
    folder.write("scenarios/good.json", small_text());
    const auto run = [&] {
      std::vector<std::string> arguments = calls[0];
      for (std::string& word : arguments) {
        if (word == "scenarios/" || word == "junit.xml") word = folder.file(word);
      }
      return seeksim(arguments).status;
    };
    EXPECT_EQ(run(), 0) << name;
    pugi::xml_document junit;
    ASSERT_TRUE(junit.load_file(folder.file("junit.xml").c_str())) << name;
    EXPECT_GE(junit.select_nodes("//testcase").size(), 3u) << name;
    EXPECT_NE(text.find("junit.xml", text.find("junit.xml") + 1), std::string::npos) << name << " keeps no file";
    folder.write("scenarios/red.json", small_text_with(10, R"(  "checks": [ "recoveries:7" ])"));
    EXPECT_EQ(run(), 1) << name << ": a red scenario turns the job red";
    ASSERT_TRUE(junit.load_file(folder.file("junit.xml").c_str()));
    EXPECT_GE(junit.select_nodes("//testcase[failure]").size(), 1u);
  }
}

// The two commands of a framework's workflow ask for exhibits and cells that there are.
TEST(CiExamples, AFrameworksWorkflowRunsItsExhibitsAndItsRowsOfTheTable) {
  std::string text = read_all(paths::source_dir() + "/examples/ci/framework.yml");
  EXPECT_EQ(text.find('\t'), std::string::npos) << "YAML has no tabs";
  std::istringstream words(text.substr(text.find("seeksim torch museum"), text.find("if: always()")));
  std::vector<std::string> museum, only;
  std::string word;
  for (words >> word; words >> word && word != "-";) museum.push_back(word);
  for (std::string last; words >> word; last = word)
    if (last == "--only") only.push_back(word);
  museum.emplace_back("--list");
  const Ran listed = seeksim(museum);
  EXPECT_EQ(listed.status, 0) << listed.err;
  for (const char* name : {"deepspeed_warmup_groups", "deepspeed_zero3_reused"})
    EXPECT_NE(listed.out.find(name), std::string::npos) << listed.out;
  EXPECT_EQ(listed.out.find("accelerate_set_epoch"), std::string::npos) << "another package's";
  torch::Table table = torch::load_table(paths::source_dir() + "/examples/pytorch/layouts.table.json");
  ASSERT_EQ(only.size(), 4U);
  for (const std::string& one : only) torch::keep_only(table, one);
  EXPECT_EQ(table.rows().size(), 4U);
  EXPECT_EQ(table.compared().values.size(), 5U);  // DDP, which all are held against, and ZeRO 0 to 3
}

TEST(CiExamples, TheHookNamesWhatIsWrongAndRunsNothing) {
  const auto calls = calls_in(read_all(paths::source_dir() + "/.pre-commit-hooks.yaml"));
  ASSERT_EQ(calls.size(), 1u);
  const TemporaryFolder folder;
  std::vector<std::string> arguments = calls[0];
  arguments.push_back(folder.write("good.json", small_text()));
  const Ran good = seeksim(arguments);
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(good.out.find("PASS"), std::string::npos) << "it ran";
  arguments.push_back(folder.write("bad.json", small_text_with(7, R"(  "stepz": 4,)")));
  const Ran bad = seeksim(arguments);
  EXPECT_EQ(bad.status, 2);
  EXPECT_NE(bad.err.find("stepz"), std::string::npos) << bad.err;
}

}  // namespace
}  // namespace seeksim::harness
