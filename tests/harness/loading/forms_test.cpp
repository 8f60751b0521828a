// A ds_config.json as people have it: "auto", field names beside aliases, old forms, quotes, and what is passed over.
#include "harness/loading/deepspeed/forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "tests/harness/loading/deepspeed_section.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

std::string notes_of(const Scenario& scenario) { return fmt::format("{}\n", fmt::join(scenario.notes, "\n")); }
std::string zero(const std::string& keys) { return R"({"train_batch_size": 8, "zero_optimization": {)" + keys + "}}"; }

// The file that Hugging Face documents for ZeRO-3, by its keys.
constexpr const char* kTrainersZero3 = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
    "offload_optimizer": {"device": "cpu", "pin_memory": true}, "offload_param": {"device": "cpu", "pin_memory": true},
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false})";

TEST(Auto, IsFilledAsTheTrainerFillsIt) {
  const Scenario s = loaded(kTrainersZero3, {"model.width=24", "steps=40"});
  const runtime::Definition& d = s.train.definition;
  EXPECT_EQ(d.optimizer.lr, 5e-5);
  EXPECT_EQ(d.optimizer.betas, (std::array<double, 2>{0.9, 0.999}));
  EXPECT_EQ(d.optimizer.eps, 1e-8);
  EXPECT_EQ(d.optimizer.weight_decay, 0);
  EXPECT_EQ(d.gradient_clipping, 1);
  EXPECT_EQ(d.scheduler.warmup_max_lr, 5e-5);
  EXPECT_EQ(d.scheduler.total_num_steps, 40);
  EXPECT_EQ(d.scheduler.warmup_num_steps, 2) << "the Trainer gives 1, of which DeepSpeed makes 2";
  EXPECT_EQ(d.precision.compute, runtime::ElementType::f32);
  EXPECT_EQ(s.train.layout.micro_batch, 8);
  EXPECT_EQ(s.accumulation, 1);
  EXPECT_EQ(d.global_batch, 32) << "8 on each of 4 ranks";
  EXPECT_EQ(s.train.layout.zero.reduce_bucket_elements, 24 * 24);
  EXPECT_EQ(s.train.layout.zero.prefetch_elements, 518) << "0.9 * 24 * 24, rounded down";
  EXPECT_EQ(s.train.layout.zero.persistence_threshold_elements, 240);
}

TEST(Auto, IsToldInOneLineWithEveryValue) {
  const Scenario s = loaded(kTrainersZero3);
  const std::string notes = notes_of(s);
  EXPECT_EQ(std::count_if(s.notes.begin(), s.notes.end(),
                          [](const std::string& note) { return note.find("\"auto\"") != std::string::npos; }),
            1)
      << notes;
  for (const char* part :
       {"--auto lr=1e-4,batch=4", "optimizer.params.lr=5e-05", "train_micro_batch_size_per_gpu=8", "bf16.enabled=false",
        "zero_optimization.reduce_bucket_size=", "the other batch sizes follow"})
    EXPECT_NE(notes.find(part), std::string::npos) << part << "\n" << notes;
}

TEST(Auto, IsChangedByArgumentsOfTheTrainer) {
  const std::vector<std::string> sets = {"auto.lr=0.25",    "auto.batch=2",    "auto.accumulation=3",
                                         "auto.beta2=0.95", "auto.warmup=0.5", "auto.bf16=true"};
  const Scenario s = loaded(kTrainersZero3, sets);
  EXPECT_EQ(s.train.definition.optimizer.lr, 0.25);
  EXPECT_EQ(s.train.definition.optimizer.betas[1], 0.95);
  EXPECT_EQ(s.train.definition.scheduler.warmup_max_lr, 0.25);
  EXPECT_EQ(s.train.definition.scheduler.warmup_num_steps, (s.train.definition.steps + 1) / 2);
  EXPECT_EQ(s.train.definition.precision.compute, runtime::ElementType::bf16);
  EXPECT_EQ(s.train.definition.global_batch, 24);
  const std::string found = problems_of(with(R"({"train_batch_size": 8})"), {"auto.lr=0.25"});
  EXPECT_NE(found.find("--set auto.lr=0.25: auto.lr: fills nothing"), std::string::npos) << found;
  EXPECT_NE(problems_of(with(kTrainersZero3), {"auto.bathc=2"}).find("Did you mean \"batch\"?"), std::string::npos);
}

