// The twin of a scenario is the same but for its sizes; what it shows is tried on the scenario itself.
#include "harness/search/twin.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/layout/parameters.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string file_of(const std::string& name) { return paths::source_dir() + "/scenarios/" + name + ".json"; }

Explored explored(const std::string& name, const std::vector<std::string>& sets = {}) {
  return load_explored(file_of(name), sets, {});
}

std::size_t parameters(const Explored& one) {
  return runtime::Parameters(one.scenario.train.definition.model, false).all().size();
}

TEST(Twin, HasTheWorldTheFaultsAndTheParametersOfItsScenarioAndASmallerModel) {
  const Explored whole = explored("nccl_timeout");
  const std::optional<Explored> twin = twin_of(whole, {});
  ASSERT_TRUE(twin);
  EXPECT_EQ(twin->scenario.world.ranks(), whole.scenario.world.ranks());
  EXPECT_EQ(twin->scenario.faults.size(), whole.scenario.faults.size());
  EXPECT_EQ(parameters(*twin), parameters(whole)) << "as many, each smaller";
  const runtime::ModelPlan& model = twin->scenario.train.definition.model;
  EXPECT_EQ(model.layers, 4);
  EXPECT_EQ(model.heads, 2);
  EXPECT_EQ(model.width, 4);
  const runtime::Layout& layout = twin->scenario.train.layout;
  EXPECT_EQ(layout.micro_batch, 1);
  EXPECT_EQ(twin->scenario.train.definition.global_batch, 16) << "two micro-batches on each of 8 ranks";
  EXPECT_EQ(twin->scenario.train.definition.steps, 10) << "three behind the fault in step 7";
  EXPECT_EQ(twin->scenario.checks.size(), whole.scenario.checks.size());
}

TEST(Twin, HasAFewHeadsOfKeysForEachWayAndAsManyThatShareThem) {
  const std::vector<std::string> sets = {
      R"(model={"family":"llama","layers":4,"width":128,"heads":32,"kv_heads":16,"context":64,"vocab":256})",
      "world.tensor=2", "deepspeed.train_batch_size=16"};
  const std::optional<Explored> twin = twin_of(explored("nccl_timeout", sets), {});
  ASSERT_TRUE(twin);
  const runtime::ModelPlan& model = twin->scenario.train.definition.model;
  EXPECT_EQ(model.kv_heads, 8) << "four a way, for slabs of rows";
  EXPECT_EQ(model.heads, 16);
}

// Groups of two samples are routed together: a micro-batch of one would cut them.
TEST(Twin, KeepsTheSamplesOfAMicroBatchThatNeedsThem) {
  const std::vector<std::string> sets = {
      R"(model={"family":"llama","layers":4,"width":64,"heads":8,"context":64,"vocab":256,"ffn":64,"experts":4,)"
      R"("experts_per_token":2,"routing_samples":2})"};
  const std::optional<Explored> twin = twin_of(explored("nccl_timeout", sets), {});
  ASSERT_TRUE(twin);
  EXPECT_EQ(twin->scenario.train.layout.micro_batch, 2);
}

TEST(Twin, HasAsManyBuckets) {
  const std::vector<std::string> sets = {"deepspeed.zero_optimization.stage=2",
                                         "deepspeed.zero_optimization.reduce_bucket_size=60000"};
  const Explored whole = explored("nccl_timeout", sets);
  const std::optional<Explored> twin = twin_of(whole, {});
  ASSERT_TRUE(twin);
  const auto buckets = [](const Explored& one) {
    const runtime::Parameters parameters(one.scenario.train.definition.model, false);
    double all = 0;
    for (const auto& p : parameters.all()) all += double(p.size);
    return all / double(one.scenario.train.layout.zero.reduce_bucket_elements);
  };
  EXPECT_NEAR(buckets(*twin), buckets(whole), 0.1 * buckets(whole));
}

TEST(Twin, ThereIsNoneOfWhatIsSmallAlreadyOrHasNoSizesOfItsOwn) {
  const std::vector<std::string> small = {R"(model={"layers":1,"width":8,"heads":2,"context":4,"vocab":16})",
                                          R"(data={"synthetic":true})"};
  EXPECT_FALSE(twin_of(explored("rank_crash", small), {}));
  EXPECT_FALSE(twin_of(explored("rank_crash", {"numerics=shapes", "checks=[]"}), {})) << "it has no values";
}

// Its message is one of a large operation.
TEST(Twin, ThereIsNoneWhereTheScenariosFaultsDoNotStrike) {
  EXPECT_FALSE(twin_of(explored("network/message_drop"), {}));
  EXPECT_TRUE(twin_of(explored("network/message_drop", {"faults=[]"}), {}));
}

struct Search {
  Ran ran;
  Json report;
};
Search search(const TemporaryFolder& folder, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"explore",  file_of("rank_crash"), "--out",    folder.file("found"),
                                        "--report", folder.file("e.json"), "--budget", "10s"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  Search out{seeksim(arguments), {}};
  if (std::filesystem::exists(folder.file("e.json"))) out.report = Json::parse(read_all(folder.file("e.json")));
  return out;
}

TEST(SlowTwin, WhatItShowsIsShownByTheScenarioItself) {
  TemporaryFolder folder;
  const Search found = search(folder, {"--set", "faults=[]", "--set", "bug=redoes_committed_step", "--findings", "1"});
  ASSERT_EQ(found.ran.status, 1) << found.ran.out << found.ran.err;
  const Json& first = found.report["found"][0];
  EXPECT_TRUE(first["twin"].get<bool>()) << found.report["found"].dump(2);
  ASSERT_TRUE(first["itself"].is_string()) << found.ran.out;
  const Ran itself = seeksim({"run", first["itself"].get<std::string>()});
  EXPECT_EQ(itself.status, 1) << itself.out;
  const Json document = Json::parse(read_all(first["itself"].get<std::string>()));
  EXPECT_EQ(document["model"]["width"], 64) << "of the scenario itself";
}

TEST(SlowTwin, AHealthyScenarioHasNeitherFinding) {
  TemporaryFolder folder;
  const Search found = search(folder, {});
  EXPECT_EQ(found.ran.status, 0) << found.ran.out << found.ran.err;
  EXPECT_NE(found.ran.out.find("  twin  "), std::string::npos) << found.ran.out;
  const Search without = search(folder, {"--no-twin", "--budget", "2s"});
  EXPECT_EQ(without.ran.out.find("  twin  "), std::string::npos) << without.ran.out;
}

}  // namespace
}  // namespace seeksim::harness
