// Faults of values: which launch a rule is about, what it puts into memory, in which order, and how often.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "faults/value_fault.h"
#include "tests/support/manual_seams.h"

namespace seeksim::faults::test {

namespace {

// Runs what is enqueued at once, and keeps the Ops in order.
class RunningQueue final : public Queue {
 public:
  void enqueue_kernel(const Op& op, Cost, const Closure& closure, std::span<const Range>) override {
    sites.emplace_back(op.site);
    Closure run = closure;
    run(kernels::Lane{});
  }
  void enqueue_activity(const Op&, Activity&, std::span<const Range>) override {}
  void activity_done(Activity&) override {}
  Event record() override { return {this, sites.size()}; }
  void wait(const Event&) override {}
  bool done(const Event&) const override { return true; }
  const char* name() const override { return "running"; }

  std::vector<std::string> sites;
};

// Four floats of a kind of memory.
struct Memory {
  explicit Memory(MemoryTag tag) {
    buffer.data = reinterpret_cast<std::byte*>(values);
    buffer.bytes = sizeof values;
    buffer.tag = tag;
  }
  Memory(const Memory&) = delete;
  VecView<float> view() { return vec<float>(buffer, 0, 4); }
  alignas(16) float values[4] = {1, 2, 3, 4};
  Buffer buffer;
};

Op launch_of(Phase phase, const char* tensor = "x", OpKind kind = OpKind::compute) {
  Op op = of_kind(kind, 0, 3, phase);
  op.tensor = tensor;
  op.site = "here";
  return op;
}

Rule at_site(FaultKind kind, Site site) {
  Rule r = rule(kind);
  r.site = site;
  return r;
}

// One rank's compute queue with rules.
struct Struck {
  explicit Struck(std::vector<Rule> rules) {
    for (const Rule& r : rules) states.emplace_back(r, states.size(), 1, 0);
    for (RuleState& state : states) pointers.push_back(&state);
    queue = std::make_unique<FaultyQueue>(0, device, inner, clock, host, pointers, last);
  }
  // out[i] = in[i]
  void copy(const Op& op, Memory& in, Memory& out) {
    queue->launch(
        op, Cost{},
        [](kernels::Lane, kernels::Vec<const float> x, kernels::Vec<float> y) {
          std::copy(x.data, x.data + x.n, y.data);
        },
        reads(in.view()), out.view());
  }
  std::deque<RuleState> states;
  std::vector<RuleState*> pointers;
  ManualClock clock;
  FixedDevice device;
  RunningQueue inner;
  FaultPlan::Watcher nobody;
  HostFaults host{0, clock, {}, nobody};
  LastOps last;
  std::unique_ptr<FaultyQueue> queue;
};

}  // namespace

TEST(ValueFaultTarget, EachSiteIsItsMemoryAtItsPointOfTheStep) {
  struct Row {
    Site site;
    Phase phase;
    const char* tensor;
    MemoryTag tag;
    bool write;
    bool before;
  };
  const Row rows[] = {
      {Site::activation, Phase::forward, "gelu", MemoryTag::activations, true, false},
      {Site::activation_gradient, Phase::backward, "attention", MemoryTag::activations, true, false},
      {Site::loss, Phase::forward, "losses", MemoryTag::activations, true, false},
      {Site::parameter, Phase::forward, "wte.weight", MemoryTag::parameters, false, true},
      {Site::parameter, Phase::forward, "wte.weight", MemoryTag::gathered, false, true},
      {Site::gradient, Phase::backward, "wte.weight", MemoryTag::partial_sums, true, false},
      {Site::gradient, Phase::backward, "wte.weight", MemoryTag::communication, true, false},
      {Site::gradient, Phase::backward, "wte.weight", MemoryTag::gradients, true, false},
      {Site::reduced_gradient, Phase::grad_reduce, "gradients", MemoryTag::gradients, false, true},
      {Site::optimizer_state, Phase::optimizer, "wte.weight", MemoryTag::optimizer, true, true},
  };
  for (const Row& row : rows) {
    Memory memory(row.tag);
    Range range = memory.view().range();
    range.write = row.write;
    const Rule r = at_site(FaultKind::nan_inject, row.site);
    const auto target = target_of(r, launch_of(row.phase, row.tensor), {&range, 1});
    ASSERT_TRUE(target) << name(row.site);
    EXPECT_EQ(target->before, row.before) << name(row.site);
    EXPECT_EQ(target->range.buffer, &memory.buffer);

    // Another phase, other memory, the other direction: not its site.
    EXPECT_FALSE(target_of(r, launch_of(Phase::init, row.tensor), {&range, 1})) << name(row.site);
    Memory other(MemoryTag::scratch);
    const Range elsewhere = other.view().range();
    EXPECT_FALSE(target_of(r, launch_of(row.phase, row.tensor), {&elsewhere, 1})) << name(row.site);
    range.write = !row.write;
    EXPECT_FALSE(target_of(r, launch_of(row.phase, row.tensor), {&range, 1})) << name(row.site);
  }
}

TEST(ValueFaultTarget, TokensAndCountsAreNoNumbersOfTheModel) {
  Memory memory(MemoryTag::activations);
  const Range tokens = vec<std::int32_t>(memory.buffer, 0, 4).range();
  EXPECT_FALSE(target_of(at_site(FaultKind::nan_inject, Site::activation), launch_of(Phase::forward), {&tokens, 1}));
  const Op load = launch_of(Phase::data, "tokens", OpKind::data_load);
  EXPECT_TRUE(target_of(rule(FaultKind::loss_spike), load, {&tokens, 1}));
  EXPECT_FALSE(target_of(rule(FaultKind::loss_spike), launch_of(Phase::forward), {&tokens, 1}));
  const Range none = vec<std::int32_t>(memory.buffer, 0, 0).range();
  const Range of_last_stage[] = {none, tokens};
  EXPECT_TRUE(target_of(rule(FaultKind::token_imbalance), load, {&tokens, 1}));
  EXPECT_FALSE(target_of(rule(FaultKind::token_imbalance), load, of_last_stage)) << "there only targets are loaded";
}

TEST(ValueFault, AnActivationIsStruckAfterItIsWritten) {
  Rule nan = at_site(FaultKind::nan_inject, Site::activation);
  nan.element = 6;  // modulo 4: the third
  Struck struck({nan});
  Memory in(MemoryTag::activations), out(MemoryTag::activations);
  struck.copy(launch_of(Phase::forward), in, out);
  EXPECT_EQ(struck.inner.sites, (std::vector<std::string>{"here", "fault"}));
  EXPECT_TRUE(std::isnan(out.values[2]));
  EXPECT_EQ(out.values[1], 2.0f);
  EXPECT_EQ(out.values[3], 4.0f);
  EXPECT_EQ(in.values[2], 3.0f);
  EXPECT_EQ(struck.states[0].status().fired, 1u);
}

TEST(ValueFault, AParameterIsStruckBeforeItIsReadAndStaysSo) {
  Rule flip = at_site(FaultKind::bit_flip, Site::parameter);
  flip.bit = 31;
  Struck struck({flip});
  Memory in(MemoryTag::parameters), out(MemoryTag::activations);
  struck.copy(launch_of(Phase::forward), in, out);
  EXPECT_EQ(struck.inner.sites, (std::vector<std::string>{"fault", "here"}));
  EXPECT_EQ(in.values[0], -1.0f);
  EXPECT_EQ(out.values[0], -1.0f);
}

TEST(ValueFault, StrikesAsOftenAsItSaysAndOnlyWhereItSays) {
  Rule nan = at_site(FaultKind::inf_inject, Site::activation);
  nan.when.layer = 2;
  nan.when.tensor = "gelu";
  nan.when.step = 3;
  nan.negative = true;
  Struck struck({nan});
  Memory in(MemoryTag::activations), out(MemoryTag::activations);
  Op op = launch_of(Phase::forward, "gelu");
  op.layer = 1;
  struck.copy(op, in, out);
  op.layer = 2;
  op.tensor = "attention";
  struck.copy(op, in, out);
  EXPECT_EQ(out.values[0], 1.0f);
  op.tensor = "gelu";
  struck.copy(op, in, out);
  EXPECT_EQ(out.values[0], -INFINITY);
  struck.copy(op, in, out);  // its one time is over
  EXPECT_EQ(out.values[0], 1.0f);
}

TEST(ValueFault, ANumberTooLargeForFp16IsInfiniteThereAndFiniteInBf16) {
  const Rule over = at_site(FaultKind::overflow, Site::activation);
  const Rule full = with_defaults(over);
  Memory memory(MemoryTag::activations);
  RunningQueue queue;
  strike(queue, launch_of(Phase::forward), full, vec<kernels::fp16>(memory.buffer, 0, 4).range());
  std::uint16_t bits = 0;
  std::memcpy(&bits, memory.values, 2);
  EXPECT_EQ(bits, 0x7c00);  // +infinity
  strike(queue, launch_of(Phase::forward), full, vec<kernels::bf16>(memory.buffer, 0, 4).range());
  std::memcpy(&bits, memory.values, 2);
  EXPECT_EQ(std::bit_cast<float>(std::uint32_t(bits) << 16), 65536.0f);
  strike(queue, launch_of(Phase::forward), full, memory.view().range());
  EXPECT_EQ(memory.values[0], 65520.0f);
}

TEST(ValueFault, ABitOfA16BitNumberIsOneOfSixteen) {
  Rule flip = with_defaults(at_site(FaultKind::bit_flip, Site::activation));
  flip.bit = 16 + 15;
  flip.element = 1;
  Memory memory(MemoryTag::activations);
  std::uint16_t before[8], after[8];
  std::memcpy(before, memory.values, 16);
  RunningQueue queue;
  strike(queue, launch_of(Phase::forward), flip, vec<kernels::bf16>(memory.buffer, 0, 8).range());
  std::memcpy(after, memory.values, 16);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(before[i] ^ after[i], i == 1 ? 0x8000 : 0);
}

TEST(ValueFault, ATileEndsWithItsTensor) {
  Rule tile = with_defaults(at_site(FaultKind::zero_tile, Site::activation));
  tile.element = 1;
  Memory memory(MemoryTag::activations);
  RunningQueue queue;
  strike(queue, launch_of(Phase::forward), tile, vec<float>(memory.buffer, 0, 3).range());
  EXPECT_EQ(memory.values[0], 1.0f);
  EXPECT_EQ(memory.values[1], 0.0f);
  EXPECT_EQ(memory.values[2], 0.0f);
  EXPECT_EQ(memory.values[3], 4.0f);
}

TEST(ValueFault, ABadBatchHasOneTargetEverywhere) {
  Rule spike = rule(FaultKind::loss_spike);
  spike.token = 7;
  Struck struck({spike});
  Memory inputs(MemoryTag::data), targets(MemoryTag::data);
  const auto load = [&] {
    struck.queue->launch(
        launch_of(Phase::data, "tokens", OpKind::data_load), Cost{},
        [](kernels::Lane, kernels::Vec<std::int32_t> x, kernels::Vec<std::int32_t> y) { x[0] = y[0] = 1; },
        vec<std::int32_t>(inputs.buffer, 0, 4), vec<std::int32_t>(targets.buffer, 0, 4));
  };
  load();
  std::int32_t tokens[4], input = 0;
  std::memcpy(tokens, targets.values, sizeof tokens);
  std::memcpy(&input, inputs.values, sizeof input);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tokens[i], 7);
  EXPECT_EQ(input, 1);
}

