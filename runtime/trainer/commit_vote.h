// CommitVote: how the members agree. Each sends a ballot and all get the same answer. A rank's reports to the others
// travel with every vote, whatever it is about. This class acts on what all agreed on: a rank that computed other bits,
// unwritten memory, members that come and go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/trainer/rerun.h"
#include "runtime/trainer/workbench.h"
#include "runtime/trainer/world.h"

namespace seeksim::runtime {

// What a vote is about.
enum class Vote : std::uint8_t {
  step,        // apply it, or skip it: the commit point
  checkpoint,  // how far each has come with writing it
  outer,       // what all workers' weights come to is here: the commit point of an outer step
  members,     // all have left the step, so that the members may change
  shards,      // mine are where they belong
  state,       // joining ranks have it
  end          // no member needs another any more
};
const char* name(Vote about);

// Something that travels with votes: it adds to a rank's own ballot, and hears the answer.
class VoteRider {
 public:
  virtual ~VoteRider() = default;
  virtual void tell(Vote about, Ballot& own) = 0;
  // all_good: no member voted against.
  virtual void hear(Vote about, const Agreement& agreement, bool all_good) = 0;
};

// What a search for poison found (poison.h): where; empty: nothing. at_source: in what the step began with, and not
// only in what came of it.
struct PoisonFound {
  std::string where;
  bool at_source = false;
};

class CommitVote {
 public:
  CommitVote(Workbench& bench, const World& world, const Parameters& parameters)
      : bench_(bench), world_(world), parameters_(parameters) {}

  // From here on it takes part in every vote, after those that came before. Outlives the votes.
  void carries(VoteRider& rider) { riders_.push_back(&rider); }

  // True: all find it good. For a step, true means apply it and false skip it, everywhere. All members hear the same
  // answer or none does. Throws where a member is missing (SeamError), where a rank computed other bits the second time
  // (SeamError{corrupt_compute}), and UnwrittenMemory.
  bool on(Vote about, bool good = true);
  // The same of a ballot of the caller's own making, without riders; all of the answer. about: outlives the run.
  Agreement ask(const char* about, Ballot ballot);

  // What the next votes tell the others: what this rank computed twice with different bits, and what the last search
  // for poison found.
  void tell(std::optional<RerunFound> corrupt) { corrupt_ = corrupt; }
  void tell(PoisonFound found) { poison_ = std::move(found); }
  // After a failure: the step that was under way is run again.
  void forget() { corrupt_.reset(); }

  // From the last vote: launch ranks that wait to be admitted, and members that got notice to leave. Ascending.
  const std::vector<int>& waiting() const { return waiting_; }
  const std::vector<int>& leaving() const { return leaving_; }

 private:
  void hear_of_members(const Agreement& agreement);
  void redo_where_bits_differ(Op op, const Agreement& agreement) const;
  void stop_if_poisoned(const Agreement& agreement) const;

  Workbench& bench_;
  const World& world_;
  const Parameters& parameters_;
  std::vector<VoteRider*> riders_;
  std::optional<RerunFound> corrupt_;
  PoisonFound poison_;
  std::vector<int> waiting_, leaving_;
};

}  // namespace seeksim::runtime
