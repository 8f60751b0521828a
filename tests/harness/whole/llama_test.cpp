// The second family in scenarios: what is filled in, that it is written back, and that what decides a bit is in the
// key.
#include <nlohmann/json.hpp>

#include "harness/loading/estimate.h"
#include "harness/loading/load.h"
#include "harness/record/golden.h"
#include "runtime/layout/parameters.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Scenario llama(const std::vector<std::string>& sets = {}) {
  LoadOptions options;
  options.sets = {"model.family=llama"};
  options.sets.insert(options.sets.end(), sets.begin(), sets.end());
  return load_scenario_text(small_text(), "s.json", options);
}

std::string key(const std::vector<std::string>& sets) { return golden_key(llama(sets).train.definition); }

TEST(Llama, DefaultsAreItsOwn) {
  const runtime::ModelPlan m = llama().train.definition.model;
  EXPECT_FALSE(m.tied);
  EXPECT_EQ(m.key_heads(), 2);
  EXPECT_EQ(m.hidden(), 48);  // 8/3 of 16 is 42.7
  EXPECT_EQ(m.rope_theta, 10000);
}

TEST(Llama, IsWrittenBack) {
  const Scenario given = llama({"model.kv_heads=1", "model.ffn=21", "model.rope_theta=500000"});
  const Scenario back = load_scenario_text(to_json(given).dump(), "s.json");
  EXPECT_EQ(to_json(back), to_json(given));
  EXPECT_EQ(back.train.definition.model.kv_heads, 1);
  EXPECT_EQ(back.train.definition.model.ffn, 21);
  EXPECT_EQ(back.train.definition.model.rope_theta, 500000);
}

TEST(Llama, TheKeySeesWhatDecidesABit) {
  const std::string plain = key({});
  for (const char* set :
       {"model.kv_heads=1", "model.ffn=40", "model.rope_theta=500000", "model.tied=true", "model.family=gpt2"})
    EXPECT_NE(key({set}), plain) << set;
  EXPECT_EQ(key({"model.kv_heads=2", "model.ffn=48", "model.rope_theta=10000"}), plain)
      << "said or not, it is the same";
}

TEST(Llama, ParametersAreEstimatedAsTheyAre) {
  for (const char* tied : {"model.tied=true", "model.tied=false"}) {
    const Scenario s = llama({"model.kv_heads=1", "model.ffn=21", tied});
    const runtime::Definition& d = s.train.definition;
    EXPECT_EQ(estimate(s).parameters, double(runtime::Parameters(d.model, false).size()));
  }
}

}  // namespace
}  // namespace seeksim::harness
