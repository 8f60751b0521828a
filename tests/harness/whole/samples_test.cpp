// Which samples a step uses, and what of them it learns: sets of samples, curricula, packed documents. Each planted
// mistake turns its check red; what is learned of a document is what the document alone would give; what is refused.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "harness/loading/load.h"
#include "harness/oracles/numbers.h"
#include "harness/oracles/reference_training.h"
#include "harness/record/collector.h"
#include "harness/run/run.h"
#include "reference/random.h"
#include "runtime/decide/progress.h"
#include "runtime/files/safetensors.h"
#include "runtime/samples/sampler.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using namespace testing;

using Sets = std::vector<std::string>;

constexpr const char* kShuffled = "data.sampler={\"order\":\"shuffled\",\"samples\":31}";
constexpr const char* kCurriculum =
    "curriculum={\"min_difficulty\":2,\"max_difficulty\":6,\"schedule_type\":\"fixed_linear\",\"schedule_config\":{"
    "\"total_curriculum_step\":4,\"difficulty_step\":1}}";
constexpr const char* kPacking = "data.packing={\"separator\":3}";

std::string samples_text() {
  return R"({ "name": "samples",
  "model": { "family": "gpt2", "layers": 2, "width": 8, "heads": 2, "context": 6, "vocab": 11 },
  "data": { "synthetic": true },
  "world": { "nodes": 1, "ranks_per_node": 3, "network": "ib" },
  "deepspeed": { "train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
                 "zero_optimization": { "stage": 1, "stage3_param_persistence_threshold": 0 },
                 "optimizer": { "type": "AdamW", "params": { "lr": 3e-3 } } },
  "steps": 6, "batch_arithmetic": "by_samples", "checks": [ "golden:bitwise" ] })";
}

Outcome samples_run(Sets sets) {
  LoadOptions options;
  options.sets = std::move(sets);
  return run_scenario(load_scenario_text(samples_text(), "samples.json", options), {}, [](std::string_view) {});
}

Json check_of(const Outcome& outcome, const std::string& check) {
  for (const Json& one : outcome.report["checks"]) {
    if (one["name"] == check) return one;
  }
  return {};
}

const Sets kResumes = {"faults=[{\"kind\":\"rank_crash\",\"rank\":1,\"step\":4,\"op\":\"vote\"}]",
                       "recovery={\"policy\":\"stop\",\"watchdog_s\":60,\"restarts\":1,\"restart_s\":1}",
                       "checkpoint={\"path\":\"checkpoints\",\"every_steps\":2}"};
const Sets kLosesARank = {"faults=[{\"kind\":\"rank_crash\",\"rank\":1,\"step\":3,\"op\":\"vote\"}]",
                          "recovery={\"policy\":\"rebuild_and_redo\",\"watchdog_s\":60}"};

struct PlantedMistake {
  const char* bug;
  const char* feature;
  Sets sets;
  const char* check;
  const char* detail;
};

TEST(Samples, EachPlantedMistakeTurnsItsCheckRed) {
  const std::vector<PlantedMistake> all = {
      {"sampler_forgets_epoch", kShuffled, {}, "golden:bitwise", ""},
      {"sampler_forgets_epoch", kShuffled, {}, "samples_once", "epoch 1"},
      {"sampler_begins_again", kShuffled, kResumes, "samples_once", "2 times in epoch 0"},
      {"sampler_skips_twice", kShuffled, kResumes, "samples_once", "sample"},
      {"sampler_seeded_by_rank", kShuffled, {}, "samples_once", "epoch 0"},
      {"sampler_counts_by_rank", kShuffled, kLosesARank, "samples_once", "sample"},
      {"curriculum_begins_again", kCurriculum, kResumes, "golden:bitwise", ""},
      {"curriculum_counts_all", kCurriculum, {}, "golden:bitwise", "step 0"},
      {"packing_sees_others", kPacking, {}, "golden:bitwise", "step 0"},
      {"packing_positions_go_on", kPacking, {}, "golden:bitwise", "step 0"},
      {"packing_positions_go_on", kPacking, {"model.family=llama"}, "golden:bitwise", "tensors differ"},
      {"packing_learns_boundaries", kPacking, {}, "golden:bitwise", "step 0"},
      {"packing_means_of_samples", kPacking, {}, "golden:bitwise", "step 0"},
  };
  for (const PlantedMistake& one : all) {
    Sets sets = one.sets;
    sets.push_back(one.feature);
    const Outcome right = samples_run(sets);
    EXPECT_EQ(right.status, ExitStatus::as_expected) << one.feature << right.report["checks"].dump(2);
    sets.push_back(fmt::format("bug={}", one.bug));
    const Json check = check_of(samples_run(sets), one.check);
    ASSERT_FALSE(check.is_null()) << one.check << " was not made";
    EXPECT_FALSE(check["ok"].get<bool>()) << one.bug << " goes unnoticed: " << check["detail"];
    EXPECT_NE(check["detail"].get<std::string>().find(one.detail), std::string::npos) << one.bug << check["detail"];
  }
}

