// Quantised weights against an emulation that shares none of their code: with Lion and betas of 0 a step moves each
// weight by the rate and a sign. So a step of a run with quantised weights is a plain run of one rank, one step long,
// from weights that these few lines have rounded: its loss and its norm are the step's, its signs are what the exact
// weights move by. Then what quantised weights cannot be together with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/input/problem.h"
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/files/safetensors.h"
#include "runtime/model/weights.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using Values = std::vector<float>;

constexpr int kSteps = 3;
constexpr float kRate = 0x1p-9F;

struct Case {
  const char* family;
  int ranks;
  int block;
  int threshold;  // parameters with at most so many elements stay gathered
};

std::string text_of(const Case& c, double rate, int steps, bool quantised) {
  return fmt::format(
      R"({{ "name": "emulated",
  "model": {{ "family": "{}", "layers": 2, "width": 48, "heads": 4, "context": 8, "vocab": 61 }},
  "data": {{ "synthetic": true }}, "world": {{ "nodes": 1, "ranks_per_node": {} }},
  "deepspeed": {{ "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0,
    "optimizer": {{ "type": "Lion", "params": {{ "lr": {}, "betas": [0, 0], "weight_decay": 0 }} }},
    "zero_optimization": {{ "stage": 3, "zero_quantized_weights": {}, "stage3_param_persistence_threshold": {} }} }},
  "quantized_weights_block": {}, "batch_arithmetic": "by_samples", "steps": {} }})",
      c.family, quantised ? c.ranks : 1, rate, quantised, c.threshold, c.block, steps);
}

RunRecord run_of(Scenario scenario) {
  SimulationOptions options;
  options.keep_final_weights = true;
  Simulation simulation(scenario, options);
  RunRecord run = simulation.run();
  EXPECT_EQ(run.ranks[0].how, RankRecord::How::finished) << run.ranks[0].why;
  return run;
}
RunRecord run_of(const std::string& text) { return run_of(load_scenario_text(text, "emulated.json")); }

// Weights as they are stored, and back.
class Flat {
 public:
  explicit Flat(const Scenario& scenario)
      : model_(scenario.train.definition.model), parameters_(model_, scenario.train.definition.optimizer) {}
  Values of(const std::vector<runtime::NamedTensor>& tensors) const {
    Values flat(std::size_t(parameters_.size()));
    std::vector<runtime::TensorBytes> bytes;
    for (const runtime::NamedTensor& tensor : tensors) bytes.push_back(runtime::to_bytes(tensor));
    runtime::from_hugging_face(parameters_, model_, bytes, flat);
    return flat;
  }
  std::string file(const Values& flat) const {
    std::vector<runtime::TensorBytes> bytes;
    for (const runtime::NamedTensor& tensor : runtime::to_hugging_face(parameters_, model_, flat))
      bytes.push_back(runtime::to_bytes(tensor));
    return runtime::write_safetensors(bytes);
  }
  // The definition: blocks begin again with each slab of each parameter.
  Values rounded(const Values& flat, int block) const {
    Values out = flat;
    for (const runtime::ParameterInfo& p : parameters_.all())
      for (runtime::Index slab = 0; slab < p.size; slab += p.slab)
        for (runtime::Index at = slab; at < std::min(slab + p.slab, p.size); at += block)
          round_block(&out[std::size_t(p.offset + at)],
                      std::min<runtime::Index>(block, std::min(slab + p.slab, p.size) - at));
    return out;
  }

 private:
  static void round_block(float* x, runtime::Index n) {
    float most = 0;
    for (runtime::Index i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
    const float scale = most / 127.0F;
    for (runtime::Index i = 0; i < n && scale > 0; ++i) x[i] = std::nearbyint(x[i] / scale) * scale;
  }

  runtime::ModelPlan model_;
  runtime::Parameters parameters_;
};

// The first step of a plain run that begins with given weights, on batch `step`.
RunRecord plain_step(const Case& c, const std::string& weights, int step) {
  Scenario scenario = load_scenario_text(text_of(c, kRate, 1, false), "emulated.json");
  scenario.train.definition.initial_weights = weights;
  for (int batch = 0; batch < step; ++batch) scenario.train.definition.drop_batches.push_back(batch);
  return run_of(scenario);
}

TEST(QuantisedEmulation, EachStepIsThatOfRoundedWeightsAndMovesExactOnes) {
  const Case cases[] = {{"gpt2", 1, 1024, 0},     {"gpt2", 2, 64, 0},      {"gpt2", 3, 1024, 200},
                        {"gpt2", 4, 16, 1000000}, {"llama", 4, 1024, 100}, {"llama", 3, 128, 0}};
  for (const Case& c : cases) {
    const std::string about = fmt::format("{}, {} ranks, blocks of {}", c.family, c.ranks, c.block);
    const RunRecord run = run_of(text_of(c, kRate, kSteps, true));
    const Flat flat(load_scenario_text(text_of(c, kRate, 1, false), "emulated.json"));
    Values exact = flat.of(run_of(text_of(c, 0, 1, false)).training.final_weights);
    ASSERT_EQ(run.steps.size(), std::size_t(kSteps)) << about;
    for (int step = 0; step < kSteps; ++step) {
      const Values before = flat.rounded(exact, c.block);
      EXPECT_NE(before, exact) << about;
      const RunRecord one = plain_step(c, flat.file(before), step);
      EXPECT_EQ(run.steps[std::size_t(step)].loss, one.steps[0].loss) << about << ", step " << step;
      EXPECT_EQ(run.steps[std::size_t(step)].grad_norm, one.steps[0].grad_norm) << about << ", step " << step;
      const Values after = flat.of(one.training.final_weights);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const float down = before[i] - kRate, up = before[i] + kRate;
        if (after[i] == before[i]) continue;
        EXPECT_TRUE(after[i] == down || after[i] == up) << about;
        exact[i] = after[i] == down ? exact[i] - kRate : exact[i] + kRate;
      }
    }
    EXPECT_EQ(flat.of(run.training.final_weights), exact) << about;
  }
}

