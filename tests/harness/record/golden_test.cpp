// Goldens: the key sees all that may decide a bit and nothing else; files are read back exactly, and broken ones
// refused.
#include "harness/record/golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "harness/input/problem.h"
#include "harness/input/schema.h"
#include "harness/loading/load.h"
#include "harness/loading/scenario_json.h"
#include "harness/record/same_bits.h"
#include "harness/scenario/variants.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string key_with(const std::vector<std::string>& sets) {
  LoadOptions options;
  options.sets = sets;
  return golden_key(one_rank(load_scenario_text(small_text(), "s.json", options)).train.definition);
}

// docs/numerics.md#r9: what a NaN looks like is the processor's.
TEST(SameBits, ANaNIsANaNAndMinusZeroIsNotZero) {
  EXPECT_TRUE(same_bits(std::bit_cast<float>(0xffc00000u), std::bit_cast<float>(0x7fffffffu)));
  EXPECT_TRUE(same_bits(-0.0f, -0.0f));
  EXPECT_FALSE(same_bits(-0.0f, 0.0f));
  EXPECT_FALSE(same_bits(1.0f, std::bit_cast<float>(0x7fc00000u)));
  EXPECT_FALSE(same_bits(1.0f, std::bit_cast<float>(0x3f800001u)));
}

TEST(GoldenKey, IgnoresWhatMayNotDecideABit) {
  const std::string key = key_with({});
  const std::vector<std::vector<std::string>> idle = {
      {"name=other"},
      {"why=because"},
      {"seed=99"},
      {"world.nodes=1", "faults=[]", "checks=[]"},
      {"world.ranks_per_node=1", "faults=[]", "checks=[]", "deepspeed.train_micro_batch_size_per_gpu=4"},
      {"world.network=tcp"},
      {"world.noise=0.5"},
      {"world.race_detector=false"},
      {"bug=skip_wait:backward_done"},
      {"world.device={\"tflops\":1,\"memory_gib\":8}"},
      {"deepspeed.train_micro_batch_size_per_gpu=2"},
      {"deepspeed.gradient_accumulation_steps=2"},
      {"deepspeed.zero_optimization={\"stage\":0,\"reduce_bucket_size\":1000}"},
      {"deepspeed.steps_per_print=7"},
      {"deepspeed.prescale_gradients=true"},
      {"faults=[]", "checks=[\"no_recovery\"]"},
      {"faults.0.step=2"},
      {"recovery={\"policy\":\"stop\",\"watchdog_s\":5,\"agree_s\":5,\"attempts\":1}"},
      {"recovery={\"rerun_and_compare\":true}"},
      {"recovery={\"memory_ladder\":true}"},
      {"schedule={\"strategy\":\"pct\"}"},
      {"checks=[]"},
      {"expect={\"stops\":\"x\"}"},
      {"model.logit_scale=false"},
      {"model.dropout=0"},
      {"model.frozen=[]"},
      {"storage=real"},
      {"checkpointing={\"every\":1}"},
      {"deepspeed.activation_checkpointing={\"number_checkpoints\":1,\"cpu_checkpointing\":true}"},
      {"deepspeed.optimizer.params.fused=true"},
      {"deepspeed.optimizer.params.lr=0.001"},
  };
  for (const auto& sets : idle) EXPECT_EQ(key_with(sets), key) << sets[0];
}

// Settings that change the key of a golden, by the key of the scenario that does it.
struct Telling {
  std::string key;
  std::vector<std::string> sets;
};