TEST(Auto, OfABatchFollowsFromANumber) {
  const Scenario s =
      loaded(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto"})");
  EXPECT_EQ(s.accumulation, 3);
  const Scenario both = loaded(
      R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})");
  EXPECT_EQ(both.train.layout.micro_batch, 6);
}

TEST(Auto, ThatNobodyFillsIsDeepSpeedsDefault) {
  const Scenario s = loaded(
      R"({"train_batch_size": 8, "steps_per_print": "auto",
          "zero_optimization": {"stage": 2, "allgather_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}})");
  EXPECT_EQ(s.train.layout.zero.allgather_bucket_elements, 500'000'000);
  EXPECT_NE(notes_of(s).find("DeepSpeed's default for zero_optimization.stage3_prefetch_bucket_size, steps_per_print, "
                             "zero_optimization.allgather_bucket_size"),
            std::string::npos)
      << notes_of(s);
}

TEST(Forms, FieldNamesAreReadAsTheirAliases) {
  const runtime::ZeroPlan plan =
      loaded(zero(R"("stage": 3, "max_live_parameters": 11, "max_reuse_distance": 12, "prefetch_bucket_size": 13,
                     "param_persistence_threshold": 14, "gather_16bit_weights_on_model_save": true)"))
          .train.layout.zero;
  EXPECT_EQ(plan.max_live_parameters, 11);
  EXPECT_EQ(plan.max_reuse_distance, 12);
  EXPECT_EQ(plan.prefetch_elements, 13);
  EXPECT_EQ(plan.persistence_threshold_elements, 14);
  EXPECT_NE(problems_of(with(zero(R"("stage": 3, "max_live_parameters": 1, "stage3_max_live_parameters": 2)")))
                .find("deepspeed.zero_optimization.max_live_parameters: stage3_max_live_parameters is there too"),
            std::string::npos);
}

TEST(Forms, OldOnesMeanWhatTheyMeant) {
  const Scenario on = loaded(R"({"train_batch_size": 8, "zero_optimization": true, "allgather_size": 1000})");
  EXPECT_EQ(on.train.layout.zero.stage, 1);
  EXPECT_EQ(on.train.layout.zero.allgather_bucket_elements, 1000);
  EXPECT_EQ(loaded(R"({"train_batch_size": 8, "zero_optimization": false})").train.layout.zero.stage, 0);
  const Scenario offload = loaded(zero(R"("stage": 2, "cpu_offload": true)"));
  EXPECT_EQ(offload.train.layout.offload.optimizer.home, runtime::Home::host);
  EXPECT_NE(notes_of(offload).find("zero_optimization.cpu_offload is deprecated: read as \"offload_optimizer\""),
            std::string::npos);
  EXPECT_EQ(loaded(zero(R"("stage": 2, "cpu_offload": false)")).train.layout.offload.optimizer.home,
            runtime::Home::device);
  EXPECT_NE(problems_of(with(zero(R"("stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"})")))
                .find("Cannot provide deprecated parameter 'cpu_offload' and replacing parameter 'offload_optimizer'"),
            std::string::npos);
  const Scenario brain = loaded(R"({"train_batch_size": 8, "bfloat16": {"enabled": true}})");
  EXPECT_EQ(brain.train.definition.precision.compute, runtime::ElementType::bf16);
  EXPECT_NE(notes_of(brain).find("bfloat16 is read as bf16"), std::string::npos);
  EXPECT_EQ(loaded(R"({"train_batch_size": 8, "bfloat16": {"enabled": true}, "bf16": {"enabled": false}})")
                .train.definition.precision.compute,
            runtime::ElementType::f32);
}

TEST(Forms, QuotesAreReadWherePydanticReadsThem) {
  const Scenario s = loaded(
      R"({"train_batch_size": 8, "fp16": {"enabled": "true", "loss_scale": "128"},
          "zero_optimization": {"stage": "2", "overlap_comm": "no", "reduce_bucket_size": "1_000"}})");
  EXPECT_EQ(s.train.definition.precision.compute, runtime::ElementType::f16);
  EXPECT_EQ(s.train.definition.scaler.loss_scale, 128);
  EXPECT_EQ(s.train.layout.zero.stage, 2);
  EXPECT_FALSE(s.train.layout.zero.overlap_comm);
  EXPECT_EQ(s.train.layout.zero.reduce_bucket_elements, 1000);
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "gradient_accumulation_steps": "8"})"))
                .find("an integer or null was expected, found a string"),
            std::string::npos)
      << "DeepSpeed fails on it";
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "fp16": {"enabled": true, "min_loss_scale": 1e-10}})"))
                .find("deepspeed.fp16.min_loss_scale: an integer was expected"),
            std::string::npos);
}

