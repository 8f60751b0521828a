// "numerics": "shapes" in a scenario: checks that need values are refused with their names, the others are judged, and
// the report never looks like that of a run with values.
#include "harness/loading/numerics.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/loading/extensions.h"
#include "harness/oracles/formulas.h"
#include "harness/verdict/checks.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string shapes_text(const std::string& checks = R"("checks": [ "memory_formula", "traffic_formula" ])") {
  return R"({ "name": "s", "numerics": "shapes",
  "model": { "layers": 1, "width": 16, "heads": 2, "context": 8, "vocab": 256 }, "data": { "synthetic": true },
  "world": { "nodes": 2, "ranks_per_node": 2 },
  "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": { "stage": 2 } },
  "steps": 2, "recovery": { "policy": "stop" }, )" +
         checks + " }";
}

TEST(ShapesScenario, RefusesEveryCheckOfValues) {
  for (const CheckInfo& info : check_catalogue()) {
    if (!info.of_values || own_check(info.name) != nullptr) continue;
    const std::string name = info.name;
    const std::string argument =
        name == "golden"                                                                           ? ":bitwise"
        : name == "skipped" || name == "spikes" || name == "diverged" || name.starts_with("rerun") ? ":none"
        : name == "loss_scale"                                                                     ? ":1,1"
        : name == "stagnates_at_least"                                                             ? ":0.1"
        : name == "tracks_fp32"                                                                    ? ":0.1"
        : name == "born"                                                                           ? ":{\"rank\":0}"
                                                                                                   : "";
    const std::string check = Json(name + argument).dump();
    const std::string wrong = problems_of(shapes_text("\"checks\": [ " + check + " ]"));
    EXPECT_NE(wrong.find("a shapes-only run has no values"), std::string::npos) << name << ": " << wrong;
    EXPECT_NE(wrong.find("What can be judged: "), std::string::npos) << wrong;
  }
}

TEST(ShapesScenario, RefusesWhatSpoilsOrShowsValues) {
  const std::vector<std::vector<std::string>> asks = {
      {"faults=[{\"kind\":\"nan_inject\",\"rank\":1,\"step\":0}]"},
      {"faults=[{\"kind\":\"bit_flip\",\"rank\":1,\"step\":0,\"site\":\"parameter\",\"bit\":3}]"},
      {"faults=[{\"kind\":\"loss_spike\",\"rank\":1,\"step\":0}]"},
      {"faults=[{\"kind\":\"message_corrupt\",\"rank\":1,\"step\":0,\"checksum\":false}]"},
      {"bug=drifting_lr"},
      {"bug=sample_lost"},
      {"quirks=[\"mean_of_micro_batch_means\"]"},
      {"provenance=true"},
      {"range_log=1"},
      {"golden={\"skip_steps\":[1]}"},
      {"model.init=weights.safetensors"},
  };
  for (const auto& sets : asks) {
    const std::string wrong = problems_of(shapes_text(), sets);
    EXPECT_NE(wrong.find("a shapes-only run has no values"), std::string::npos) << sets[0] << ": " << wrong;
  }
  EXPECT_EQ(problems_of(shapes_text(), {"bug=gather_twice"}), "");
  EXPECT_EQ(problems_of(shapes_text(), {"faults=[{\"kind\":\"message_corrupt\",\"rank\":1,\"step\":0}]"}), "");
}

TEST(ShapesScenario, RunsAndItsReportHasNoValues) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", shapes_text()), out = folder.file("report.json");
  const Ran ran = seeksim({"run", file, "--report", out});
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("a shapes-only run has no losses"), std::string::npos) << ran.out;
  const Json report = Json::parse(read_all(out));
  EXPECT_EQ(report["numerics"], "shapes");
  EXPECT_EQ(report["steps_committed"], 2);
  EXPECT_TRUE(report["params_digest"].is_null());
  for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(report[key], Json::array({nullptr, nullptr})) << key;
  const std::vector<std::string> judged = checks_of_shapes();
  for (const Json& check : report["checks"]) {
    const std::string name = check["name"];
    EXPECT_TRUE(name == "finished" || std::count(judged.begin(), judged.end(), name)) << name;
  }
}

TEST(ShapesScenario, SavesNoValues) {
  TemporaryFolder folder;
  const std::string file = folder.write("s.json", shapes_text());
  for (const std::vector<std::string>& save :
       {std::vector<std::string>{"--save-final", folder.file("f")}, {"--save-gradients", "1:" + folder.file("g")}}) {
    const Ran ran = seeksim({"run", file, save[0], save[1]});
    EXPECT_EQ(ran.status, 2) << ran.out;
    EXPECT_NE(ran.err.find("shapes-only run"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(seeksim({"golden", file}).status, 2);
}

// Hundreds of gigabytes a rank are no reason to refuse what takes none of them.
TEST(ShapesScenario, ALargeWorldIsNotRefused) {
  const std::vector<std::string> large = {"model.layers=48", "model.width=8192", "model.heads=64", "model.vocab=50257",
                                          "model.context=2048"};
  EXPECT_EQ(problems_of(shapes_text(), large), "");
  std::vector<std::string> exact = large;
  exact.insert(exact.end(), {"numerics=exact", "checks=[]"});
  EXPECT_NE(problems_of(shapes_text(), exact).find("of memory are needed"), std::string::npos);
}

TEST(ShapesScenario, ModelStateIsRoundedToTheDigitsAsWritten) {
  Scenario scenario = small_scenario();
  RunRecord run = good_run();
  const auto says = [&](const std::string& stated, double gigabytes) {
    run.memory.peak_by_tag.assign(run.memory.peak_by_tag.size(), 0);
    run.memory.peak_by_tag[std::size_t(runtime::MemoryTag::parameters)] = std::size_t(gigabytes * 1e9 / 2);
    run.memory.peak_by_tag[std::size_t(runtime::MemoryTag::optimizer)] = std::size_t(gigabytes * 1e9 / 2);
    run.memory.peak_by_tag[std::size_t(runtime::MemoryTag::activations)] = 77;
    return judge(CheckSpec{"model_state_gb", stated}, Evidence{scenario, run, nullptr, std::nullopt, {}}).ok;
  };
  EXPECT_TRUE(says("31.4", 31.44));
  EXPECT_FALSE(says("31.4", 31.46));
  EXPECT_FALSE(says("31.4", 31.34));
  EXPECT_TRUE(says("120", 120.4));
  EXPECT_FALSE(says("120", 120.6));
  EXPECT_TRUE(says("5,6,7,8", 5.1));
  EXPECT_FALSE(says("6,5,7,8", 5.1));
  scenario.train.layout.zero.stage = 3;
  EXPECT_TRUE(says("5,6,7,8", 8.0));
  EXPECT_NE(problems_of(shapes_text("\"checks\": [ \"model_state_gb:1,2\" ]")), "");
  EXPECT_NE(problems_of(shapes_text("\"checks\": [ \"model_state_gb:much\" ]")), "");
}

}  // namespace
}  // namespace seeksim::harness