std::vector<Telling> telling() {
  std::vector<Telling> all = {
      {"training_seed", {"training_seed=2"}},
      {"steps", {"steps=5"}},
      {"decay", {"decay=all"}},
      {"lr_table", {"lr_table=[0.001]"}},
      {"lr_table", {"lr_table=[0.001,0.002]"}},
      {"quirks", {"quirks=[\"ds_old_default_clipping\"]"}},
      {"data.text", {"data={\"text\":\"golden/corpus.txt\"}"}},
      {"data.synthetic", {"data={\"text\":\"golden/README.md\"}"}},
      {"golden.skip_steps", {"golden.skip_steps=[1]"}},
      {"golden.drop_batches", {"golden.drop_batches=[1]"}},
      {"changes.N.step", {"changes=[{\"step\":1,\"lr_scale\":0.5}]"}},
      {"changes.N.lr_scale", {"changes=[{\"step\":1,\"lr_scale\":0.25}]"}},
      {"changes.N.gradient_clipping", {"changes=[{\"step\":1,\"gradient_clipping\":0.5}]"}},
      {"changes.N.step", {"changes=[{\"step\":2,\"lr_scale\":0.5}]"}},
      {"golden.undo_changes",
       {"changes=[{\"step\":1,\"lr_scale\":0.75},{\"step\":2,\"lr_scale\":3}]", "golden.undo_changes=[2]"}},
      {"deepspeed.train_batch_size", {"deepspeed.train_batch_size=16"}},
      {"deepspeed.gradient_clipping", {"deepspeed.gradient_clipping=0"}},
      {"deepspeed.gradient_clipping", {"deepspeed.gradient_clipping=0.5"}},
      {"deepspeed.bf16.enabled", {"deepspeed.bf16={\"enabled\":true}"}},
      {"deepspeed.bf16.bf16_master_weights_and_grads",
       {"deepspeed.bf16={\"enabled\":true,\"bf16_master_weights_and_grads\":true}"}},
      {"stochastic_rounding",
       {"deepspeed.bf16={\"enabled\":true,\"bf16_master_weights_and_grads\":true}", "stochastic_rounding=true"}},
      {"deepspeed.data_types.grad_accum_dtype",
       {"deepspeed.bf16={\"enabled\":true}", "deepspeed.data_types={\"grad_accum_dtype\":\"fp32\"}"}},
  };
  const auto add = [&](const std::string& object, const std::vector<std::string>& before,
                       const std::vector<std::pair<const char*, const char*>>& values) {
    for (const auto& [name, value] : values) {
      Telling one{object + '.' + name, before};
      one.sets.push_back(one.key + '=' + value);
      all.push_back(one);
    }
  };
  add("model", {},
      {{"layers", "2"},
       {"width", "32"},
       {"heads", "4"},
       {"context", "9"},
       {"vocab", "257"},
       {"tied", "false"},
       {"logit_scale", "true"},
       {"dropout", "0.1"},
       {"frozen", "[\"wte.weight\"]"},
       {"frozen", "[\"h.0.*\"]"},
       {"init_stddev", "0.03"},
       {"norm_eps", "1e-6"},
       {"attention", "fused"},
       {"gradient_sums", "segments"},
       {"family", "llama"}});
  add("evaluation", {"evaluation.samples=4"}, {{"samples", "5"}, {"every_steps", "2"}});
  add("data", {"data={\"text\":\"golden/corpus.txt\"}"}, {{"held_out_bytes", "100"}});
  add("data.sampler", {R"(data={"synthetic":true,"sampler":{"order":"shuffled","samples":90}})"},
      {{"order", "sequential"}, {"seed", "3"}, {"samples", "91"}, {"drop_last", "true"}});
  add("data.packing", {R"(data={"synthetic":true,"packing":{"separator":4}})"}, {{"separator", "5"}});
  const std::string curriculum = R"(curriculum={"min_difficulty":2,"max_difficulty":7,"schedule_type":)";
  add("curriculum",
      {curriculum +
       R"("fixed_linear","schedule_config":{"total_curriculum_step":9,"difficulty_step":1,"root_degree":2}})"},
      {{"min_difficulty", "3"}, {"max_difficulty", "6"}, {"schedule_type", "fixed_root"}});
  add("curriculum.schedule_config",
      {curriculum +
       R"("fixed_root","schedule_config":{"total_curriculum_step":9,"difficulty_step":1,"root_degree":2}})"},
      {{"total_curriculum_step", "8"}, {"difficulty_step", "2"}, {"root_degree", "3"}});
  add("curriculum.schedule_config",
      {curriculum + R"("fixed_discrete","schedule_config":{"difficulty":[2,5],"max_step":[3]}})"},
      {{"difficulty", "[2,6]"}, {"max_step", "[4]"}});
  add("model.dropout", {}, {{"embedding", "0.1"}, {"attention", "0.1"}, {"residual", "0.1"}});
  add("model", {"model.family=llama"}, {{"kv_heads", "1"}, {"ffn", "24"}, {"rope_theta", "500"}, {"experts", "4"}});
  add("model", {"model.family=llama", "model.experts=4", "model.ffn=16"}, {{"expert_sums", "slabs"}});
  add("model", {"model.family=llama", "model.experts=4", "model.ffn=20"},
      {{"experts_per_token", "3"},
       {"capacity_factor", "1"},
       {"normalize_gates", "false"},
       {"aux_loss", "0.01"},
       {"z_loss", "0.01"},
       {"gate", "\"sigmoid\""},
       {"gate_scale", "2"},
       {"shared_experts", "1"}});
  add("model", {"model.family=llama", "model.experts=4", "deepspeed.train_micro_batch_size_per_gpu=2"},
      {{"routing_samples", "2"}});
  add("model", {"model.family=llama", "model.experts=4", "model.layers=2"}, {{"dense_layers", "1"}});
  add("model", {"model.family=llama", "model.experts=4", "model.layers=2", "model.dense_layers=1"},
      {{"dense_ffn", "30"}});
  add("deepspeed.optimizer", {"deepspeed.optimizer.params={\"adam_w_mode\":false}"}, {{"type", "Adam"}});
  add("deepspeed.optimizer.params", {},
      {{"lr", "0.002"},
       {"betas", "[0.8,0.999]"},
       {"betas", "[0.9,0.95]"},
       {"eps", "1e-7"},
       {"weight_decay", "0.1"},
       {"torch_adam", "true"},
       {"bias_correction", "false"}});
  add("deepspeed.optimizer.params", {"deepspeed.optimizer.type=Adam", "deepspeed.optimizer.params.lr=0.003"},
      {{"adam_w_mode", "false"}});
  add("deepspeed.optimizer", {}, {{"type", "Muon"}});
  add("deepspeed.optimizer.params", {"deepspeed.optimizer.type=Muon"},
      {{"muon_lr", "0.05"}, {"adam_lr", "0.05"}, {"momentum", "0.8"}});
  add("deepspeed.optimizer", {}, {{"type", "SGD"}});
  add("deepspeed.optimizer.params", {R"(deepspeed.optimizer={"type":"SGD","params":{"momentum":0.9}})"},
      {{"momentum", "0.8"}, {"dampening", "0.1"}, {"nesterov", "true"}, {"weight_decay", "0.2"}});
  add("ema", {}, {{"decay", "0.5"}, {"decay", "0.75"}});
  add("deepspeed.scheduler", {}, {{"type", "WarmupLR"}});
  add("deepspeed.scheduler.params", {"deepspeed.scheduler.type=WarmupLR"},
      {{"warmup_type", "linear"}, {"warmup_num_steps", "10"}, {"warmup_min_lr", "1e-9"}, {"warmup_max_lr", "1"}});
  add("deepspeed.scheduler.params", {"deepspeed.scheduler.type=WarmupDecayLR"},
      {{"total_num_steps", "2000"}, {"total_num_steps", "2001"}});
  add("deepspeed.scheduler.params",
      {"deepspeed.scheduler.type=WarmupCosineLR", "deepspeed.scheduler.params.total_num_steps=2000"},
      {{"warmup_min_ratio", "0.1"}, {"cos_min_ratio", "0.1"}});
  add("deepspeed.fp16", {}, {{"enabled", "true"}});
  add("deepspeed.fp16", {"deepspeed.fp16.enabled=true"},
      {{"loss_scale", "8"},
       {"initial_scale_power", "8"},
       {"loss_scale_window", "5"},
       {"hysteresis", "3"},
       {"consecutive_hysteresis", "true"},
       {"min_loss_scale", "2"}});
  add("grad_scaler", {"deepspeed.fp16.enabled=true"},
      {{"init_scale", "1024"},
       {"growth_factor", "4"},
       {"backoff_factor", "0.25"},
       {"growth_interval", "7"},
       {"enabled", "false"}});
  add("compression", {"compression={\"method\":\"sign\",\"groups\":4}"},
      {{"method", "int8"}, {"groups", "2"}, {"error_feedback", "false"}});
  add("compression", {"compression={\"method\":\"top\",\"groups\":4}"}, {{"top", "8"}});
  add("staleness", {"staleness={\"workers\":4,\"bound\":2,\"delays\":\"drawn\"}"},
      {{"workers", "8"}, {"bound", "3"}, {"delays", "most"}, {"seed", "9"}});
  add("staleness", {"staleness={\"workers\":2,\"bound\":2,\"delays\":\"listed\",\"of_workers\":[1,2]}"},
      {{"of_workers", "[2,1]"}});
  add("compression", {"compression={\"method\":\"power\",\"groups\":4}"},
      {{"rank", "2"}, {"warm_start", "false"}, {"start_step", "1"}});
  const std::string momentum = R"(compression={"method":"sign","groups":4,"optimizer":"onebit_adam","start_step":2})";
  all.push_back({"compression.optimizer", {"deepspeed.gradient_clipping=0", momentum}});
  add("compression", {"deepspeed.gradient_clipping=0", momentum}, {{"start_step", "3"}});
  add("local_sgd", {"local_sgd={\"workers\":4,\"every\":2,\"outer\":{\"type\":\"sgd\"}}"},
      {{"workers", "8"}, {"every", "3"}});
  add("local_sgd.outer", {"local_sgd={\"workers\":4,\"every\":2,\"outer\":{\"type\":\"sgd\"}}"},
      {{"type", "nesterov"}, {"lr", "0.5"}, {"momentum", "0.5"}});
  add("deepspeed.zero_optimization", {"deepspeed.zero_optimization={\"stage\":3}"},
      {{"zero_quantized_weights", "true"}});
  all.push_back(
      {"quantized_weights_block",
       {"deepspeed.zero_optimization={\"stage\":3,\"zero_quantized_weights\":true}", "quantized_weights_block=64"}});
  add("deepspeed.zero_optimization",
      {"deepspeed.zero_optimization={\"stage\":3}", "quantized_gradients={\"groups\":8}"},
      {{"zero_quantized_gradients", "true"}});
  add("quantized_gradients",
      {"deepspeed.zero_optimization={\"stage\":3,\"zero_quantized_gradients\":true}",
       "deepspeed.train_micro_batch_size_per_gpu=2", "quantized_gradients={\"groups\":8,\"inner\":2}"},
      {{"groups", "4"}, {"inner", "4"}, {"bits", "8"}, {"outer_bits", "4"}, {"block", "64"}});
  add("fp8", {"fp8={\"scaling\":\"delayed\"}"},
      {{"scaling", "mx"},
       {"format", "e4m3"},
       {"amax_history_len", "7"},
       {"amax_compute_algo", "most_recent"},
       {"margin", "1"},
       {"power_2_scale", "true"}});
  return all;
}

