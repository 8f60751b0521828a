// Models go to Hugging Face's transformers and come back: the same losses, and the same bits where the type holds them.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class HuggingFace : public testing::ScriptRuns {
 protected:
  void SetUp() override {
    ScriptRuns::SetUp();
    if (!IsSkipped() && !has("transformers")) GTEST_SKIP() << "there is no transformers in this environment";
  }

  std::string scenario(const std::string& model) {
    return folder_.write(
        "s.json",
        R"({ "name": "s", "data": { "synthetic": true }, "world": { "nodes": 1, "ranks_per_node": 1 }, "steps": 3,
  "deepspeed": { "train_batch_size": 4, "optimizer": { "type": "AdamW", "params": { "lr": 1e-2 } } }, "checks": [ ],
  "model": )" +
            model + " }");
  }

  // The report of a run that ends as expected.
  json trained(const std::string& model, std::vector<std::string> options) {
    std::vector<std::string> command = {paths::program(), "run", scenario(model), "--report", folder_.file("r.json")};
    command.insert(command.end(), options.begin(), options.end());
    const Captured ran = capture(command, {{"COLUMNS", "0"}}, testing::kLimit_s);
    EXPECT_STATUS(ran, 0);
    return json::parse(harness::testing::read_all(folder_.file("r.json")));
  }

  json transformers(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {python_, paths::source_dir() + "/tests/torch/hugging_face.py"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Captured ran = capture(command, {}, testing::kLimit_s);
    EXPECT_STATUS(ran, 0);
    return json::parse(ran.out, nullptr, false);
  }

  // There and back again, as one file and as shards, in fp32 and in bf16.
  void round_trip(const std::string& model) {
    const std::string first = folder_.file("first/"), last = folder_.file("last/"), batches = folder_.file("b.st");
    const std::string logits = folder_.file("l.st");
    const json run = trained(model, {"--save-initial", first, "--save-final", last, "--save-batches", batches,
                                     "--save-logits", logits, "--save-shard-mb", "1"});
    EXPECT_NEAR(transformers({"loss", first, batches})["loss"], run["loss"][0], 1e-5);
    const json held = transformers({"logits", first, batches, logits});
    EXPECT_LE(held["apart"], 1e-5);
    EXPECT_GT(held["largest"], 0.1);
    EXPECT_GT(transformers({"logits", last, batches, logits})["apart"], 1e-3);  // of other weights they are not
    const json on = trained(model, {"--init", last});
    EXPECT_NEAR(transformers({"loss", last, batches})["loss"], on["loss"][0], 1e-5);
    transformers({"save", last, folder_.file("again"), "float32", "100KB"});
    EXPECT_EQ(trained(model, {"--init", folder_.file("again")})["params_digest"], on["params_digest"]);
    // What transformers has rounded, and what seeksim rounds: one rule.
    trained(model, {"--init", last, "--save-initial", folder_.file("ours/"), "--save-dtype", "bfloat16"});
    transformers({"save", last, folder_.file("theirs"), "bfloat16", "5GB"});
    EXPECT_EQ(trained(model, {"--init", folder_.file("ours")})["params_digest"],
              trained(model, {"--init", folder_.file("theirs")})["params_digest"]);
    // The config alone says what the model is.
    const json by_config = trained('"' + last + '"', {"--init", last});
    EXPECT_EQ(by_config["params_digest"], on["params_digest"]);
  }
};

TEST_F(HuggingFace, Gpt2MakesTheRoundTrip) {
  round_trip(R"({ "layers": 2, "width": 96, "heads": 4, "context": 16, "vocab": 2048 })");
}

TEST_F(HuggingFace, LlamaMakesTheRoundTrip) {
  round_trip(R"({ "family": "llama", "layers": 2, "width": 96, "heads": 4, "kv_heads": 2, "ffn": 80, "context": 16,
                  "vocab": 2048, "rope_theta": 50000, "norm_eps": 1e-6 })");
}

TEST_F(HuggingFace, MixtralMakesTheRoundTrip) {
  round_trip(R"({ "family": "llama", "layers": 2, "width": 96, "heads": 4, "kv_heads": 2, "ffn": 80, "context": 16,
                  "vocab": 2048, "experts": 4, "experts_per_token": 2 })");
}

}  // namespace
}  // namespace seeksim::harness::torch
