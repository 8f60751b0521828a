// Each piece of advice is given where it is due, and a job that is in order hears nothing.
#include "harness/doctor/lint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/harness/doctor/advice_text.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

struct AdviceCase {
  Environment environment;
  Weight weight;
  const char* says;
};

TEST(LintEnvironment, SaysWhatAVariableReallyDoes) {
  const Environment torch = {{"RANK", "3"},
                             {"WORLD_SIZE", "16"},
                             {"LOCAL_RANK", "3"},
                             {"LOCAL_WORLD_SIZE", "8"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"}};
  const auto with = [&](const char* key, const char* value) {
    Environment changed = torch;
    changed[key] = value;
    return changed;
  };
  const auto without = [&](const char* key) {
    Environment changed = torch;
    changed.erase(key);
    return changed;
  };
  const std::vector<AdviceCase> cases = {
      {{{"NCCL_IB_TIMEOUT", "1800"}}, Weight::wrong, "is an exponent, not a time"},
      {{{"NCCL_IB_TIMEOUT", "long"}}, Weight::wrong, "is an exponent, not a time"},
      {{{"NCCL_IB_TIMEOUT", "0"}}, Weight::doubtful, "waits for ever"},
      {{{"NCCL_IB_TIMEOUT", "26"}}, Weight::doubtful, "noticed after 1924 s (7 retries of 274.9 s)"},
      {{{"NCCL_IB_RETRY_CNT", "20"}}, Weight::wrong, "three bits"},
      {{{"NCCL_TIMEOUT", "1800"}}, Weight::wrong, "NCCL has no such variable"},
      {{{"NCCL_BLOCKING_WAIT", "1"}}, Weight::wrong, "TORCH_NCCL_BLOCKING_WAIT"},
      {{{"NCCL_TREE_THRESHOLD", "0"}}, Weight::wrong, "removed in NCCL 2.5"},
      {{{"NCCL_DEBUG", "INF"}}, Weight::wrong, "Did you mean \"INFO\"?"},
      {{{"NCCL_DEBGU", "INFO"}}, Weight::doubtful, "Did you mean NCCL_DEBUG?"},
      {{{"NCLL_DEBUG", "INFO"}}, Weight::doubtful, "Did you mean NCCL_DEBUG?"},
      {{{"TORCH_NCCL_BLOCKING_WAIT", "1"}}, Weight::doubtful, "waits for each collective"},
      {{{"NCCL_SOCKET_IFNAME", "lo,no_such0"}}, Weight::doubtful, "no interface \"no_such0\""},
      {{{"NCCL_SOCKET_IFNAME", "=l"}}, Weight::doubtful, "no interface \"l\""},
      {{{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "10"}}, Weight::doubtful, "end the process"},
      {{{"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "ten"}}, Weight::wrong, "seconds are expected"},
      {{{"NCCL_P2P_DISABLE", "1"}}, Weight::doubtful, "meant for debugging"},
      {{{"NCCL_ALGO", "Ring"}}, Weight::doubtful, "meant for debugging"},
      {{{"CUDA_LAUNCH_BLOCKING", "1"}}, Weight::doubtful, "hides races"},
      {{{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}, Weight::doubtful, "slow"},
      {{{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}}, Weight::doubtful, "wait for ever"},
      {{{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "7"}}, Weight::wrong, "is not a value that it accepts"},
      {{{"DEEPSPEED_TIMEOUT", "1800"}}, Weight::doubtful, "30 hours"},
      {{{"DEEPSPEED_TIMEOUT", "30min"}}, Weight::wrong, "minutes are expected"},
      {{{"CUDA_VISIBLE_DEVICES", "0,1,1"}}, Weight::wrong, "device 1 is listed twice"},
      {{{"CUDA_VISIBLE_DEVICES", ""}}, Weight::wrong, "hides all devices"},
      {{{"CUDA_VISIBLE_DEVICES", "all"}}, Weight::wrong, "container"},
      {with("RANK", "16"), Weight::wrong, "ranks count from 0"},
      {with("LOCAL_RANK", "8"), Weight::wrong, "ranks count from 0"},
      {with("WORLD_SIZE", "many"), Weight::wrong, "a whole number is expected"},
      {with("MASTER_PORT", "99999"), Weight::wrong, "1 to 65535"},
      {with("MASTER_ADDR", "localhost"), Weight::wrong, "each of the 2 nodes would wait for its own rank 0"},
      {without("MASTER_PORT"), Weight::wrong, "without MASTER_PORT"},
      {with("OMPI_COMM_WORLD_RANK", "5"), Weight::wrong, "two launchers"},
      {{{"NCCL_MULTI_RANK_GPU_ENABLE", "yes"}}, Weight::wrong, "Use 0 or 1"},
      {{{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}}, Weight::doubtful, "Set NCCL_MAX_CTAS to 2, 3 or 4"},
      {{{"NCCL_MULTI_RANK_GPU_ENABLE", "1"}, {"NCCL_MAX_CTAS", "2"}}, Weight::note, "experimental"},
      {{{"NCCL_MULTI_RANK_GPU_ENABLED", "1"}}, Weight::doubtful, "Did you mean NCCL_MULTI_RANK_GPU_ENABLE?"},
  };
  for (const AdviceCase& c : cases) {
    const std::vector<Advice> advice = lint_environment(c.environment);
    ASSERT_EQ(advice.size(), 1u) << c.says << "\n" << text_of(advice);
    EXPECT_EQ(advice[0].weight, c.weight) << text_of(advice);
    EXPECT_NE(text_of(advice).find(c.says), std::string::npos) << c.says << "\n" << text_of(advice);
  }
  Environment well = torch;
  well.insert({{"NCCL_DEBUG", "warn"},
               {"NCCL_IB_TIMEOUT", "22"},
               {"NCCL_IB_HCA", "mlx5"},
               {"NCCL_P2P_DISABLE", "0"},
               {"NCCL_SOME_FUTURE_THING", "1"},
               {"CUDA_VISIBLE_DEVICES", "0,1,2,3"},
               {"DEEPSPEED_TIMEOUT", "30"},
               {"OMPI_COMM_WORLD_RANK", "3"},
               {"OMPI_COMM_WORLD_SIZE", "16"},
               {"HOME", "/root"}});
  EXPECT_EQ(text_of(lint_environment(well)), "");
}

std::vector<Advice> lint(const Json& config, std::int64_t gpus = 0) {
  return lint_config(Document::from_text(Json({{"deepspeed", config}}).dump(), "ds.json"), "ds.json", gpus);
}

// Nothing in it is wrong or doubtful.
Json well() {
  return Json::parse(R"({
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-6, "warmup_num_steps": 100}}})");
}

TEST(LintConfig, SaysWhatASettingReallyDoes) {
  EXPECT_EQ(text_of(lint(well(), 8)).find("wrong"), std::string::npos);
  EXPECT_EQ(text_of(lint(well(), 8)).find("doubtful"), std::string::npos);
  struct Change {
    const char* merge;
    Weight weight;
    const char* says;
  };
  const std::vector<Change> changes = {
      {R"({"gradient_cliping": 1})", Weight::wrong, "did you mean \"gradient_clipping\"?"},
      {R"({"my_notes": 1, "_comment": 2})", Weight::note, "keys that it does not know: \"my_notes\", \"_comment\""},
      {R"({"train_batch_size": 60})", Weight::wrong, "60 samples cannot be cut evenly over 8 ranks"},
      {R"({"train_batch_size": 128})", Weight::wrong, "128 != 4 * 2 * 8"},
      {R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": null, "gradient_accumulation_steps": null})",
       Weight::wrong, "4 samples cannot be cut evenly over 8 ranks"},
      {R"({"train_batch_size": 0})", Weight::wrong, "has to be greater than 0"},
      {R"({"train_batch_size": null, "train_micro_batch_size_per_gpu": null})", Weight::wrong,
       "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"},
      {R"({"zero_optimization": {"stage": 2, "offload_param": null}})", Weight::note,
       "after each of the 2 micro-batches"},
      {R"({"elasticity": {"enabled": true}})", Weight::wrong, "elastic training is removed"},
      {R"({"fp16": {"enabled": true}})", Weight::wrong, "cannot be simultaneously enabled"},
      {R"({"bf16": {"loss_scale": 0}})", Weight::wrong, "bf16 has no loss scale"},
      {R"({"bf16": null, "fp16": {"enabled": true, "loss_scale": 128, "hysteresis": 4}})", Weight::doubtful,
       "a loss_scale other than 0 is fixed"},
      {R"({"bf16": null, "fp16": {"enabled": true, "min_loss_scale": 1024}})", Weight::doubtful, "does not help"},
      {R"({"bf16": null, "fp16": {"enabled": true, "loss_scale_window": 0}})", Weight::wrong,
       "loss_scale_window 0: 1 or more"},
      {R"({"bf16": null, "fp16": {"enabled": true, "min_loss_scale": 1e-10}})", Weight::wrong,
       "an integer was expected"},
      {R"({"data_types": null})", Weight::note, "accumulated in bf16"},
      {R"({"communication_data_type": "bf32"})", Weight::wrong, "is not one of: null, fp32, fp16, bf16"},
      {R"({"gradient_clipping": null})", Weight::doubtful, "default changed"},
      {R"({"zero_optimization": {"stage": 4}})", Weight::wrong, "must be at most 3"},
      {R"({"zero_optimization": {"stage": 1, "offload_param": null, "stage3_prefetch_bucket_size": 5}})",
       Weight::doubtful, "decides nothing at stage 1"},
      {R"({"zero_optimization": {"reduce_bucket_size": 5e9}})", Weight::doubtful,
       "10 GB of each GPU's memory, and as much"},
      {R"({"prescale_gradients": true})", Weight::wrong, "not yet supported with ZeRO-3"},
      {R"({"gradient_predivide_factor": 2.0})", Weight::wrong, "not yet supported with ZeRO-3"},
      {R"({"gradient_allreduce_op": "sum"})", Weight::wrong, "not supported with ZeRO stage 3"},
      {R"({"zero_optimization": {"stage": 2}})", Weight::wrong, "is ignored at stage 2"},
      {R"({"zero_optimization": {"stage": 0, "offload_param": null}})", Weight::wrong, "is ignored at stage 0"},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})", Weight::wrong, "needs nvme_path"},
      {R"({"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/dev/shm/x"}}})", Weight::doubtful,
       "is memory on many machines"},
      {R"({"zero_optimization": {"stage": 2, "offload_param": null, "offload_optimizer": {"ratio": 0.5}}})",
       Weight::wrong, "Partial offloading"},
      {R"({"optimizer": {"params": {"max_grad_norm": 1}}})", Weight::wrong, "'gradient_clipping'"},
      {R"({"optimizer": {"type": "Adam"}})", Weight::note, "\"Adam\" is AdamW"},
      {R"({"optimizer": {"params": {"weight_decay": null}}})", Weight::note, "0.01 in PyTorch's AdamW"},
      {R"({"optimizer": {"params": {"lr": 3}}})", Weight::doubtful, "3 is large for Adam"},
      {R"({"scheduler": null})", Weight::note, "no warm-up"},
      {R"({"scheduler": {"params": {"warmup_min_lr": 0}}})", Weight::note, "the first two steps use warmup_min_lr"},
      {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9000, "warmup_min_lr": null}}})",
       Weight::note, "the first two steps use warmup_min_ratio"},
      {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9000, "warmup_min_lr": 0}}})",
       Weight::wrong, "WarmupCosineLR has no such parameter"},
      {R"({"torch_autocast": {"enabled": true}})", Weight::note, "Not supported (by seeksim; DeepSpeed takes it)"},
      {R"({"activation_checkpointing": {"number_checkpoints": 4}})", Weight::note, "gradient_checkpointing_enable()"},
      {R"({"pipeline": {"stages": 4}})", Weight::note, "takes a PipelineModule"},
      {R"({"bfloat16": {"enabled": true}, "bf16": null})", Weight::note, "bfloat16 is read as bf16"},
      {R"({"gradient_accumulation_steps": "2"})", Weight::wrong, "an integer or null was expected, found a string"},
      {R"({"find_unused_parameters": true})", Weight::note, "\"find_unused_parameters\""},
      {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-6, "warmup_num_steps": 100, "total_num_steps": 50}}})",
       Weight::wrong, "never reaches its peak"},
      {R"({"train_batch_size": "auto"})", Weight::note, "the other batch sizes follow"},
  };
  for (const Change& change : changes) {
    Json config = well();
    config.merge_patch(Json::parse(change.merge));
    const std::vector<Advice> advice = lint(config, 8);
    const auto said = [&](const Advice& one) {
      return one.weight == change.weight && one.problem.text().find(change.says) != std::string::npos;
    };
    EXPECT_EQ(std::count_if(advice.begin(), advice.end(), said), 1) << change.merge << "\n" << text_of(advice);
    const std::string before = text_of(lint(well(), 8));
    EXPECT_EQ(before.find(change.says), std::string::npos) << "said of what is well, too: " << change.says;
  }
  EXPECT_NE(text_of(lint(Json::array())).find("an object is expected"), std::string::npos);
}

