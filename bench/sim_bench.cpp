// The cost of the simulator on one core: collectives and messages a second, memory of an idle rank, a long timeout, the
// start of a world. Prints one table. Compare it with SimGrid SMPI in the same minute on the same core.
//   taskset -c 1 bench_sim_bench [ranks...]
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "faults/plan.h"
#include "kernels/pointwise.h"
#include "runtime/seams/rank.h"
#include "sim/world.h"

namespace {

using namespace seeksim;
using runtime::Op;
using runtime::OpKind;
using runtime::Rank;
using runtime::vec;

constexpr std::size_t kFloats = 256;  // 1 KiB

// CPU time of this thread: the machine may be shared.
double now_s() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

sim::WorldPlan plan_of(int ranks) {
  sim::WorldPlan plan;
  plan.ranks_per_node = ranks < 8 ? ranks : 8;
  plan.nodes = ranks / plan.ranks_per_node;
  return plan;
}

runtime::Comm everybody(Rank& rank) {
  runtime::CommSpec spec;
  spec.id = 1;
  spec.members.resize(std::size_t(rank.world_size));
  std::iota(spec.members.begin(), spec.members.end(), 0);
  Op op;
  op.kind = OpKind::comm_create;
  op.rank = rank.id;
  return rank.transport.create(op, spec, runtime::kForever);
}

Op op_of(const Rank& rank, OpKind kind, std::uint64_t sequence) {
  Op op;
  op.kind = kind;
  op.rank = rank.id;
  op.step = std::int64_t(sequence);
  op.sequence = sequence;
  op.bytes = kFloats * sizeof(float);
  op.tensor = "bench";
  return op;
}

// Seconds from the first operation of rank 0 to its last.
struct Timed {
  double seconds = 0;
  std::uint64_t switches = 0;
  runtime::TimeNs virtual_ns = 0;
};

Timed native(int ranks, int calls) {
  sim::World world(plan_of(ranks));
  double begin = 0, end = 0;
  const sim::WorldResult result = world.run([&](Rank& rank) {
    const runtime::Comm comm = everybody(rank);
    const auto in = rank.device.allocate(kFloats * 4, runtime::MemoryTag::scratch, "in");
    const auto out = rank.device.allocate(kFloats * 4, runtime::MemoryTag::scratch, "out");
    for (std::size_t i = 0; i < kFloats; ++i) vec<float>(*in).get()[kernels::Index(i)] = 1.0f;
    const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*in)};
    runtime::Queue& queue = rank.device.communication_queue();
    for (int i = 1; i <= calls; ++i) {
      if (rank.id == 0 && i == calls / 10 + 1) begin = now_s();  // warm by then
      const Op op = op_of(rank, OpKind::all_reduce, std::uint64_t(i));
      if (rank.transport.has_native(comm, op))
        rank.transport.tree_all_reduce(queue, comm, op, {{&part, 1}, rank.world_size, 1.0f, vec<float>(*out)});
      rank.wait(queue.record(), op, 600 * runtime::kSecond, comm);
    }
    if (rank.id == 0) end = now_s();
    if (vec<float>(*out).get()[0] != float(rank.world_size)) std::abort();
  });
  return {(end - begin) * calls / (calls - calls / 10), result.switches, result.virtual_ns};
}

// Recursive doubling: one message sent and one received by each rank a round.
Timed messages(int ranks, int calls) {
  int rounds = 0;
  while ((1 << rounds) < ranks) ++rounds;
  sim::World world(plan_of(ranks));
  double begin = 0, end = 0;
  const sim::WorldResult result = world.run([&](Rank& rank) {
    const runtime::Comm comm = everybody(rank);
    const auto b = rank.device.allocate(2 * kFloats * 4, runtime::MemoryTag::scratch, "buffer");
    runtime::Queue& queue = rank.device.communication_queue();
    std::uint64_t sequence = 0;
    for (int i = 0; i < calls; ++i) {
      if (rank.id == 0 && i == calls / 10) begin = now_s();
      for (int round = 0; round < rounds; ++round) {
        const int peer = rank.id ^ (1 << round);
        const Op op = op_of(rank, OpKind::all_gather, ++sequence);
        const runtime::Piece pieces[] = {{peer, true, b.get(), 0, kFloats * 4},
                                         {peer, false, b.get(), kFloats * 4, kFloats * 8}};
        rank.transport.exchange(queue, comm, op, pieces);
        rank.wait(queue.record(), op, 600 * runtime::kSecond, comm);
      }
    }
    if (rank.id == 0) end = now_s();
  });
  return {(end - begin) * calls / (calls - calls / 10), result.switches, result.virtual_ns};
}

double resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::atof(line.c_str() + 6);
  return 0;
}

void idle_ranks(int ranks) {
  const double before = resident_kib();
  double held = 0;
  const double begin = now_s();
  {
    sim::World world(plan_of(ranks));
    world.run([&](Rank& rank) {
      rank.clock.sleep_until(runtime::kSecond);
      if (rank.id == 0) held = resident_kib();
      rank.clock.sleep_until(2 * runtime::kSecond);
    });
  }
  fmt::print("idle ranks        {:6}  {:8.1f} KiB a rank resident; start to end {:.2f} ms\n", ranks,
             (held - before) / ranks, (now_s() - begin) * 1e3);
}