TEST(GoldenKey, SeesWhatMay) {
  std::set<std::string> keys = {key_with({})};
  for (const Telling& one : telling())
    EXPECT_TRUE(keys.insert(key_with(one.sets)).second) << one.sets.back() << " does not change the key";
}

// The rows of the keys say which may decide a bit: those of the table above and no others.
TEST(GoldenKey, GoesByTheKeysWhoseRowsSayThatTheyMayDecideABit) {
  std::set<std::string> shown = {"model.init", "data.batches"};  // by content: below
  for (const Telling& one : telling()) shown.insert(one.key);
  std::set<std::string> said;
  const std::vector<KeyInfo> rows = schema_keys(scenario_schema());
  const auto is_object = [&](const KeyInfo& row) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const KeyInfo& other) { return other.path.starts_with(row.path + '.'); });
  };
  for (const KeyInfo& row : rows) {
    if (row.decides_bits && (!is_object(row) || row.path == "model.dropout")) said.insert(row.path);
  }
  EXPECT_EQ(said, shown);
}

TEST(GoldenKey, GoesByWhatIsFrozenAndNotByItsPatterns) {
  EXPECT_EQ(key_with({"model.frozen=[\"w*\"]"}), key_with({"model.frozen=[\"wpe.weight\",\"wte.*\"]"}));
  EXPECT_NE(key_with({"model.frozen=[\"w*\"]"}), key_with({"model.frozen=[\"wpe.weight\"]"}));
}

