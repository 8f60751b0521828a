// The hunt, without torch: what is drawn, the program that is written, what is left of a finding, and each verdict seen
// green and red.

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "harness/torch/hunt/draw.h"
#include "harness/torch/hunt/known.h"
#include "harness/torch/hunt/shrink.h"
#include "harness/torch/hunt/state.h"
#include "harness/torch/hunt/trial.h"
#include "harness/torch/program/script.h"
#include "tests/harness/torch/made_run.h"
#include "tests/support/paths.h"

namespace seeksim::harness::torch {
namespace {

using testing::made_run;
using testing::MadeRank;

std::string program(const Case& drawn) { return script_of(drawn, "case.py", "Drawn."); }

// Each value of each feature in some case of its own: with the least that it needs.
std::vector<Case> one_of_each() {
  std::vector<Case> cases;
  for (const Feature& one : features()) {
    for (const std::string& value : one.values) {
      std::optional<Case> found;
      for (const std::string& wrapper : features().front().values) {
        if (!found) found = with_both(features().front(), wrapper, one, value, wrapper);
      }
      if (one.name != "wrapper" && found) cases.push_back(*found);
      EXPECT_TRUE(one.name == "wrapper" || found) << one.name << '=' << value << " can never be";
    }
  }
  return cases;
}

TEST(TorchHunt, WhatIsDrawnMayBe) {
  constexpr int kDraws = 260;
  Coverage coverage({});
  std::set<std::string> drawn, wrappers;
  for (int number = 0; number < kDraws; ++number) {
    const Case one = coverage.draw(1, number);
    ASSERT_EQ(one.size(), features().size());
    EXPECT_EQ(normal(one), one);
    EXPECT_EQ(cannot_be(one), "") << case_text(one);
    EXPECT_EQ(case_of(case_text(one)), one) << "its text reads back";
    drawn.insert(case_text(one));
    wrappers.insert(one.at("wrapper"));
    coverage.add(one);
  }
  EXPECT_EQ(drawn.size(), std::size_t(kDraws));
  EXPECT_EQ(wrappers.size(), features().front().values.size());
  EXPECT_GT(double(coverage.covered().size()), 0.75 * double(coverage.possible())) << "unseen pairs come first";
}

// What is refused is a part of a case: any two of its features.
TEST(TorchHunt, APartOfACaseIsMadeWhole) {
  for (const Feature& one : features())
    for (const std::string& value : one.values)
      EXPECT_EQ(normal({{"wrapper", "ddp"}, {one.name, value}}).size(), features().size()) << one.name;
}

TEST(TorchHunt, TheSameSeedDrawsTheSame) {
  Coverage coverage({});
  EXPECT_EQ(coverage.draw(3, 5), coverage.draw(3, 5));
  EXPECT_NE(coverage.draw(3, 5), coverage.draw(4, 5));
  EXPECT_NE(coverage.draw(3, 5), coverage.draw(3, 6));
}

TEST(TorchHunt, OnlyWhatWasAskedForIsDrawn) {
  Coverage coverage({"wrapper=fsdp1,zero2", "optimizer=adamw"});
  for (int number = 0; number < 20; ++number) {
    const Case one = coverage.draw(1, number);
    EXPECT_TRUE(one.at("wrapper") == "fsdp1" || one.at("wrapper") == "zero2");
    EXPECT_EQ(one.at("optimizer"), "adamw");
  }
  EXPECT_THROW(Coverage({"wrapper=fsdp9"}), BadInput);
  EXPECT_THROW(Coverage({"wraper=fsdp1"}), BadInput);
  EXPECT_THROW(Coverage({"wrapper"}), BadInput);
}

TEST(TorchHunt, WhatWasRefusedIsNotDrawnAgain) {
  Coverage coverage({"wrapper=zero1"});
  const std::size_t before = coverage.possible();
  coverage.refuse({{"wrapper", "zero1"}, {"tied", "on"}});
  EXPECT_LT(coverage.possible(), before) << "its pairs are none any more";
  for (int number = 0; number < 40; ++number) EXPECT_EQ(coverage.draw(1, number).at("tied"), "off");
}

TEST(TorchHunt, ACaseThatIsWrittenWrongIsToldSo) {
  EXPECT_EQ(case_text(case_of("wrapper=zero3,inputs=tokens,tied=on")), "wrapper=zero3, inputs=tokens, tied=on");
  EXPECT_THROW(case_of("wrapper=zero3,tide=on"), BadInput);
  EXPECT_THROW(case_of("wrapper=zero3,tied=yes"), BadInput);
  EXPECT_THROW(case_of("wrapper=zero3,static_graph=on"), BadInput) << "it means nothing there";
}

TEST(TorchHunt, RulesNameWhatThereIs) {
  std::vector<Rule> rules = impossible();
  EXPECT_GE(rules.size(), 10u);
  for (const Rule& rule : rules) {
    EXPECT_FALSE(rule.why.empty());
    for (const auto& [name, values] : rule.when) {
      const auto known =
          std::find_if(features().begin(), features().end(), [&](const Feature& f) { return f.name == name; });
      ASSERT_NE(known, features().end()) << name;
      for (const std::string& value : values)
        EXPECT_NE(std::find(known->values.begin(), known->values.end(), value), known->values.end()) << value;
    }
  }
  for (const std::string& wrapper : features().front().values)
    EXPECT_EQ(expected_of(plain_case(wrapper)).grade, Grade::bits) << wrapper;
}

TEST(TorchHunt, EachValueIsSeenInTheProgram) {
  for (const Case& one : one_of_each()) {
    for (const std::string& name : not_plain(one)) {
      Case other = one;
      other[name] = feature(name).values.front();
      const std::string of_one = program(one), of_other = program(normal(other));
      const auto behind_head = [](const std::string& text) { return text.substr(text.find("import sys")); };
      if (name == "np") continue;  // an argument of the command
      EXPECT_NE(behind_head(of_one), behind_head(of_other)) << case_text(one) << ": " << name;
    }
  }
}

TEST(TorchHunt, BfloatMakesAnotherOrderOfSumsAnotherRounding) {
  const std::string reused = "wrapper=fsdp2, accumulation=2, reused=on";
  EXPECT_EQ(expected_of(case_of(reused)).grade, Grade::reassociated);
  EXPECT_EQ(expected_of(case_of(reused + ", precision=bf16")).grade, Grade::rounding);
  EXPECT_EQ(expected_of(case_of(reused + ", precision=autocast")).grade, Grade::rounding);
  EXPECT_EQ(expected_of(case_of("wrapper=fsdp2, precision=bf16")).grade, Grade::bits);
}

TEST(TorchHunt, ByHandAFlatGradientIsZeroWhereItsUnitIsUsed) {
  const std::string zeros = "p.grad = torch.zeros_like(p)", by_step = ", steps=4, branch=step";
  for (const char* flat : {"wrapper=zero1", "wrapper=zero3", "wrapper=fsdp1, wrap=root"})
    EXPECT_NE(program(case_of(flat + by_step)).find(zeros), std::string::npos) << flat;
  for (const char* alone : {"wrapper=fsdp1", "wrapper=fsdp2"})
    EXPECT_EQ(program(case_of(alone + by_step)).find(zeros), std::string::npos) << alone;
}

TEST(TorchHunt, ALayerOfSomeMicroBatchesKnowsWhichOneItIs) {
  const std::string late = program(case_of("wrapper=fsdp2, accumulation=2, branch=late"));
  for (const char* words : {"def forward(self, h, micro):", "        if micro:\n            h = h + self.other(h)",
                            "net(x, micro)", "net(batch(2, 0)[0], 1)", "fsdp.fully_shard(model.other, **options)"})
    EXPECT_NE(late.find(words), std::string::npos) << words << '\n' << late;
  const std::string early = program(case_of("wrapper=zero3, accumulation=2, branch=early, precision=bf16"));
  for (const char* words : {"        if not micro:\n", "(by_hand(model, x, micro) if PLAIN else net(x, micro))"})
    EXPECT_NE(early.find(words), std::string::npos) << words << '\n' << early;
  EXPECT_FALSE(cannot_be(case_of("wrapper=zero3, branch=late")).empty()) << "a step has one micro-batch";
}

TEST(TorchHunt, OthersThanTheScriptDriveTheTraining) {
  const auto has = [](const std::string& drawn, const std::vector<std::string>& all) {
    ASSERT_EQ(cannot_be(case_of(drawn)), "");
    const std::string text = program(case_of(drawn));
    for (const std::string& words : all) EXPECT_NE(text.find(words), std::string::npos) << words << '\n' << text;
  };
  has("wrapper=ddp, loop=accelerate, accumulation=2, clip=on, bucket_view=on",
      {"gradient_accumulation_steps=2", "DistributedDataParallelKwargs(gradient_as_bucket_view=True)",
       "else accelerator.accumulate(net):", "accelerator.clip_grad_norm_(net.parameters(), 0.2)"});
  has("wrapper=zero2, loop=accelerate, schedule=on",
      {"DeepSpeedPlugin(hf_ds_config=CONFIG)", "accelerator.prepare(model, optimizer, schedule)"});
  has("wrapper=ddp, loop=fabric, accumulation=2, resume=on",
      {"fabric.backward((loss / 2))", "fabric.load(FOLDER, {\"net\": net, \"optimizer\": optimizer})"});
  has("wrapper=ddp, loop=lightning, precision=bf16, resume=on",
      {"precision=\"bf16-true\"", "fit(1, 1, None)", "net = fit(2, 2, FOLDER)"});
  has("wrapper=ddp, loop=trainer, steps=4, resume=on",
      {"save_steps=2", "net = fit(2, 4, FOLDER + \"/checkpoint-2\")", "lr_scheduler_type=\"constant\""});
  EXPECT_NE(cannot_be(case_of("wrapper=zero1, loop=fabric")), "");
  EXPECT_THROW(case_of("wrapper=fsdp2, loop=accelerate"), BadInput);
}

TEST(TorchHunt, ARankOfAPipelineHasSomeLayers) {
  const std::string text =
      program(case_of("wrapper=pipe, np=4, ways=half, inputs=tokens, layers=specs, tied=on, accumulation=2, stage=1"));
  for (const char* words :
       {"num_stages=2", "dist.get_rank() % 2)", "TiedLayerSpec(\"word\", Embed)]", "net.train_batch(iter(batches))",
        "(loss / 2).backward()", "\"zero_optimization\": {\"stage\": 1}"})
    EXPECT_NE(text.find(words), std::string::npos) << words << '\n' << text;
  EXPECT_THROW(case_of("wrapper=zero1, ways=half"), BadInput);
  EXPECT_THROW(case_of("wrapper=pipe, experts=3"), BadInput) << "not drawn";
  EXPECT_THROW(case_of("wrapper=pipe, bucket=64"), BadInput) << "of ZeRO 1";
  EXPECT_NE(cannot_be(case_of("wrapper=pipe, np=4")), "") << "two layers on four stages";
  EXPECT_NE(plain_key(case_of("wrapper=pipe")), plain_key(case_of("wrapper=zero0"))) << "another model";
  EXPECT_NE(plain_key(case_of("wrapper=pipe, told=on, evaluate=on")), plain_key(case_of("wrapper=pipe, told=on")));
}

TEST(TorchHunt, RanksShareALayerAndTrainOnOtherSamples) {
  const std::string text =
      program(case_of("wrapper=tp, np=4, precision=bf16, inputs=tokens, norm=on, over=fsdp2, shared_by=half, "
                      "split=sequence, words=rows, "
                      "logits=parallel, clip=on, clips=meshes"));
  for (const char* words :
       {"torch.record.whole=true", "mesh = init_device_mesh(\"cpu\", (2, dist.get_world_size() // 2)",
        "mesh.get_local_rank(\"data\")", "\"blocks.*.0\": SequenceParallel(sequence_dim=0),", "with loss_parallel():",
        "dist.all_reduce(p.grad, group=mesh.get_group(\"data\"))", "mesh=mesh[\"data\"], mp_policy"})
    EXPECT_NE(text.find(words), std::string::npos) << words << '\n' << text;
  EXPECT_EQ(program(case_of("wrapper=tp")).find("dist.all_reduce"), std::string::npos) << "all have the same samples";
  EXPECT_THROW(case_of("wrapper=tp, wrap=root"), BadInput) << "of FSDP2";
  EXPECT_THROW(case_of("wrapper=fsdp2, split=pair"), BadInput);
  EXPECT_NE(cannot_be(case_of("wrapper=tp, clip=on, split=pair")), "") << "the head's gradient is no DTensor";
  EXPECT_EQ(cannot_be(case_of("wrapper=tp, clip=on, split=pair, logits=column")), "");
  EXPECT_EQ(expected_of(case_of("wrapper=tp, inputs=tokens, words=rows")).grade, Grade::bits);
  EXPECT_EQ(expected_of(case_of("wrapper=tp, split=column")).grade, Grade::reassociated);
}

TEST(TorchHunt, ARankOfTorchsPipelinesHasOneStageOrTwo) {
  const auto has = [](const std::string& drawn, const std::vector<std::string>& all) {
    ASSERT_EQ(cannot_be(case_of(drawn)), "");
    const std::string text = program(case_of(drawn));
    for (const std::string& words : all) EXPECT_NE(text.find(words), std::string::npos) << words << '\n' << text;
  };
  has("wrapper=stages, plan=1f1b, batches=odd", {"WAYS, STAGES, BATCHES = 2, 2, 3", "own = [dist.get_rank()]"});
  has("wrapper=stages, np=4, plan=zero", {"WAYS, STAGES, BATCHES = 4, 8, 8", "own = list(range(rank, STAGES, WAYS))"});
  has("wrapper=stages, plan=zbv, inputs=tokens, tied=on",
      {"own = [rank, STAGES - 1 - rank]", "parts[-1].head.weight = parts[0].embed.weight"});
  has("wrapper=stages, np=4, data=fsdp2, calls=2, finalizes=last, clip=on",
      {"WAYS, STAGES, BATCHES = 2, 2, 2", "finalize_gradients=call == 1", "norm = norm.full_tensor()"});
  has("wrapper=stages, plan=interleaved, resume=on, then=other",
      {"own = list(range(rank, STAGES, WAYS)) if seed == 1", "ScheduleLoopedBFS(stages"});
  EXPECT_THROW(case_of("wrapper=stages, tied=on"), BadInput) << "embedding and head are on two ranks";
  EXPECT_THROW(case_of("wrapper=stages, local=1"), BadInput) << "such a schedule has one";
  EXPECT_NE(cannot_be(case_of("wrapper=stages, plan=dualpipe, batches=half")), "");
  EXPECT_NE(plain_key(case_of("wrapper=stages")), plain_key(case_of("wrapper=stages, plan=zero"))) << "more stages";
}

TEST(TorchHunt, AKnownFindingExplainsWhatIsRightWithoutIt) {
  for (const KnownFinding& one : known_findings()) {
    EXPECT_TRUE(std::filesystem::exists(paths::source_dir() + "/docs/findings/" + one.name + ".md")) << one.name;
    Case drawn = plain_case(one.when.at("wrapper").front());
    for (const auto& [name, values] : Case{{"inputs", "tokens"}, {"accumulation", "2"}}) drawn[name] = values;
    for (const auto& [name, values] : one.when) drawn[name] = values.back();
    ASSERT_EQ(cannot_be(normal(drawn)), "") << case_text(drawn);
    int asked = 0;
    const auto red = [&](bool is) { return [&asked, is](const Case&) { return ++asked, is; }; };
    EXPECT_TRUE(explains(one, drawn, red(false)));
    EXPECT_FALSE(explains(one, drawn, red(true))) << "without it the case is red, too";
    EXPECT_EQ(asked, 2);
    EXPECT_FALSE(explains(one, plain_case("ddp"), red(false)));
    EXPECT_EQ(asked, 2) << "it is not run";
  }
  EXPECT_TRUE(explains(known_by("wrapper=ddp, clip=on"), case_of("wrapper=ddp, clip=on, norm=on"),
                       [](const Case& one) { return one.at("clip") == "on"; }));
  EXPECT_THROW(known_by("wrapper=ddp, clip=yes"), BadInput);
}

TEST(TorchHunt, WhatIsKnownToBeRefusedIsNotDrawn) {
  Coverage coverage({});
  const std::size_t before = coverage.possible();
  for (const Refusal& one : known_refusals()) {
    const Case drawn = normal(one.part);
    for (const auto& [name, value] : one.part) EXPECT_TRUE(value == drawn.at(name) || name == "branch") << name;
    EXPECT_FALSE(one.words.empty());
    coverage.refuse(one.part);
  }
  EXPECT_LT(coverage.possible(), before);
  for (int number = 0; number < 40; ++number) {
    const Case drawn = coverage.draw(1, number);
    for (const Refusal& one : known_refusals()) EXPECT_FALSE(holds(drawn, one.part)) << case_text(drawn);
    coverage.add(drawn);
  }
}

TEST(TorchHunt, APlainFindingHasFewLines) {
  for (const std::string& wrapper : features().front().values) {
    const std::string text = program(plain_case(wrapper));
    const int most = wrapper == "moe" ? 160 : 60;  // it has the expert layer by hand, too
    EXPECT_LT(std::count(text.begin(), text.end(), '\n'), most) << wrapper << '\n' << text;
  }
  for (const Case& one : one_of_each()) {
    const std::string text = program(one);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      EXPECT_LE(end - at, 120u) << text.substr(at, end - at);
      at = end + 1;
    }
  }
}

TEST(TorchHunt, WhatTheTrainingByHandDependsOnIsRunAnew) {
  const Case plain = plain_case("fsdp2");
  for (const Case& one : one_of_each()) {
    Case other = one;
    other["recompute"] = "on";
    EXPECT_EQ(plain_key(one), plain_key(other)) << "by hand nothing is recomputed";
  }
  Case narrow = plain;
  narrow["precision"] = "bf16";
  EXPECT_NE(plain_key(plain), plain_key(narrow));
  Case ddp = plain_case("ddp");
  ddp["precision"] = "bf16";
  EXPECT_NE(plain_key(narrow), plain_key(ddp)) << "DDP's model is in bf16 itself";
}

TEST(TorchShrink, WhatIsNeededStays) {
  Coverage coverage({"wrapper=zero3"});
  Case drawn = coverage.draw(1, 2);
  for (const auto& [name, value] : Case{{"inputs", "tokens"}, {"tied", "on"}, {"persistent", "20"}, {"depth", "3"}})
    drawn[name] = value;
  drawn = normal(drawn);
  const auto still = [](const Case& one) {
    return one.at("tied") == "on" && one.at("persistent") == "20" && one.at("depth") != "1";
  };
  int took = 0;
  const Case left = shrunk(drawn, 100, still, took);
  EXPECT_EQ(case_text(left), "wrapper=zero3, depth=2, inputs=tokens, tied=on, persistent=20");
  EXPECT_LT(took, 40);
  took = 0;
  EXPECT_EQ(shrunk(drawn, 0, still, took), drawn) << "no tries, nothing changes";
  took = 0;
  EXPECT_EQ(shrunk(
                drawn, 100, [](const Case&) { return false; }, took),
            drawn);
  took = 0;
  EXPECT_TRUE(holds(drawn, needed(shrunk(drawn, 100, still, took, true)))) << "a part of the case";
  EXPECT_EQ(needed(left).size(), 5u);
  EXPECT_EQ(normal(needed(left)), left) << "a part makes a case";
  EXPECT_TRUE(holds(drawn, needed(left)) || drawn.at("depth") != "2");
}

TEST(TorchShrink, OneFindingHasOneSignature) {
  const Case tied = case_of("wrapper=zero3,inputs=tokens,tied=on"), plain = plain_case("zero3");
  EXPECT_EQ(signature(tied, "compare", "weight blocks.0.up"), signature(tied, "compare", "weight blocks.2.up"));
  EXPECT_NE(signature(tied, "compare", "weight head"), signature(tied, "replicas_equal", "weight head"));
  EXPECT_NE(signature(tied, "compare", "weight head"), signature(plain, "compare", "weight head"));
}

TEST(TorchHuntState, GoesOnWhereItEnded) {
  const harness::testing::TemporaryFolder folder;
  Coverage coverage({"wrapper=ddp"}), other({"wrapper=ddp"});
  HuntState state;
  state.of = {"2.15.0", {{"deepspeed", "0.19.8"}}, 3, {"wrapper=ddp"}, {}};
  state.number = 7;
  state.runs = 21;
  state.wall_s = 12.5;
  state.processor_s = 20.25;
  state.ends = {{"same", 5}, {"red", 2}};
  state.known = {{"zero3-unused-layer", 1}};
  state.refusals = {{{{"wrapper", "ddp"}, {"scalar", "on"}}, "RuntimeError: no", 2}};
  HuntFinding found;
  found.drawn = found.first = case_of("wrapper=ddp,bucket_view=on");
  found.key = "k";
  found.check = "compare";
  state.found = {found};
  coverage.refuse(state.refusals.front().part);
  coverage.add(found.drawn);
  const std::string file = folder.write("hunt.json", dump(to_json(state, coverage)));
  HuntState read;
  read.of = state.of;
  load_state(file, read, other);
  EXPECT_EQ(to_json(read, other), to_json(state, coverage));
  EXPECT_EQ(other.draw(3, 7), coverage.draw(3, 7)) << "it draws what it would have drawn";
  HuntState of_another;
  of_another.of = state.of;
  of_another.of.seed = 4;
  EXPECT_THROW(load_state(file, of_another, other), BadInput);
  EXPECT_THROW(load_state(folder.write("other.json", "{\"schema\": \"seeksim-torch-check-1\"}"), read, other),
               BadInput);
}

TrialVerdict compared(Grade expected, Grade found, std::size_t in_one) {
  TrialVerdict verdict;
  verdict.expected.grade = expected;
  RunComparison comparison;
  comparison.grade = found;
  comparison.weights = 8;
  comparison.only_in_a = in_one;
  if (found != Grade::bits) comparison.first = FirstDifference();
  verdict.found = comparison;
  judge_distance(verdict);
  return verdict;
}

TEST(TorchTrial, ACaseIsHeldToItsGrade) {
  EXPECT_EQ(compared(Grade::bits, Grade::bits, 0).end, TrialEnd::same);
  EXPECT_EQ(compared(Grade::reassociated, Grade::reassociated, 0).end, TrialEnd::near);
  EXPECT_EQ(compared(Grade::bits, Grade::reassociated, 0).end, TrialEnd::red);
  EXPECT_EQ(compared(Grade::rounding, Grade::different, 0).end, TrialEnd::red);
  EXPECT_EQ(compared(Grade::bits, Grade::bits, 3).end, TrialEnd::red) << "what was not recorded was not compared";
}

TEST(TorchTrial, RoundingShrinksWithTheNumbersAndAMistakeDoesNot) {
  const auto apart = [](double weights, double losses, std::size_t in_one = 0) {
    RunComparison found;
    found.weight_distance = weights;
    found.loss_distance = losses;
    found.only_in_a = in_one;
    return found;
  };
  const RunComparison in_fp32 = apart(1.7e-5, 1.1e-7);
  EXPECT_TRUE(shrinks_as_rounding(in_fp32, apart(2.7e-16, 0)));
  EXPECT_FALSE(shrinks_as_rounding(in_fp32, apart(1.6e-5, 0)));
  EXPECT_FALSE(shrinks_as_rounding(in_fp32, apart(1e-9, 0)));
  EXPECT_FALSE(shrinks_as_rounding(apart(0.097, 0.0052), apart(7.2e-8, 4.3e-9))) << "it is fp32 that is left";
  EXPECT_FALSE(shrinks_as_rounding(in_fp32, apart(2.7e-16, 1e-7)));
  EXPECT_FALSE(shrinks_as_rounding(in_fp32, apart(2.7e-16, 0, 1))) << "what was not recorded was not compared";
}

TEST(TorchTrial, AnErrorOfTheFrameworkIsARefusalAndAKilledRankIsNot) {
  const TorchRun plain = made_run(2);
  TorchRun run = made_run(2);
  EXPECT_FALSE(verdict_of_run(plain, run)) << "a good run is to be compared";
  run.job.processes[1].ending.status = 1;
  run.job.processes[1].last_words = "[rank1]: ValueError: FSDP doesn't support scalar parameters.";
  std::optional<TrialVerdict> verdict = verdict_of_run(plain, run);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->end, TrialEnd::refused);
  EXPECT_EQ(verdict->text, "ValueError: FSDP doesn't support scalar parameters.");
  run.job.processes[1].ending = {true, 0, SIGSEGV};
  verdict = verdict_of_run(plain, run);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->end, TrialEnd::red);
  EXPECT_EQ(verdict->check, "finished");
  run.job.stopped = Stopped::interrupted;
  EXPECT_EQ(verdict_of_run(plain, run)->end, TrialEnd::stopped);
}