TEST(LintConfig, ShowsBothRulesWhereGpusWereAdded) {
  Json config = well();
  config.erase("train_batch_size");
  const auto told = [&](std::int64_t before) {
    return text_of(
        lint_config(Document::from_text(Json({{"deepspeed", config}}).dump(), "ds.json"), "ds.json", 32, before));
  };
  EXPECT_NE(told(8).find("is 0.0001 for 256 samples a step as for 64: by the linear rule it would be 0.0004, by the "
                         "square-root rule (often used with Adam) 0.0002"),
            std::string::npos)
      << told(8);
  EXPECT_EQ(told(32).find("linear rule"), std::string::npos);
  EXPECT_EQ(told(0).find("linear rule"), std::string::npos);
}

TEST(LintHostfile, ReadsItAsDeepSpeedDoes) {
  EXPECT_EQ(text_of(lint_hostfile("# two\nnode0 slots=8\n\nnode1 slots=8 # spare\n", "hosts")), "");
  EXPECT_NE(text_of(lint_hostfile("node0 slots = 8\n", "hosts")).find("hosts:1: \"node0 slots = 8\""),
            std::string::npos);
  EXPECT_NE(text_of(lint_hostfile("node0:8\n", "hosts")).find("only lines like"), std::string::npos);
  EXPECT_NE(text_of(lint_hostfile("a slots=1\na slots=1\n", "hosts")).find("hosts:2: \"a\" is there twice"),
            std::string::npos);
  EXPECT_NE(text_of(lint_hostfile("a slots=0\n", "hosts")).find("no slots"), std::string::npos);
  EXPECT_NE(text_of(lint_hostfile("\n# nobody\n", "hosts")).find("is empty"), std::string::npos);
  for (const char* line : {"slots=8", " a slots=8", "a slots=", "a  slots=x", "a"})
    EXPECT_NE(text_of(lint_hostfile(line + std::string("\n"), "hosts")).find("only lines like"), std::string::npos)
        << line;
}