TEST(GoldenKey, GoesByContentAndNotByName) {
  TemporaryFolder folder;
  const auto key = [&](const std::string& file) { return key_with({"data={\"text\":\"" + file + "\"}"}); };
  const std::string a = folder.write("a.txt", std::string(100, 'a')),
                    same = folder.write("same.txt", std::string(100, 'a'));
  const std::string b = folder.write("b.txt", std::string(99, 'a') + 'b');
  EXPECT_EQ(key(a), key(same));
  EXPECT_NE(key(a), key(b));
  Scenario s = small_scenario();
  const std::string without = golden_key(s.train.definition);
  s.train.definition.initial_weights = "weights";
  const std::string with = golden_key(s.train.definition);
  EXPECT_NE(with, without);
  s.train.definition.initial_weights = "other weights";
  EXPECT_NE(golden_key(s.train.definition), with);
  s.train.definition.data.tokens = {1, 2, 3};
  const std::string tokens = golden_key(s.train.definition);
  s.train.definition.data.tokens = {1, 2, 4};
  EXPECT_NE(golden_key(s.train.definition), tokens);
}

TEST(GoldenFile, IsReadBackExactly) {
  const Scenario scenario = small_scenario();
  RunRecord run = good_run();
  run.steps[1].loss = 0.1f;
  run.steps[2].loss = std::nanf("");
  run.steps[3].grad_norm = -INFINITY;
  const Golden golden = golden_of(run, golden_key(scenario.train.definition));
  const Golden back = read_golden(to_json(golden, scenario).dump(), "g.json");
  EXPECT_EQ(back.key, golden.key);
  EXPECT_EQ(back.state, golden.state);
  EXPECT_EQ(back.loss[1], 0.1f);
  EXPECT_TRUE(std::isnan(back.loss[2]));
  EXPECT_EQ(back.grad_norm[3], -INFINITY);
  EXPECT_TRUE(back.stored);
  EXPECT_EQ(difference(back, golden.state), "");
}

