// The "deepspeed" section: arithmetic and messages as DeepSpeed 0.19.8 has them (training-semantics, 1.2 to 1.6).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "runtime/plan/optimizer_kinds.h"
#include "tests/harness/loading/deepspeed_section.h"
#include "tests/support/paths.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

TEST(Batch, IsDerivedAsDeepSpeedDoes) {
  struct Case {
    const char* section;
    int train, micro, gas;
  };
  const std::vector<Case> table = {
      {R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})", 24, 2, 3},
      {R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 2})", 24, 2, 3},
      {R"({"train_batch_size": 24, "gradient_accumulation_steps": 3})", 24, 2, 3},
      {R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})", 24, 2, 3},
      {R"({"train_batch_size": 24})", 24, 6, 1},
      {R"({"train_micro_batch_size_per_gpu": 2})", 8, 2, 1},
  };
  for (const Case& one : table) {
    const Scenario s = loaded(one.section);
    EXPECT_EQ(s.train.definition.global_batch, one.train) << one.section;
    EXPECT_EQ(s.train.layout.micro_batch, one.micro) << one.section;
    EXPECT_EQ(s.accumulation, one.gas) << one.section;
  }
}

TEST(Batch, IsRefusedInDeepSpeedsWords) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3})",
       "s.json:6: deepspeed.train_batch_size: Check batch related parameters. train_batch_size is not equal to "
       "micro_batch_per_gpu * gradient_acc_step * world_size 32 != 2 * 3 * 4"},
      {R"({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 2})", "30 != 2 * 3 * 4"},
      {R"({"train_batch_size": 6})", "6 != 1 * 1 * 4"},
      {R"({"train_batch_size": 3})", "3 samples cannot be cut evenly over 4 ranks. For example 4."},
      {R"({"train_batch_size": 2, "train_micro_batch_size_per_gpu": 4})",
       "2 samples are fewer than one micro-batch of 4 on each of 4 ranks. For example 16."},
      {R"({"train_batch_size": 0})", "Train batch size: 0 has to be greater than 0"},
      {R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": -1})",
       "Micro batch size per gpu: -1 has to be greater than 0"},
      {R"({"train_batch_size": 8, "gradient_accumulation_steps": 0})",
       "Gradient accumulation steps: 0 has to be greater than 0"},
      {R"({"gradient_accumulation_steps": 2})",
       "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"},
      {R"({})", "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"},
      {R"({"train_batch_size": null})",
       "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"},
      {R"({"train_micro_batch_size_per_gpu": 99999999, "gradient_accumulation_steps": 99999999})",
       "more samples than any machine has"},
      {R"({"train_batch_size": 9007199254740993})", "is more than any machine has"},
  };
  for (const auto& [section, message] : table) {
    const std::string found = problems_of(with(section));
    EXPECT_NE(found.find(message), std::string::npos) << section << "\n  gave: " << found;
  }
}

TEST(Optimizer, HasDeepSpeedsDefaults) {
  const runtime::OptimizerPlan o =
      loaded(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"}})").train.definition.optimizer;
  EXPECT_EQ(o.type, "AdamW");
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_EQ(o.weight_decay, 0) << "FusedAdam's, not torch's";
  EXPECT_EQ(o.betas[1], 0.999);
  EXPECT_FALSE(o.decay_all);
  EXPECT_EQ(loaded(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"torch_adam": true}}})")
                .train.definition.optimizer.weight_decay,
            0.01);
}

TEST(Optimizer, AdamMeansAdamWUnlessToldOtherwise) {
  EXPECT_EQ(loaded(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}})").train.definition.optimizer.type,
            "AdamW");
  EXPECT_EQ(
      loaded(
          R"({"train_batch_size": 8, "optimizer": {"type": "adam", "params": {"adam_w_mode": false, "betas": [0.8, 0.9]}}})")
          .train.definition.optimizer.type,
      "Adam");
  EXPECT_EQ(loaded(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})")
                .train.definition.optimizer.type,
            "AdamW");
}