TEST(Samples, TwoRanksThatDisagreeAboutAPlaceAreTold) {
  Collector collector(2);
  collector.samples(0, {0, 1, 0, {4, 7}});
  collector.samples(1, {0, 1, 1, {7, 9}});
  EXPECT_EQ(collector.record().training.samples_disagree, "");
  collector.samples(1, {0, 1, 2, {8}});
  EXPECT_EQ(collector.record().training.samples_disagree,
            "step 0: rank 1 takes sample 8 for place 2 of the batch, and another rank sample 9");
  collector.samples(0, {0, 2, 0, {5}});
  EXPECT_EQ(collector.record().training.samples[0].rows, (std::vector<std::int64_t>{5})) << "the newer world's";
  collector.samples(0, {0, 1, 0, {6}});
  EXPECT_EQ(collector.record().training.samples[0].rows, (std::vector<std::int64_t>{5})) << "too late";
}

TEST(Samples, WhatIsWrongWithAnEpochIsSaid) {
  Scenario scenario = small_scenario();
  make_a_set(scenario);
  RunRecord right = good_run();
  use_in_order(right);
  const auto said = [&](std::size_t step, std::size_t place, std::int64_t row) {
    RunRecord run = right;
    run.training.samples[step].rows[place] = row;
    return samples_once({scenario, run, nullptr, {}, {}}, "").detail;
  };
  EXPECT_EQ(said(2, 3, -1), "sample 19 is left out of epoch 0: it was due in step 2");
  EXPECT_EQ(said(3, 7, 15), "sample 11 is left out of epoch 1: it was due in step 3");
  EXPECT_EQ(said(3, 7, 2), "sample 2 is used 2 times in epoch 1: in steps 2 and 3");
  EXPECT_EQ(said(0, 0, 0), "32 samples in 2 epochs of 20, each when it was due") << "the right one";
}

TEST(Samples, TheReferenceHasTheSameOrder) {
  for (const std::int64_t n : {1, 2, 5, 16, 17, 300}) {
    for (const bool drop_last : {false, true}) {
      runtime::Definition d;
      d.data.synthetic = true;
      d.data.sampler = {runtime::SampleOrder::shuffled, 99, n, drop_last};
      d.global_batch = 1 + int(n) / 4;
      const reference::Training t = reference_training(d);
      const runtime::Sampler sampler(d);
      for (std::int64_t place = 0; place < 3 * n; ++place)
        ASSERT_EQ(sampler.row(place), reference::row_of(t, place)) << "place " << place << " of " << n;
    }
  }
}

TEST(Samples, TheSamplersStateIsPartOfARuns) {
  runtime::TrainPlan plan;
  plan.definition.data.synthetic = true;
  plan.definition.data.sampler = {runtime::SampleOrder::shuffled, 5, 50, false};
  plan.definition.global_batch = 32;
  runtime::Progress progress(plan);
  progress.advance();
  progress.advance();
  EXPECT_EQ(progress.state(2, 0).sampler, (runtime::SamplerState{5, 1, 14})) << "64 samples are 50 and 14";
  plan.definition.data.sampler = {};
  EXPECT_EQ(runtime::Progress(plan).state(2, 0).sampler, runtime::SamplerState{});
}

// ---- against trainings that need none of it ------------------------------------------------------------------------

