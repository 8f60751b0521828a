// A scenario survives being written and read, the stored schema is that of the rows, the published files are sound.
#include "harness/scenario/scenario.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "harness/input/json_text.h"
#include "harness/input/scenario_files.h"
#include "harness/input/schema.h"
#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/loading/reference.h"
#include "harness/record/golden.h"
#include "harness/scenario/variants.h"
#include "harness/verdict/checks.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::vector<std::string> scenario_files() { return scenarios_below(seeksim::paths::source_dir() + "/scenarios"); }

TEST(RoundTrip, WritingAndReadingChangesNothing) {
  for (const std::string& file : scenario_files()) {
    const Scenario first = load_scenario(file);
    const Json written = to_json(first);
    const Scenario second = load_scenario_text(written.dump(1), file);
    EXPECT_EQ(to_json(second), written) << file;
    EXPECT_EQ(golden_key(second.train.definition), golden_key(first.train.definition)) << file;
  }
}

TEST(RoundTrip, KeepsEveryKindOfFault) {
  const std::string faults = R"(  "faults": [
    { "kind": "collective_timeout", "rank": 2, "step": 1, "op": "all_reduce", "mode": "late", "delay_s": 0.25, "call": 3, "probability": 0.5, "count": 0 },
    { "kind": "link_drop", "link": { "nodes": [0, 1] }, "down_s": 1.5, "up_s": 2, "cycles": 3, "at_s": 0.125 },
    { "kind": "slow_link", "link": { "from": 3, "to": 0 }, "both_directions": false, "factor": 0.1 },
    { "kind": "straggler", "rank": 1, "mode": "periodic", "period_s": 5, "duty": 0.3, "factor": 3 },
    { "kind": "rank_crash", "rank": 3, "mode": "during", "phase": "grad_reduce", "step": 2 },
    { "kind": "rank_crash", "rank": 2, "step": 3, "op": "vote", "signal": "exit:0" },
    { "kind": "data_error", "sample": 21, "count": 2 },
    { "kind": "message_drop", "rank": 0, "peer": 1 },
    { "kind": "message_corrupt", "bit": 12345678901, "checksum": false } ],)";
  const Scenario first = load_scenario_text(small_text_with(8, faults), "s.json");
  ASSERT_EQ(first.faults.size(), 9u);
  const Scenario second = load_scenario_text(to_json(first).dump(), "s.json");
  ASSERT_EQ(second.faults.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(faults::text(second.faults[i]), faults::text(first.faults[i]));
}