TEST(Optimizer, MomentsAreCorrectedUnlessToldOtherwise) {
  const char* const text =
      R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"bias_correction": false}}})";
  EXPECT_FALSE(loaded(text).train.definition.optimizer.bias_correction);
  EXPECT_TRUE(loaded(R"({"train_batch_size": 8})").train.definition.optimizer.bias_correction);
  const Json written = to_json(loaded(text)).at("deepspeed").at("optimizer").at("params");
  EXPECT_EQ(written.at("bias_correction"), false);
  EXPECT_FALSE(to_json(loaded(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"}})"))
                   .at("deepspeed")
                   .at("optimizer")
                   .at("params")
                   .contains("bias_correction"));
}

TEST(Optimizer, LionHasDeepSpeedsDefaultsAndOneMoment) {
  const Scenario given = loaded(R"({"train_batch_size": 8, "optimizer": {"type": "lion", "params": {"lr": 1e-4}}})");
  const runtime::OptimizerPlan& o = given.train.definition.optimizer;
  EXPECT_EQ(o.type, "Lion");
  EXPECT_EQ(o.lr, 1e-4);
  EXPECT_EQ(o.betas[0], 0.9);
  EXPECT_EQ(o.betas[1], 0.999) << "FusedLion's and DeepSpeedCPULion's, not the paper's 0.99";
  EXPECT_EQ(o.weight_decay, 0);
  EXPECT_EQ(runtime::moments_of(o), 1);
  const Json written = to_json(given).at("deepspeed").at("optimizer");
  EXPECT_EQ(written.at("type"), "Lion");
  EXPECT_FALSE(written.at("params").contains("eps"));
}

TEST(Optimizer, LionTakesNoParameterOfAdams) {
  for (const char* one : {R"("eps": 1e-8)", R"("bias_correction": true)", R"("adam_w_mode": true)",
                          R"("amsgrad": false)", R"("torch_adam": true)"}) {
    const std::string found = problems_of(
        with(std::string(R"({"train_batch_size": 8, "optimizer": {"type": "Lion", "params": {)") + one + "}}}"));
    EXPECT_NE(found.find("DeepSpeed's Lion has no such parameter"), std::string::npos) << one << found;
  }
}

TEST(Optimizer, SgdHasTorchsDefaultsAndKeepsNothingWithoutMomentum) {
  const auto plan = [](const std::string& params) {
    return loaded(R"({"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {)" + params + "}}}")
        .train.definition.optimizer;
  };
  const runtime::OptimizerPlan plain = plan("");
  EXPECT_EQ(plain.type, "SGD");
  EXPECT_EQ(plain.lr, 1e-3);
  EXPECT_EQ(plain.momentum, 0);
  EXPECT_EQ(plain.dampening, 0);
  EXPECT_FALSE(plain.nesterov);
  EXPECT_EQ(plain.weight_decay, 0);
  EXPECT_EQ(runtime::moments_of(plain), 0);
  const runtime::OptimizerPlan given = plan(R"("momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1)");
  EXPECT_EQ(given.momentum, 0.9);
  EXPECT_EQ(given.dampening, 0.5);
  EXPECT_EQ(runtime::moments_of(given), 1);
  EXPECT_TRUE(plan(R"("momentum": 0.9, "nesterov": true)").nesterov);
  const std::string text =
      R"({"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"momentum": 0.5, "dampening": 0.1}}})";
  const Json written = to_json(loaded(text)).at("deepspeed").at("optimizer");
  EXPECT_EQ(written.at("params").at("momentum"), 0.5);
  EXPECT_FALSE(written.at("params").contains("betas"));
}

TEST(Optimizer, SgdTakesWhatTorchTakes) {
  const std::pair<const char*, const char*> rows[] = {
      {R"("betas": [0.9, 0.999])", "torch's SGD has no such parameter"},
      {R"("eps": 1e-8)", "torch's SGD has no such parameter"},
      {R"("maximize": true)", "Not supported: true"},
      {R"("nesterov": true)", "Nesterov momentum requires a momentum and zero dampening"},
      {R"("nesterov": true, "momentum": 0.9, "dampening": 0.1)",
       "Nesterov momentum requires a momentum and zero dampening"}};
  for (const auto& [params, message] : rows) {
    const std::string found = problems_of(
        with(std::string(R"({"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {)") + params + "}}}"));
    EXPECT_NE(found.find(message), std::string::npos) << params << found;
  }
  const std::string found =
      problems_of(with(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"dampening": 0}}})"));
  EXPECT_NE(found.find("only SGD has it"), std::string::npos) << found;
}

