// super_offload: the host steps while backward goes on, and a wrong guess costs the step once more. That bits are those
// of one rank is what scenarios/equivalence/super_offload.json shows.
#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

RunRecord offloaded(bool guesses, double clipping, const std::vector<std::string>& more = {}) {
  LoadOptions options;
  options.sets = {
      "faults=[]",
      R"(checks=["golden:bitwise"])",
      "world.nodes=1",
      "world.ranks_per_node=2",
      "world.noise=0",
      R"(model={"family":"gpt2","layers":4,"width":64,"heads":4,"context":32,"vocab":256})",
      R"(deepspeed={"train_batch_size":4,"train_micro_batch_size_per_gpu":2,"optimizer":{"type":"AdamW"},)"
      R"("zero_optimization":{"stage":3,"overlap_comm":true,"reduce_bucket_size":20000,)"
      R"("offload_optimizer":{"device":"cpu","pin_memory":true}}})",
      std::string("deepspeed.zero_optimization.offload_optimizer.super_offload=") + (guesses ? "true" : "false"),
      "deepspeed.gradient_clipping=" + std::to_string(clipping)};
  options.sets.insert(options.sets.end(), more.begin(), more.end());
  Simulation simulation(load_scenario_text(small_text(), "small.json", options), {});
  return simulation.run();
}

TEST(Speculation, TheHostStepsWhileBackwardGoesOn) {
  const RunRecord waits = offloaded(false, 0), guesses = offloaded(true, 0);
  ASSERT_TRUE(waits.state() && guesses.state());
  EXPECT_EQ(waits.state()->params, guesses.state()->params);
  EXPECT_LT(guesses.virtual_ns, waits.virtual_ns);
}

TEST(Speculation, AStepThatIsClippedIsMadeTwice) {
  const RunRecord waits = offloaded(false, 0.001), guesses = offloaded(true, 0.001);
  ASSERT_TRUE(waits.state() && guesses.state());
  EXPECT_EQ(waits.state()->params, guesses.state()->params);
  EXPECT_GE(guesses.virtual_ns, waits.virtual_ns);
}

TEST(Speculation, StateStandsInHostMemoryOnceMore) {
  const auto staged = [](bool guesses) {
    return offloaded(guesses, 0).memory.host_peak_by_tag.at(std::size_t(runtime::MemoryTag::staging));
  };
  EXPECT_EQ(staged(false), 0U);
  EXPECT_GT(staged(true), 0U);
}

TEST(Speculation, IsOfStage3AndOfHostMemory) {
  const auto problems = [](const char* zero) {
    return problems_of(small_text(), {"faults=[]", R"(checks=["golden:bitwise"])",
                                      std::string("deepspeed.zero_optimization={") + zero + "}"});
  };
  const std::string ahead = R"("offload_optimizer":{"device":"cpu","super_offload":true})";
  EXPECT_EQ(problems((R"("stage":3,)" + ahead).c_str()), "");
  EXPECT_EQ(problems((R"("stage":2,)" + ahead).c_str()), "");  // a note says that it is ignored
  EXPECT_NE(problems((R"("stage":3,"offload_param":{"device":"cpu"},)" + ahead).c_str()).find("super_offload"),
            std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
