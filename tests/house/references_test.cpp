// No reference leads nowhere, and no page grows beyond what people read; each rule is seen to fail on what is planted.

#include "tests/house/references.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace seeksim::house {
namespace {

// The files of tests/house name what is not there, on purpose.
bool is_of_the_house(const File& file) { return file.path.starts_with("tests/house/"); }

struct Tree : ::testing::Test {
  Tree() : files(files_of_the_tree()), targets(files) {}

  template <class Check>
  std::vector<Violation> all(Check check) const {
    std::vector<Violation> found;
    for (const File& file : files) {
      if (is_of_the_house(file)) continue;
      for (Violation& violation : check(file, targets)) found.push_back(std::move(violation));
    }
    return found;
  }

  std::vector<File> files;
  Targets targets;
};

TEST_F(Tree, HasALinkOnlyToWhatIsThere) {
  const auto found = all(check_links);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST_F(Tree, NamesOnlyFilesAndFoldersThatAreThere) {
  const auto found = all(check_paths);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST_F(Tree, CitesOnlyRulesThatTheContractHas) {
  const auto found = all(check_rules);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST_F(Tree, ShowsOnlyExhibitsThatTheMuseumHas) {
  const auto found = all(check_exhibits);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST_F(Tree, HasScenariosThatNameTheirSchema) {
  const auto found = all(check_schema);
  EXPECT_TRUE(found.empty()) << listing(found);
  const auto scenarios = std::count_if(files.begin(), files.end(), [](const File& file) {
    return file.path.starts_with("scenarios/") && file.path.ends_with(".json");
  });
  EXPECT_GT(scenarios, 300) << "this looks at nothing";
}

TEST_F(Tree, HasNoPageThatTheSiteDoesNotList) {
  const auto found = unlisted_pages(files);
  EXPECT_TRUE(found.empty()) << listing(found);
}

TEST_F(Tree, HasPagesThatFitAScreenAndAReader) {
  const auto found = all([](const File& file, const Targets&) { return check_size(file); });
  EXPECT_TRUE(found.empty()) << listing(found);
}

// ---- planted --------------------------------------------------------------------------------------------------------

const std::vector<File>& small_tree() {
  static const std::vector<File> files = {
      {"README.md", "# Try it\n"},
      {"docs/numerics.md", "# Which bits?\n\n- <a id=\"r7\"></a>**R7**\n- <a id=\"f3\"></a>**F3**\n\n## Forms\n"},
      {"docs/pictures/house.svg", ""},
      {"runtime/seams/op.h", "#include <nccl.h>\n"},
      {"scenarios/deaths/rank_returns.json", ""},
      {"scenarios/museum/both_send_first.json", ""},
      {"scenarios/baseline.json", ""},
  };
  return files;
}

struct PlantedReference {
  const char* name;
  std::vector<Violation> (*check)(const File&, const Targets&);
  const char* path;
  const char* text;
  int line;  // 0: nothing to find
};

void PrintTo(const PlantedReference& planted, std::ostream* out) { *out << planted.name; }

class References : public ::testing::TestWithParam<PlantedReference> {};

TEST_P(References, AreJudgedRightly) {
  const PlantedReference& planted = GetParam();
  const std::vector<Violation> found = planted.check({planted.path, planted.text}, Targets(small_tree()));
  if (planted.line == 0) {
    EXPECT_TRUE(found.empty()) << listing(found);
    return;
  }
  ASSERT_EQ(found.size(), 1u) << listing(found);
  EXPECT_EQ(found.front().line, planted.line) << listing(found);
  EXPECT_EQ(found.front().file, planted.path);
}

std::string name_of(const ::testing::TestParamInfo<PlantedReference>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Links, References,
    ::testing::Values(PlantedReference{"ToAPage", check_links, "docs/a.md", "see [bits](numerics.md#r7)", 0},
                      PlantedReference{"OfTheReadme", check_links, "README.md", "see [bits](docs/numerics.md#r7)", 0},
                      PlantedReference{"OutOfTheSite", check_links, "docs/a.md", "see [top](../README.md#try-it)", 1},
                      PlantedReference{"ToNoPage", check_links, "docs/a.md", "\nsee [bits](numbers.md)", 2},
                      PlantedReference{"ToNoAnchor", check_links, "docs/a.md", "see [bits](numerics.md#r8)", 1},
                      PlantedReference{"ToNoAnchorHere", check_links, "README.md", "# Try it\n[here](#try-me)", 2},
                      PlantedReference{"ToNoPicture", check_links, "docs/a.md", "![house](pictures/hut.svg)", 1},
                      PlantedReference{"OfTheWeb", check_links, "docs/a.md", "[x](https://example.org/a.md#b)", 0},
                      PlantedReference{"InCode", check_links, "docs/a.md", "`a[0](x.md)`\n```\n[a](b.md)\n```", 0}),
    name_of);

INSTANTIATE_TEST_SUITE_P(
    Paths, References,
    ::testing::Values(
        PlantedReference{"ToAFile", check_paths, "docs/a.md", "`runtime/seams/op.h`, runtime/seams/ and `op.h`.", 0},
        PlantedReference{"ToFilesByAPattern", check_paths, "docs/a.md", "scenarios/deaths/rank_*.json", 0},
        PlantedReference{"WithoutTheEnd", check_paths, "docs/a.md", "scenarios/deaths/rank_returns", 0},
        PlantedReference{"ToNoFile", check_paths, "docs/a.md", "\n\nsee runtime/seams/ops.h.", 3},
        PlantedReference{"ToNoScenario", check_paths, "docs/a.md", "`./seeksim run scenarios/rank_returns.json`", 1},
        PlantedReference{"ToNoFilesByAPattern", check_paths, "docs/a.md", "scenarios/rank_*.json", 1},
        PlantedReference{"ToNoName", check_paths, "docs/a.md", "`ops.h`", 1},
        PlantedReference{"ToAnAnchor", check_paths, "sim/a.cpp", "// as docs/numerics.md#r7.", 0},
        PlantedReference{"ToNoAnchor", check_paths, "sim/a.cpp", "// as docs/numerics.md#r8.", 1},
        PlantedReference{"InAMessage", check_paths, "sim/a.cpp", "say(\"see runtime/ops.h\");", 1},
        PlantedReference{"InAComment", check_paths, "sim/a.cpp", "int a;  // see runtime/ops.h", 1},
        PlantedReference{"InALongComment", check_paths, "sim/a.cpp", "/* see\n NUMERICS.md */", 2},
        PlantedReference{"InAStringOfATest", check_paths, "tests/sim/a.cpp", "read(\"runtime/ops.h\");", 0},
        PlantedReference{"OfALibrary", check_paths, "sim/a.cpp", "// as nccl.h says", 0},
        PlantedReference{"ForTheReaderToFillIn", check_paths, "a.md",
                         "scenarios/x.json scenarios/NAME.json scenarios/<f>.json", 0}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Schemas, References,
                         ::testing::Values(PlantedReference{"NamedByAScenario", check_schema, "scenarios/deaths/a.json",
                                                            "{ \"$schema\": \"../baseline.json\",", 0},
                                           PlantedReference{"OfNoScenario", check_schema, "scenarios/a.json",
                                                            "{ \"name\": \"a\" }", 1},
                                           PlantedReference{"OnTheWrongFloor", check_schema, "scenarios/deaths/a.json",
                                                            "{ \"$schema\": \"baseline.json\",", 1}),
                         name_of);

INSTANTIATE_TEST_SUITE_P(
    Rules, References,
    ::testing::Values(
        PlantedReference{"ThatAreThere", check_rules, "sim/a.cpp", "// in this order (R7, F3)", 0},
        PlantedReference{"ThatAreNot", check_rules, "sim/a.cpp", "\n// in this order (R99)", 2},
        PlantedReference{"ByThePage", check_rules, "sim/a.cpp",
                         "// docs/numerics.md, R7 and docs/numerics.md, \"Forms\"", 0},
        PlantedReference{"ByThePageThatAreNot", check_rules, "sim/a.cpp", "// (docs/numerics.md, R8: sums)", 1},
        PlantedReference{"ByATitleThatIsNot", check_rules, "sim/a.cpp", "// docs/numerics.md, \"Norms\"", 1},
        PlantedReference{"OneOfTwo", check_rules, "docs/a.md", "adds up (R7, F9)", 1},
        PlantedReference{"InCode", check_rules, "sim/a.cpp", "call(R9);", 0}),
    name_of);

INSTANTIATE_TEST_SUITE_P(Exhibits, References,
                         ::testing::Values(PlantedReference{"ThatAreThere", check_exhibits, "docs/a.md",
                                                            "./seeksim museum both_send_first -j 1", 0},
                                           PlantedReference{"AllOfThem", check_exhibits, "docs/a.md",
                                                            "`./seeksim museum`, ./seeksim museum NAME", 0},
                                           PlantedReference{"ThatAreNot", check_exhibits, "docs/a.md",
                                                            "\n./seeksim museum both_send_last", 2}),
                         name_of);

std::vector<Violation> size_of(const File& file, const Targets&) { return check_size(file); }

INSTANTIATE_TEST_SUITE_P(
    Sizes, References,
    ::testing::Values(
        PlantedReference{
            "ALineTooWide", size_of, "docs/a.md",
            "\n0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 12",
            2},
        PlantedReference{
            "AWideTable", size_of, "docs/a.md",
            "| 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 |",
            0},
        PlantedReference{
            "AWideSample", size_of, "docs/a.md",
            "<!-- sample: x -->\n"
            "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 12\n"
            "<!-- end -->",
            0}),
    name_of);

TEST(Site, ListsEachPage) {
  const File page{"docs/a.md", "# Why?\n"}, generated{"docs/reference/b.md", "# Keys\n"};
  const File site{"mkdocs.yml", "nav:\n  - First:\n      - A: a.md\n      - B: reference/b.md\n"};
  EXPECT_TRUE(unlisted_pages({page, generated, site}).empty());
  const File without{"mkdocs.yml", "nav:\n  - B: reference/b.md\n"};
  const std::vector<Violation> found = unlisted_pages({page, generated, without});
  ASSERT_EQ(found.size(), 1u) << listing(found);
  EXPECT_EQ(found.front().file, "docs/a.md");
}

TEST(Sizes, OfPagesAreCounted) {
  const std::string lines(121, '\n');
  EXPECT_EQ(check_size({"README.md", lines}).size(), 1u);
  EXPECT_EQ(check_size({"README.md", lines.substr(1)}).size(), 0u);
  EXPECT_EQ(check_size({"docs/a.md", std::string(201, '\n')}).size(), 1u);
  EXPECT_EQ(check_size({"docs/reference/a.md", std::string(201, '\n')}).size(), 0u);
}

}  // namespace
}  // namespace seeksim::house