TEST(Optimizer, MuonHasDeepSpeedsDefaultsAndTwoRates) {
  const auto plan = [](const std::string& params, const std::string& more = "") {
    return loaded(R"({"train_batch_size": 8, "optimizer": {"type": "muon", "params": {)" + params + "}}" + more + "}")
        .train.definition.optimizer;
  };
  const runtime::OptimizerPlan plain = plan("");
  EXPECT_EQ(plain.type, "Muon");
  EXPECT_EQ(plain.lr, 0.02);
  EXPECT_DOUBLE_EQ(plain.lr * plain.adamw_rate, 3e-4);
  EXPECT_EQ(plain.momentum, 0.95);
  EXPECT_EQ(plain.betas[0], 0.9);
  EXPECT_EQ(plain.betas[1], 0.95);
  EXPECT_EQ(plain.eps, 1e-10);
  EXPECT_EQ(plain.weight_decay, 0);
  const runtime::OptimizerPlan shared = plan(R"("lr": 0.01, "betas": [0.8, 0.9], "momentum": 0.9)");
  EXPECT_EQ(shared.lr, 0.01);
  EXPECT_EQ(shared.adamw_rate, 1);
  EXPECT_EQ(shared.momentum, 0.9);
  EXPECT_EQ(shared.betas[0], 0.8);
  const runtime::OptimizerPlan two = plan(R"("lr": 0.01, "muon_lr": 0.04, "adam_lr": 0.001)");
  EXPECT_EQ(two.lr, 0.04);
  EXPECT_DOUBLE_EQ(two.adamw_rate, 0.025);
  const std::string warms = R"(, "scheduler": {"type": "WarmupLR"})";
  EXPECT_EQ(plan("", warms).adamw_rate, 1) << "DeepSpeed's WarmupLR writes one rate over both";
  const std::string cosine = R"(, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9}})";
  EXPECT_DOUBLE_EQ(plan(R"("muon_lr": 0.04, "adam_lr": 0.001)", cosine).adamw_rate, 0.025);
}

TEST(Optimizer, MuonIsReadAgainAsItIsWritten) {
  for (const char* rates :
       {R"("muon_lr": 0.02, "adam_lr": 3e-3)", R"("lr": 0.3, "adam_lr": 0.1)", R"("muon_lr": 0.07)"}) {
    const Scenario given = loaded(R"({"train_batch_size": 8, "optimizer": {"type": "Muon", "params": {)" +
                                  std::string(rates) + R"(, "momentum": 0.8}}})");
    const Scenario again = loaded(to_json(given).at("deepspeed").dump());
    const runtime::OptimizerPlan &o = given.train.definition.optimizer, &p = again.train.definition.optimizer;
    EXPECT_EQ(o.type, p.type);
    EXPECT_EQ(o.lr, p.lr) << rates;
    EXPECT_EQ(o.adamw_rate, p.adamw_rate) << rates;
    EXPECT_EQ(o.momentum, p.momentum);
    EXPECT_EQ(o.eps, p.eps);
  }
}

