// What `seeksim analyse` reads: flight recorders and logs of jobs that we know nothing of. And what clusters measured.
#include <cmath>

#include "harness/analyse/dump.h"
#include "harness/analyse/hang.h"
#include "harness/analyse/logs.h"
#include "harness/calibration/curves.h"
#include "harness/calibration/torch_trace.h"
#include "harness/export/flight_recorder.h"
#include "harness/input/json_text.h"
#include "harness/input/problem.h"
#include "runtime/detect/analyser.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace seeksim::fuzz {

using namespace harness;

namespace {

// A dump that both a rank 0 and a rank 1 have written, so that there is something to compare.
void judge_twice(const Tree& tree) {
  std::vector<Dump> dumps;
  for (const char* name : {"nccl_trace_rank_0", "nccl_trace_rank_1"}) dumps.push_back(read_torch_dump(tree, name));
  const Story story = judge_dumps(std::move(dumps));
  story_text(story);
  story_json(story);
}

}  // namespace

bool take_pickle_dump(std::string_view bytes) try {
  PickleBounds bounds;
  bounds.values_max = 100'000;  // smaller than in the program, so that a run of the fuzzer cannot take seconds
  judge_twice(read_pickle(bytes, bounds));
  return true;
} catch (const std::runtime_error&) {
  return false;
}

bool take_json_dump(std::string_view bytes) try {
  const Tree tree = dump_tree(bytes, "nccl_trace_rank_0.json");
  require(levels_of(tree) <= std::size_t(PickleBounds().depth_max), "JSON deeper than its bound");
  if (!tree.is_object() || !tree.contains("seeksim")) {
    judge_twice(tree);
    return true;
  }
  ReadDumps read;
  read_dump(Json(tree), "nccl_trace_rank_0.json", read);
  add_missing_ranks(read);
  runtime::analyse(read.dumps);
  return true;
} catch (const BadInput&) {
  return false;
}

bool take_log(std::string_view bytes) {
  LogFacts facts;
  read_log(bytes, "rank_0.log", facts);
  read_log(bytes, "all.log", facts);
  story_text(judge_logs(facts));
  return !facts.works.empty() || !facts.errors.empty();
}

namespace {
void require_sane(const calibration::Curve& curve) {
  require(curve.ranks >= 2 && curve.nodes >= 1 && curve.nodes <= curve.ranks, "a group that cannot be");
  double below = 0;
  for (const calibration::Curve::Point& point : curve.points) {
    require(point.bytes > below, "sizes that do not rise");
    require(std::abs(curve.us(point.bytes) / point.us - 1) < 1e-9, "another time at a measured size");
    below = point.bytes;
  }
  for (const double size : {1.0, 1e3, 3e6, 1e12, 1e15}) {
    const double us = curve.us(size);
    require(std::isfinite(us) && us > 0, "a time that is none");
  }
}
}  // namespace

bool take_nccl_tests(std::string_view bytes) try {
  require_sane(calibration::read_nccl_tests(std::string(bytes), "gather.txt"));
  return true;
} catch (const BadInput&) {
  return false;
}

bool take_torch_trace(std::string_view bytes) try {
  calibration::TraceCurves traces;
  traces.read(bytes, "rank0.json");
  require(traces.kernels() > 0 && !traces.curves(8).empty(), "a trace that was taken and says nothing");
  for (const int domain : {1, 8})
    for (const calibration::Curve& curve : traces.curves(domain)) require_sane(curve);
  return true;
} catch (const BadInput&) {
  return false;
}

}  // namespace seeksim::fuzz
