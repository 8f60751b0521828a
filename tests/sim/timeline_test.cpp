// What a world records of its queues and hosts: messages between two ranks, what is cut short, and how much is kept.
#include "sim/timeline.h"

#include <algorithm>
#include <optional>

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

TEST(Timeline, ForgetsTheOldestAndCountsThem) {
  Timeline timeline(1);
  for (std::size_t i = 0; i < Timeline::kSpansMax + 10; ++i)
    timeline.waited(0, Blocked::event, runtime::TimeNs(i), runtime::TimeNs(i) + 1);
  EXPECT_EQ(timeline.spans().size(), Timeline::kSpansMax);
  EXPECT_EQ(timeline.forgotten(), 10u);
  EXPECT_EQ(timeline.spans().front().begin, 10);
  timeline.cut(0, 5);  // finds its newest span though many are gone
  EXPECT_EQ(timeline.spans().back().state, runtime::RecordState::aborted);
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
  struct Nobody final : runtime::Executor {
    void make_ready(runtime::SteppedQueue&) override {}
    void step_after(runtime::SteppedQueue&, runtime::TimeNs) override {}
    runtime::TimeNs duration(const runtime::SteppedQueue&, const Op&, runtime::Cost) override { return 0; }
    void host_place_reached(runtime::SteppedQueue&) override {}
    void kernel_failed(runtime::SteppedQueue&, const Op&, std::string_view) override {}
  } nobody;
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