TEST(Optimizer, MuonSaysWhatItDoesNotTake) {
  const auto of = [](const std::string& type, const std::string& params, const std::string& more = "") {
    return problems_of(with(R"({"train_batch_size": 8, "optimizer": {"type": ")" + type + R"(", "params": {)" + params +
                            "}}" + more + "}"));
  };
  EXPECT_NE(of("Muon", R"("bias_correction": true)").find("Muon has no such parameter here"), std::string::npos);
  EXPECT_NE(of("Muon", R"("ns_method": "gram")").find("\"gram\""), std::string::npos);
  EXPECT_NE(of("Muon", R"("per_head_muon": true)").find("Not supported: true"), std::string::npos);
  EXPECT_NE(of("Muon", R"("adam_w_mode": false)").find("false with Muon"), std::string::npos);
  EXPECT_NE(of("Muon", R"("muon_lr": 0, "adam_lr": 0.1)").find("a rate of 0 for matrices"), std::string::npos);
  EXPECT_NE(of("Muon", R"("adam_lr": 0.1)", R"(, "scheduler": {"type": "WarmupLR"})").find("writes one rate over both"),
            std::string::npos);
  for (const char* key : {"momentum", "muon_lr", "adam_lr"})
    EXPECT_NE(of("AdamW", '"' + std::string(key) + R"(": 0.1)").find("only Muon has it"), std::string::npos) << key;
}

TEST(Optimizer, OthersAreRefusedByName) {
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "optimizer": {"type": "Lamb"}})"))
                .find("Not supported: optimizer \"Lamb\""),
            std::string::npos);
  EXPECT_NE(
      problems_of(with(R"({"train_batch_size": 8, "optimizer": {"type": "AdmaW"}})")).find("Did you mean \"AdamW\"?"),
      std::string::npos);
  EXPECT_NE(
      problems_of(with(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}}})"))
          .find("gradient_clipping"),
      std::string::npos);
}

TEST(Optimizer, OfThoseNotThereNoParameterIsCalledUnknown) {
  for (const char* one :
       {R"({"type": "Lamb", "params": {"lr": 1e-3, "max_coeff": 0.3, "min_coeff": 0.01}})",
        R"({"type": "OneBitAdam", "params": {"lr": 2e-4, "freeze_step": 400, "cuda_aware": true}})",
        R"({"type": "ZeroOneAdam", "params": {"lr": 2e-4, "var_freeze_step": 1000, "local_step_scaler": 1000}})"}) {
    const std::string found = problems_of(with(std::string(R"({"train_batch_size": 8, "optimizer": )") + one + "}"));
    EXPECT_NE(found.find("deepspeed.optimizer.type: Not supported: optimizer"), std::string::npos) << found;
    EXPECT_EQ(found.find('\n'), std::string::npos) << "one line: " << found;
  }
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "optimizer": {"type": "OneBitAdam"}})")).find("has removed it"),
            std::string::npos);
}

TEST(Scheduler, TakesItsPeakFromTheOptimizer) {
  const runtime::SchedulerPlan s =
      loaded(
          R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1}}})")
          .train.definition.scheduler;
  EXPECT_EQ(s.type, "WarmupLR");
  EXPECT_EQ(s.warmup_max_lr, 0.25);
  EXPECT_EQ(s.warmup_num_steps, 2) << "at least two are taken";
  EXPECT_EQ(s.warmup_type, "log");
  const Scenario decays = loaded(
      R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.25}}, "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9000}}})");
  EXPECT_EQ(decays.train.definition.scheduler.warmup_max_lr, 0.001) << "DeepSpeed's own default, said once";
  EXPECT_NE(fmt::format("{}", fmt::join(decays.notes, "\n")).find("WarmupDecayLR rises to 0.001"), std::string::npos);
}

TEST(Scheduler, WrongOnesAreTold) {
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "scheduler": {"type": "WarmupDecayLR"}})"))
                .find("WarmupDecayLR needs total_num_steps"),
            std::string::npos);
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "scheduler": {"type": "WarmUpLR"}})"))
                .find("Did you mean \"WarmupLR\"?"),
            std::string::npos);
  EXPECT_NE(problems_of(with(R"({"train_batch_size": 8, "scheduler": {"type": "OneCycle"}})"))
                .find("Not supported: scheduler \"OneCycle\""),
            std::string::npos);
  EXPECT_NE(
      problems_of(
          with(R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cosine"}}})"))
          .find("\"cosine\" is not one of: log, linear"),
      std::string::npos);
}

TEST(Scheduler, ThatEndsBeforeTheTrainingDoesIsANote) {
  LoadOptions options;
  options.sets = {"steps=10"};
  const std::string text = with(
      R"({"train_batch_size": 8, "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2, "total_num_steps": 6}}})");
  const auto notes = [&] {
    return fmt::format("{}", fmt::join(load_scenario_text(text, "s.json", options).notes, "\n"));
  };
  EXPECT_NE(notes().find("reaches its end at step 6: 4 of 10 steps train with 0"), std::string::npos) << notes();
  options.sets = {"steps=6"};
  EXPECT_EQ(notes().find("reaches its end"), std::string::npos);
}

