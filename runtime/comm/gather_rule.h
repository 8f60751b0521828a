// In which moves a gather travels: all at once, or in rounds in which members hand on what they were given. The bits
// are the same, for a gather computes nothing; who waits for whom, and what a lost link takes along, are not.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/seams/seams.h"

namespace seeksim::runtime {

// The member at `from` sends the shard of the member at `shard` to the member at `to`. Places in the communicator.
struct GatherMove {
  int shard, from, to;
};
using GatherRound = std::vector<GatherMove>;

class GatherRule {
 public:
  virtual ~GatherRule() = default;
  // The rounds after which each of `members` members (2 or more) has every shard. At the start each has its own. In a
  // round a member sends only what it had before the round; over all rounds it is given each other shard exactly once.
  // A member sends each other member one shard at most in a round. Depends on nothing but its argument, since members
  // ask by themselves, and again after each change of the world.
  virtual std::vector<GatherRound> rounds(int members) const = 0;
};

// "ring": a shard goes on to the next member in each round, in members - 1 rounds. "doubling": what a member sends
// doubles from round to round, for any number of members (Bruck et al. 1997). Null: there is no such name.
std::shared_ptr<const GatherRule> built_in_gather(std::string_view name);

// What is wrong with the rounds of so many members; empty: nothing.
std::string problem_of_rounds(const GatherRule& rule, int members);

// What rounds ask of the members, beside a gather in one go, where each sends its shard to all others.
struct GatherCost {
  int rounds = 1;
  int shards_sent_max = 0;  // by the member that sends most
};
GatherCost cost_of(const GatherRule& rule, int members);

// The rounds of one member, and their pieces of a gather whose pieces in one go are known.
class GatherRounds {
 public:
  GatherRounds() = default;
  // rule: null for gathers in one go.
  GatherRounds(const GatherRule* rule, int members, int position);

  int count() const { return int(moves_.size()); }  // 0: in one go
  // Of one gather: `whole` has the same ranges for each peer to send, and from each peer what it sends.
  void begin(std::span<const Piece> whole, std::span<const int> members);
  // What this member sends and receives in a round, by launch ranks; valid until the next call.
  std::span<const Piece> pieces(int round, std::span<const int> members);

 private:
  int position_ = 0;
  std::vector<GatherRound> moves_;          // of this member, by round
  std::vector<std::vector<Piece>> shards_;  // where each member's shard lies here, its own too
  std::vector<Piece> pieces_;
};

}  // namespace seeksim::runtime
