// "fsdp": each of its words is the layout that it stands for, written in DeepSpeed's; and what cannot be said is
// refused where the user wrote it.
#include <algorithm>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;
using Sets = std::vector<std::string>;

RunRecord run_with(const Sets& more) {
  LoadOptions options;
  options.sets = {
      "faults=[]", R"(checks=["golden:bitwise"])", "world.nodes=1", "world.ranks_per_node=4",
      R"(deepspeed={"train_batch_size":8,"train_micro_batch_size_per_gpu":1,"optimizer":{"type":"AdamW"}})"};
  options.sets.insert(options.sets.end(), more.begin(), more.end());
  const Scenario scenario = load_scenario_text(small_text(), "small.json", options);
  Simulation simulation(scenario, {});
  return simulation.run();
}

std::string in_zero(const std::string& keys) { return "deepspeed.zero_optimization={" + keys + "}"; }

constexpr const char* kNoneStay = R"("stage":3,"stage3_param_persistence_threshold":0,"stage3_max_reuse_distance":0)";
constexpr const char* kAllStay =
    R"("stage":3,"stage3_param_persistence_threshold":0,"stage3_max_reuse_distance":1000000000000)";
constexpr const char* kBf16 = R"(deepspeed.bf16={"enabled":true})";

void expect_same(const Sets& in_fsdp, const Sets& in_deepspeed) {
  const RunRecord ours = run_with(in_fsdp), theirs = run_with(in_deepspeed);
  ASSERT_TRUE(ours.state() && theirs.state()) << in_fsdp.front();
  EXPECT_EQ(ours.state()->params, theirs.state()->params) << in_fsdp.front();
  ASSERT_EQ(ours.ranks.size(), theirs.ranks.size());
  for (std::size_t tag = 0; tag < ours.traffic.comm.size(); ++tag)
    EXPECT_EQ(ours.traffic.comm[tag].bytes_sent_per_rank_max, theirs.traffic.comm[tag].bytes_sent_per_rank_max)
        << in_fsdp.front() << ", operation " << tag;
}

TEST(Fsdp, EachWordIsTheLayoutThatItStandsFor) {
  expect_same({"fsdp={}"}, {in_zero(kNoneStay)});
  expect_same({R"(fsdp={"reshard_after_forward":false})"}, {in_zero(kAllStay)});
  expect_same({R"(fsdp={"reshard_after_forward":2})"},
              {in_zero(std::string(kNoneStay) + R"(,"zero_hpz_partition_size":2)")});
  expect_same({R"(fsdp={"shard_size":2})"}, {in_zero(kNoneStay), "world.shard_group=2"});
  expect_same({R"(fsdp={"version":1,"sharding_strategy":"SHARD_GRAD_OP"})"}, {in_zero(kAllStay)});
  expect_same({R"(fsdp={"version":1,"sharding_strategy":"NO_SHARD"})"}, {in_zero(R"("stage":0)")});
  expect_same({R"(fsdp={"version":1,"sharding_strategy":"_HYBRID_SHARD_ZERO2","shard_size":2})"},
              {in_zero(kAllStay), "world.shard_group=2"});
  expect_same({R"(fsdp={"param_dtype":"bf16"})"}, {in_zero(kNoneStay), kBf16});
  expect_same({R"(fsdp={"param_dtype":"bf16","reduce_dtype":"bf16"})"},
              {in_zero(kNoneStay), kBf16, R"(deepspeed.data_types={"grad_accum_dtype":"bf16"})"});
  expect_same(
      {R"(fsdp={"cpu_offload":true})"},
      {in_zero(std::string(kNoneStay) + R"(,"offload_optimizer":{"device":"cpu"},"offload_param":{"device":"cpu"})")});
}

// As torch does: a layer is gathered for forward and for backward, or once for both.
TEST(Fsdp, WhatIsGivenUpAfterForwardIsGatheredAgain) {
  const auto sent = [](const Sets& sets) {
    return run_with(sets).traffic.comm[std::size_t(runtime::OpKind::param_gather)].bytes_sent_per_rank_max;
  };
  const auto twice = sent({"fsdp={}"}), once = sent({R"(fsdp={"reshard_after_forward":false})"});
  EXPECT_GT(once, 0U);
  EXPECT_GT(twice, once + once / 2);
  EXPECT_LE(twice, 2 * once);
}

std::string problems_with(const Sets& more) {
  Sets sets = {"faults=[]", R"(checks=["golden:bitwise"])"};
  sets.insert(sets.end(), more.begin(), more.end());
  return problems_of(small_text(), sets);
}

TEST(Fsdp, RefusesWhereTheUserWrote) {
  EXPECT_EQ(problems_with({"fsdp={}"}), "");
  const std::pair<const char*, const char*> rows[] = {
      {R"(fsdp={"version":3})", "fsdp.version"},
      {R"(fsdp={"sharding_strategy":"FULL_SHARD"})", "version 2 of FSDP has no sharding_strategy"},
      {R"(fsdp={"version":1,"reshard_after_forward":true})", "version 1 of FSDP has no reshard_after_forward"},
      {R"(fsdp={"version":1,"sharding_strategy":"HYBRID_SHARD"})", "no size of them"},
      {R"(fsdp={"version":1,"shard_size":2})", "only hybrid strategies of version 1"},
      {R"(fsdp={"version":1,"sharding_strategy":"SOME_SHARD"})", "\"SOME_SHARD\" is not one of"},
      {R"(fsdp={"reshard_after_forward":"yes"})", "fsdp.reshard_after_forward"},
      {R"(fsdp={"reduce_dtype":"bf16"})", "gradients of fp32 parameters are summed in fp32"},
      {R"(fsdp={"shard_size":3})", "fsdp.shard_size"},
      {R"(fsdp={"wrap":"all"})", "wrap"},
  };
  for (const auto& [set, message] : rows) {
    const std::string problems = problems_with({set});
    EXPECT_NE(problems.find(message), std::string::npos) << set << ":\n" << problems;
  }
  const std::string both = problems_with({"fsdp={}", "deepspeed.zero_optimization.stage=2"});
  EXPECT_NE(both.find("\"fsdp\" says this in its own words"), std::string::npos) << both;
}

}  // namespace
}  // namespace seeksim::harness