TEST(GoldenFile, SaysWhereItCameFrom) {
  const Scenario scenario = small_scenario();
  const Json json = to_json(golden_of(good_run(), "k"), scenario);
  EXPECT_EQ(json["schema"], "seeksim-golden-1");
  EXPECT_EQ(json["keyed_by"]["contract"], kContract);
  EXPECT_NE(json["made_by"]["build"].get<std::string>().find("seeksim"), std::string::npos);
  EXPECT_FALSE(json["made_by"]["commit"].get<std::string>().empty());
}

TEST(GoldenFile, BrokenOnesAreTold) {
  const std::string good = to_json(golden_of(good_run(), "k"), small_scenario()).dump();
  const auto problem = [](const std::string& text) -> std::string {
    try {
      read_golden(text, "g.json");
      return "";
    } catch (const BadInput& bad) {
      return bad.what();
    }
  };
  EXPECT_EQ(problem(good), "");
  EXPECT_NE(problem("{}").find("g.json: this is no golden"), std::string::npos);
  EXPECT_NE(problem(good.substr(0, good.size() / 2)).find("g.json:1:"), std::string::npos);
  std::string bad_digest = good;
  bad_digest.replace(bad_digest.find("0000000000001111"), 4, "xyz!");
  EXPECT_NE(problem(bad_digest).find("16 hexadecimal digits"), std::string::npos);
  EXPECT_NE(problem("[]").find("this is no golden"), std::string::npos);
  for (const char* number : {"1e300", "-1.5", "18446744073709551615"}) {
    Json of_no_step = Json::parse(good);
    of_no_step["optimizer_steps"] = Json::parse(number);
    EXPECT_NE(problem(of_no_step.dump()).find("optimizer_steps is no whole number"), std::string::npos) << number;
  }
}

TEST(StoredGoldens, AreOfThisContractAndNamedByTheirKeys) {
  const std::string folder = seeksim::paths::source_dir() + "/golden";
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string text = read_all(entry.path().string());
    const Golden golden = read_golden(text, entry.path().string());
    EXPECT_NE(entry.path().filename().string().find('-' + golden.key + ".json"), std::string::npos);
    EXPECT_EQ(Json::parse(text)["keyed_by"]["contract"], kContract);
    EXPECT_EQ(golden.loss.size(), golden.grad_norm.size());
    ++seen;
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace seeksim::harness