TEST(Features, NotThereAreRefusedByName) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}})",
       "deepspeed.zero_optimization.offload_param.device: Not supported: parameters offloaded while the optimizer"},
      {R"("zero_optimization": {"stage": 2, "reduce_bucket_size": 0})",
       "deepspeed.zero_optimization.reduce_bucket_size: 0 is out of range"},
      {R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})",
       "deepspeed.fp16.fp16_master_weights_and_grads: Not supported"},
      {R"("bf16": {"enabled": true, "bf16_optimizer_states": true, "bf16_master_weights_and_grads": true})",
       "deepspeed.bf16.bf16_optimizer_states: Not supported"},
      {R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"})",
       "deepspeed.data_types.grad_accum_dtype: Not supported: fp16 for a model in bf16"},
      {R"("communication_data_type": "bf16")", "deepspeed.communication_data_type: Not supported"},
      {R"("optimizer": {"type": "AdamW", "params": {"torch_adam": true, "bias_correction": false}})",
       "deepspeed.optimizer.params.bias_correction: torch's Adam has no such parameter"},
      {R"("gradient_allreduce_op": "SUM")", "deepspeed.gradient_allreduce_op: Not supported: \"sum\""},
      {R"("zero_optimization": {"stage": 7})", "deepspeed.zero_optimization.stage: 7 is out of range"},
      {R"("zero_optimization": {"satge": 0})", "Did you mean \"stage\"?"},
  };
  for (const auto& [key, message] : table) {
    const std::string found = problems_of(with(std::string("{\"train_batch_size\": 8, ") + key + "}"));
    EXPECT_NE(found.find(message), std::string::npos) << key << "\n  gave: " << found;
  }
}

TEST(Features, WithoutEffectAreAcceptedAndSaidOnce) {
  const Scenario s = loaded(
      R"({"train_batch_size": 8, "steps_per_print": 10, "wall_clock_breakdown": false, "fp16": {"enabled": false},
      "zero_optimization": {"stage": 0, "reduce_bucket_size": 5e8, "overlap_comm": true}, "gradient_clipping": 0})");
  std::string notes;
  for (const std::string& note : s.notes) notes += note + '\n';
  EXPECT_NE(notes.find("deepspeed keys without effect here: steps_per_print, wall_clock_breakdown, zero_optimization"),
            std::string::npos)
      << notes;
  EXPECT_EQ(s.train.definition.gradient_clipping, 0);
  EXPECT_EQ(loaded(R"({"train_batch_size": 8})").train.definition.gradient_clipping, 1.0)
      << "the default since 2026-06-23";
}

// What a scenario with this section, and this line of "checkpointing", asks for; small_text() has one layer.
runtime::CheckpointingPlan checkpointing(const std::string& section, const std::string& own, std::string* notes = {}) {
  std::string text = with(R"({"train_batch_size": 8, "activation_checkpointing": )" + section + "}");
  text.replace(text.find("\"layers\": 1"), 11, "\"layers\": 5");
  text.insert(text.find('{') + 1, own);
  const Scenario scenario = load_scenario_text(text, "s.json");
  if (notes != nullptr) *notes = fmt::format("{}", fmt::join(scenario.notes, "\n"));
  const Scenario again = load_scenario_text(to_json(scenario).dump(), "again.json");
  EXPECT_EQ(again.train.layout.checkpointing, scenario.train.layout.checkpointing) << section << own;
  return scenario.train.layout.checkpointing;
}

TEST(Checkpointing, CountsSegmentsAsDeepSpeedOrTheirLayers) {
  using Plan = runtime::CheckpointingPlan;
  EXPECT_EQ(checkpointing("{}", ""), (Plan{}));
  EXPECT_EQ(checkpointing(R"({"number_checkpoints": 2})", ""), (Plan{3, {}, false}));
  EXPECT_EQ(checkpointing(R"({"number_checkpoints": 5})", ""), (Plan{1, {}, false}));
  EXPECT_EQ(checkpointing(R"({"number_checkpoints": 99, "cpu_checkpointing": true})", ""), (Plan{1, {}, true}));
  EXPECT_EQ(checkpointing(R"({"number_checkpoints": null})", R"("checkpointing": {"every": 2},)"),
            (Plan{2, {}, false}));
  EXPECT_EQ(checkpointing(R"({"cpu_checkpointing": true})", R"("checkpointing": {"layers": [3, 0, 3]},)"),
            (Plan{0, {0, 3}, true}));
}