TEST(ValueFault, ABatchOfPaddingHasOneTokenEverywhereAndItsTargets) {
  Rule padding = rule(FaultKind::token_imbalance);
  padding.token = 7;
  Struck struck({padding});
  Memory inputs(MemoryTag::data), targets(MemoryTag::data);
  struck.queue->launch(
      launch_of(Phase::data, "tokens", OpKind::data_load), Cost{},
      [](kernels::Lane, kernels::Vec<std::int32_t> x, kernels::Vec<std::int32_t> y) { x[0] = y[0] = 1; },
      vec<std::int32_t>(inputs.buffer, 0, 4), vec<std::int32_t>(targets.buffer, 0, 4));
  std::int32_t tokens[4], target = 0;
  std::memcpy(tokens, inputs.values, sizeof tokens);
  std::memcpy(&target, targets.values, sizeof target);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tokens[i], 7);
  EXPECT_EQ(target, 1);
}

TEST(ValueFault, AFlippedBitOfAMessageIsNoticedByNobody) {
  Rule flip = at_site(FaultKind::bit_flip, Site::message);
  flip.when.rank = 0;
  flip.bit = 9;
  Bench bench({flip});
  bool struck = false;
  for (const Piece& piece : bench.exchange(0, reduction(0, 1)).pieces) {
    if (piece.fate == nullptr) continue;
    struck = true;
    EXPECT_TRUE(piece.fate->corrupt);
    EXPECT_FALSE(piece.fate->checksum);
    EXPECT_EQ(piece.fate->corrupt_bit, 9u);
  }
  EXPECT_TRUE(struck);
}