TEST(Forms, UnknownKeysArePassedOverWithOneLine) {
  const Scenario s = loaded(
      R"({"train_batch_size": 8, "_comment": "x", "zero3_init_flag": true, "gradient_cliping": 1,
          "optimizer": {"type": "AdamW", "comment": 1}, "aio": {"block_sise": 1}})");
  const std::string notes = notes_of(s);
  EXPECT_NE(notes.find("does not know: \"_comment\", \"zero3_init_flag\", \"gradient_cliping\" (did you mean "
                       "\"gradient_clipping\"?), \"optimizer.comment\", \"aio.block_sise\" (did you mean "
                       "\"block_size\"?)\n"),
            std::string::npos)
      << notes;
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "fp16": {"opt_level": "O1"}})")).find("unknown key"),
            std::string::npos)
      << "DeepSpeed refuses it";
}

TEST(Forms, WhatDeepSpeedHasRemovedIsRefusedAlsoWhereItIsOff) {
  for (const char* key : {"amp", "elasticity", "curriculum_learning", "progressive_layer_drop", "eigenvalue",
                          "sparse_attention", "compression_training", "quantize_training", "nebula"}) {
    const std::string found =
        problems_of(with(fmt::format(R"({{"train_batch_size": 8, "{}": {{"enabled": false}}}})", key)));
    EXPECT_NE(found.find(fmt::format("deepspeed.{}: DeepSpeed 0.19.8 refuses it", key)), std::string::npos) << found;
    EXPECT_EQ(found.find('\n'), std::string::npos) << "one line: " << found;
  }
}

TEST(Forms, WhatHasNoEffectAtAStageIsSaidAndIgnored) {
  const Scenario s = loaded(zero(R"("stage": 1, "offload_param": {"device": "cpu"}, "sub_group_size": 0)"));
  EXPECT_EQ(s.train.layout.offload.parameters.home, runtime::Home::device);
  EXPECT_NE(notes_of(s).find("zero_optimization.offload_param is ignored at stage 1"), std::string::npos);
  EXPECT_GT(loaded(zero(R"("stage": 3, "sub_group_size": 0)")).train.layout.zero.sub_group_elements, 1'000'000);
}

TEST(Forms, CommentsAndLastCommasAreReadInAFileOfItsOwn) {
  TemporaryFolder folder;
  folder.write("ds.json",
               "{ // batch\n  \"train_batch_size\": 16, # all ranks\n  /* two\n lines */ \"fp16\": {},\n}\n");
  const std::string text = with("\"ds.json\"");
  EXPECT_EQ(load_scenario_text(text, folder.file("s.json")).train.definition.global_batch, 16);
  folder.write("ds.json", "{ /* open\n \"train_batch_size\": 16 }");
  EXPECT_NE(problems_of(text, {}, folder.file("s.json")).find("comments are not JSON"), std::string::npos);
  folder.write("ds.json", "{ /* one\n */\n \"zero_optimization\": 7 }");
  EXPECT_NE(problems_of(text, {}, folder.file("s.json")).find("ds.json:3: deepspeed.zero_optimization"),
            std::string::npos);
}

}  // namespace
}  // namespace seeksim::harness
