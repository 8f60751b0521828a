// seeksim torch hunt with a real torch: mistakes planted in frameworks are found, made plain and shown again, and what
// is right is quiet.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/torch/script_runs.h"

namespace seeksim::harness::torch {
namespace {

using nlohmann::json;

class Hunted : public testing::ScriptRuns {
 protected:
  Captured hunt(const std::vector<std::string>& options, bool planted = true) {
    std::vector<std::string> command = {paths::program(), "torch", "hunt", "--python", python_, "--report", report_};
    command.insert(command.end(), options.begin(), options.end());
    Environment environment = {{"COLUMNS", "0"}};
    if (planted) environment["PYTHONPATH"] = paths::source_dir() + "/tests/torch/planted";
    return capture(command, environment, testing::kLimit_s);
  }
  json told() const { return json::parse(harness::testing::read_all(report_), nullptr, false); }

  std::string report_ = folder_.file("hunt-report.json");
};

struct Planted {
  std::string module, wrapper, needs;             // needs: a feature without which nobody can see it; "": none
  std::vector<std::string> also = {"steps=2,4"};  // what else is drawn only
};
std::ostream& operator<<(std::ostream& out, const Planted& one) { return out << one.module; }

class HuntedMistake : public Hunted, public ::testing::WithParamInterface<Planted> {};

TEST_P(HuntedMistake, IsFoundAndTheFindingNeedsIt) {
  const Planted& planted = GetParam();
  const bool of_deepspeed =
      planted.module.starts_with("zero") || planted.module.starts_with("pipe_") || planted.module.starts_with("moe_");
  if (of_deepspeed && !has("deepspeed")) GTEST_SKIP() << "takes DeepSpeed";
  for (const auto& [begin, package] :
       {std::pair{"accelerate_", "accelerate"}, {"fabric_", "lightning"}, {"trainer_", "transformers"}}) {
    if (planted.module.starts_with(begin) && !has(package)) GTEST_SKIP() << "takes " << package;
  }
  const std::string out = folder_.file("hunt");
  std::vector<std::string> options = {"--import",   planted.module,
                                      "--only",     "wrapper=" + planted.wrapper,
                                      "--findings", "1",
                                      "--cases",    "40",
                                      "--budget",   "15m",
                                      "--out",      out,
                                      "--only",     "branch=off,step,rank"};
  for (const std::string& only : planted.also) options.insert(options.end(), {"--only", only});
  const Captured ran = hunt(options);
  EXPECT_STATUS(ran, 1);
  const json found = told()["found"][0];
  const std::string drawn = found["case"];
  EXPECT_TRUE(found["shown"].get<bool>()) << ran.out;
  EXPECT_NE(drawn.find(planted.needs), std::string::npos) << drawn;
  const std::string script = harness::testing::read_all(found["script"]);
  EXPECT_NE(script.find(drawn.substr(0, 40)), std::string::npos) << "the program says which case it is";
  EXPECT_TRUE(std::filesystem::exists(out + "/found-1/plain/rank-0.rec")) << "its runs are kept";
  EXPECT_STATUS(hunt({"--case", drawn}), 0);  // right without the mistake
}

INSTANTIATE_TEST_SUITE_P(
    All, HuntedMistake,
    ::testing::Values(
        Planted{"ddp_bucket_view_sum", "ddp", "bucket_view=on"}, Planted{"ddp_no_sync_stays", "ddp", "accumulation="},
        Planted{"ddp_unused_zeros", "ddp", "branch=step"}, Planted{"ddp_small_bucket_local", "ddp", "ddp_bucket=small"},
        Planted{"redundancy_not_sent", "ddp", "redundancy=on"}, Planted{"recompute_draws_anew", "ddp", "recompute="},
        Planted{"resume_without_momentum", "fsdp2", "resume=on"},
        Planted{"fsdp2_sync_of_root", "fsdp2", "accumulation="},
        Planted{"fsdp2_reduces_in_bf16", "fsdp2", "precision=bf16", {"precision=bf16"}},
        Planted{"hsdp_replicas_apart", "hsdp", ""},
        Planted{"hsdp_partial_lost", "hsdp", "all_reduce=last", {"optimizer=sgd", "accumulation=2,4", "sync=each"}},
        Planted{"ddp_compress_undivided", "ddp", "ddp_hook=fp16", {"optimizer=sgd", "loop=own", "ddp_hook=off,fp16"}},
        Planted{"fsdp1_local_norm", "fsdp1", "clip=on"}, Planted{"fsdp1_no_sync_drops", "fsdp1", "accumulation="},
        // Adam's step has no scale: SGD shows it.
        Planted{"zero_micro_batches_add_up", "zero2", "accumulation=", {"optimizer=sgd"}},
        Planted{"zero_one_rate", "zero1", "optimizer=groups"},
        // It takes two options, of which few cases of 16 bits have both.
        Planted{"zero12_does_not_clip", "zero1", "clip=on", {"precision=fp32"}},
        Planted{"zero12_full_reduce_sum", "zero2", "reduce_scatter=false"},
        Planted{"zero_resume_without_moments", "zero1", "resume=on"}, Planted{"zero3_scatter_sum", "zero3", ""},
        Planted{"zero3_first_sub_group", "zero3", "sub_group=100"},
        Planted{"ddp_keeps_own_weights", "ddp", "own_seeds=on"}, Planted{"ddp_forgets_buffers", "ddp", "buffer=on"},
        Planted{"fsdp2_divides_twice", "fsdp2", "divide=factor", {"optimizer=sgd"}},
        Planted{"checkpoint_loads_no_state", "fsdp2", "world=", {"resume=on", "world=fewer,more", "np=2"}},
        Planted{"state_whole_without_moments",
                "fsdp2",
                "state=whole",
                {"resume=on", "state=default,whole,rank0", "world=same", "loop=own", "compile=off"}},
        Planted{"compile_loses_a_guard", "ddp", "compile=whole", {"branch=step", "compile=whole", "loop=own"}},
        Planted{"zero12_muon_without_momentum", "zero2", "optimizer=muon", {"optimizer=muon"}},
        Planted{"zero_weights_with_moments", "zero1", "keeps=weights", {"resume=on", "loop=own"}},
        Planted{
            "zero_coalesced_sums", "zero1", "accumulates=coalesced", {"optimizer=sgd", "loop=own", "accumulation=2,4"}},
        Planted{"zero_tensor_backward_undivided", "zero1", "backward=tensor", {"optimizer=sgd"}},
        Planted{"zero_overflow_of_own_part", "zero1", "scale=part", {"precision=half", "scale=part", "compile=off"}},
        Planted{"zero_to_fp32_loses_a_bias", "zero2", "gather=whole"},
        Planted{"pipe_tied_apart", "pipe", "tied=on", {"inputs=tokens", "ways=all", "reused=off"}},
        Planted{"moe_experts_undivided", "moe", "ep=", {"zero=0", "optimizer=sgd", "accumulation=1,2"}},
        Planted{
            "moe_moments_of_rank_0", "moe", "resume=on", {"zero=0", "ep=2,4", "optimizer=sgd", "keeps=all", "steps=4"}},
        Planted{"tp_norm_of_own_part", "tp", "clip=on", {"clip=on", "clips=total,meshes", "over=none,fsdp2"}},
        Planted{
            "tp_sequence_norm_alone", "tp", "split=sequence", {"split=sequence", "norm=on", "over=none", "frozen=off"}},
        Planted{"stages_forget_buffers", "stages", "buffer=on", {"buffer=on", "inputs=numbers", "steps=2", "np=2"}},
        Planted{"stages_first_arguments", "stages", "extra=", {"extra=samples", "inputs=numbers", "steps=2", "np=2"}},
        Planted{"accelerate_backward_undivided", "ddp", "accumulation=", {"optimizer=sgd", "loop=accelerate"}},
        Planted{"accelerate_ranks_read_alike",
                "ddp",
                "loader=",
                {"loop=accelerate", "loader=even,short,uneven", "deals=split,batches", "np=2,4"}},
        Planted{"trainer_short_step_divided",
                "ddp",
                "loader=short",
                {"optimizer=sgd", "loop=trainer", "loader=even,short,uneven", "accumulation=2,4"}},
        Planted{"fabric_does_not_clip", "ddp", "clip=on", {"optimizer=sgd", "loop=fabric"}},
        Planted{"trainer_does_not_clip", "ddp", "clip=on", {"optimizer=sgd", "loop=trainer"}}),
    [](const auto& one) { return one.param.module; });

TEST_F(Hunted, WhatIsRightIsQuietAndTheNextHuntGoesOn) {
  const std::string out = folder_.file("hunt");
  const std::vector<std::string> options = {"--only", "wrapper=ddp,fsdp2", "--cases", "6", "--budget", "15m", "--out",
                                            out};
  EXPECT_STATUS(hunt(options, false), 0);
  const json first = told();
  EXPECT_EQ(first["cases"], 6);
  EXPECT_GT(first["pairs"]["covered"], 800);
  EXPECT_GT(first["processor_s"], 1);
  EXPECT_STATUS(hunt(options, false), 0);
  const json second = told();
  EXPECT_EQ(second["cases"], 12) << "counts add up";
  EXPECT_GT(second["pairs"]["covered"], first["pairs"]["covered"]);
  std::vector<std::string> other = options;
  other.insert(other.end(), {"--seed", "2"});
  EXPECT_STATUS(hunt(other, false), 2);
}

// A zero bubble's backward pass has two halves, which go round torch.autograd.backward(): its losses were not recorded.
TEST_F(Hunted, LossesOfAZeroBubbleAreSeen) {
  EXPECT_STATUS(hunt({"--case", "wrapper=stages, plan=zero, batches=twice"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// FSDP2 gives one stage its shards between the backward passes of a micro-batch, and the other stage is frozen.
TEST_F(Hunted, ShardsInThePlaceOfGradientsAreNoZeroGrad) {
  EXPECT_STATUS(hunt({"--case", "wrapper=stages, frozen=block, plan=interleaved, data=fsdp2"}, false), 0);
}

// The recorder took a recomputed pass, which ends in its middle, for one that still runs.
TEST_F(Hunted, ValidationBehindARecomputedStepIsSeenAsThat) {
  EXPECT_STATUS(hunt({"--case", "wrapper=ddp, dropout=on, recompute=on, evaluate=on"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// The first weights that were looked at were all frozen.
TEST_F(Hunted, WeightsOfBlocksThatAreRecomputedAreCompared) {
  EXPECT_STATUS(hunt({"--case", "wrapper=ddp, inputs=tokens, recompute=reentrant"}, false), 0);
  if (!has("deepspeed")) GTEST_SKIP() << "the rest takes DeepSpeed";
  EXPECT_STATUS(hunt({"--case", "wrapper=zero1, inputs=tokens, recompute=deepspeed"}, false), 0);
}

TEST_F(Hunted, GradientsOfFrozenWeightsAreNotMissed) {
  EXPECT_STATUS(hunt({"--case", "wrapper=fsdp1, np=1, accumulation=2, frozen=block, wrap=root"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// Rank 0 has a shard of frozen weights only: nothing that it trains can have a gradient.
TEST_F(Hunted, ARankWithoutATrainedWeightMissesNoGradient) {
  EXPECT_STATUS(hunt({"--case", "wrapper=fsdp1, frozen=block, wrap=root"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
  EXPECT_STATUS(hunt({"--case", "wrapper=fsdp1, turned=freeze, wrap=root"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// get_state_dict() lets an optimizer without a state make a step of zeros, behind steps that a GradScaler left out.
TEST_F(Hunted, AStepThatMakesAStateIsNotCountedBehindOneThatWasLeftOut) {
  EXPECT_STATUS(hunt({"--case",
                      "wrapper=ddp, precision=fp16, accumulation=2, inputs=tokens, tied=on, reused=on, unused=on, "
                      "branch=early, scalar=on, look=state, find_unused=on"},
                     false),
                0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// Four ranks save it, and two go on.
TEST_F(Hunted, AnotherNumberOfRanksGoesOn) {
  EXPECT_STATUS(hunt({"--case", "wrapper=fsdp2, resume=on, world=more, schedule=on"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// Weights are spread over two dimensions of a mesh, and both have a part of the same one.
TEST_F(Hunted, TensorParallelWeightsUnderFsdp2AreGathered) {
  EXPECT_STATUS(hunt({"--case", "wrapper=tp, np=4, over=fsdp2, shared_by=half, split=pair, logits=column"}, false), 0);
  EXPECT_EQ(told()["end"], "near") << told();
}

TEST_F(Hunted, AKnownFindingIsCountedAndNotToldAgain) {
  const std::vector<std::string> options = {"--import", "ddp_bucket_view_sum",
                                            "--only",   "wrapper=ddp",
                                            "--only",   "bucket_view=on",
                                            "--only",   "ddp_hook=off",
                                            "--only",   "optimizer=sgd",
                                            "--cases",  "2",
                                            "--budget", "15m"};
  EXPECT_STATUS(hunt(options), 1);
  std::vector<std::string> with = options;
  with.insert(with.end(), {"--known", "wrapper=ddp, bucket_view=on"});
  EXPECT_STATUS(hunt(with), 0);
  EXPECT_TRUE(told()["found"].empty());
  EXPECT_GE(told()["ends"].value("known", 0), 1) << told()["ends"];
  EXPECT_GE(told()["known"].value("wrapper=ddp, bucket_view=on", 0), 1) << told()["known"];
}

TEST_F(Hunted, ARefusalIsToldInTheFrameworksOwnWordsAndIsNoFinding) {
  if (!has("deepspeed")) GTEST_SKIP() << "takes DeepSpeed";
  const Captured ran = hunt({"--case", "wrapper=zero3, prescale=on, reduce_scatter=false"}, false);
  EXPECT_STATUS(ran, 0);
  EXPECT_TRUE(told()["end"] == "refused" || told()["end"] == "same") << ran.out;
}

// An engine that is made in the middle lets its optimizer make a step of zeros: no step of the training.
TEST_F(Hunted, AnEngineMadeForAResumeMakesNoStep) {
  if (!has("deepspeed")) GTEST_SKIP() << "takes DeepSpeed";
  EXPECT_STATUS(hunt({"--case", "wrapper=zero0, precision=bf16, accumulation=2, resume=on"}, false), 0);
  EXPECT_NE(told()["end"], "red") << told();
}

TEST_F(Hunted, AUnitThatAStepDoesNotUseHasNoGradientUnderFsdp1) {
  EXPECT_STATUS(hunt({"--case", "wrapper=fsdp1, steps=4, branch=step"}, false), 0);
  EXPECT_EQ(told()["end"], "same") << told();
}

// 1.2 of what a few orders of sums move: Adam's step where a gradient is nearly zero. In float64 nothing is left of it.
TEST_F(Hunted, WhatIsRoundingIsShownToBeThat) {
  EXPECT_STATUS(hunt({"--case",
                      "wrapper=ddp, optimizer=adamw, accumulation=4, depth=2, inputs=tokens, tied=on, "
                      "strided=on, sync=each"},
                     false),
                0);
  EXPECT_EQ(told()["end"], "near") << told();
  EXPECT_NE(told()["text"].get<std::string>().find("in float64"), std::string::npos) << told();
}

TEST_F(Hunted, BadInputIsToldBeforeAnythingRuns) {
  EXPECT_STATUS(hunt({"--only", "wrapper=fsdp9"}), 2);
  EXPECT_STATUS(hunt({"--case", "wrapper=ddp, tide=on"}), 2);
  EXPECT_STATUS(hunt({"--known", "wrapper=ddp, tide=on"}), 2);
  EXPECT_STATUS(hunt({"--budget", "soon"}), 2);
  EXPECT_STATUS(hunt({"--import", "no_such_module", "--cases", "1"}), 2);
}

}  // namespace
}  // namespace seeksim::harness::torch
