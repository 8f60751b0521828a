// Queues, events and memory of a device: CUDA's semantics in virtual time.
#include "runtime/host/stepped_queue.h"

#include "faults/forwarding.h"
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::kPoisonAborted;
using runtime::kPoisonFresh;

void add_one(Rank& rank, runtime::Queue& queue, const BufferPtr& b, double flops = 50e9) {
  queue.launch(
      op_of(rank, OpKind::compute, 1), {flops, 0}, [](kernels::Lane, kernels::Vec<float> v) { v[0] += 1; },
      vec<float>(*b));
}

WorldResult alone(const std::function<void(Rank&)>& body) {
  World world(small_world(1));
  const WorldResult result = world.run(body);
  EXPECT_TRUE(all_returned(result));
  return result;
}

TEST(Queue, EffectsLandAtTheVirtualCompletion) {
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    add_one(rank, rank.device.compute_queue(), b);  // 1 ms
    const Event done = rank.device.compute_queue().record();
    EXPECT_EQ(at(b, 0), 0.0f);
    EXPECT_EQ(rank.device.wait(done, rank.clock.now() + kMicrosecond, 0), runtime::WaitResult::timed_out);
    EXPECT_EQ(at(b, 0), 0.0f);
    EXPECT_FALSE(rank.device.compute_queue().done(done));
    EXPECT_EQ(rank.device.wait(done, kSecond, 0), runtime::WaitResult::done);
    EXPECT_EQ(at(b, 0), 1.0f);
    EXPECT_NEAR(double(rank.clock.now()), 1e6, 1e5);
  });
}

TEST(Queue, RunsInOrderAndAnEventIsAPlaceInIt) {
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    runtime::Queue& q = rank.device.compute_queue();
    EXPECT_TRUE(q.done(q.record()));
    EXPECT_TRUE(q.done(Event{}));
    std::vector<Event> events;
    for (int i = 0; i < 10; ++i) {
      q.launch(
          op_of(rank, OpKind::compute, 1), {1e6, 0},
          [i](kernels::Lane, kernels::Vec<float> v) { v[0] = v[0] * 10 + float(i); }, vec<float>(*b));
      events.push_back(q.record());
    }
    EXPECT_EQ(rank.device.wait(events[3], kSecond, 0), runtime::WaitResult::done);
    EXPECT_EQ(at(b, 0), 123.0f);
    EXPECT_TRUE(q.done(events[2]));
    EXPECT_FALSE(q.done(events[4]));
    rank.device.drain();
    EXPECT_TRUE(q.done(events[9]));
  });
}

TEST(Queue, AWaitHoldsBackItsQueueAndNotTheHost) {
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    add_one(rank, rank.device.compute_queue(), b, 500e9);
    rank.device.copy_queue().wait(rank.device.compute_queue().record());
    BufferPtr seen = floats(rank, 1);
    rank.device.copy_queue().launch(
        op_of(rank, OpKind::copy, 1), {1, 0},
        [](kernels::Lane, kernels::Vec<const float> from, kernels::Vec<float> to) { to[0] = from[0]; },
        reads(vec<float>(*b)), vec<float>(*seen));
    EXPECT_EQ(rank.clock.now(), 0);
    rank.device.drain();
    EXPECT_EQ(at(seen, 0), 1.0f);
  });
}

TEST(Queue, WithoutTheWaitTheReaderComesTooEarly) {  // the test above, seen to fail
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1), seen = floats(rank, 1);
    add_one(rank, rank.device.compute_queue(), b, 500e9);
    rank.device.copy_queue().launch(
        op_of(rank, OpKind::copy, 1), {1, 0},
        [](kernels::Lane, kernels::Vec<const float> from, kernels::Vec<float> to) { to[0] = from[0]; },
        reads(vec<float>(*b)), vec<float>(*seen));
    rank.device.drain();
    EXPECT_EQ(at(seen, 0), 0.0f);
  });
}

TEST(Queue, HoldsThousandsOfItemsOfAllSizes) {
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    runtime::Queue& q = rank.device.compute_queue();
    std::uint64_t enqueued = 0;
    for (int round = 0; round < 50; ++round) {
      for (int i = 0; i < (round * 7) % 40; ++i) {
        struct Big {
          double numbers[30];
        } big{};
        big.numbers[29] = 1;
        if (i % 3 == 0)
          q.launch(
              op_of(rank, OpKind::compute, 1), {1e5, 0},
              [big](kernels::Lane, kernels::Vec<float> v) { v[0] += float(big.numbers[29]); }, vec<float>(*b));
        else
          q.launch(
              op_of(rank, OpKind::compute, 1), {1e5, 0}, [](kernels::Lane, kernels::Vec<float> v) { v[0] += 1; },
              vec<float>(*b));
        ++enqueued;
      }
      Event place = q.record();
      place.place -= std::min<std::uint64_t>(place.place, std::uint64_t(round % 5));  // leaves some behind
      EXPECT_EQ(rank.device.wait(place, runtime::kForever, 0), runtime::WaitResult::done);
    }
    rank.device.drain();
    EXPECT_EQ(at(b, 0), float(enqueued));
  });
}

TEST(Queue, AFailedKernelShowsAtTheHostsWait) {
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    runtime::Queue& q = rank.device.compute_queue();
    q.launch(op_of(rank, OpKind::compute, 7), {1, 0},
             [](kernels::Lane) { throw std::runtime_error("illegal address"); });
    add_one(rank, q, b);
    std::string text;
    EXPECT_EQ(failure_of([&] { rank.wait(q.record(), op_of(rank, OpKind::compute, 8), kSecond, {}); }, &text),
              ErrorKind::closure);
    EXPECT_NE(text.find("illegal address"), std::string::npos);
    rank.device.drain();
    rank.wait(q.record(), op_of(rank, OpKind::compute, 8), kSecond, {});
  });
}