TEST(Checkpointing, WhatHasNoEffectIsSaidOnce) {
  std::string notes;
  EXPECT_EQ(checkpointing(R"({"cpu_checkpointing": true, "profile": true, "partition_activations": true})", "", &notes),
            runtime::CheckpointingPlan{});
  for (const char* said :
       {"activation_checkpointing.partition_activations (there are no tensor-parallel ranks", "profile (every launch",
        "cpu_checkpointing (nothing is checkpointed)", "say number_checkpoints"})
    EXPECT_NE(notes.find(said), std::string::npos) << said << "\n" << notes;
}

TEST(Checkpointing, ContradictionsAreTold) {
  const auto told = [](const std::string& section, const std::string& own) {
    std::string text = with(R"({"train_batch_size": 8, "activation_checkpointing": )" + section + "}");
    return problems_of(text.insert(text.find('{') + 1, own));
  };
  EXPECT_NE(told(R"({"number_checkpoints": 1})", R"("checkpointing": {"every": 1},)").find("Keep one of the two"),
            std::string::npos);
  EXPECT_NE(told("{}", R"("checkpointing": {"every": 1, "layers": [0]},)").find("Keep one of the two"),
            std::string::npos);
  EXPECT_NE(told("{}", R"("checkpointing": {"layers": [0, 7]},)").find("checkpointing.layers.1: there is no layer 7"),
            std::string::npos);
}

TEST(ConfigFile, IsReadByPathAndKeepsItsLines) {
  TemporaryFolder folder;
  folder.write("ds_config.json", "{\n  \"train_batch_size\": 8,\n  \"fp16\": 1\n}\n");
  const std::string text = with("\"ds_config.json\"");
  const std::string found = problems_of(text, {}, folder.file("s.json"));
  EXPECT_NE(found.find("ds_config.json:3: deepspeed.fp16: an object"), std::string::npos) << found;
  EXPECT_EQ(found.find("s.json:6"), std::string::npos) << found;
  folder.write("ds_config.json", "{ \"train_batch_size\": 8 }");
  LoadOptions options;
  options.sets = {"deepspeed.train_batch_size=16"};
  EXPECT_EQ(load_scenario_text(text, folder.file("s.json"), options).train.definition.global_batch, 16);
  folder.write("ds_config.json", "{ \"train_batch_size\": ");
  EXPECT_NE(
      problems_of(text, {}, folder.file("s.json")).find("ds_config.json:1:23: the file ends in the middle of a value"),
      std::string::npos);
  folder.write("ds_config.json", "[1]");
  EXPECT_NE(problems_of(text, {}, folder.file("s.json"))
                .find("deepspeed: an object {...} or a string was expected, found a list"),
            std::string::npos);
}

// ---- zero_optimization, key by key ---------------------------------------------------------------------------------

TEST(ZeroKeys, AreRefusedByNameWhereSomethingIsMissing) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {R"("cpu_offload_params": true)", "zero_optimization.cpu_offload_params: unknown key"},
      {R"("offload_optimizer": {"device": "nvme"})",
       "zero_optimization.offload_optimizer.device: \"nvme\" needs nvme_path"},
      {R"("offload_optimizer": {"device": "disk"})", "\"disk\" is not one of: none, cpu, nvme"},
      {R"("offload_optimizer": {"devise": "cpu"})", "Did you mean \"device\"?"},
      {R"("offload_optimizer": {"device": "nvme", "nvme_path": "n", "buffer_count": 0})", "buffer_count: 0 buffers"},
      {R"("offload_optimizer": {"device": "cpu", "ratio": 0.5})", "Partial offloading only supported for ZeRO Stage 3"},
      {R"("zenflow": {"topk_ratio": 0.1})", "zero_optimization.zenflow: Not supported"},
      {R"("mics_shard_size": 2)", "zero_optimization.mics_shard_size: DeepSpeed 0.19.8 refuses it"},
      {R"("zero_quantized_nontrainable_weights": true)",
       "zero_optimization.zero_quantized_nontrainable_weights: Not supported"},
      {R"("legacy_stage1": true)", "zero_optimization.legacy_stage1: DeepSpeed refuses it"},
      {R"("reduce_bucket_sise": 1)", "Did you mean \"reduce_bucket_size\"?"},
  };
  for (const auto& [keys, message] : table) {
    const std::string found =
        problems_of(with(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, )" + keys + "}}"));
    EXPECT_NE(found.find("s.json:6: deepspeed.zero_optimization."), std::string::npos) << keys << "\n  gave: " << found;
    EXPECT_NE(found.find(message), std::string::npos) << keys << "\n  gave: " << found;
  }
}

