#include "runtime/trainer/state_transfer.h"
#include "runtime/seams/edges.h"

#include <algorithm>
#include <utility>

namespace seeksim::runtime {

bool StateTransfer::holds_shards() const {
  const ShardKeeper* const keeper = std::as_const(tensors_).keeper();
  return keeper != nullptr && bench_.progress.step() > 0 && keeper->laid_out();
}

std::string StateTransfer::lost(const Roster& roster, const std::vector<int>& joiners,
                                const std::vector<int>& givers) const {
  const ParallelPlan& parallel = bench_.plan.layout.parallel;
  const Grid grid(parallel, roster.seats, roster.members);
  if (std::string missing = grid.problem(); !missing.empty()) return missing;
  const auto holding = [&](std::vector<int> ranks) {
    std::erase_if(ranks, [&](int rank) { return std::binary_search(joiners.begin(), joiners.end(), rank); });
    return ranks;
  };
  const bool shards = holds_shards();
  const ShardKeeper* const keeper = std::as_const(tensors_).keeper();
  const Residuals* const residuals = std::as_const(tensors_).residuals();
  const CompressionPlan& compression = bench_.definition().compression;
  if (compression.has_compressed(bench_.progress.step(), tensors_.optimizer_steps())) {
    if (std::string why = residuals->lost(grid.data_axis(0, 0)); !why.empty()) return why;
  }
  const LateGradients* const late = std::as_const(tensors_).late();
  if (late != nullptr && bench_.progress.step() > 0) {
    if (std::string why = late->lost(grid.data_axis(0, 0)); !why.empty()) return why;
  }
  if (const LocalSgdPlan& plan = bench_.definition().local_sgd; plan.on() && bench_.progress.step() > 0) {
    if (std::string why = lost_worker(plan, world_.grid().data_axis(0, 0), grid.data_axis(0, 0)); !why.empty())
      return why;
  }
  if (bench_.alone()) return shards ? keeper->lost(holding(givers)) : std::string();
  // All stages and ways, as all ranks come to the same answer.
  const Roster& cut_for = shards ? laid_out_ : roster;
  const Grid before(parallel, cut_for.seats, cut_for.members);
  for (int stage = 0; stage < parallel.pipeline && bench_.progress.step() > 0; ++stage) {
    for (int way = 0; way < parallel.ways(); ++way) {
      const bool nobody = holding(grid.data_axis(stage, way)).empty();
      std::string gone = shards   ? keeper->lost(before.data_axis(stage, way), holding(givers))
                         : nobody ? "no surviving rank holds stage " + std::to_string(stage)
                                  : std::string();
      if (!gone.empty()) return gone;
    }
  }
  const int replicas = grid.replicas();
  if (const std::string why = problem_of_schedule(bench_.plan, replicas); !why.empty())
    return "with " + std::to_string(replicas) + " replicas of the model, " + why;
  return {};
}

// ---- a new world ---------------------------------------------------------------------------------------------------

void StateTransfer::settle(const std::vector<int>& joiners) {
  joiners_ = joiners;
  Launcher launch(bench_.rank.device.communication_queue(), bench_.rank.id);
  launch.at(world_.epoch(), bench_.progress.step());
  launch.phase(Phase::init);
  const std::vector<int>& members = world_.comm().members();
  const int me = world_.comm().position();
  if (Residuals* residuals = tensors_.residuals())
    residuals->lay_out(launch, members, me, Partition(tensors_.parameters(), int(members.size())).shard(me));
  if (LateGradients* late = tensors_.late()) {
    bench_.compute.phase(Phase::init);
    late->lay_out(bench_.compute, members, me);
  }
  if (tensors_.keeper() != nullptr)
    connect_shards();
  else if (saves_.loads())
    saves_.load();
  else
    bring_replicated();
  joining_ = false;
}

// Shards where they belong in this world. Nothing is committed yet: from the initial weights. Else from those who hold
// them; a member that has its shards gives up the old ones only when all have.
void StateTransfer::connect_shards() {
  ShardKeeper& keeper = *tensors_.keeper();
  const std::int64_t step = bench_.progress.step();
  const bool as_before = keeper.laid_out_for(world_.comm().members()) && joiners_.empty();
  const Roster roster{bench_.alone() ? std::vector<int>() : bench_.rank.control.members(), world_.seats()};
  if (step == 0 && !as_before) {
    lay_out_shards();
  } else if (step > 0 && !as_before) {
    move_shards(world_.comm().members());
  } else {
    // Where another axis moves its shards, this one votes with it.
    if (step > 0 && !bench_.alone() && !(roster == laid_out_)) vote_.on(Vote::shards);
    keeper.settle();
  }
  laid_out_ = roster;
}

void StateTransfer::lay_out_shards() {
  ShardKeeper& keeper = *tensors_.keeper();
  bench_.stand_at(world_.epoch(), bench_.progress.step());
  bench_.phase(Phase::init);
  // What is flat was drawn before; steps before the first one may have changed it in an earlier world.
  if (optimizer_start(bench_.quirks()).steps > 0) tensors_.draw();
  keeper.lay_out(bench_.at_home(), world_.comm().members(),
                 [this](const std::vector<ParameterPiece>& pieces, AnyVec out) { tensors_.draw(pieces, out); });
  const bool loaded = saves_.loads() && saves_.load();
  if (keeper.swaps() || keeper.swaps_parameters()) {
    bench_.finish_all(bench_.at_home().last(), Edge::shards_drawn);
    keeper.settle();
  }
  if (!loaded) tensors_.start_optimizer();
  bench_.finish_all(bench_.at_home().last(), Edge::shards_drawn);
}

// members: of this axis, some or all. A rank that is none of them gives what it has and keeps it.
void StateTransfer::move_shards(const std::vector<int>& members) {
  ShardKeeper& keeper = *tensors_.keeper();
  bench_.stand_at(world_.epoch(), bench_.progress.step());
  bench_.phase(Phase::init);
  const Op op = keeper.redistribute(world_.comm(), members, joiners_);
  bench_.host_after(world_.comm(), bench_.rank.device.communication_queue().record(), op, Edge::shards_moved);
  vote_.on(Vote::shards);
  if (!keeper.adopt()) return;
  if (is_16_bit(bench_.compute_type()) || bench_.offloads()) {
    keeper.renew_parameters(bench_.at_home());
    bench_.finish_all(bench_.at_home().last(), Edge::shards_drawn);
    keeper.settle();
  }
}

// What every member of this axis holds, from the lowest that has it to all that joined.
void StateTransfer::bring_replicated() {
  if (joiners_.empty() || bench_.progress.step() == 0) return;
  const int me = bench_.rank.id;
  const auto joins = [this](int rank) { return std::binary_search(joiners_.begin(), joiners_.end(), rank); };
  const std::vector<int>& members = world_.comm().members();
  const int source = *std::find_if_not(members.begin(), members.end(), joins);
  std::vector<AnyVec> state = {tensors_.flat_parameters()};
  for (const AnyVec& moments : tensors_.optimizer().states()) state.push_back(moments);
  if (tensors_.has_masters()) state.push_back(tensors_.flat_weights());
  bench_.planted->bringing(state);
  std::vector<Piece> pieces;
  for (const int rank : members) {
    const bool sends = me == source && joins(rank), gets = rank == me && joins(rank);
    for (const AnyVec& values : sends || gets ? state : std::vector<AnyVec>()) {
      const Range range = values.range(gets);
      pieces.push_back({sends ? rank : source, sends, range.buffer, range.lo, range.hi});
    }
  }
  Queue& queue = bench_.rank.device.communication_queue();
  const Op op = world_.comm().exchange(
      queue, bench_.op(OpKind::redistribute, Phase::recovery, "state of who joins", SEEKSIM_SITE), pieces);
  bench_.host_after(world_.comm(), queue.record(), op, Edge::shards_moved);
  vote_.on(Vote::state);
}

void StateTransfer::give_to(const Roster& next) {
  if (tensors_.keeper() == nullptr || bench_.progress.step() == 0) return;
  const Grid grid(bench_.plan.layout.parallel, next.seats, next.members);
  joiners_.clear();
  move_shards(grid.data_axis(world_.place().stage, world_.place().way));
  laid_out_ = bench_.alone() ? Roster{{}, next.seats} : next;
}

Roster StateTransfer::shards() const {
  const ShardKeeper* const keeper = std::as_const(tensors_).keeper();
  if (keeper == nullptr || bench_.progress.step() == 0) return {};
  return bench_.alone() ? Roster{keeper->members(), world_.seats()} : laid_out_;
}

void StateTransfer::take_over(const HandOver& given) {
  // What others send goes where initial values were drawn.
  bench_.finish_all(bench_.at_home().last(), Edge::shards_drawn);
  joining_ = true;
  laid_out_ = given.shards;
  ShardKeeper* const keeper = tensors_.keeper();
  if (keeper == nullptr) return tensors_.continue_at(bench_.planted->steps_of_joiner(given.run.optimizer_steps));
  std::vector<int> axis = laid_out_.members;
  if (!bench_.alone() && !axis.empty()) {
    axis = Grid(bench_.plan.layout.parallel, laid_out_.seats, laid_out_.members)
               .data_axis(world_.place().stage, world_.place().way);
  }
  keeper->begin_with(std::move(axis), given.run.optimizer_steps);
}

// ---- publication ---------------------------------------------------------------------------------------------------

void StateTransfer::publish_step(bool updated) {
  if (updated) publish(false);
  published_ = true;
}

void StateTransfer::publish_world() {
  const bool started = optimizer_start(bench_.quirks()).steps > 0;
  const bool any = bench_.progress.step() > 0;
  if (any || tensors_.gathered() != nullptr || started) publish(true);
  published_ = any;
}

void StateTransfer::publish(bool new_world) {
  if (tensors_.keeper() == nullptr) return;
  const std::int64_t steps = bench_.progress.step();
  if (GatheredWeights* gathered = tensors_.gathered()) {
    if (!gathered->has_persistent(new_world)) return;
    Queue& queue = bench_.rank.device.communication_queue();
    const Event published = gathered->refresh_persistent(queue, steps - 1, new_world);
    bench_.host_after(world_.shards(), published, gathered->last_op(), Edge::persistent_published);
    return;
  }
  const Index bucket = bench_.plan.layout.zero.allgather_bucket_elements;
  const Index all = tensors_.parameters().trainable_size();
  for (Index lo = 0; lo < all; lo += bucket) {
    const Index hi = lo + bench_.planted->contributes(std::min(bucket, all - lo), world_.epoch());
    bench_.planted->publishing(tensors_, lo, hi, steps);
    publish_bucket(lo, hi);
    bench_.planted->published_bucket(tensors_);
  }
  bench_.planted->published(tensors_, steps);
}

void StateTransfer::publish_bucket(Index lo, Index hi) {
  Communicator& comm = world_.shards();
  std::vector<ShardInfo> shards;
  for (int member = 0; member < comm.size(); ++member) {
    const ShardInfo shard = tensors_.keeper()->partition().shard_in(member, lo, hi);
    shards.push_back({shard.offset - lo, shard.size});
  }
  Queue& queue = bench_.rank.device.communication_queue();
  Op op = bench_.op(OpKind::publish, Phase::publish, "parameters", SEEKSIM_SITE);
  --op.step;
  op = comm.all_gather(queue, op, tensors_.flat_parameters().part(lo, hi - lo), shards);
  bench_.host_after(comm, queue.record(), op, Edge::parameters_published);
}

}  // namespace seeksim::runtime
