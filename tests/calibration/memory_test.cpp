// Predicted peaks of a GPU's memory against published ones that no fit has seen, and mistakes that turn the table red.
// With SEEKSIM_MEND=1 in the environment the table of docs/calibrated-memory.md is written again.

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "harness/calibration/error_picture.h"
#include "harness/calibration/error_table.h"
#include "harness/input/problem.h"
#include "tests/calibration/quoted.h"

namespace seeksim::harness::calibration {
namespace {

using What = MemoryMeasurement::What;

const std::vector<MemoryMeasurement>& peaks() {
  static const std::vector<MemoryMeasurement> kRows = published_memory();
  return kRows;
}

std::vector<const MemoryMeasurement*> peaks_of(const std::function<bool(const MemoryMeasurement&)>& holds) {
  std::vector<const MemoryMeasurement*> some;
  for (const MemoryMeasurement& row : peaks())
    if (holds(row)) some.push_back(&row);
  return some;
}

// What has to hold of rows that the fit has not seen.
std::vector<std::string> problems_of_peaks(const Constants& constants, MemoryMistake mistake = MemoryMistake::none) {
  std::vector<std::string> all;
  const auto must = [&](bool holds, const char* what) {
    if (!holds) all.emplace_back(what);
  };
  const auto unseen = [&](What what) {
    return errors(peaks_of([&](const MemoryMeasurement& m) {
                    return (m.kept == Kept::row || m.kept == Kept::series) && m.what == what;
                  }),
                  [&](const MemoryMeasurement& m) { return predicted_bytes(m, constants, mistake); });
  };
  must(unseen(What::allocated).within_10 == 1 && unseen(What::allocated).median < 0.01,
       "allocated: within 10 %, median 1 %");
  must(unseen(What::reserved).within_20 == 1 && unseen(What::reserved).within_10 > 0.85,
       "reserved: 85 of 100 within 10 %, all within 20 %");
  const Fits ran = fits(peaks_of([](const MemoryMeasurement& m) { return m.what == What::fits; }), constants, mistake);
  must(ran.right() > 0.93, "93 of 100 layouts run, or run out of memory, as predicted");
  must(ran.ran_predicted > 0.9 * ran.ran, "nine of ten that ran are said to fit");
  must(ran.out_of_memory_predicted > 0.9 * ran.out_of_memory,
       "nine of ten that were out of memory are said not to fit");
  return all;
}

TEST(PublishedMemory, PeaksThatTheFitHasNotSeenArePredicted) {
  EXPECT_EQ(problems_of_peaks(Constants{}), std::vector<std::string>());
}

// Where the goal is missed. What came out stays here.
TEST(PublishedMemory, MegatronsAndOldPeaksHaveTheErrorsThatTheyHave) {
  const auto of = [](const std::string& series) {
    return errors(peaks_of([&](const MemoryMeasurement& m) { return m.series == series; }),
                  [](const MemoryMeasurement& m) { return predicted_bytes(m, Constants{}); });
  };
  EXPECT_EQ(of("megatron-7b").count, 6u);
  EXPECT_LT(of("megatron-7b").worst, 0.1);
  EXPECT_LT(of("blind-titan-8b").worst, 0.15);
  EXPECT_NEAR(of("blind-titan-7b").worst, 0.46, 0.02);
}

TEST(PublishedMemory, AMistakeInTheFormTurnsTheTableRed) {
  for (const MemoryMistake mistake :
       {MemoryMistake::one_micro_batch_under_way, MemoryMistake::logits_are_free, MemoryMistake::moments_not_shared})
    EXPECT_NE(problems_of_peaks(Constants{}, mistake), std::vector<std::string>()) << int(mistake);
}

TEST(PublishedMemory, AWrongConstantTurnsTheTableRed) {
  for (const auto& [name, factor] : {std::pair{"kept_plain", 1.3},
                                     {"reserved_compiled", 1.3},
                                     {"reserved_plain", 1.2},
                                     {"logit_plain", 3},
                                     {"logit_eager", 2},
                                     {"outside_gb", 10}}) {
    Constants wrong;
    for (const ConstantRow& row : constant_rows())
      if (std::string(row.name) == name) wrong.*row.member *= factor;
    EXPECT_NE(problems_of_peaks(wrong), std::vector<std::string>()) << name;
  }
}

TEST(PublishedMemory, HalfOfThePeaksAreKeptOut) {
  const auto out = peaks_of([](const MemoryMeasurement& m) { return m.what != What::fits && m.kept != Kept::fitted; });
  const auto all = peaks_of([](const MemoryMeasurement& m) { return m.what != What::fits; });
  EXPECT_GT(all.size(), 80u);
  EXPECT_GT(2 * out.size(), all.size());
}

TEST(PublishedMemory, ATableWithABadRowIsRefused) {
  const std::string head = "id,series,what,platform,layout,size,value,unit,source\n";
  const std::string layout =
      "gpus=8 tensor=1 pipeline=1 context=1 chunks=1 micro=1 batch=8 sequence=8 layers=1 width=8 heads=1 kv=1 hidden=8 "
      "vocab=8 gated=1 recompute=none shards=optimizer stack=plain";
  EXPECT_EQ(read_memory(head + "a,a,reserved,h100," + layout + ",64,1,GiB,s\n", "m.csv").size(), 1u);
  const std::string row = "a,a,reserved,h100," + layout;
  const std::vector<std::string> bad_rows = {row + " at=first,64,1,GiB,s\n", row + ",64,1,80GB,s\n",
                                             row + " x=1,64,1,GiB,s\n", row + ",64,-1,GiB,s\n",
                                             "a,a,reserved,h100,gpus=8,64,1,GiB,s\n"};
  for (const std::string& bad : bad_rows) EXPECT_THROW(read_memory(head + bad, "m.csv"), BadInput) << bad;
}

// What no fitted constant can give.
TEST(StepMemory, HasItsStructure) {
  const ModelShape llama = {32, 4096, 32, 8, 14336, 128256, true, 8192};
  StepLayout layout;
  layout.gpus = 64, layout.batch = 256;
  const auto of = [&](const StepLayout& l, Stack stack = Stack::plain) {
    return step_memory(llama, l, stack, Constants{});
  };
  StepLayout shared = layout;
  shared.shards = Shards::parameters;
  EXPECT_NEAR(
      of(shared).states * 4,
      [&] {
        auto l = shared;
        l.gpus = 16;
        return of(l).states;
      }(),
      1);
  StepLayout zero2 = layout;
  zero2.gradients_shared = true;
  const double parameters = 32 * llama.layer_parameters() + 2.0 * 128256 * 4096;
  EXPECT_NEAR(of(layout).states - of(zero2).states, 4 * parameters * 63 / 64, 1e3);
  StepLayout group = shared, whole = shared, second = shared;
  group.shard_group = 8, whole.stays_whole = true, second.second_shards = 8;
  EXPECT_NEAR(of(group).states, 8 * of(shared).states, 1);
  EXPECT_NEAR(of(whole).gathered, 2 * parameters, 1e3);
  EXPECT_NEAR(of(second).gathered - of(shared).gathered, 2 * parameters / 8, 1e3);
  StepLayout again = layout;
  again.recompute = Recompute::full;
  EXPECT_LT(of(again).activations, 0.1 * of(layout).activations);
  StepLayout stages = layout;
  stages.pipeline = 4;
  EXPECT_NEAR(of(stages).activations, of(layout).activations, 1e-6 * of(layout).activations);  // 4 under way, a quarter
  StepLayout interleaved = stages;
  interleaved.chunks = 2;
  EXPECT_NEAR(of(interleaved).activations, (1 + 3.0 / 8) * of(stages).activations, 1e-3 * of(stages).activations);
  EXPECT_DOUBLE_EQ(under_way(stages, 3), 1);
  EXPECT_DOUBLE_EQ(under_way(interleaved, 3), (4 + 1) / 2.0);  // the last stage has begun a chunk of four more
  stages.batch = 2 * stages.data();
  EXPECT_DOUBLE_EQ(under_way(stages, 0), 2);
  StepLayout ways = layout;
  ways.tensor = 8;
  StepLayout scattered = ways;
  scattered.sequence_parallel = true;
  EXPECT_LT(of(scattered).activations, of(ways).activations);
  EXPECT_LT(of(scattered, Stack::fused).activations, of(scattered).activations);  // gathers again
  EXPECT_LT(of(shared, Stack::compiled).bytes(), of(shared, Stack::eager).bytes());
}

TEST(PublishedMemory, ThePictureHasAPointForEachPeak) {
  const auto circles = [](const std::string& svg) {
    std::size_t count = 0;
    for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++count;
    return count;
  };
  const std::string all = memory_picture(peaks());
  const std::size_t of_legend = 6 + 2;  // groups, and whether the fit has seen it
  EXPECT_EQ(circles(all), peaks_of([](const MemoryMeasurement& m) { return m.what != What::fits; }).size() + of_legend);
  // A point on the line lies as far from the left as from the bottom.
  std::vector<MemoryMeasurement> one = {*peaks_of([](const MemoryMeasurement& m) { return m.what != What::fits; })[0]};
  one[0].bytes = predicted_bytes(one[0], Constants{});
  EXPECT_NE(memory_picture(one).find("<circle cx=\"300.0\" cy=\"280.0\""), std::string::npos) << memory_picture(one);
  one[0].bytes *= 1.2;
  EXPECT_EQ(memory_picture(one).find("<circle cx=\"300.0\" cy=\"280.0\""), std::string::npos);
}

// What stands between `<!-- memory -->` and `<!-- end -->` in docs/calibrated-memory.md.
TEST(PublishedMemory, ThePageQuotesTheErrorsThatTheProgramHas) {
  testing::page_quotes("calibrated-memory.md", "<!-- memory -->\n", memory_table(peaks()));
}

}  // namespace
}  // namespace seeksim::harness::calibration
