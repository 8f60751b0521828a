// What a world records of its queues and hosts: messages between two ranks, what is cut short, and how much is kept.
#include "sim/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

WorldPlan drawn_world(int ranks) {
  WorldPlan plan = spread_world(ranks);
  plan.timeline = true;
  return plan;
}

TEST(Timeline, AMessageIsAnArrowBetweenItsTwoOperations) {
  World world(drawn_world(2));
  const WorldResult result = world.run([](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 1) rank.clock.sleep_until(kSecond);
    const BufferPtr b = floats(rank, 1000);
    const Op op = op_of(rank, OpKind::send, 1);
    const Piece piece = rank.id == 0 ? send_to(1, b, 0, 1000) : receive_from(0, b, 0, 1000);
    rank.wait(exchange(rank, comm, op, {piece}), op, 60 * kSecond, comm);
  });
  EXPECT_TRUE(all_returned(result));
  const Timeline& timeline = *world.timeline();
  ASSERT_EQ(timeline.arrows().size(), 1u);
  const Timeline::Arrow& arrow = timeline.arrows()[0];
  EXPECT_EQ(timeline.lanes()[arrow.from].rank, 0);
  EXPECT_EQ(timeline.lanes()[arrow.to].rank, 1);
  EXPECT_LT(arrow.sent, arrow.received);
  int around = 0;
  for (const Timeline::Span& span : timeline.spans()) {
    if (span.op.kind != OpKind::send) continue;
    EXPECT_LE(span.begin, arrow.sent);
    EXPECT_GE(span.end, arrow.received);
    around += span.lane == arrow.from || span.lane == arrow.to;
  }
  EXPECT_EQ(around, 2);
  const auto sleeps = [](const Timeline::Span& span) { return span.why == Blocked::sleep; };
  EXPECT_EQ(std::count_if(timeline.spans().begin(), timeline.spans().end(), sleeps), 1);
}

TEST(Timeline, NobodyDrawsUnlessAsked) {
  World world(spread_world(1));
  world.run([](Rank&) {});
  EXPECT_EQ(world.timeline(), nullptr);
}

TEST(Timeline, WhatARankWasDoingEndsWithIt) {
  World world(drawn_world(1));
  world.kill_at(0, kSecond, [] {});
  world.run([](Rank& rank) {
    const BufferPtr b = floats(rank, 1);
    Op op = op_of(rank, OpKind::compute, 1);
    rank.device.compute_queue().launch(
        op, {1e18, 0}, [](kernels::Lane, kernels::Vec<float>) {}, vec<float>(*b));
    rank.device.drain();
  });
  const auto& spans = world.timeline()->spans();
  const auto launch =
      std::find_if(spans.begin(), spans.end(), [](const Timeline::Span& span) { return span.why == Blocked::no; });
  ASSERT_NE(launch, spans.end());
  EXPECT_EQ(launch->end, kSecond);
  EXPECT_EQ(launch->state, runtime::RecordState::aborted);
}

// An executor for queues on which nothing runs.
struct Nobody final : runtime::Executor {
  void make_ready(runtime::SteppedQueue&) override {}
  void step_after(runtime::SteppedQueue&, runtime::TimeNs) override {}
  runtime::TimeNs duration(const runtime::SteppedQueue&, const Op&, runtime::Cost) override { return 0; }
  void host_place_reached(runtime::SteppedQueue&) override {}
  void kernel_failed(runtime::SteppedQueue&, const Op&, std::string_view) override {}
};

// So many launches a step, of ten ns each, on one rank.
struct Launches {
  explicit Launches(int a_step) : each(a_step) {}
  void run(std::int64_t first, std::int64_t end) {
    for (std::int64_t i = first * each; i < end * each; ++i) {
      Op op;
      op.rank = 0;
      op.step = i / each;
      timeline.ran(queue, 0, op, i * 10, i * 10 + 10);
    }
  }
  // Spans that are kept, by step.
  std::map<std::int64_t, int> kept() const {
    std::map<std::int64_t, int> steps;
    for (const Timeline::Span& span : timeline.spans()) ++steps[span.op.step];
    return steps;
  }
  Nobody nobody;
  runtime::SteppedQueue queue{nobody, "one", 0};
  Timeline timeline{1};
  int each;
};