// A device three times as slow as the one it wraps: what a straggler fault does.
class Slower final : public faults::ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  runtime::TimeNs duration(const Op& op, runtime::Cost cost) const override { return 3 * inner_.duration(op, cost); }
};

TEST(Queue, LaunchesTakeWhatTheDecoratedDeviceSays) {
  runtime::TimeNs took[2] = {};
  std::vector<std::unique_ptr<Slower>> slower;
  WorldPlan plan = small_world(2);
  plan.noise = 0;
  World world(plan);
  world.decorate([&](int rank, runtime::Seams inner) {
    if (rank == 0) return inner;
    slower.push_back(std::make_unique<Slower>(inner.device));
    return runtime::Seams{inner.clock, *slower.back(), inner.transport, inner.storage, inner.control};
  });
  EXPECT_TRUE(all_returned(world.run([&](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    add_one(rank, rank.device.compute_queue(), b);
    rank.device.drain();
    took[rank.id] = rank.clock.now();
  })));
  EXPECT_EQ(took[0], 1'004'000);  // 1 ms and the launch
  EXPECT_EQ(took[1], 3 * took[0]);
}

TEST(Abort, CompletesPendingWorkInOrderOverGarbage) {
  World world(small_world(2));
  const WorldResult result = world.run([&](Rank& rank) {
    const Comm comm = make_comm(rank);
    if (rank.id == 1) return;
    BufferPtr b = floats(rank, 4, 1.0f), copy = floats(rank, 4);
    const Op op = op_of(rank, OpKind::recv, 1);
    exchange(rank, comm, op, {receive_from(1, b, 1, 2)});
    exchange(rank, comm, op_of(rank, OpKind::recv, 2), {receive_from(1, b, 3, 1)});  // not started when the abort comes
    rank.device.communication_queue().launch(
        op, {1e6, 0},
        [](kernels::Lane, kernels::Vec<const float> from, kernels::Vec<float> to) {
          for (int i = 0; i < 4; ++i) to[i] = from[i];
        },
        reads(vec<float>(*b)), vec<float>(*copy));
    const Event done = rank.device.communication_queue().record();
    EXPECT_EQ(failure_of([&] { rank.wait(done, op, kSecond, comm); }), ErrorKind::timeout);
    const Comm comms[] = {comm};
    EXPECT_EQ(rank.transport.abort(comms), CommResult::success);
    EXPECT_EQ(rank.device.wait(done, kSecond * 10, 0), runtime::WaitResult::done);  // "done", and worth nothing
    EXPECT_EQ(word(b, 1), kPoisonAborted);
    EXPECT_EQ(word(b, 2), kPoisonAborted);
    EXPECT_EQ(word(b, 3), kPoisonAborted);
    EXPECT_EQ(at(b, 0), 1.0f);
    EXPECT_EQ(word(copy, 1), kPoisonAborted);  // the kernel behind ran, on garbage
    EXPECT_NE(failure_of([&] { rank.wait(done, op, kSecond, comm); }),
              ErrorKind::count_);  // Rank::wait does not trust it
  });
  EXPECT_TRUE(all_returned(result));
}

TEST(Memory, IsPoisonedCountedAndLimited) {
  WorldPlan plan = small_world(1);
  plan.device.capacity_bytes = 1000;
  World world(plan);
  const WorldResult result = world.run([&](Rank& rank) {
    runtime::Device& d = rank.device;
    BufferPtr a = d.allocate(400, MemoryTag::parameters, "a");
    EXPECT_EQ(word(a, 99), kPoisonFresh);
    {
      BufferPtr b = d.allocate(500, MemoryTag::gradients, "b");
      EXPECT_EQ(d.use_total().now, 900u);
      std::string text;
      EXPECT_EQ(failure_of([&] { d.allocate(101, MemoryTag::gradients, "grads"); }, &text), ErrorKind::out_of_memory);
      EXPECT_NE(text.find("101"), std::string::npos) << text;
      EXPECT_NE(text.find("100"), std::string::npos) << text;
    }
    EXPECT_EQ(d.use_total().now, 400u);
    EXPECT_EQ(d.use_total().peak, 900u);
    EXPECT_EQ(d.use(MemoryTag::gradients).peak, 500u);
    EXPECT_EQ(d.use(MemoryTag::gradients).now, 0u);
  });
  EXPECT_TRUE(all_returned(result));
  EXPECT_EQ(result.memory_peak, 900u);
  EXPECT_EQ(result.memory_peak_by_tag[std::size_t(MemoryTag::parameters)], 400u);
}

TEST(Memory, ReleasedUnderPendingWorkItStaysUntilThatIsOver) {
  alone([](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    add_one(rank, rank.device.compute_queue(), b);
    b.reset();  // asan would see the kernel write to freed memory
    EXPECT_EQ(rank.device.use_total().now, 0u);
    rank.device.drain();
  });
}

TEST(Memory, ItsReleaseBeforeTheEndOfTheHostIsEnough) {
  World world(small_world(1));
  world.run([&](Rank& rank) {
    BufferPtr b = floats(rank, 1);
    add_one(rank, rank.device.compute_queue(), b);  // the host leaves without waiting
  });
}

}  // namespace
}  // namespace seeksim::sim