TEST(ValueFault, OnlyItsRankGetsOtherQueues) {
  Rule nan = rule(FaultKind::nan_inject);
  nan.when.rank = 1;
  Bench bench({nan});
  EXPECT_EQ(&bench.seams[0].device, &bench.inner[0].device);
  EXPECT_NE(&bench.seams[1].device, &bench.inner[1].device);
  EXPECT_EQ(&bench.seams[1].device.compute_queue().underlying(), &bench.inner[1].device.queue);
}

TEST(StaleGradient, AnUpdateGetsThoseOfAnEarlierStepItsOwnTwiceOrNone) {
  for (const Mode mode : {Mode::delayed_apply, Mode::dup_apply, Mode::drop}) {
    Rule r = rule(FaultKind::stale_gradient);
    r.when.step = 3;
    r.mode = mode;
    r.staleness = 2;
    Struck struck({r});
    Memory gradients(MemoryTag::gradients), out(MemoryTag::scratch);
    for (int step = 0; step < 5; ++step) {
      for (int i = 0; i < 4; ++i) gradients.values[i] = float(10 * step + i);
      Op op = launch_of(Phase::grad_reduce, "gradients");
      op.step = step;
      struck.copy(op, gradients, out);
      const float applied = mode == Mode::delayed_apply ? 12.0f : mode == Mode::dup_apply ? 64.0f : 0.0f;
      EXPECT_EQ(out.values[2], step == 3 ? applied : float(10 * step + 2)) << name(mode) << " step " << step;
    }
    EXPECT_EQ(struck.states[0].status().fired, 1u);
  }
}

}  // namespace seeksim::faults::test