TEST(QuantisedEmulation, SeesAnotherBlock) {
  const Case c{"gpt2", 2, 64, 0};
  const Flat flat(load_scenario_text(text_of(c, kRate, 1, false), "emulated.json"));
  const Values exact = flat.of(run_of(text_of(c, 0, 1, false)).training.final_weights);
  const RunRecord run = run_of(text_of(c, kRate, 1, true));
  EXPECT_NE(run.steps[0].loss, plain_step(c, flat.file(flat.rounded(exact, 32)), 0).steps[0].loss);
}

// What a stage-3 gather sends: an element a byte, and 4 bytes a block.
TEST(Quantised, GathersSendAQuarterOfFp32) {
  const Case c{"gpt2", 4, 1024, 0};
  const auto sent = [&](bool quantised) {
    std::string text = text_of(c, kRate, 2, true);
    if (!quantised) text.replace(text.find("_weights\": true"), 15, "_weights\": false");
    const RunRecord run = run_of(text);
    return double(run.traffic.comm[std::size_t(runtime::OpKind::param_gather)].bytes_sent_per_rank_max);
  };
  const double share = sent(true) / sent(false);
  EXPECT_GT(share, 0.25);
  EXPECT_LT(share, 0.27);
}

// ---- what they cannot be together with ------------------------------------------------------------------------------

TEST(QuantisedLoading, RefusesByName) {
  const auto problems_with = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {
        "faults=[]", R"(checks=["golden:bitwise"])",
        R"(deepspeed.zero_optimization={"stage":3,"zero_quantized_weights":true,"zero_hpz_partition_size":1})"};
    sets.insert(sets.end(), more.begin(), more.end());
    return problems_of(small_text(), sets);
  };
  EXPECT_EQ(problems_with({"seed=1"}), "");
  EXPECT_EQ(problems_with({"quantized_weights_block=1"}), "");
  const std::pair<std::vector<std::string>, const char*> rows[] = {
      {{"quantized_weights_block=96"}, "96 elements: a block has to be a power of two"},
      {{"quantized_weights_block=2048"}, "2048 is out of range"},
      {{"quantized_weights_block=0"}, "0 is out of range"},
      {{"deepspeed.zero_optimization.zero_quantized_nontrainable_weights=true"},
       "zero_quantized_nontrainable_weights: Not supported"},
      {{"model.family=llama", "model.experts=4"}, "quantised weights with experts"},
      {{R"(fp8={"scaling":"mx"})"}, "fp8 with quantised weights"},
      {{R"(quirks=["ds_old_default_clipping"])"}, "quantised weights with quirks"},
      {{"numerics=fast", "checks=[]"}, "quantised weights in a run of fast arithmetic"},
      {{"recovery.memory_ladder=true"}, "quantised weights with the memory ladder"},
      {{"bug=gap_in_shards"}, "gap_in_shards ends a shard inside a block"},
  };
  for (const auto& [sets, message] : rows) {
    const std::string problems = problems_with(sets);
    EXPECT_NE(problems.find(message), std::string::npos) << sets.front() << ":\n" << problems;
  }
}

// As every key of stage 3: at another stage it does nothing, and a note says so.
TEST(QuantisedLoading, AtOtherStagesTheKeyHasNoEffect) {
  LoadOptions options;
  options.sets = {R"(deepspeed.zero_optimization={"stage":2,"zero_quantized_weights":true})"};
  const Scenario scenario = load_scenario_text(small_text(), "s.json", options);
  EXPECT_FALSE(scenario.train.definition.quantised.on());
  const auto says = [](const std::string& note) { return note.find("zero_quantized_weights") != std::string::npos; };
  EXPECT_TRUE(std::any_of(scenario.notes.begin(), scenario.notes.end(), says));
}

}  // namespace
}  // namespace seeksim::harness
