// Traces of torch.profiler as curves. The events here have the shape of those that PyTorch 2.3 wrote on two A100 (a
// trace of HolisticTraceAnalysis' tests was read by hand: the same sizes and the shortest of three times).

#include "harness/calibration/torch_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/calibration/collective_times.h"
#include "harness/input/problem.h"

namespace seeksim::harness::calibration {
namespace {

struct Event {
  const char* collective = "allreduce";
  double us = 100;
  long long in = 1 << 20, out = 1 << 20;
  int group = 2;
  const char* ranks = "[0, 1]";
  const char* type = "Float";
  const char* category = "kernel";
};

std::string json(const Event& e) {
  const nlohmann::json args = {{"External id", 7},
                               {"grid", {8, 1, 1}},
                               {"Collective name", e.collective},
                               {"In msg nelems", e.in},
                               {"Out msg nelems", e.out},
                               {"Group size", e.group},
                               {"dtype", e.type},
                               {"Process Group Ranks", e.ranks}};
  return nlohmann::json({{"ph", "X"},
                         {"cat", e.category},
                         {"name", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"},
                         {"ts", 1.5},
                         {"dur", e.us},
                         {"args", args}})
      .dump();
}

std::string trace_of(const std::vector<Event>& events) {
  std::string all =
      "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"dur\": 5}], \"traceEvents\": ["
      "{\"ph\": \"M\", \"name\": \"process_name\", \"args\": {\"labels\": [\"a\", {\"b\": 1}]}}";
  for (const Event& event : events) all += ",\n" + json(event);
  return all + "], \"traceName\": \"t.json\"}";
}

std::vector<Curve> curves_of(const std::vector<std::string>& traces, int domain = 8) {
  TraceCurves all;
  for (const std::string& trace : traces) all.read(trace, "t.json");
  return all.curves(domain);
}

std::string refusal_of_trace(const std::string& trace) {
  try {
    curves_of({trace});
    return "";
  } catch (const BadInput& bad) {
    return bad.what();
  }
}

TEST(TorchTrace, TheShortestKernelOfEachSizeCounts) {
  const std::vector<Curve> curves = curves_of(
      {trace_of({{.us = 130.5}, {.us = 100.25}, {.us = 400}}), trace_of({{.us = 90}, {.us = 7, .in = 1 << 10}})});
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_EQ(curves[0].what, Collective::all_reduce);
  EXPECT_EQ(curves[0].ranks, 2);
  EXPECT_EQ(curves[0].nodes, 1);
  ASSERT_EQ(curves[0].points.size(), 2u);
  EXPECT_DOUBLE_EQ(curves[0].us(4 << 10), 7);
  EXPECT_DOUBLE_EQ(curves[0].us(4 << 20), 90);
}

// As nccl-tests counts: what a gather gives out, and what a scatter takes.
TEST(TorchTrace, SizesAreThoseOfNcclTests) {
  const std::vector<Curve> curves = curves_of(
      {trace_of({{.collective = "_allgather_base", .us = 10, .in = 500, .out = 1000, .type = "BFloat16"},
                 {.collective = "_reduce_scatter_base", .us = 20, .in = 1000, .out = 500, .type = "Double"}})});
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].what, Collective::all_gather);
  EXPECT_EQ(curves[0].points.at(0).bytes, 2000);
  EXPECT_EQ(curves[1].what, Collective::reduce_scatter);
  EXPECT_EQ(curves[1].points.at(0).bytes, 8000);
}

TEST(TorchTrace, RanksSayOnHowManyNodesAGroupIs) {
  const auto nodes = [](int group, const char* ranks, int domain = 8) {
    const std::vector<Curve> curves = curves_of({trace_of({{.group = group, .ranks = ranks}})}, domain);
    return std::pair(curves.at(0).ranks, curves.at(0).nodes);
  };
  EXPECT_EQ(nodes(2, "[0, 1]"), std::pair(2, 1));
  EXPECT_EQ(nodes(2, "[0, 8]"), std::pair(2, 2));
  EXPECT_EQ(nodes(2, "[7, 8]"), std::pair(2, 2));
  EXPECT_EQ(nodes(2, "[0, 8]", 16), std::pair(2, 1));
  EXPECT_EQ(nodes(16, "[0, 1, 2, 3, 4, 5, 6, ...]"), std::pair(16, 2));  // of long lists torch writes the beginning
  EXPECT_EQ(nodes(16, "[0, 8, 16, ...]"), std::pair(16, 16));
  EXPECT_EQ(nodes(4, ""), std::pair(4, 1));
}

TEST(TorchTrace, GroupsOfOneShapeAreOneCurve) {
  const std::vector<Curve> curves = curves_of(
      {trace_of({{.us = 50, .ranks = "[0, 1]"}, {.us = 40, .ranks = "[2, 3]"}, {.us = 60, .ranks = "[0, 8]"}})});
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_DOUBLE_EQ(curves[0].us(4 << 20), 40);
  EXPECT_DOUBLE_EQ(curves[1].us(4 << 20), 60);
  EXPECT_EQ(curves[1].nodes, 2);
}

TEST(TorchTrace, WhatIsNoMeasurementIsLeftOut) {
  const std::vector<Curve> curves = curves_of({trace_of({{},
                                                         {.us = 1, .category = "cpu_op"},
                                                         {.collective = "broadcast", .us = 2},
                                                         {.us = 3, .type = "ComplexFloat"},
                                                         {.us = -4},
                                                         {.us = 5, .in = 0, .out = 0},
                                                         {.us = 6, .group = 1, .ranks = "[0]"},
                                                         {.us = 8, .in = -3}})});
  ASSERT_EQ(curves.size(), 1u);
  EXPECT_DOUBLE_EQ(curves[0].us(4 << 20), 100);
  EXPECT_EQ(curves[0].points.size(), 1u);
}

TEST(TorchTrace, AListOfEventsAloneIsATrace) {
  EXPECT_EQ(curves_of({"[" + json({}) + "]"}).size(), 1u);
  EXPECT_NE(refusal_of_trace("{\"other\": [" + json({}) + "]}"), "");  // nobody's list
}

TEST(TorchTrace, WhatIsNoTraceIsRefusedWithWhatToDo) {
  EXPECT_NE(refusal_of_trace("").find("no JSON"), std::string::npos) << refusal_of_trace("");
  EXPECT_NE(refusal_of_trace(trace_of({{}}).substr(0, 300)).find("no JSON at byte"), std::string::npos);
  EXPECT_NE(refusal_of_trace("\x1f\x8b\x08").find("gunzip"), std::string::npos);
  EXPECT_NE(refusal_of_trace(trace_of({})).find("which collective"), std::string::npos);
  EXPECT_NE(refusal_of_trace(trace_of({{.collective = "broadcast"}})).find("has a curve"), std::string::npos);
  EXPECT_NE(refusal_of_trace("{\"traceEvents\": " + std::string(100, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(refusal_of_trace("{\"traceEvents\": " + std::string(2'000'000, '[')).find("deeper"), std::string::npos);
}

TEST(TorchTrace, ItsCurvesTakeThePlaceOfTheModel) {
  Platform platform = platform_of("a100", "--platform");
  platform.curves = curves_of({trace_of({{.us = 5000}})});
  const CollectiveTime time = collective_time(Collective::all_reduce, 4 << 20, {2, 8, 1, 0.25}, platform);
  EXPECT_TRUE(time.measured);
  EXPECT_DOUBLE_EQ(time.us, 5000);
  EXPECT_FALSE(collective_time(Collective::all_gather, 4 << 20, {2, 8, 1, 0.25}, platform).measured);
}

}  // namespace
}  // namespace seeksim::harness::calibration