TEST(Timeline, ThinsWholeStepsAndKeepsBothEndsAndWhatMatters) {
  Launches launches(1000);
  launches.run(0, 400);
  launches.timeline.mark(0, 0, "fault", "in step 399");
  launches.run(400, 2000);
  const std::map<std::int64_t, int> kept = launches.kept();
  EXPECT_LE(launches.timeline.spans().size(), Timeline::kSpansMax);
  EXPECT_GE(launches.timeline.spans().size(), Timeline::kSpansMax / 2);
  for (const auto& [step, spans] : kept) EXPECT_EQ(spans, 1000) << step;
  for (const int step : {0, 1, 40, 398, 399, 400, 1900, 1999}) EXPECT_TRUE(kept.count(step)) << step;
  std::int64_t widest = 0, last = 0;
  for (const auto& [step, spans] : kept) {
    widest = std::max(widest, step - last);
    last = step;
  }
  EXPECT_LE(widest, 32) << "the middle is thinned evenly";
  EXPECT_EQ(launches.timeline.forgotten() + launches.timeline.spans().size(), 2'000'000u);
  for (const Timeline::LeftOut& one : launches.timeline.left_out()) {
    EXPECT_TRUE(one.whole);
    EXPECT_EQ(one.begin, one.first_step * 10'000);
    EXPECT_EQ(one.end, (one.last_step + 1) * 10'000);
    for (std::int64_t step = one.first_step; step <= one.last_step; ++step) EXPECT_FALSE(kept.count(step)) << step;
  }
}

// A step that is too long by itself keeps its begin and its end.
TEST(Timeline, OfALongStepTheMiddleIsLeftOut) {
  Launches launches(2'000'000);
  launches.run(0, 1);
  const Timeline& timeline = launches.timeline;
  EXPECT_EQ(timeline.spans().front().begin, 0);
  EXPECT_EQ(timeline.spans().back().end, 20'000'000);
  EXPECT_LE(timeline.spans().size(), Timeline::kSpansMax);
  ASSERT_EQ(timeline.left_out().size(), 1u);
  EXPECT_FALSE(timeline.left_out()[0].whole);
  EXPECT_EQ(timeline.left_out()[0].begin, (std::int64_t(Timeline::kSpansMax) / 4 - 1) * 10);
  EXPECT_EQ(timeline.forgotten() + timeline.spans().size(), 2'000'000u);
  launches.timeline.cut(0, 19'999'995);  // finds the newest span though many are gone
  EXPECT_EQ(timeline.spans().back().state, runtime::RecordState::aborted);
  EXPECT_EQ(timeline.spans().back().end, 19'999'995);
}

// A fault in every step leaves none out of turn: what matters is thinned, too, where it is too much.
TEST(Timeline, FaultsInEachStepAreBounded) {
  Launches launches(1000);
  for (int step = 0; step < 2000; ++step) {
    launches.run(step, step + 1);
    launches.timeline.mark(step, 0, "fault", "again");
  }
  EXPECT_LE(launches.timeline.spans().size(), Timeline::kSpansMax);
  const std::map<std::int64_t, int> kept = launches.kept();
  for (const int step : {0, 1, 1999}) EXPECT_TRUE(kept.count(step)) << step;
  EXPECT_GE(kept.size(), 250u);
}

TEST(Timeline, KnowsThePeakOfMemoryThoughItsStepIsLeftOut) {
  Launches launches(1);
  const std::int64_t steps = 4 * std::int64_t(Timeline::kLevelsMax), fullest = steps / 2 + 1;
  for (std::int64_t step = 0; step < steps; ++step) {
    launches.run(step, step + 1);
    runtime::BytesByTag bytes{};
    bytes[0] = std::size_t(step == fullest ? 1000 : step % 2);
    launches.timeline.holds(0, step * 10, bytes);
  }
  EXPECT_LE(launches.timeline.memory().size(), Timeline::kLevelsMax);
  EXPECT_EQ(launches.timeline.memory_peak(0).total(), 1000u);
  EXPECT_EQ(launches.timeline.memory_peak(0).at, fullest * 10);
}

// The job starts again: other queues of the same names go on in the same lanes, the devices are empty, and a step that
// is made again is another part.
TEST(Timeline, GoesOnWhereAJobStartsAgain) {
  Launches launches(10);
  launches.run(0, 3);
  runtime::BytesByTag bytes{};
  bytes[0] = 7;
  launches.timeline.holds(0, 300, bytes);
  Timeline before = std::exchange(launches.timeline, Timeline(1));
  launches.timeline.go_on(std::move(before), 1000);
  EXPECT_EQ(launches.timeline.memory().back().total(), 0u);
  runtime::SteppedQueue other(launches.nobody, "one", 0);
  Op op;
  op.rank = 0;
  op.step = 1;
  launches.timeline.ran(other, 0, op, 1000, 1010);
  EXPECT_EQ(launches.timeline.lanes().size(), 1u);
  EXPECT_EQ(launches.timeline.parts().size(), 5u) << "three steps, what is before the first one, step 1 again";
  EXPECT_NE(launches.timeline.spans().back().part, launches.timeline.spans()[10].part);
}

// A stage of a pipeline hands its activations on: one message of an operation that consists of messages.
TEST(Timeline, DrawsTheMessagesOfOperationsToo) {
  WorldPlan plan = spread_world(2);
  plan.timeline = true;
  World world(plan);
  send_one_message(world, OpKind::send_activation);
  ASSERT_EQ(world.timeline()->arrows().size(), 1u);
  const Timeline::Arrow& arrow = world.timeline()->arrows().front();
  EXPECT_EQ(world.timeline()->lanes()[arrow.from].rank, 0);
  EXPECT_EQ(world.timeline()->lanes()[arrow.to].rank, 1);
  EXPECT_LT(arrow.sent, arrow.received);
}

// Another queue comes to stand where one was: it has a lane of its own, and each queue keeps its lane.
TEST(Timeline, KnowsALaneByItsQueueAndItsName) {
  Nobody nobody;
  Timeline timeline(1);
  std::optional<runtime::SteppedQueue> one(std::in_place, nobody, "one", 0);
  runtime::SteppedQueue two(nobody, "two", 0), other_two(nobody, "two", 0);
  for (const runtime::Queue* queue :
       {static_cast<const runtime::Queue*>(&*one), static_cast<const runtime::Queue*>(&two),
        static_cast<const runtime::Queue*>(&other_two), static_cast<const runtime::Queue*>(&*one)})
    timeline.ran(*queue, 0, Op{}, 0, 1);
  one.emplace(nobody, "another", 0);
  timeline.ran(*one, 0, Op{}, 1, 2);
  std::vector<std::string> names;
  for (const Timeline::Span& span : timeline.spans()) names.push_back(timeline.lanes()[span.lane].name);
  EXPECT_EQ(names, (std::vector<std::string>{"one", "two", "two", "one", "another"}));
  EXPECT_EQ(timeline.lanes().size(), 4u);
}

}  // namespace
}  // namespace seeksim::sim