TEST(LintHostfile, ALineOfAMegabyteIsOnlyALongLine) {
  const std::string host(1'000'000, 'h');
  EXPECT_EQ(text_of(lint_hostfile(host + " slots=8\n", "hosts")), "");
  EXPECT_NE(text_of(lint_hostfile(host + '\n', "hosts")).find("only lines like"), std::string::npos);
  EXPECT_EQ(text_of(lint_hostfile("a slots=8 # " + host + '\n', "hosts")), "");
}

// No product of three of them may wrap.
TEST(LintConfig, NumbersThatNobodyMeansAreJudgedToo) {
  for (const char* number : {"1e300", "9223372036854775807", "-1e300", "4294967297"}) {
    Json config = well();
    config["train_micro_batch_size_per_gpu"] = Json::parse(number);
    config["gradient_accumulation_steps"] = Json::parse(number);
    EXPECT_NE(text_of(lint(config, std::int64_t(1) << 62)), "") << number;
  }
}

TEST(Doctor, LooksAtTheMachineAConfigAndAHostfile) {
  const testing::TemporaryFolder folder;
  const std::string config = folder.write(
      "ds.json",
      R"({"train_batch_size": 8, "train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}})");
  const std::string hosts = folder.write("hosts", "node0:8\n");
  const testing::Ran ran = testing::seeksim({"doctor", "--config", config, "--hostfile", hosts});
  EXPECT_EQ(ran.status, 1) << ran.out << ran.err;
  for (const char* text : {"conformance", "the stored bits", "written, synced, renamed and read back",
                           "simultaneously enabled", "train_batch_size", "only lines like"}) {
    EXPECT_NE(ran.out.find(text), std::string::npos) << text << "\n" << ran.out;
  }
  EXPECT_EQ(testing::seeksim({"doctor", "--config", folder.file("none.json")}).status, 2);
  EXPECT_EQ(testing::seeksim({"doctor", "--config", hosts}).status, 2) << "no JSON";
}

}  // namespace
}  // namespace seeksim::harness