// A value that one run alone has is red, unless another rank has it where the wrapper shares the model out.
TEST(TorchTrial, OnlyWhatOtherRanksHaveMayBeMissing) {
  RunComparison found;
  found.grade = Grade::bits;
  found.weights = 8;
  found.only_in_a = 3;
  found.names_only_in_a = {{"moe.elsewhere2.weight", 2}, {"head.weight", 1}};
  const auto end_of = [&found](const std::string& text) {
    const Case drawn = case_of(text);
    TrialVerdict verdict;
    verdict.found = found;
    leave_out_what_other_ranks_have(drawn, *verdict.found);
    judge_distance(verdict);
    return verdict.end;
  };
  EXPECT_EQ(end_of("wrapper=moe"), TrialEnd::red) << "no rank has the head";
  found.names_only_in_a.erase("head.weight");
  found.only_in_a = 2;
  EXPECT_EQ(end_of("wrapper=moe"), TrialEnd::same);
  EXPECT_EQ(end_of("wrapper=zero1"), TrialEnd::red) << "there each rank has all";
  found.only_in_b = 1;
  EXPECT_EQ(end_of("wrapper=moe"), TrialEnd::red);
  EXPECT_EQ(end_of("wrapper=pipe"), TrialEnd::same) << "some rank of the pipeline has each value";
  found.on_no_rank_of_b = 1;
  EXPECT_EQ(end_of("wrapper=pipe"), TrialEnd::red);
}

TEST(TorchTrial, AJudgeThatIsRedByHandTooSaysNothing) {
  const auto apart = [](std::int64_t step, MadeRank::Step& one) { one.weight += step >= 2 ? 9 : 0; };
  const TorchRun plain = made_run(2), divided = made_run(2, 1, apart);
  const std::optional<TrialVerdict> verdict = verdict_of_run(plain, divided);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->check, "replicas_equal");
  EXPECT_FALSE(verdict_of_run(divided, divided));
}

}  // namespace
}  // namespace seeksim::harness::torch