// Samples of tokens + 1 tokens, as --save-batches writes them: (steps, batch, tokens + 1).
std::string batches_file(const TemporaryFolder& folder, std::int64_t steps, std::int64_t batch, std::int64_t tokens,
                         const std::vector<std::int32_t>& all) {
  runtime::TensorBytes tensor{"tokens", runtime::DType::i32, {steps, batch, tokens + 1}, {}};
  tensor.bytes.assign(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(std::int32_t));
  return folder.write(fmt::format("batches_{}_{}.safetensors", batch, tokens), runtime::write_safetensors({tensor}));
}

std::vector<double> losses_of(const std::string& file, std::int64_t steps, std::int64_t batch, std::int64_t tokens,
                              Sets sets) {
  for (const std::string& set :
       {fmt::format("data={{\"batches\":\"{}\"}}", file), fmt::format("model.context={}", tokens),
        fmt::format("steps={}", steps), fmt::format("deepspeed.train_batch_size={}", batch),
        std::string("world.ranks_per_node=1"), std::string("deepspeed.train_micro_batch_size_per_gpu=1")})
    sets.insert(sets.begin(), set);
  const Outcome outcome = samples_run(sets);
  EXPECT_EQ(outcome.status, ExitStatus::as_expected) << outcome.report["checks"].dump(2);
  return outcome.report["loss"].get<std::vector<double>>();
}

std::int32_t token_of(std::int64_t i) { return std::int32_t(4 + (i * i + i / 3) % 7); }  // never the separator

// Bit for bit: a chain of products that ends with zeros, and a tree whose last leaves are zeros.
TEST(Samples, WhatACurriculumLeavesOutMightNotBeThere) {
  const TemporaryFolder folder;
  std::vector<std::int32_t> whole, cut;
  for (std::int64_t sample = 0; sample < 3 * 4; ++sample) {
    for (std::int64_t i = 0; i < 9; ++i) {
      whole.push_back(token_of(9 * sample + i));
      if (i < 6) cut.push_back(whole.back());
    }
  }
  const std::string five =
      "curriculum={\"min_difficulty\":5,\"max_difficulty\":5,\"schedule_type\":\"fixed_discrete\",\"schedule_config\":"
      "{\"difficulty\":[5,5],\"max_step\":[1]}}";
  for (const Sets& model : {Sets{}, Sets{"model.family=llama"}, Sets{"model.family=llama", "model.attention=fused"}}) {
    Sets shortened = model;
    shortened.push_back(five);
    EXPECT_EQ(losses_of(batches_file(folder, 3, 4, 8, whole), 3, 4, 8, shortened),
              losses_of(batches_file(folder, 3, 4, 5, cut), 3, 4, 5, model));
  }
}

// Two documents of four tokens are a sample of eight, or two samples of four. The first loss is the same sum, bit for
// bit. In gradients a sample's tokens are one chain and samples are leaves of a tree: there the last bits differ.
TEST(Samples, PackedDocumentsGiveWhatTheyGiveAlone) {
  const TemporaryFolder folder;
  constexpr std::int64_t kSteps = 4;
  std::vector<std::int32_t> packed, alone;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (std::int64_t i = 0; i < 8; ++i) {
      packed.push_back(i % 4 == 3 ? 3 : token_of(8 * step + i));
      alone.push_back(packed.back());
      if (i % 4 == 3) alone.push_back(5);  // what follows a separator is another document's
    }
    packed.push_back(5);
  }
  for (const Sets& model : {Sets{}, Sets{"model.family=llama"}, Sets{"model.family=llama", "model.attention=fused"},
                            Sets{"model.attention=fused"}}) {
    Sets packing = model;
    packing.push_back(kPacking);
    const std::vector<double> one = losses_of(batches_file(folder, kSteps, 1, 8, packed), kSteps, 1, 8, packing),
                              two = losses_of(batches_file(folder, kSteps, 2, 4, alone), kSteps, 2, 4, packing);
    EXPECT_EQ(one[0], two[0]);
    for (std::size_t step = 1; step < one.size(); ++step) EXPECT_NEAR(one[step], two[step], 2e-6 * one[step]);
    Sets mistaken = packing;
    mistaken.push_back("bug=packing_sees_others");
    mistaken.push_back("checks=[]");
    EXPECT_NE(losses_of(batches_file(folder, kSteps, 1, 8, packed), kSteps, 1, 8, mistaken)[0], one[0]);
  }
}

