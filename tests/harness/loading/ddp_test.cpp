// "ddp": buckets as torch fills them, sent while backward goes on and only by a step's last micro-batch; and what
// cannot be together with them.
#include <algorithm>
#include <numeric>

#include "harness/loading/load.h"
#include "harness/simulate/simulate.h"
#include "runtime/layout/parameters.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Scenario with_ddp(const std::string& ddp, std::vector<std::string> more = {}) {
  LoadOptions options;
  options.sets = {
      "faults=[]", R"(checks=["golden:bitwise"])", "world.nodes=1", "world.ranks_per_node=4",
      R"(deepspeed={"train_batch_size":8,"train_micro_batch_size_per_gpu":1,"optimizer":{"type":"AdamW"}})"};
  if (!ddp.empty()) options.sets.push_back("ddp=" + ddp);
  options.sets.insert(options.sets.end(), more.begin(), more.end());
  return load_scenario_text(small_text(), "small.json", options);
}

RunRecord run_of(const Scenario& scenario) {
  Simulation simulation(scenario, {});
  return simulation.run();
}

std::uint64_t all_reduces(const RunRecord& run) {
  return run.traffic.comm[std::size_t(runtime::OpKind::all_reduce)].calls;
}

// torch's compute_bucket_assignment_by_size, over gradients in the order in which they are there: a tensor joins the
// bucket, and a bucket that has its bytes is closed. In bytes, and with the two tensors of a norm as one.
std::uint64_t buckets_of_torch(const std::vector<std::uint64_t>& bytes, double first_mib, double cap_mib) {
  std::uint64_t buckets = 0, held = 0;
  for (const std::uint64_t each : bytes) {
    held += each;
    const double limit = (buckets == 0 ? first_mib : cap_mib) * 1024 * 1024;
    if (double(held) >= limit) ++buckets, held = 0;
  }
  return buckets + (held > 0 ? 1 : 0);
}

// Of small_text()'s GPT-2: the loss with the tied head's use, the last norm, the layers backwards, the embeddings.
std::vector<std::uint64_t> gradients_in_order(const Scenario& scenario) {
  const auto& model = scenario.train.definition.model;
  const std::uint64_t c = std::uint64_t(model.width), vocab = std::uint64_t(model.vocab);
  std::vector<std::uint64_t> elements = {vocab * c + 1, 2 * c};
  for (int layer = 0; layer < model.layers; ++layer)
    for (const std::uint64_t each : {c, 4 * c * c, 4 * c, 4 * c * c, 2 * c, c, c * c, 3 * c, 3 * c * c, 2 * c})
      elements.push_back(each);
  elements.push_back(std::uint64_t(model.context) * c);
  elements.push_back(vocab * c);
  for (std::uint64_t& each : elements) each *= 4;
  return elements;
}

TEST(Ddp, BucketsAreThoseThatTorchFills) {
  for (const auto& [first, cap] : std::vector<std::pair<double, double>>{
           {1, 25}, {0.000001, 0.000001}, {0.001, 0.002}, {0.002, 0.004}, {0.0005, 0.008}, {0.01, 0.003}}) {
    const std::string text =
        "{\"bucket_cap_mb\":" + std::to_string(cap) + ",\"first_bucket_mb\":" + std::to_string(first) + "}";
    const Scenario scenario = with_ddp(text);
    const std::uint64_t wanted = buckets_of_torch(gradients_in_order(scenario), first, cap);
    EXPECT_EQ(all_reduces(run_of(scenario)), wanted * 4 * std::uint64_t(scenario.train.definition.steps)) << text;
  }
}

TEST(Ddp, BucketsChangeNoBitAndHideTheirTravel) {
  const RunRecord at_once = run_of(with_ddp(""));
  const RunRecord bucketed = run_of(with_ddp(R"({"bucket_cap_mb":0.003,"first_bucket_mb":0.001})"));
  ASSERT_TRUE(at_once.state() && bucketed.state());
  EXPECT_EQ(at_once.state()->params, bucketed.state()->params);
  EXPECT_EQ(at_once.state()->optimizer, bucketed.state()->optimizer);
  EXPECT_GT(all_reduces(bucketed), 4 * all_reduces(at_once));
  EXPECT_EQ(at_once.traffic.overlap.hidden_ns, 0);
  EXPECT_GT(bucketed.traffic.overlap.hidden_ns, 0);
}

// As under no_sync: micro-batches before the last one send nothing.
TEST(Ddp, AccumulationSendsOnce) {
  const std::string ddp = R"({"bucket_cap_mb":0.003,"first_bucket_mb":0.001})";
  const auto of = [&](const char* each) {
    return run_of(with_ddp(ddp, {std::string("deepspeed.train_micro_batch_size_per_gpu=") + each}));
  };
  const RunRecord accumulated = of("1"), whole = of("2");
  EXPECT_EQ(all_reduces(accumulated), all_reduces(whole));
  ASSERT_TRUE(accumulated.state() && whole.state());
  EXPECT_EQ(accumulated.state()->params, whole.state()->params);
}

TEST(Ddp, RefusesWhatHasBucketsOfItsOwnOrNone) {
  const auto problems = [](const char* set) {
    return problems_of(small_text(), {"faults=[]", R"(checks=["golden:bitwise"])", "ddp={}", set});
  };
  EXPECT_EQ(problems("ddp.bucket_cap_mb=3"), "");
  const std::pair<const char*, const char*> rows[] = {
      {"deepspeed.zero_optimization.stage=1", "ZeRO has buckets of its own"},
      {R"(compression={"method":"bf16","groups":4})", "with compression"},
      {R"(local_sgd={"workers":4,"every":2})", "no gradients travel"},
      {R"(staleness={"workers":4,"bound":1})", "late gradients"},
      {"recovery.memory_ladder=true", "memory ladder"},
      {"ddp.bucket_cap_mb=0", "bucket_cap_mb"},
      {"ddp.bucket_cap_mb=-1", "bucket_cap_mb"},
      {R"(ddp={"bucket_cap":3})", "bucket_cap"},
      {R"(fsdp={"version":1,"sharding_strategy":"NO_SHARD"})", "of DDP or of FSDP"},
  };
  for (const auto& [set, text] : rows) EXPECT_NE(problems(set).find(text), std::string::npos) << set << problems(set);
}

}  // namespace
}  // namespace seeksim::harness