TEST(ZeroKeys, AreRefusedInDeepSpeedsWords) {
  const auto problems = [](int stage, const std::string& keys, const std::string& zero = "") {
    return problems_of(with(
        fmt::format(R"({{"train_batch_size": 8, {}, "zero_optimization": {{"stage": {}{}}}}})", keys, stage, zero)));
  };
  const std::string factor = R"("gradient_predivide_factor": 2.0)", prescale = R"("prescale_gradients": true)";
  EXPECT_NE(problems(2, factor).find("gradient_predivide_factor != 1.0 is not yet supported with ZeRO-2 with reduce "
                                     "scatter enabled"),
            std::string::npos);
  EXPECT_NE(problems(3, prescale).find("pre-scale gradients is not yet supported with ZeRO-3 with reduce scatter"),
            std::string::npos);
  EXPECT_EQ(problems(1, factor), "");
  EXPECT_EQ(problems(2, factor, R"(, "reduce_scatter": false)"), "");
  EXPECT_NE(problems(0, R"("fp16": {"enabled": true}, "bf16": {"enabled": true})")
                .find("bfloat16 and fp16 modes cannot be simultaneously enabled"),
            std::string::npos);
}

TEST(ZeroKeys, WithoutEffectAreSaidOnceWithTheReason) {
  const Scenario s = loaded(R"({"train_batch_size": 8, "gradient_clipping": 1, "optimizer": {"type": "AdamW"},
      "zero_optimization": {"stage": 2, "contiguous_gradients": true, "sub_group_size": 1000,
                            "cpu_offload_use_pin_memory": true, "reduce_bucket_size": 1000}})");
  int told = 0;
  for (const std::string& note : s.notes) {
    if (note.find("deepspeed keys without effect here") == std::string::npos) continue;
    ++told;
    for (const char* part :
         {"zero_optimization.contiguous_gradients (a bucket is always one piece)",
          "zero_optimization.sub_group_size (not at stage 2)", "DeepSpeed calls it offload_optimizer.pin_memory"}) {
      EXPECT_NE(note.find(part), std::string::npos) << part << " is missing in: " << note;
    }
    EXPECT_EQ(note.find("reduce_bucket_size"), std::string::npos) << note;
  }
  EXPECT_EQ(told, 1);
}

TEST(ZeroKeys, ProblemsOfANamedFileAreToldWithItsLine) {
  TemporaryFolder folder;
  std::string config = read_all(seeksim::paths::source_dir() + "/tests/harness/data/ds_config_stage3.json");
  config.replace(config.find("\"contiguous_gradients\": true"), 28, "\"legacy_stage1\": true");
  config.replace(config.find("\"stage3_max_live_parameters\": 1e9"), 33, "\"max_live_parameters\": -1");
  const std::string file = folder.write("ds.json", config);
  const std::string found = problems_of(small_text_with(6, "  \"deepspeed\": \"" + file + "\","));
  EXPECT_NE(found.find(file + ":22: deepspeed.zero_optimization.legacy_stage1: DeepSpeed refuses"), std::string::npos)
      << found;
  EXPECT_NE(found.find(file + ":28: deepspeed.zero_optimization.max_live_parameters: -1 is out"), std::string::npos)
      << "a field's name, where the rows have its alias:\n"
      << found;
}

}  // namespace
}  // namespace seeksim::harness
