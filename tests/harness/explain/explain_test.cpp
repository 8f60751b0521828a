// run --explain: what differs first, what caused it, and which exhibits look alike, judged by what runs show.
#include "harness/explain/explain.h"

#include "harness/explain/museum.h"
#include "harness/input/json_text.h"
#include "harness/loading/load.h"
#include "harness/run/run.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

// Loads an exhibit without its name and without all that says what is planted, except the mistake itself.
Explanation explain_exhibit(const std::string& name) {
  const MuseumExhibit exhibit = museum_exhibits({name}).front();
  Json json = exhibit.json;
  json["name"] = "mine";
  json["expect"] = "pass";
  const Scenario scenario = load_scenario_text(dump(json), exhibit.file);
  const Outcome outcome = run_scenario(scenario, {}, [](std::string_view) {});
  EXPECT_EQ(outcome.status, ExitStatus::check_failed) << name;
  return explain(scenario, outcome.report, 30);
}

std::vector<std::string> alike(const Explanation& explanation) {
  std::vector<std::string> names;
  for (const LikeExhibit& one : explanation.exhibits) names.push_back(one.name);
  return names;
}

// Likeness depends on what a run shows. The planted mistake's name plays no part, so other exhibits may look the same.
TEST(Explain, AnExhibitLooksLikeItself) {
  int shown = 0, all = 0;
  for (const char* name : {"sizes_differ", "freed_while_in_use", "local_layer_number", "pieces_mixed_up"}) {
    const Explanation why = explain_exhibit(name);
    const std::vector<std::string> names = alike(why);
    shown += std::find(names.begin(), names.end(), name) != names.end();
    ++all;
    EXPECT_FALSE(why.red.empty()) << name;
    EXPECT_FALSE(why.planted.empty()) << name;
  }
  EXPECT_GE(shown, all - 1);
}

// The fault is told apart from what went wrong, and the number is named.
TEST(Explain, ABitFlipIsNamedWithItsFirstNumberAndItsFault) {
  const Explanation why = explain_exhibit("bit_flipped_in_a_gradient");
  ASSERT_TRUE(why.names.culprit.has_value());
  EXPECT_TRUE(why.names.culprit->struck);
  EXPECT_EQ(why.names.culprit->rank, 1);
  EXPECT_EQ(why.names.culprit->op.step, 2);
  EXPECT_FALSE(why.names.culprit->have.empty());
  const std::string text = explanation_text(why, {});
  EXPECT_NE(text.find("injected  {\"kind\": \"bit_flip\""), std::string::npos) << text;
  EXPECT_NE(text.find("an injected fault struck it"), std::string::npos) << text;
  EXPECT_NE(text.find("visible in the loss curve: no"), std::string::npos) << text;
  EXPECT_EQ(text.find(" %:"), std::string::npos) << text;  // likeness has no number
  EXPECT_EQ(explanation_json(why).at("names").at("step"), 2);
}

TEST(Explain, SignsAreInWordsAndOfBoth) {
  Signature a;
  a.red = {"golden", "replicas_equal"};
  a.operation = "backward compute";
  a.family = "h.*.mlp.c_fc.weight";
  a.mistake = Mistake::gradient;
  EXPECT_EQ(common_signs(a, a).size(), 4u);
  EXPECT_EQ(common_signs(a, a).front(), "same operation, backward compute");
  Signature b = a;
  b.operation = "forward compute";
  EXPECT_EQ(common_signs(a, b).size(), 3u);
  b.red = {"no_races"};
  EXPECT_EQ(common_signs(a, b).size(), 2u);
  EXPECT_TRUE(common_signs(a, Signature{}).empty());
}

// Whatever the run that is explained does to its process, the program itself goes on.
TEST(Explain, AnUnexpectedRedIsNamedFirst) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text()), report = folder.file("r.json");
  const std::vector<std::string> red = {"run",      file,        "--set", "bug=sample_twice",
                                        "--set",    "faults=[]", "--set", "checks=[\"golden:bitwise\"]",
                                        "--report", report};
  const Ran ran = seeksim(red);
  EXPECT_EQ(ran.status, 1);
  const std::size_t first = ran.out.find("  first     compute 'edited gradients' in backward");
  ASSERT_NE(first, std::string::npos) << ran.out;
  EXPECT_LT(first, ran.out.find("FAIL")) << ran.out;
  EXPECT_EQ(Json::parse(read_all(report)).at("names").at("kind"), "compute");
  std::vector<std::string> unnamed = red;
  unnamed.push_back("--no-names");
  EXPECT_EQ(seeksim(unnamed).out.find("  first     "), std::string::npos);
}

TEST(Explain, TheCommandPrintsAPageAndTheReportHasIt) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  const std::string report = folder.file("r.json");
  const Ran ran = seeksim({"run", file, "--set", "bug=drifting_replica", "--set", "faults=[]", "--set",
                           "checks=[\"golden:bitwise\"]", "--explain", "--report", report});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("Why it failed"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("the bug drifting_replica"), std::string::npos) << ran.out;
  const Json json = Json::parse(read_all(report));
  EXPECT_FALSE(json.at("explanation").at("red").empty());
  EXPECT_LE(std::count(ran.out.begin(), ran.out.end(), '\n'), 90);
}

TEST(Explain, NothingRedNothingToExplain) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  const Ran ran = seeksim({"run", file, "--set", "faults=[]", "--set", "checks=[]", "--explain"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_NE(ran.out.find("there is nothing to explain"), std::string::npos) << ran.out;
  EXPECT_EQ(seeksim({"run", file, "--set", R"(sweep={"seed":[1,2]})", "--explain"}).status, 2);
}

}  // namespace
}  // namespace seeksim::harness
