// Rounds of gathers: the built-in ones bring each shard to each member once, wrong ones are found, and what a member
// sends and receives in a round is what the moves say.
#include "runtime/comm/gather_rule.h"

#include <gtest/gtest.h>

namespace seeksim::runtime {
namespace {

// The rounds that it was made of, whatever the number of members.
class Given final : public GatherRule {
 public:
  explicit Given(std::vector<GatherRound> rounds) : rounds_(std::move(rounds)) {}
  std::vector<GatherRound> rounds(int) const override { return rounds_; }

 private:
  std::vector<GatherRound> rounds_;
};

TEST(GatherRule, RingAndDoublingBringEachShardToEachMemberOnce) {
  for (const char* name : {"ring", "doubling"}) {
    const auto rule = built_in_gather(name);
    ASSERT_NE(rule, nullptr) << name;
    for (int members = 2; members <= 70; ++members) {
      ASSERT_EQ(problem_of_rounds(*rule, members), "") << name;
      EXPECT_EQ(cost_of(*rule, members).shards_sent_max, members - 1) << name << ' ' << members;
    }
  }
  EXPECT_EQ(cost_of(*built_in_gather("ring"), 9).rounds, 8);
  EXPECT_EQ(cost_of(*built_in_gather("doubling"), 8).rounds, 3);
  EXPECT_EQ(cost_of(*built_in_gather("doubling"), 9).rounds, 4);
  EXPECT_EQ(built_in_gather("tree"), nullptr);
}

TEST(GatherRule, WrongRoundsAreFound) {
  const auto problem = [](std::vector<GatherRound> rounds, int members) {
    return problem_of_rounds(Given(std::move(rounds)), members);
  };
  EXPECT_EQ(problem({{{0, 0, 1}, {1, 1, 0}}}, 2), "");
  EXPECT_NE(problem({{{0, 0, 1}}}, 2).find("the one at 0 is never given shard 1"), std::string::npos);
  EXPECT_NE(problem({{{0, 0, 1}, {1, 1, 0}}, {{0, 0, 1}}}, 2).find("who has it already"), std::string::npos);
  EXPECT_NE(problem({{{0, 0, 2}}}, 2).find("no two members and a shard"), std::string::npos);
  EXPECT_NE(problem({{{0, 0, 0}}}, 2).find("no two members and a shard"), std::string::npos);
  EXPECT_NE(problem({{{-1, 0, 1}}}, 2).find("no two members and a shard"), std::string::npos);
  // What arrives in a round is handed on in the next one.
  EXPECT_NE(problem({{{0, 0, 1}, {0, 1, 2}}}, 3).find("does not have it"), std::string::npos);
}

// Member 1 of 3 in a ring, whose own shard lies elsewhere than the place of the gathered ones, in two stretches.
TEST(GatherRule, PiecesOfARoundAreWhereTheShardsLie) {
  Buffer own, whole;
  const std::vector<int> members = {4, 7, 9};
  std::vector<Piece> pieces;
  for (const int stretch : {0, 100}) {
    for (const int peer : {4, 9}) {
      const std::size_t from = peer == 4 ? 0 : 20;
      pieces.push_back({peer, false, &whole, from + std::size_t(stretch), from + std::size_t(stretch) + 10});
      pieces.push_back({peer, true, &own, std::size_t(stretch), std::size_t(stretch) + 10});
    }
  }
  GatherRounds rounds(built_in_gather("ring").get(), 3, 1);
  ASSERT_EQ(rounds.count(), 2);
  rounds.begin(pieces, members);
  const auto told = [&](int round) {
    std::vector<std::string> lines;
    for (const Piece& p : rounds.pieces(round, members))
      lines.push_back((p.send ? "to " : "from ") + std::to_string(p.peer) + (p.buffer == &own ? " own " : " whole ") +
                      std::to_string(p.lo));
    return lines;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(told(0), (Lines{"from 4 whole 0", "from 4 whole 100", "to 9 own 0", "to 9 own 100"}));
  EXPECT_EQ(told(1), (Lines{"from 4 whole 20", "from 4 whole 120", "to 9 whole 0", "to 9 whole 100"}));
}

TEST(GatherRule, AShardOfNothingIsNotSent) {
  Buffer whole;
  const std::vector<int> members = {0, 1};
  const std::vector<Piece> pieces = {{1, false, &whole, 8, 16}};  // this member's own shard is empty
  GatherRounds rounds(built_in_gather("ring").get(), 2, 0);
  rounds.begin(pieces, members);
  const std::span<const Piece> moved = rounds.pieces(0, members);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_FALSE(moved[0].send);
  EXPECT_EQ(GatherRounds(nullptr, 2, 0).count(), 0);
}

}  // namespace
}  // namespace seeksim::runtime
