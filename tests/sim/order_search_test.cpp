// The search over orders finds what all orders together find, in fewer runs; where it is blind to what steps share, it
// does not, and that shows.
#include "sim/order_search.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "sim/random.h"
#include "tests/sim/sim_test.h"

namespace seeksim::sim {
namespace {

using runtime::Ballot;

// What happens to ranks: each appends what it sees.
using Body = std::function<void(Rank&, std::vector<int>&)>;
using Received = std::vector<std::vector<int>>;

struct Seen {
  std::set<Received> outcomes;
  std::set<std::uint64_t> decisions;
  OrderSearch::Counts counts;
  bool complete = false;
};

WorldPlan untimed_world(int ranks) {
  WorldPlan plan = spread_world(ranks);
  plan.network = "tcp";  // reports deaths at once
  plan.schedule.strategy = Strategy::untimed;
  return plan;
}

Seen search(int ranks, const Body& body, const OrderSearch::Options& options, std::uint64_t runs_max = 400'000) {
  OrderSearch search(options);
  Seen seen;
  while (search.counts().runs < runs_max && search.begin_run()) {
    WorldPlan plan = untimed_world(ranks);
    plan.steering = &search;
    Received outcome(static_cast<std::size_t>(ranks));
    World world(plan);
    world.run([&](Rank& rank) { body(rank, outcome[std::size_t(rank.id)]); });
    if (!search.end_run()) continue;
    seen.outcomes.insert(outcome);
    seen.decisions.insert(search.outcome());
  }
  seen.counts = search.counts();
  seen.complete = search.complete();
  return seen;
}

int see(const std::function<void()>& act) {
  const ErrorKind kind = failure_of(act);
  return int(kind);
}

// Rank 1 fails right after the vote, and revokes: does rank 0 hear of the revoke before it hears the answer?
void vote_then_revoke(Rank& rank, std::vector<int>& saw) {
  const Op op = op_of(rank, OpKind::vote, 0);
  saw.push_back(see([&] { rank.control.agree(op, 0, {}, kSecond); }));
  if (rank.id == 1) rank.control.revoke(0, op, ErrorKind::io);
  saw.push_back(rank.control.revoked(0) ? 1 : 0);
}

// The last rank gives up before it votes: the vote is cut short for all, or its own vote is in time for all.
void revoke_and_vote(Rank& rank, std::vector<int>& saw) {
  const Op op = op_of(rank, OpKind::vote, 0);
  if (rank.id == rank.world_size - 1) rank.control.revoke(0, op, ErrorKind::io);
  const bool knows = rank.control.revoked(0);
  saw.push_back(knows ? 1 : 0);
  saw.push_back(see([&] { rank.control.agree(op, 0, {}, kSecond); }));
}

void only_vote(Rank& rank, std::vector<int>& saw) {
  saw.push_back(see([&] { rank.control.agree(op_of(rank, OpKind::vote, 0), 0, {}, kSecond); }));
}

// A message has left, and its sender fails: has it arrived?
void send_or_abort(Rank& rank, std::vector<int>& saw) {
  const Comm comm = make_comm(rank);
  BufferPtr b = floats(rank, 1, float(rank.id + 1));
  const Op op = op_of(rank, OpKind::all_gather, 1);
  const Event done = rank.id == 0 ? exchange(rank, comm, op, {send_to(1, b, 0, 1)})
                                  : exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
  saw.push_back(see([&] { rank.wait(done, op, kSecond, comm); }));
  if (rank.id == 0) rank.control.revoke(0, op, ErrorKind::io);
  const Comm comms[] = {comm};
  rank.transport.abort(comms);
  rank.device.drain();
  saw.push_back(int(word(b, 0)));
}

// A message that is sent at the very moment at which its receiver gives up.
void deadline_or_arrival(Rank& rank, std::vector<int>& saw) {
  const Comm comm = make_comm(rank);
  BufferPtr b = floats(rank, 1, float(rank.id + 1));
  const Op op = op_of(rank, OpKind::all_gather, 1);
  if (rank.id == 0) rank.clock.sleep_until(kSecond);
  const Event done = rank.id == 0 ? exchange(rank, comm, op, {send_to(1, b, 0, 1)})
                                  : exchange(rank, comm, op, {receive_from(0, b, 0, 1)});
  saw.push_back(see([&] { rank.wait(done, op, kSecond, comm); }));
  const Comm comms[] = {comm};
  rank.transport.abort(comms);
}

// A vote that comes after its second is late; one that comes at that very moment is not.
void late_vote(Rank& rank, std::vector<int>& saw) {
  const Op op = op_of(rank, OpKind::agree, 0);
  if (rank.id == 1) rank.clock.sleep_until(kSecond);
  saw.push_back(see([&] { saw.push_back(int(rank.control.agree(op, 0, {}, kSecond).members.size())); }));
}

// Dies while another one waits for its message, on a network that reports deaths.
void death_and_message(Rank& rank, std::vector<int>& saw) {
  const Comm comm = make_comm(rank);
  BufferPtr b = floats(rank, 2, float(rank.id + 1));
  const Op op = op_of(rank, OpKind::all_gather, 1);
  const int other = 1 - rank.id;
  const Event done = exchange(rank, comm, op, {send_to(other, b, 0, 1), receive_from(other, b, 1, 1)},
                              rank.id == 1 ? runtime::DiesAt::after : runtime::DiesAt::never);
  saw.push_back(see([&] { rank.wait(done, op, kSecond, comm); }));
  const Op next = op_of(rank, OpKind::all_gather, 2);
  const Event more = exchange(rank, comm, next, {send_to(other, b, 0, 1)});
  saw.push_back(see([&] { rank.wait(more, next, kSecond, comm); }));
  saw.push_back(int(rank.clock.now() / kMillisecond));
}

struct Program {
  const char* name;
  int ranks;
  Body body;
  std::size_t outcomes;  // at least
};
const std::vector<Program>& programs() {
  static const std::vector<Program> all = {{"vote_then_revoke", 2, vote_then_revoke, 2},
                                           {"revoke_and_vote", 2, revoke_and_vote, 2},
                                           {"only_vote", 3, only_vote, 1},
                                           {"send_or_abort", 2, send_or_abort, 2},
                                           {"deadline_or_arrival", 2, deadline_or_arrival, 2},
                                           {"late_vote", 2, late_vote, 2},
                                           {"death_and_message", 2, death_and_message, 1}};
  return all;
}

TEST(OrderSearch, FindsWhatAllOrdersFindInFewerRuns) {
  for (const Program& program : programs()) {
    const Seen all = search(program.ranks, program.body, {.reduce = false, .blind_to = ObjectKind::none});
    const Seen reduced = search(program.ranks, program.body, {.reduce = true, .blind_to = ObjectKind::none});
    ASSERT_TRUE(reduced.complete) << program.name;
    EXPECT_TRUE(all.complete) << program.name << " after " << all.counts.runs;
    EXPECT_EQ(reduced.outcomes, all.outcomes) << program.name;
    EXPECT_EQ(reduced.decisions, all.decisions) << program.name;
    EXPECT_GE(all.outcomes.size(), program.outcomes) << program.name;
    EXPECT_LT(reduced.counts.runs + reduced.counts.given_up, all.counts.runs) << program.name;
    std::printf("%-26s %7lu orders, %4lu runs and %3lu given up with reduction, %2zu outcomes\n", program.name,
                static_cast<unsigned long>(all.counts.runs), static_cast<unsigned long>(reduced.counts.runs),
                static_cast<unsigned long>(reduced.counts.given_up), all.outcomes.size());
  }
}

// A search that ignores that revokes change votes takes different orders for one. The same goes for a rank's signals.
TEST(OrderSearch, WhereItIsBlindToWhatStepsShareItMissesOutcomes) {
  const auto missed = [](const Program& program, ObjectKind blind_to) {
    const Seen all = search(program.ranks, program.body, {.reduce = true, .blind_to = ObjectKind::none});
    const Seen blind = search(program.ranks, program.body, {.reduce = true, .blind_to = blind_to});
    EXPECT_TRUE(blind.complete) << program.name << ": a search that is wrong does not know it";
    return blind.outcomes.size() < all.outcomes.size();
  };
  const auto program = [](const std::string& name) {
    return *std::find_if(programs().begin(), programs().end(), [&](const Program& p) { return p.name == name; });
  };
  EXPECT_TRUE(missed(program("vote_then_revoke"), ObjectKind::signals));
  EXPECT_TRUE(missed(program("revoke_and_vote"), ObjectKind::signals));
  EXPECT_TRUE(missed(program("late_vote"), ObjectKind::center));
  EXPECT_TRUE(missed(program("send_or_abort"), ObjectKind::operations) ||
              missed(program("send_or_abort"), ObjectKind::signals));
}

// ---- random programs ---------------------------------------------------------------------------------------------

enum class Act { vote, message, revoke, sleep, die, count_ };

// A few acts a rank, the same kind of a rank's i-th vote and message at all, so that they meet if nothing comes
// between.
Body drawn_program(std::uint64_t seed, int acts) {
  return [seed, acts](Rank& rank, std::vector<int>& saw) {
    Random draw(seed * 16 + std::uint64_t(rank.id), Stream::partial);
    Comm comm;
    BufferPtr b = floats(rank, 2, float(rank.id + 1));
    saw.push_back(see([&] { comm = make_comm(rank, everybody(rank), 1, 0, 4 * kSecond); }));
    std::uint64_t votes = 0, messages = 0;
    for (int i = 0; i < acts; ++i) {
      const Act act = Act(draw.below(std::uint32_t(Act::count_)));
      const int other = 1 - rank.id;
      const Op op = op_of(rank, OpKind::all_gather, ++messages);
      Op ballot = op_of(rank, OpKind::vote, 0);
      switch (act) {
        case Act::vote:
          ballot.step = std::int64_t(votes++);
          saw.push_back(see([&] {
            const runtime::Agreement a = rank.control.agree(ballot, 0, {}, 2 * kSecond);
            saw.push_back(int(a.members.size()));
          }));
          break;
        case Act::message:
          saw.push_back(see([&] {
            const Event done = exchange(rank, comm, op, {send_to(other, b, 0, 1), receive_from(other, b, 1, 1)});
            rank.wait(done, op, 3 * kSecond - rank.clock.now(), comm);
          }));
          saw.push_back(int(word(b, 1)));
          break;
        case Act::revoke:
          rank.control.revoke(0, op, ErrorKind::io);
          break;
        case Act::sleep:
          rank.clock.sleep_until(rank.clock.now() / kSecond * kSecond + kSecond);
          break;
        default:
          if (draw.below(3) == 0) throw runtime::RankDied{rank.id};
      }
      saw.push_back(rank.control.revoked(0) ? -1 : -2);
    }
    const Comm comms[] = {comm};
    rank.transport.abort(comms);
    rank.device.drain();
  };
}

// More of them: SEEKSIM_PROPERTY_CASES=N.
TEST(OrderSearch, FindsWhatAllOrdersFindInProgramsThatNobodyWrote) {
  const char* const more = std::getenv("SEEKSIM_PROPERTY_CASES");
  const std::uint64_t programs = more != nullptr ? std::strtoull(more, nullptr, 10) : 40;
  std::uint64_t compared = 0, orders = 0, runs = 0, outcomes = 0;
  for (std::uint64_t seed = 1; seed <= programs; ++seed) {
    const Body body = drawn_program(seed, 1 + int(seed % 3));
    const Seen all = search(2, body, {.reduce = false, .blind_to = ObjectKind::none}, 5000);
    const Seen reduced = search(2, body, {.reduce = true, .blind_to = ObjectKind::none}, 20'000);
    EXPECT_TRUE(reduced.complete) << "program " << seed;
    for (const Received& outcome : all.outcomes)
      EXPECT_TRUE(reduced.outcomes.contains(outcome))
          << "program " << seed << " misses " << ::testing::PrintToString(outcome);
    if (!all.complete) continue;
    EXPECT_EQ(reduced.outcomes, all.outcomes) << "program " << seed;
    ++compared;
    orders += all.counts.runs;
    runs += reduced.counts.runs + reduced.counts.given_up;
    outcomes += all.outcomes.size();
  }
  EXPECT_GT(compared, programs / 3);
  EXPECT_GT(outcomes, compared);
  EXPECT_LT(runs * 10, orders);
  std::printf("%lu programs in full: %lu orders, %lu runs with reduction, %lu outcomes\n",
              static_cast<unsigned long>(compared), static_cast<unsigned long>(orders),
              static_cast<unsigned long>(runs), static_cast<unsigned long>(outcomes));
}

// Steps of two processes without a world: each has `steps`, and the places in `shared` touch what both have. `how` is
// what the others touch, of an object of their own. Before them, `lead` steps of a third process, and the clock moves.
// Returns who passed each of the shared places first, in every way that was seen.
std::set<std::string> orders_of(OrderSearch& search, int steps, int lead, const std::set<int>& shared, Access how) {
  std::set<std::string> orders;
  while (search.begin_run()) {
    for (int i = 0; i < lead; ++i) {
      const std::uint64_t alone[] = {9};
      if (search.choose(alone) != 0) break;
      search.touched(object(ObjectKind::host, 9), Access::write);
    }
    if (lead > 0) search.clock_moved();
    int done[2] = {0, 0};
    std::string order;
    while (done[0] < steps || done[1] < steps) {
      std::vector<std::uint64_t> able;
      for (int p = 0; p < 2; ++p)
        if (done[p] < steps) able.push_back(std::uint64_t(p));
      const std::uint32_t choice = search.choose(able);
      if (choice == Steering::kEnough) break;
      const int p = int(able[choice]);
      if (shared.contains(done[p])) {
        search.touched(object(ObjectKind::network, std::uint64_t(done[p])), Access::write);
        if (done[p] >= done[1 - p]) order += std::to_string(p);  // the first to pass there
      } else {
        search.touched(object(ObjectKind::host, how == Access::after ? 5 : std::uint64_t(p)), how);
      }
      ++done[p];
    }
    if (search.end_run()) orders.insert(order);
  }
  EXPECT_TRUE(search.complete());
  return orders;
}

// More steps at one moment than a word of the search's history has bits.
TEST(OrderSearch, GoesEachWayOnceThroughManySteps) {
  for (const int lead : {0, 7, 70}) {
    OrderSearch search({});
    EXPECT_EQ(orders_of(search, 100, lead, {0, 99}, Access::write), (std::set<std::string>{"00", "01", "10", "11"}))
        << lead;
    EXPECT_EQ(search.counts().runs, 4u) << lead;
    EXPECT_EQ(search.counts().races, 7u) << lead << ": each is looked at once";
  }
}

// What only has to come after something has nothing to do with its like.
TEST(OrderSearch, HasOneOrderWhereNothingIsShared) {
  for (const Access how : {Access::after, Access::read, Access::add}) {
    OrderSearch search({});
    EXPECT_EQ(orders_of(search, 6, 0, {}, how).size(), 1u);
    EXPECT_EQ(search.counts().runs + search.counts().given_up, 1u);
  }
}

TEST(OrderSearch, IsOverAtOnceWhereNothingHappens) {
  OrderSearch search({});
  ASSERT_TRUE(search.begin_run());
  search.clock_moved();
  EXPECT_TRUE(search.end_run());
  EXPECT_FALSE(search.begin_run());
}

}  // namespace
}  // namespace seeksim::sim
