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
  int first = 0, shown = 0, all = 0;
  for (const char* name : {"loss_scale_of_one_rank", "sizes_differ", "freed_while_in_use", "local_layer_number",
                           "recomputation_saves_nothing", "pieces_mixed_up"}) {
    const Explanation why = explain_exhibit(name);
    const std::vector<std::string> names = alike(why);
    first += !names.empty() && names.front() == name;
    shown += std::find(names.begin(), names.end(), name) != names.end();
    ++all;
    EXPECT_FALSE(why.red.empty()) << name;
    EXPECT_FALSE(why.causes.empty()) << name;
  }
  EXPECT_GE(shown, all - 1);
  EXPECT_GE(first, all / 2);
}

TEST(Explain, ABitFlipIsNamedWithItsFirstNumberAndItsFault) {
  const Explanation why = explain_exhibit("bit_flipped_in_a_gradient");
  ASSERT_TRUE(why.difference.any);
  ASSERT_TRUE(why.difference.op.has_value());
  EXPECT_FALSE(why.difference.op->bits_a.empty());
  EXPECT_NE(why.difference.op->bits_a, why.difference.op->bits_b);
  const std::string text = explanation_text(why, {});
  EXPECT_NE(text.find("injected: {\"kind\": \"bit_flip\""), std::string::npos) << text;
  EXPECT_NE(text.find("visible in the loss curve: no"), std::string::npos) << text;
  EXPECT_EQ(explanation_json(why).at("step"), why.difference.step);
}

TEST(Explain, LikenessIsOfWhatRunsShow) {
  Signature a;
  a.red = {"golden", "replicas_equal"};
  a.end = "finished";
  a.phase = "backward", a.kind = "compute", a.tag = "gradients";
  a.setting = {"stage 2", "fp16"};
  EXPECT_EQ(likeness(a, a).score, 1);
  Signature b = a;
  b.phase = "forward";
  EXPECT_LT(likeness(a, b).score, 1);
  Signature c = b;
  c.red = {"no_races"};
  EXPECT_LT(likeness(a, c).score, likeness(a, b).score);
  EXPECT_EQ(likeness(a, c).score, likeness(c, a).score);
}

TEST(Explain, TheCommandPrintsAPageAndTheReportHasIt) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", small_text());
  const std::string report = folder.file("r.json");
  const Ran ran = seeksim({"run", file, "--set", "bug=drifting_replica", "--set", "faults=[]", "--set",
                           "checks=[\"golden:bitwise\"]", "--explain", "--report", report});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.out.find("Why it failed"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("planted: drifting_replica"), std::string::npos) << ran.out;
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
