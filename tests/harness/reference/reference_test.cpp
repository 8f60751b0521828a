// The reference pages that are stored are those that the program makes, and a page that is not is noticed.

#include <filesystem>

#include "harness/input/problem.h"
#include "harness/reference/markdown.h"
#include "harness/reference/pages.h"
#include "tests/support/paths.h"
#include "tests/support/processes.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

namespace fs = std::filesystem;
using namespace testing;

TEST(ReferencePages, AreStoredAsTheProgramMakesThem) {
  // In a process of its own: tests that ran before in this one may have registered checks of theirs.
  const seeksim::Ran ran = shell(seeksim::paths::program() + " reference --check " + seeksim::paths::source_dir());
  EXPECT_EQ(ran.status, 0) << ran.text;
}

// A folder that holds a few scenarios, their README and the pages.
struct Reference : TemporaryFolder, ::testing::Test {
  Reference() {
    fs::create_directories(file("scenarios/deaths"));
    fs::create_directories(file("scenarios/own"));
    write("scenarios/one.json", R"({"name": "one", "steps": 1, "why": "A | B must <not> part."})");
    write("scenarios/deaths/two.json", R"({"name": "two", "steps": 1, "why": "Two dies."})");
    write("scenarios/own/three.json", R"({"name": "three", "steps": 1, "why": "Three is new."})");
    write("scenarios/README.md", "# All\n<!-- table of scenarios -->\nold\n<!-- end -->\nThat is all.\n");
    EXPECT_EQ(seeksim({"reference", path()}).status, 0);
  }

  Ran checked() const { return seeksim({"reference", "--check", path()}); }

  void expect_red_for(const std::string& page) const {
    const Ran ran = checked();
    EXPECT_EQ(ran.status, 1) << ran.out;
    EXPECT_EQ(ran.out, file(page) + " is out of date. `seeksim reference` writes it again.\n");
    EXPECT_EQ(seeksim({"reference", path()}).out, "written: " + file(page) + '\n');
    EXPECT_EQ(checked().status, 0);
  }
};

TEST_F(Reference, IsCurrentOnceItIsWritten) {
  EXPECT_EQ(checked().status, 0);
  for (const char* page : {"keys", "faults", "checks", "quirks", "planted-bugs", "torch", "command-line"})
    EXPECT_GT(fs::file_size(file("docs/reference/" + std::string(page) + ".md")), 2000u) << page;
}

TEST_F(Reference, IsRedWhereAPageIsStale) {
  write("docs/reference/checks.md", read_all(file("docs/reference/checks.md")) + "x");
  expect_red_for("docs/reference/checks.md");
}

TEST_F(Reference, IsRedWhereAPageIsMissing) {
  fs::remove(file("docs/reference/keys.md"));
  expect_red_for("docs/reference/keys.md");
}

TEST_F(Reference, IsRedWhereAScenarioHasAnotherReason) {
  write("scenarios/deaths/two.json", R"({"name": "two", "steps": 1, "why": "Two dies twice."})");
  expect_red_for("scenarios/README.md");
}

TEST_F(Reference, HasATableOfEachFolderAndLeavesTheRestOfTheReadme) {
  const std::string readme = read_all(file("scenarios/README.md"));
  EXPECT_TRUE(readme.starts_with("# All\n<!-- table of scenarios -->\n"));
  EXPECT_TRUE(readme.ends_with("<!-- end -->\nThat is all.\n"));
  EXPECT_EQ(readme.find("old"), std::string::npos);
  for (const char* row :
       {"| [one](one.json) | A \\| B must &lt;not&gt; part. |\n", "### deaths/\n",
        "| [two](deaths/two.json) | Two dies. |\n", "### own/\n", "| [three](own/three.json) | Three is new. |\n"})
    EXPECT_NE(readme.find(row), std::string::npos) << row << readme;
}

TEST_F(Reference, NeedsTheTwoMarksInTheReadme) {
  write("scenarios/README.md", "# All\n");
  const Ran ran = checked();
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.err.find("there is no line <!-- table of scenarios -->"), std::string::npos) << ran.err;
}

// ---- Markdown -------------------------------------------------------------------------------------------------------

TEST(Markdown, FoldsAtAHundredColumns) {
  const std::string word(33, 'w');
  EXPECT_EQ(paragraph(word + ' ' + word + "  " + word.substr(1)), word + ' ' + word + ' ' + word.substr(1) + '\n');
  EXPECT_EQ(paragraph(word + ' ' + word + ' ' + word, 2), word + ' ' + word + "\n  " + word + '\n');
}

TEST(Markdown, BeginsNoListWhereALineFolds) {
  const std::string word(99, 'w');
  EXPECT_EQ(paragraph(word + " - a"), word + "\n\\- a\n");
  EXPECT_EQ(paragraph(word + " #8 a"), word + "\n\\#8 a\n");
}

TEST(Markdown, ShowsPlainTextAsItIs) {
  EXPECT_EQ(plain("a < b * c `x < y*` | d"), "a &lt; b \\* c `x < y*` | d");
  EXPECT_EQ(plain("a | b", true), "a \\| b");
  EXPECT_EQ(code_span("a"), "`a`");
  EXPECT_EQ(code_span("a`b"), "`` a`b ``");
}

}  // namespace
}  // namespace seeksim::harness