void long_timeout() {
  const double begin = now_s();
  sim::World world(plan_of(8));
  const sim::WorldResult result = world.run([&](Rank& rank) {
    const runtime::Comm comm = everybody(rank);
    if (rank.id == 5) rank.clock.sleep_until(runtime::kForever);
    const auto b = rank.device.allocate(kFloats * 4, runtime::MemoryTag::scratch, "b");
    const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b)};
    const Op op = op_of(rank, OpKind::all_reduce, 1);
    runtime::Queue& queue = rank.device.communication_queue();
    rank.transport.tree_all_reduce(queue, comm, op, {{&part, 1}, 8, 1.0f, vec<float>(*b)});
    try {
      rank.wait(queue.record(), op, 1800 * runtime::kSecond, comm);
    } catch (const runtime::SeamError&) {
    }
    const runtime::Comm comms[] = {comm};
    rank.transport.abort(comms);
    rank.device.drain();
  });
  fmt::print("30 minutes' timeout of 8 ranks: {:.0f} s virtual in {:.2f} ms\n", double(result.virtual_ns) * 1e-9,
             (now_s() - begin) * 1e3);
}

void worlds(int ranks, int count) {
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    sim::World world(plan_of(ranks));
    world.run([](Rank& rank) { rank.clock.sleep_until(1); });
  }
  fmt::print("a world           {:6}  {:8.3f} ms from construction to end\n", ranks, (now_s() - begin) / count * 1e3);
}

// One fault plan without numerics: a fresh world of 8 ranks and 100 collectives, with one drawn fault. A rank that
// waits in vain notices at a deadline, and all stop there.
void plans(int count) {
  using faults::FaultKind;
  constexpr int kRanks = 8, kCalls = 100;
  constexpr FaultKind kinds[] = {FaultKind::collective_timeout, FaultKind::straggler,    FaultKind::rank_crash,
                                 FaultKind::link_drop,          FaultKind::message_drop, FaultKind::slow_link};
  std::uint64_t fired = 0, cut_short = 0;
  const double begin = now_s();
  for (int i = 0; i < count; ++i) {
    faults::Rule rule;
    rule.kind = kinds[std::size_t(i) % std::size(kinds)];
    const bool of_link = rule.kind == FaultKind::link_drop || rule.kind == FaultKind::slow_link;
    if (of_link) {
      rule.from = i % kRanks;
      rule.to = (i + 1) % kRanks;
    } else {
      rule.when.rank = i % kRanks;
      rule.when.step = 1 + i % kCalls;
    }
    faults::FaultPlan plan({faults::with_defaults(rule)}, std::uint64_t(i), std::vector<int>(kRanks, 0));
    sim::WorldPlan world_plan = plan_of(kRanks);
    world_plan.seed = std::uint64_t(i);
    sim::World world(world_plan);
    world.decorate([&plan](int rank, runtime::Seams inner) { return plan.decorate(rank, inner); });
    bool ended = false;
    world.run([&](Rank& rank) {
      const runtime::Comm comm = everybody(rank);
      const auto b = rank.device.allocate(2 * kFloats * 4, runtime::MemoryTag::scratch, "b");
      const runtime::TreeReduceSlice part{{0, rank.id}, vec<float>(*b, 0, kFloats)};
      runtime::Queue& queue = rank.device.communication_queue();
      const Op init = op_of(rank, OpKind::all_reduce, 0);
      rank.device.compute_queue().launch(
          init, {}, [](kernels::Lane lane, kernels::Vec<float> x) { kernels::fill_bits(lane, x, 0); }, vec<float>(*b));
      rank.device.drain();
      try {
        for (int call = 1; call <= kCalls; ++call) {
          const Op op = op_of(rank, OpKind::all_reduce, std::uint64_t(call));
          if (rank.transport.has_native(comm, op)) {
            rank.transport.tree_all_reduce(queue, comm, op,
                                           {{&part, 1}, kRanks, 1.0f, vec<float>(*b, kFloats, kFloats)});
          } else {  // messages round a ring
            const runtime::Piece pieces[] = {
                {(rank.id + 1) % kRanks, true, b.get(), 0, kFloats * 4},
                {(rank.id + kRanks - 1) % kRanks, false, b.get(), kFloats * 4, kFloats * 8}};
            rank.transport.exchange(queue, comm, op, pieces);
          }
          rank.wait(queue.record(), op, 60 * runtime::kSecond, comm);
        }
      } catch (const runtime::SeamError&) {
        ended = true;
      }
      const runtime::Comm comms[] = {comm};
      rank.transport.abort(comms);
      rank.device.drain();
    });
    fired += plan.status()[0].fired > 0;
    cut_short += ended;
  }
  const double s = now_s() - begin;
  fmt::print("fault plans       {:6}  {:8.0f} plans/s ({} of them fired, {} ended the run)\n", kRanks, count / s, fired,
             cut_short);
}

int per(int ranks, int budget) { return std::max(30, budget / ranks); }

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {8, 64, 512, 1024, 4096};
  idle_ranks(4096);  // first, while the heap has no free memory to reuse
  for (const int ranks : sizes) {
    const int calls = per(ranks, 1'200'000);
    const Timed t = native(ranks, calls);
    fmt::print("all-reduce 1 KiB  {:6}  {:8.3f} M rank-collectives/s  {:6.0f} ns  ({:.2f} switches)\n", ranks,
               double(ranks) * calls / t.seconds * 1e-6, t.seconds / (double(ranks) * calls) * 1e9,
               double(t.switches) / (double(ranks) * calls));
  }
  for (const int ranks : sizes) {
    int rounds = 0;
    while ((1 << rounds) < ranks) ++rounds;
    const int calls = std::max(4, 1'200'000 / ranks / rounds);
    const Timed t = messages(ranks, calls);
    const double count = double(ranks) * rounds * calls;
    fmt::print("exchange 1 KiB    {:6}  {:8.3f} M messages/s  {:6.0f} ns  ({:.2f} switches)\n", ranks,
               count / t.seconds * 1e-6, t.seconds / count * 1e9, double(t.switches) / count);
  }
  long_timeout();
  plans(3000);
  worlds(8, 200);
  worlds(1024, 5);
  return 0;
}
