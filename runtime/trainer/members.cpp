// Who comes and who goes without a failure: what votes say of it, and the way of the state to who joins and from who
// leaves.
#include <algorithm>

#include "runtime/launch/typed_ops.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

void Trainer::hear_of_members(const Agreement& agreement) {
  waiting_ = takes_in(plan_.recovery) ? agreement.joiners : std::vector<int>();
  leaving_.clear();
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    if (agreement.ballots[i].leaves_at_ns != kForever) leaving_.push_back(agreement.members[i]);
  }
}

// Who is to leave goes first, since it can still give what it holds; who waits comes with the next step.
NextWorld Trainer::wanted_world() const {
  std::vector<int> stay = rank_.control.members();
  std::erase_if(stay, [this](int rank) { return std::binary_search(leaving_.begin(), leaving_.end(), rank); });
  const ParallelPlan& parallel = plan_.layout.parallel;
  NextWorld next = next_world(parallel, seats_, stay, leaving_.empty() ? waiting_ : std::vector<int>());
  if (next.problem.empty() && !next.roster.members.empty()) return next;
  // Without them there is no whole model: they stay until they are taken away.
  return next_world(parallel, seats_, rank_.control.members(), waiting_);
}

bool Trainer::world_may_change() const {
  if (leaving_.empty() && waiting_.empty()) return false;
  const std::vector<int> members = rank_.control.members();
  if (leaving_.empty() && int(members.size()) == seats_.count) return false;
  return wanted_world().roster.members != members;
}

NextWorld Trainer::agree_on_world() {
  const bool saves = plan_.recovery.save_on_notice && !leaving_.empty();
  if (writer_ && saves) save_checkpoint();
  finish_checkpoints();  // what is under way is of these members
  vote("members", true);
  return wanted_world();
}

void Trainer::give_shards_to(const Roster& next) {
  if (!keeper_ || step_ == 0) return;
  const Grid grid(plan_.layout.parallel, next.seats, next.members);
  joiners_.clear();
  move_shards(alone() ? next.members : grid.data_axis(place_.stage, place_.way));
  laid_out_ = alone() ? Roster{{}, next.seats} : next;
}

void Trainer::give_shards_first(std::uint32_t epoch, const Roster& all, const Roster& next) {
  const ParallelPlan& parallel = plan_.layout.parallel;
  std::vector<int> axis = Grid(parallel, all.seats, all.members).holders(place_.stage, place_.way);
  comm_.emplace(rank_, Axis::data, epoch, std::move(axis), plan_.recovery.watchdog_ns,
                place_.stage * parallel.tensor + place_.way);
  give_shards_to(next);
}

void Trainer::leave() {
  if (keeper_) keeper_->remove_files();
  abandon();
}

HandOver Trainer::hand_over(const Roster& world, const std::vector<int>& joiners) const {
  HandOver all{run_state(), world, joiners, load_most_, {}, divergence_.window(), left_out_, leaves_out_more_};
  if (keeper_ && step_ > 0) all.shards = alone() ? Roster{keeper_->members(), seats_} : laid_out_;
  return all;
}

void Trainer::take_over(const HandOver& given) {
  SEEKSIM_CHECK(given.run.definition == definition_digest(plan_.definition) &&
                    given.run.contract_version == kernels::kContractVersion,
                "rank %d joins a run of another definition", rank_.id);
  // What others send goes where initial values were drawn.
  host_after_all(rank_, at_home().last(), plan_.recovery.watchdog_ns, Edge::shards_drawn, plan_.bug);
  joining_ = true;
  looked_for_others_ = true;
  load_most_ = given.load_most;
  step_ = given.run.step;
  dropped_batches_ = given.run.dropped_batches;
  scaler_.restore(given.run.scaler);
  skips_ = given.run.skips;
  laid_out_ = given.shards;
  divergence_.continue_with(given.window);
  left_out_ = given.left_out;
  leaves_out_more_ = given.leaves_out_more;
  const bool forgets = plan_.bug.is(Bug::joins_without_steps);
  if (optimizer_) optimizer_->continue_at(forgets ? 0 : given.run.optimizer_steps);
  if (!keeper_) return;
  const Roster& shards = given.shards;
  std::vector<int> axis = shards.members;
  if (!alone() && !axis.empty())
    axis = Grid(plan_.layout.parallel, shards.seats, shards.members).data_axis(place_.stage, place_.way);
  keeper_->begin_with(std::move(axis), given.run.optimizer_steps);
}

// What every member of this axis holds, from the lowest that has it to all who joined.
void Trainer::bring_replicated() {
  if (!joiners_.empty() && step_ > 0) {
    const auto joins = [this](int rank) { return std::binary_search(joiners_.begin(), joiners_.end(), rank); };
    const std::vector<int>& members = comm_->members();
    const int source = *std::find_if_not(members.begin(), members.end(), joins);
    std::vector<AnyVec> state = {flat_parameters(), optimizer_->first_moments(), optimizer_->second_moments()};
    if (masters_) state.push_back(flat_weights());
    if (plan_.bug.is(Bug::joins_without_state)) state.erase(state.begin());
    std::vector<Piece> pieces;
    for (const int rank : members) {
      const bool sends = rank_.id == source && joins(rank), gets = rank == rank_.id && joins(rank);
      for (const AnyVec& values : sends || gets ? state : std::vector<AnyVec>()) {
        const Range range = values.range(gets);
        pieces.push_back({sends ? rank : source, sends, range.buffer, range.lo, range.hi});
      }
    }
    Op op;
    op.kind = OpKind::redistribute;
    op.phase = Phase::recovery;
    op.step = step_;
    op.tensor = "state of who joins";
    op.site = SEEKSIM_SITE;
    op = comm_->exchange(rank_.device.communication_queue(), op, pieces);
    host_after(*comm_, rank_.device.communication_queue().record(), op, Edge::shards_moved, plan_.bug);
    vote("state", true);
  }
}

}  // namespace seeksim::runtime