TEST(RoundTrip, KeepsWhatIsNotDefault) {
  LoadOptions options;
  options.sets = {"seed=7",
                  "training_seed=9007199254740992",
                  "decay=all",
                  "model.tied=false",
                  "model.norm_eps=1e-6",
                  "model.logit_scale=true",
                  "model.frozen=[\"h.0.*\",\"wpe.weight\"]",
                  "world.noise=0",
                  "world.device.memory_gib=0.5",
                  "deepspeed.optimizer={\"type\":\"Adam\",\"params\":{\"adam_w_mode\":false,\"lr\":0.1}}",
                  "deepspeed.gradient_clipping=0",
                  "deepspeed.scheduler={\"type\":\"WarmupCosineLR\",\"params\":{\"total_num_steps\":50,\"warmup_num_"
                  "steps\":5,\"cos_min_ratio\":0.5}}",
                  "recovery={\"policy\":\"retry_step\",\"watchdog_s\":1.5,\"agree_s\":2.5,\"attempts\":3,\"rerun_and_"
                  "compare\":true,"
                  "\"memory_ladder\":true}",
                  "expect={\"check_fails\":\"culprit\"}",
                  "storage=real"};
  const Scenario first = load_scenario_text(small_text(), "s.json", options);
  const Scenario second = load_scenario_text(to_json(first).dump(), "s.json");
  EXPECT_EQ(to_json(second), to_json(first));
  EXPECT_EQ(second.train.definition.training_seed, 9007199254740992ull);
  EXPECT_TRUE(second.train.definition.model.logit_scale);
  EXPECT_EQ(second.train.definition.model.frozen, (std::vector<std::string>{"h.0.*", "wpe.weight"}));
  EXPECT_EQ(second.train.definition.optimizer.type, "Adam");
  EXPECT_EQ(second.world.device.capacity_bytes, std::size_t(1) << 29);
  EXPECT_EQ(second.train.recovery.watchdog_ns, 1'500'000'000);
  EXPECT_TRUE(second.train.recovery.rerun_and_compare);
  EXPECT_TRUE(second.train.recovery.memory_ladder);
  EXPECT_EQ(second.expect.argument, "culprit");
}

TEST(RoundTrip, OfARateTable) {
  LoadOptions options;
  options.sets = {"lr_table=[0.25,0.5]"};
  const Scenario s = load_scenario_text(small_text(), "s.json", options);
  EXPECT_EQ(s.train.definition.scheduler.type, "table");
  EXPECT_EQ(load_scenario_text(to_json(s).dump(), "s.json").train.definition.scheduler.table,
            (std::vector<double>{0.25, 0.5}));
}

TEST(Schema, TheStoredFileIsMadeFromTheRows) {
  EXPECT_EQ(read_all(seeksim::paths::source_dir() + "/scenarios/schema.json"), schema_text())
      << "Write it again: seeksim list schema > scenarios/schema.json";
}

TEST(Schema, AcceptsEveryScenario) {
  std::vector<std::string> texts = {small_text()};
  for (const std::string& file : scenario_files()) texts.push_back(read_all(file));
  for (const std::string& text : texts) EXPECT_TRUE(explain(scenario_schema(), parse_json(text, "f").value).empty());
}

// One wrong value after the other, at every place of the document.
TEST(Schema, APlaceThatIsNamedIsAtTheWrongValueOrAboveIt) {
  const Json good = parse_json(small_text(), "f").value;
  int wrong = 0;
  const Json flat = good.flatten();
  for (const auto& [pointer, ignored] : flat.items()) {
    for (const Json& other : {Json(nullptr), Json(-1), Json(0), Json(1.5), Json("x"), Json(""), Json(true),
                              Json::array(), Json::object(), Json{{"x", 1}}, Json(1e300)}) {
      Json changed = good;
      changed[Json::json_pointer(pointer)] = other;
      for (const SchemaProblem& problem : explain(scenario_schema(), changed)) {
        ++wrong;
        EXPECT_EQ(problem.pointer.compare(0, pointer.size(), pointer), 0) << pointer << " = " << other;
      }
    }
  }
  EXPECT_GT(wrong, 100);
}

TEST(Schema, LooksIntoAnObjectWhoseKeysAreFree) {
  const std::string plan = R"(  "fault_plan": { "random": { "kinds": { "rank_crash": -1 } } },)";
  EXPECT_NE(problems_of(small_text_with(8, plan)).find("fault_plan.random.kinds.rank_crash: -1 is out of range"),
            std::string::npos);
}

TEST(KeysReference, NamesEveryKeyOnLinesOfAHundredColumns) {
  const std::string page = keys_reference();
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  for (const KeyInfo& key : schema_keys(scenario_schema())) {
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    EXPECT_NE(page.find("- `" + name + "` ("), std::string::npos) << key.path;
  }
  EXPECT_NE(page.find("- `layers` (integer, 1 to 256; required; **may decide a bit**). Transformer"),
            std::string::npos);
}

TEST(Schema, DescribesEveryKeyThatItHas) {
  for (const KeyInfo& key : schema_keys(scenario_schema())) {
    if (key.path.find("deepspeed.") == 0 && std::count(key.path.begin(), key.path.end(), '.') >= 2)
      continue;  // DeepSpeed's own documentation
    EXPECT_FALSE(key.text.empty()) << key.path;
  }
}

TEST(Schema, KnowsEveryKeyOfTheCatalogues) {
  const Json& properties = scenario_schema()["properties"];
  for (const faults::FaultInfo& info : faults::catalogue()) {
    for (const std::string_view key : info.parameters)
      EXPECT_TRUE(properties["faults"]["items"]["properties"].contains(std::string(key))) << key;
  }
  for (const auto& [key, ignored] : properties["checks"]["items"]["properties"].items()) {
    bool known = false;
    for (const CheckInfo& info : check_catalogue()) known |= key == info.name;
    EXPECT_TRUE(known) << key;
  }
}

TEST(Estimate, GrowsWithTheModelAndTheWorld) {
  Scenario s = small_scenario();
  const Estimate small = estimate(s);
  EXPECT_EQ(small.parameters, 256 * 16 + 8 * 16 + 12 * 256 + 13 * 16 + 2 * 16);
  s.train.checkpoint.path = "checkpoints";  // three on disks that are memory, and a snapshot, of weights and moments
  s.train.checkpoint.every_steps = 1;
  EXPECT_EQ(estimate(s).bytes, small.bytes + 4 * 12 * small.parameters);
  s.train.checkpoint = {};
  s.world.nodes *= 10;
  EXPECT_GT(estimate(s).bytes, 5 * small.bytes);
  s.train.definition.model.width *= 10;
  EXPECT_GT(estimate(s).bytes_per_rank, 10 * small.bytes_per_rank);
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(count_text(124439808), "124.4 M");
}

TEST(OneRank, IsTheSameTrainingAlone) {
  const Scenario s = small_scenario();
  const Scenario one = one_rank(s);
  EXPECT_EQ(one.world.ranks(), 1);
  EXPECT_TRUE(one.faults.empty());
  EXPECT_EQ(golden_key(one.train.definition), golden_key(s.train.definition));
}

}  // namespace
}  // namespace seeksim::harness
