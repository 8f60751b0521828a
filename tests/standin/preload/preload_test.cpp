// The library that is loaded before NCCL (pytorch/preload), over the stand-in: by the rules of a scenario a call of one
// rank reports an error, or does not return; all others are NCCL's own. Ranks are threads, each with rules of its own.

// The stand-in has NCCL's second names here, and this file means the first ones.
#undef ncclAllReduce
#undef ncclReduce
#undef ncclReduceScatter
#undef ncclSend
#undef ncclRecv

#include <dlfcn.h>

#include <atomic>
#include <memory>

#include "pytorch/core/rules.h"
#include "tests/standin/ranks_of_threads.h"

extern "C" void seeksim_nccl_asks(int (*ask)(const char*));

namespace seeksim::standin {
namespace {

using pytorch::Act;
using pytorch::OpName;
using pytorch::RuleKeys;
using pytorch::Rules;

constexpr int kRanks = 2;
constexpr std::size_t kN = 64;

thread_local Rules* own_rules = nullptr;
std::atomic<int> fired{0};

int ask(const char* operation) {
  if (own_rules == nullptr) return 0;
  pytorch::Situation s;
  s.act = Act::library_call;
  for (int op = 0; op < int(OpName::count_); ++op)
    if (pytorch::name(OpName(op)) == operation) s.op = OpName(op);
  const auto hits = own_rules->at(s);
  fired += int(hits.size());
  return pytorch::result_of(hits);
}

// Sums over two ranks, with a rule; what each call returned, by rank. struck: the call that one rank does not make, so
// that nobody may wait for it before all communicators are aborted.
std::vector<ncclResult_t> sums(const RuleKeys& rule, int calls, int struck = -1) {
  fired = 0;
  std::vector<ncclResult_t> results(std::size_t(kRanks * calls), ncclSuccess);
  seeksim_nccl_asks(ask);
  on_ranks(kRanks, [&](RankOfThreads& me) {
    std::vector<faults::Rule> rules;
    if (!rule.empty()) rules.push_back(pytorch::rule_of(rule));
    Rules mine(rules, 1, me.rank, kRanks);
    own_rules = &mine;
    const OnDevice<float> from(kN), to(kN);
    for (std::size_t i = 0; i < kN; ++i) from[i] = float(me.rank + 1);
    for (int call = 0; call < calls; ++call) {
      results[std::size_t(me.rank * calls + call)] =
          ncclAllReduce(from.get(), to.get(), kN, ncclFloat32, ncclSum, me.comm, me.stream);
      if (call == struck) break;
      EXPECT_EQ(settled(me.comm), ncclSuccess);
      EXPECT_EQ(cudaStreamSynchronize(me.stream), cudaSuccess);
      EXPECT_EQ(to[0], 3.0F);
    }
    own_rules = nullptr;
    EXPECT_EQ(ncclCommAbort(me.comm), ncclSuccess);
  });
  seeksim_nccl_asks(nullptr);
  return results;
}

bool is_well(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

TEST(Preload, HandsOnWhatNoRuleIsAbout) {
  for (const ncclResult_t result : sums({}, 3)) EXPECT_TRUE(is_well(result)) << result;
  const RuleKeys other = {{"kind", "device_error"}, {"rank", std::int64_t(1)}, {"op", "broadcast"}};
  for (const ncclResult_t result : sums(other, 3)) EXPECT_TRUE(is_well(result)) << result;
  EXPECT_EQ(fired, 0);
}

TEST(Preload, TheCallOfTheRuleReportsAnErrorOnItsRankAlone) {
  const RuleKeys rule = {
      {"kind", "device_error"}, {"rank", std::int64_t(1)}, {"op", "all_reduce"}, {"call", std::int64_t(2)}};
  const auto results = sums(rule, 2, 1);
  EXPECT_TRUE(is_well(results[0]) && is_well(results[1]) && is_well(results[2]));
  EXPECT_EQ(results[3], ncclUnhandledCudaError);
  EXPECT_EQ(fired, 1);
}

TEST(Preload, ACallThatNeverReturnsKeepsItsThread) {
  seeksim_nccl_asks([](const char*) { return -1; });
  std::atomic<bool> returned{false};
  std::thread stuck([&returned] {  // it stays until the process ends
    static_cast<void>(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, nullptr, nullptr));
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_FALSE(returned);
  stuck.detach();
  seeksim_nccl_asks(nullptr);
  pytorch::Rules::Hit hit;
  const faults::Rule rule = pytorch::rule_of({{"kind", "device_error"}, {"mode", "never"}});
  hit.rule = &rule;
  EXPECT_EQ(pytorch::result_of({hit}), -1);
}

}  // namespace
}  // namespace seeksim::standin
