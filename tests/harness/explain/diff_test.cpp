// seeksim diff names the first operation that differs, the element and its bits, and the fault behind it.
#include "tests/support/scenarios.h"

#include <nlohmann/json.hpp>

#include "harness/input/json.h"

namespace seeksim::harness {
namespace {

using namespace testing;

Json calm(int stage = 0) {
  Json json = Json::parse(R"({
    "name": "two", "model": { "layers": 2, "width": 16, "heads": 2, "context": 8, "vocab": 64 },
    "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 2 },
    "deepspeed": { "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                   "optimizer": { "type": "AdamW", "params": { "lr": 1e-2 } } },
    "steps": 3 })");
  json["deepspeed"]["zero_optimization"] = {{"stage", stage}};
  return json;
}

Json diff(const TemporaryFolder& folder, std::vector<std::string> arguments, int status, Ran* ran = nullptr) {
  arguments.insert(arguments.begin(), "diff");
  arguments.insert(arguments.end(), {"--report", folder.file("diff.json")});
  const Ran result = seeksim(arguments);
  EXPECT_EQ(result.status, status) << result.out << result.err;
  if (ran != nullptr) *ran = result;
  return Json::parse(read_all(folder.file("diff.json")));
}

TEST(Diff, RunsThatOnlyDifferInOrderAreTheSame) {
  TemporaryFolder folder;
  const std::string a = folder.write("a.json", calm().dump());
  EXPECT_FALSE(diff(folder, {a, a, "--set-b", "seed=9"}, 0)["differ"].get<bool>());
  EXPECT_FALSE(diff(folder, {a, a, "--set-b", "deepspeed.zero_optimization.stage=3"}, 0)["differ"].get<bool>());
  EXPECT_FALSE(diff(folder, {a}, 0)["differ"].get<bool>());
}

// One bit of one number: that very bit is named, with the fault that flipped it.
TEST(Diff, AFlippedBitIsNamedWithItsCause) {
  TemporaryFolder folder;
  Json struck = calm();
  struck["faults"] = Json::parse(
      R"([{"kind": "bit_flip", "site": "activation_gradient", "rank": 1, "step": 1, "micro_batch": 1, "layer": 1, "element": 5, "bit": 30}])");
  const std::string a = folder.write("a.json", struck.dump()), b = folder.write("b.json", calm().dump());
  for (const std::vector<std::string>& sides : {std::vector<std::string>{a, b}, std::vector<std::string>{a}}) {
    Ran ran;
    const Json found = diff(folder, sides, 1, &ran);
    EXPECT_EQ(found["step"], 1) << ran.out;
    ASSERT_FALSE(found["op"].is_null()) << ran.out;
    EXPECT_EQ(found["op"]["a"]["op"].get<std::string>().find("rank 1") == std::string::npos, false) << ran.out;
    EXPECT_EQ(found["op"]["step"], 1) << ran.out;
    EXPECT_EQ(found["op"]["micro_batch"], 1) << ran.out;
    ASSERT_FALSE(found["op"]["element"].is_null()) << ran.out;
    const auto bits = [&](int side) {
      return std::stoul(found["op"]["bits"][std::size_t(side)].get<std::string>(), nullptr, 16);
    };
    EXPECT_EQ(bits(0) ^ bits(1), 1ul << 30) << ran.out;
    EXPECT_NE(found["chain"][0].get<std::string>().find("faults.0 bit_flip strikes rank 1"), std::string::npos)
        << ran.out;
    EXPECT_NE(found["chain"].back().get<std::string>().find("step 1 is committed with other values"),
              std::string::npos);
  }
}

// A leaf is a sample of the step.
TEST(Diff, AnActivationNamesItsLeaf) {
  TemporaryFolder folder;
  Json struck = calm();
  // Rank 1 has samples 4 to 7, two a micro-batch; the second half of an activation of its second one is sample 7's.
  struck["faults"] = Json::parse(
      R"([{"kind": "bit_flip", "site": "activation", "rank": 1, "step": 0, "micro_batch": 1, "layer": 1, "element": 200, "bit": 29}])");
  const std::string a = folder.write("a.json", struck.dump()), b = folder.write("b.json", calm().dump());
  Ran ran;
  const Json found = diff(folder, {a, b}, 1, &ran);
  ASSERT_FALSE(found["op"].is_null()) << ran.out;
  EXPECT_EQ(found["op"]["phase"], "forward") << ran.out;
  EXPECT_EQ(found["op"]["layer"], 1) << ran.out;
  EXPECT_EQ(found["op"]["leaf"], 7) << ran.out;
}

// A bug that is planted has no fault behind it; it is found where it writes.
TEST(Diff, APlantedBugIsFoundWhereItShows) {
  TemporaryFolder folder;
  Json wrong = calm(1);
  const std::string b = folder.write("b.json", wrong.dump());
  wrong["bug"] = "clip_by_max";
  const std::string a = folder.write("a.json", wrong.dump());
  Ran ran;
  const Json found = diff(folder, {a, b}, 1, &ran);
  EXPECT_EQ(found["op"]["phase"], "optimizer") << ran.out;
  EXPECT_EQ(found["chain"][0].get<std::string>().find("faults."), std::string::npos) << ran.out;
}

TEST(Diff, RefusesWhatCannotBeCompared) {
  TemporaryFolder folder;
  const std::string a = folder.write("a.json", calm().dump());
  EXPECT_EQ(seeksim({"diff", a, a, "--set-b", "model.layers=3"}).status, 2);
  EXPECT_EQ(seeksim({"diff", a, a, "--set", "numerics=shapes"}).status, 2);
  EXPECT_EQ(seeksim({"diff", a, "--set-b", "seed=2"}).status, 2);
}

}  // namespace
}  // namespace seeksim::harness
