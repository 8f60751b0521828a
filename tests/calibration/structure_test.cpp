// What no fitted constant can give: growth with ranks, NVLS for sums alone, the edge of an NVLink domain,
// micro-batches, the order of layouts. Each is seen to fail on a planted mistake.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/calibration/measurements.h"

namespace seeksim::harness::calibration {
namespace {

constexpr double kKiB = 1 << 10, kGiB = 1 << 30;
using Planted = Choice::Planted;

Group across(int ranks) { return {ranks, 8, 1, 1}; }

std::vector<std::string> problems_of_collectives(Planted planted) {
  const Platform h100;
  const auto us = [&](Collective what, double bytes, const Group& group, std::optional<Algorithm> algorithm = {}) {
    return collective_time(what, bytes, group, h100, {algorithm, {}, planted}).us;
  };
  const auto busbw = [&](Collective what, double bytes, const Group& group) {
    return bus_bandwidth(what, bytes, group.ranks, us(what, bytes, group));
  };
  std::vector<std::string> problems;
  const auto must = [&](bool holds, const char* what) {
    if (!holds) problems.emplace_back(what);
  };
  const auto grown = [&](Algorithm a, int ranks) {
    return us(Collective::all_reduce, kKiB, across(ranks), a) - us(Collective::all_reduce, kKiB, across(ranks / 2), a);
  };
  const double doubled = grown(Algorithm::ring, 1024) / grown(Algorithm::ring, 512);
  must(doubled > 1.9 && doubled < 2.1, "a ring's latency grows with its ranks");
  must(us(Collective::all_gather, kKiB, across(1024)) > 20 * us(Collective::all_gather, kKiB, across(8)),
       "a gather over 1,024 ranks waits for 1,023 hops");
  const double added = grown(Algorithm::tree, 1024) / grown(Algorithm::tree, 512);
  must(added > 0.99 && added < 1.01, "a tree's latency grows by the same for each doubling");
  must(busbw(Collective::all_reduce, 8 * kGiB, across(8)) > 1.2 * busbw(Collective::all_gather, 8 * kGiB, across(8)),
       "NVLS adds, and does not gather");
  must(busbw(Collective::all_gather, 8 * kGiB, across(8)) < 450, "no gather is faster than its wires");
  must(busbw(Collective::all_reduce, kGiB, {8, 8, 1, 1}) > 6 * busbw(Collective::all_reduce, kGiB, {8, 1, 1, 0.125}),
       "eight GPUs on eight nodes are behind one adapter each");
  must(
      collective_time(Collective::all_reduce, kKiB, across(4096), h100, {{}, {}, planted}).algorithm != Algorithm::ring,
      "a small sum over many ranks is not a ring's");
  must(collective_time(Collective::all_reduce, kGiB, across(8), h100, {{}, {}, planted}).protocol == Protocol::simple,
       "a large sum takes no LL");
  return problems;
}

TEST(Collectives, HaveNcclsStructure) { EXPECT_EQ(problems_of_collectives(Planted::none), std::vector<std::string>()); }

TEST(Collectives, NvlsThatGathersIsSeen) {
  EXPECT_NE(problems_of_collectives(Planted::nvls_gathers), std::vector<std::string>());
}
TEST(Collectives, ARingWhoseHopsAreFreeIsSeen) {
  EXPECT_NE(problems_of_collectives(Planted::hops_are_free), std::vector<std::string>());
}
TEST(Collectives, ADomainWithoutAnEdgeIsSeen) {
  EXPECT_NE(problems_of_collectives(Planted::no_edge), std::vector<std::string>());
}

TEST(Collectives, OversubscribedSwitchesSlowOnlyWhatCrossesThem) {
  const Platform flat = platform_of("h100", ""), narrow = platform_of("h100,oversubscription=4,leaf=16", "");
  const auto us = [](const Platform& platform, int ranks) {
    return collective_time(Collective::all_gather, kGiB, across(ranks), platform).us;
  };
  EXPECT_EQ(us(flat, 128), us(narrow, 128));
  EXPECT_GT(us(narrow, 256), 3 * us(flat, 256));
}

// ---- steps ----------------------------------------------------------------------------------------------------------

const ModelShape kLlama70b = {80, 8192, 64, 8, 28672, 128256, true, 8192};

StepLayout layout_of(int pipeline, int micro_batch, int batch) {
  StepLayout l;
  l.gpus = 8 * pipeline;
  l.tensor = 8;
  l.pipeline = pipeline;
  l.micro_batch = micro_batch;
  l.batch = batch;
  return l;
}

std::vector<std::string> problems_of_steps(StepMistake mistake) {
  const Platform h100 = platform_of("h100,stack=fused", "");
  const auto us = [&](int pipeline, int micro_batch, int batch) {
    return step_time(kLlama70b, layout_of(pipeline, micro_batch, batch), h100, mistake).us();
  };
  std::vector<std::string> problems;
  const auto must = [&](bool holds, const char* what) {
    if (!holds) problems.emplace_back(what);
  };
  const double bubble = (us(8, 1, 8) - (us(8, 1, 16) - us(8, 1, 8))) / us(8, 1, 8);
  must(bubble > 0.35 && bubble < 0.6, "eight micro-batches over eight stages idle for nearly half of the time");
  must(us(8, 1, 256) / 256 < 0.6 * us(8, 1, 8) / 8, "more micro-batches hide the bubble");
  const double first = us(8, 1, 16) - us(8, 1, 8), later = us(8, 1, 256) - us(8, 1, 248);
  must(first > 0.99 * later && first < 1.01 * later, "each micro-batch more costs the same");
  ModelShape small = kLlama70b;
  small.sequence = 128;
  const auto alone = [&](int micro_batch) {
    StepLayout one = layout_of(1, micro_batch, 64);
    one.gpus = one.tensor = 1;
    return step_time(small, one, h100, mistake).us();
  };
  must(alone(8) < 0.9 * alone(1), "larger micro-batches make products faster");
  must(us(8, 4, 32) > 1.3 * us(8, 1, 32), "larger micro-batches make fewer of them, and the bubble larger");
  return problems;
}

TEST(Steps, HaveThePipelinesStructure) { EXPECT_EQ(problems_of_steps(StepMistake::none), std::vector<std::string>()); }
TEST(Steps, APipelineWithoutBubblesIsSeen) {
  EXPECT_NE(problems_of_steps(StepMistake::no_bubbles), std::vector<std::string>());
}
TEST(Steps, ProductsOfAnyShapeAlikeAreSeen) {
  EXPECT_NE(problems_of_steps(StepMistake::products_of_any_shape_alike), std::vector<std::string>());
}

TEST(Steps, CountOperationsAsTheRecipesDo) {
  // Llama 3.1 8B at 8192: 4.74E14 (NVIDIA's recipe).
  const ModelShape llama_8b = {32, 4096, 32, 8, 14336, 128256, true, 8192};
  EXPECT_NEAR(llama_8b.sample_flops(), 4.74e14, 0.005 * 4.74e14);
}

}  // namespace
}  // namespace seeksim::harness::calibration