// Of any lengths: the sum of the documents' losses, each from a training with a context of that length.
TEST(Samples, DocumentsOfAnyLengthsGiveWhatTheyGiveAlone) {
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{2, 7, 3}, {1, 1, 10}, {12}, {5, 1, 4, 2}, {11, 1}}) {
    std::vector<std::int32_t> packed;
    double sum = 0, tokens = 0;
    for (const std::int64_t length : lengths) {
      std::vector<std::int32_t> document;
      for (std::int64_t i = 0; i < length; ++i) {
        document.push_back(i + 1 == length ? 3 : token_of(std::int64_t(packed.size())));
        packed.push_back(document.back());
      }
      document.push_back(5);
      if (length == 1) continue;  // a separator alone
      const double mean = losses_of(batches_file(folder, 1, 1, length, document), 1, 1, length, {kPacking})[0];
      sum += mean * double(length - 1), tokens += double(length - 1);
    }
    packed.push_back(5);
    const double mean = losses_of(batches_file(folder, 1, 1, 12, packed), 1, 1, 12, {kPacking})[0];
    EXPECT_NEAR(mean, sum / tokens, 1e-6 * mean) << fmt::format("{}", fmt::join(lengths, " "));
  }
}

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST(Samples, WhatCannotBeIsRefusedInALine) {
  for (const char* feature : {kShuffled, kCurriculum, kPacking}) EXPECT_EQ(problems_of(samples_text(), {feature}), "");
  const std::string grows = "\"schedule_config\":{\"total_curriculum_step\":4,\"difficulty_step\":1}}",
                    list =
                        "curriculum={\"min_difficulty\":2,\"max_difficulty\":6,\"schedule_type\":\"fixed_discrete\",";
  const std::string experts =
      "model={\"family\":\"llama\",\"layers\":1,\"width\":8,\"heads\":2,\"context\":6,\"vocab\":11,\"experts\":2}";
  const std::vector<std::pair<Sets, const char*>> all = {
      {{"data.sampler={\"order\":\"shuffled\"}"}, "Say how many"},
      {{"data.sampler={\"samples\":30}"}, "order"},
      {{"data.sampler={\"order\":\"drawn\"}"}, "drawn"},
      {{"model.context=0", "model.vocab=256",
        "data={\"text\":\"golden/corpus.txt\",\"sampler\":{\"order\":\"shuffled\"}}"},
       "context"},
      {{kShuffled, "deepspeed.train_batch_size=0"}, "train_batch_size"},
      {{"data.sampler={\"order\":\"sequential\",\"samples\":30,\"seed\":1}"}, "a sequential order has none"},
      {{"data.sampler={\"order\":\"shuffled\",\"samples\":11,\"drop_last\":true}"}, "leaves all 11 samples out"},
      {{"curriculum={\"min_difficulty\":2,\"max_difficulty\":7,\"schedule_type\":\"fixed_linear\"," + grows},
       "a sample has 6 tokens"},
      {{"curriculum={\"min_difficulty\":5,\"max_difficulty\":4,\"schedule_type\":\"fixed_linear\"," + grows},
       "above max_difficulty"},
      {{"curriculum={\"min_difficulty\":2,\"max_difficulty\":4,\"schedule_type\":\"fixed_root\"," + grows},
       "root_degree"},
      {{list + "\"schedule_config\":{\"difficulty\":[2,3],\"max_step\":[1,2]}}"}, "the last difficulty alone has none"},
      {{list + "\"schedule_config\":{\"difficulty\":[2,3,4],\"max_step\":[2,2]}}"}, "ascend"},
      {{list + "\"schedule_config\":{\"difficulty\":[2,7],\"max_step\":[2]}}"}, "above max_difficulty"},
      {{kCurriculum, "checks=[\"conservation\"]"}, "conservation"},
      {{kCurriculum, experts}, "experts"},
      {{"data.packing={\"separator\":11}"}, "the vocabulary ends at 10"},
      {{kPacking, experts}, "experts"},
      {{kPacking, "model.dropout=0.1"}, "dropout in attention"},
      {{kPacking, "checks=[\"conservation\"]"}, "conservation"},
      {{kPacking, "numerics=shapes", "checks=[]"}, "shapes"},
  };
  for (const auto& [sets, what] : all) {
    const std::string problems = problems_of(samples_text(), sets);
    EXPECT_NE(problems.find(what), std::string::npos) << problems << "\n  not: " << what;
  }
}

}  // namespace
}  // namespace seeksim::harness
