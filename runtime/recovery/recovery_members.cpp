// The part of a recovery that is about members: which go on, on which seats, and which give their shards away first.
#include <algorithm>

#include "runtime/recovery/recovery.h"

namespace seeksim::runtime {
namespace {

std::string too_few(const RecoveryPlan& plan, std::size_t members) {
  return std::to_string(members) + (members == 1 ? " member is left" : " members are left") + ", and the run needs " +
         std::to_string(plan.ranks_min) + " (recovery.ranks_min)";
}

}  // namespace

// Waiting ranks take the places of lost ones. Where a model is on several ranks, the members make as many whole
// replicas as they can. Ranks that are left over leave, and no member waits for them.
void Recovery::take_places(const Agreement& agreement, const Trainer& trainer, Decision& decision) {
  const ParallelPlan& parallel = train_.layout.parallel;
  const auto stop = [&](const std::string& why) {
    decision.stop = true;
    decision.why = why + (decision.why.empty() ? "" : ": " + decision.why);
  };
  // A shard that no member holds any more cannot come from a waiting rank either. It comes from a checkpoint, for all.
  const bool fill = takes_in(plan_) && plan_.policy != RecoveryPolicy::retry_step;
  next_ = next_world(parallel, seats_, decision.survivors, fill ? agreement.joiners : std::vector<int>());
  const bool files = train_.checkpoint.on();
  if (!next_.joiners.empty() && !files && !trainer.lost(next_.roster, next_.joiners, decision.survivors).empty())
    next_ = next_world(parallel, seats_, decision.survivors, {});
  if (!next_.problem.empty()) return stop(next_.problem);
  const std::size_t members = next_.roster.members.size();
  if (int(members) < plan_.ranks_min) return stop(too_few(plan_, members));
  for (const int rank : next_.idle) {
    decision.evicted.push_back(rank);
    left_over_ |= rank == rank_.id;
  }
  gives_first_ = !next_.idle.empty() && trainer.holds_shards() && plan_.policy == RecoveryPolicy::rebuild_and_redo &&
                 trainer.lost(next_.roster, next_.joiners, decision.survivors).empty();
  if (left_over_) {
    decision.why = "the survivors make " + std::to_string(int(members) / parallel.ranks()) +
                   " whole replica(s) of the model without this rank";
    left_over_why_ = decision.why;
  }
  std::sort(decision.evicted.begin(), decision.evicted.end());
  decision.survivors = next_.roster.members;
}

// A living rank is not put out while the others cannot do without what it holds: trying a bad link once more costs less
// than the state. All know who holds what, so all come to the same.
void Recovery::spare_last_holders(const Agreement& agreement, const Trainer& trainer, Decision& decision) const {
  if (decision.stop || decision.survivors.size() == agreement.members.size()) return;
  std::vector<int> living = agreement.members;
  std::sort(living.begin(), living.end());
  const auto lost = [&](const std::vector<int>& stay) {
    const NextWorld next = next_world(train_.layout.parallel, seats_, stay, {});
    return !next.problem.empty() || !trainer.lost(next.roster, {}, stay).empty();
  };
  if (!lost(decision.survivors) || lost(living)) return;
  decision.survivors = std::move(living);
  decision.evicted = agreement.dead;
  std::sort(decision.evicted.begin(), decision.evicted.end());
  decision.why.clear();
}

void Recovery::enter(std::uint32_t epoch, const NextWorld& next, std::int64_t step) {
  rank_.control.enter_epoch(epoch, next.roster.members);
  seats_ = next.roster.seats;
  joiners_ = next.joiners;
  if (!joiners_.empty()) observer_.joined(rank_.id, {epoch, step, joiners_});
}

bool Recovery::change_world(Trainer& trainer, std::optional<TrainOutcome>& over) {
  // All have left the step when this vote is over, so that all can leave its epoch.
  const NextWorld next = trainer.agree_on_world();
  if (next.roster.members == rank_.control.members()) return false;
  const std::vector<int>& members = next.roster.members;
  if (int(members.size()) < plan_.ranks_min) {
    over = TrainOutcome{Ending::stopped, too_few(plan_, members.size()), trainer.step(), trainer.state()};
    return false;
  }
  const bool stays = std::binary_search(members.begin(), members.end(), rank_.id);
  if (next.joiners.empty()) trainer.give_shards_to(next.roster);
  if (!stays) {
    left_over_ = rank_.control.notice() == kForever;
    const char* const why = left_over_ ? "the others make whole replicas of the model without this rank"
                                       : "it was asked to leave, and the others hold all of its state";
    over = TrainOutcome{Ending::evicted, why, trainer.step(), trainer.state()};
    trainer.leave();
    return false;
  }
  enter(rank_.control.epoch() + 1, next, trainer.step());
  return true;
}

std::optional<TrainOutcome> Recovery::give_first(Trainer& trainer) {
  trainer.give_shards_first(rank_.control.epoch(), world(), next_.roster);
  gives_first_ = false;
  if (left_over_) {
    const TrainOutcome over{Ending::evicted, left_over_why_, trainer.step(), trainer.state()};
    trainer.leave();
    return over;
  }
  trainer.abandon();  // the communicators of the world that ends here
  enter(rank_.control.epoch() + 1, next_, trainer.step());
  return std::nullopt;
}

}  // namespace seeksim::runtime
