// Checkpoints of a trainer: which of its memory is in one, when one is due, and how a run begins with one. What a rank
// writes follows from its place in the grid, so that all of them together write everything once.
#include <algorithm>
#include <array>
#include <limits>

#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/launch/typed_ops.h"
#include "runtime/trainer/trainer.h"

namespace seeksim::runtime {

// ---- what belongs to it --------------------------------------------------------------------------------------------

// What several ways or stages hold is written by the first of them.
bool Trainer::is_written_elsewhere(const ParameterInfo& p) const {
  if (!p.splits && parameters_.part().way > 0) return true;
  return parameters_.tied() && !parameters_.embeds() && parameters_.heads() && &p == &parameters_.tied_here();
}

namespace {
// Of a shard, where its three kinds of values are.
using ByKind = std::array<AnyVec, std::size_t(StateKind::count_)>;

ByKind kinds_of(const ShardState& state) {
  return {state.weights(), state.optimizer->first_moments(), state.optimizer->second_moments()};
}

// Calls each(name, values) for the kinds of every piece; begin: where in the flat space the values begin.
template <class Each>
void for_each_kind(const std::vector<ParameterPiece>& pieces, Index begin, const ByKind& kinds, int count, Each each) {
  for (const ParameterPiece& piece : pieces) {
    for (int kind = 0; kind < count; ++kind) {
      const PieceName name{piece.parameter->name, StateKind(kind), piece.parameter->first + piece.first};
      each(*piece.parameter, name, kinds[std::size_t(kind)].part(piece.offset() - begin, piece.size));
    }
  }
}
constexpr int kOfTrained = int(StateKind::count_);
constexpr int kOfFrozen = 1;
}  // namespace

std::vector<SavedPiece> Trainer::pieces_to_save() const {
  std::vector<SavedPiece> saved;
  const auto save = [&](const ParameterInfo& p, const PieceName& name, AnyVec values) {
    if (!is_written_elsewhere(p)) saved.push_back({name, values});
  };
  const int me = comm_->position();
  if (keeper_) {
    const ShardState& own = keeper_->own();
    const Partition& partition = keeper_->partition();
    for_each_kind(partition.pieces(own.shard), own.shard.offset, kinds_of(own), kOfTrained, save);
    for_each_kind(partition.pieces(own.frozen_shard), own.frozen_shard.offset, {own.frozen, {}, {}}, kOfFrozen, save);
    return saved;
  }
  const Partition partition(parameters_, comm_->size());
  const ByKind all = {flat_weights(), optimizer_->first_moments(), optimizer_->second_moments()};
  for_each_kind(partition.pieces(partition.shard(me)), 0, all, kOfTrained, save);
  for_each_kind(partition.pieces(partition.frozen(me)), 0, {flat_parameters(), {}, {}}, kOfFrozen, save);
  return saved;
}

// All that defines this rank's state, copies of others' shards included.
std::vector<PlaceToFill> Trainer::places_to_fill() {
  std::vector<PlaceToFill> places;
  const auto fill = [&](const ParameterInfo&, const PieceName& name, AnyVec values) {
    places.push_back({name, values});
  };
  const Partition whole(parameters_, 1);
  if (keeper_) {
    const Partition& partition = keeper_->partition();
    keeper_->for_each_state([&](ShardState& state) {
      for_each_kind(partition.pieces(state.shard), state.shard.offset, kinds_of(state), kOfTrained, fill);
      if (!weights_)
        for_each_kind(partition.pieces(state.frozen_shard), state.frozen_shard.offset, {state.frozen, {}, {}},
                      kOfFrozen, fill);
    });
  } else {
    const ByKind all = {flat_weights(), optimizer_->first_moments(), optimizer_->second_moments()};
    for_each_kind(whole.pieces(whole.shard(0)), 0, all, kOfTrained, fill);
  }
  if (weights_) for_each_kind(whole.pieces(whole.frozen(0)), 0, {flat_parameters(), {}, {}}, kOfFrozen, fill);
  return places;
}

// ---- saving --------------------------------------------------------------------------------------------------------

void Trainer::begin_checkpoint() {
  checkpoint_due_ = false;
  if (keeper_) keeper_->load();
  writer_->snapshot(run_state(), pieces_to_save(), is_lowest_rank());
  Op op;
  op.kind = OpKind::copy;
  op.phase = Phase::checkpoint;
  op.epoch = comm_->epoch();
  op.rank = rank_.id;
  op.step = step_ - 1;
  op.tensor = "checkpoint";
  op.site = SEEKSIM_SITE;
  host_after(*comm_, rank_.device.copy_queue().record(), op, Edge::snapshot_taken, plan_.bug);
  if (keeper_) keeper_->settle();
  writer_->write();
}

// After a commit. One that is due while another is under way is made when that is over.
void Trainer::save_if_due() {
  if (!writer_) return;
  const CheckpointPlan& plan = plan_.checkpoint;
  if (plan.every_steps > 0 && step_ % plan.every_steps == 0) checkpoint_due_ = true;
  if (!checkpoint_due_ || writer_->under_way()) return;
  begin_checkpoint();
  if (!plan.async) finish_checkpoints();
}

// Each round is a vote, so that all make the same number of them.
void Trainer::finish_checkpoints() {
  if (!writer_) return;
  if (finished() && plan_.checkpoint.at_end && writer_->last_complete() != step_) checkpoint_due_ = true;
  while (writer_->under_way() || checkpoint_due_) {
    if (!writer_->under_way()) {
      vote("checkpoint", true);  // what a recovery gave up may be whole: then all hear of it here
      checkpoint_due_ = false;
      if (writer_->last_complete() == step_) break;
      begin_checkpoint();
    }
    writer_->wait();
    vote("checkpoint", true);
  }
}

void Trainer::save_checkpoint() {
  checkpoint_due_ = writer_ && writer_->last_complete() != step_;
  finish_checkpoints();
}

// ---- beginning with one --------------------------------------------------------------------------------------------

void Trainer::begin_with_checkpoint(std::int64_t steps_most) {
  load_most_ = steps_most;
  looked_for_others_ = true;
}

// Files of a run that is not this one's past would be taken for its own by the next restart.
void Trainer::refuse_checkpoints_of_another_run() {
  if (!writer_ || looked_for_others_) return;
  looked_for_others_ = true;
  if (CheckpointReader(rank_, plan_).newest(std::numeric_limits<std::int64_t>::max()) < 0) return;
  throw StaleFiles(plan_.checkpoint.path +
                   ": there are checkpoints of an earlier run here; go on from them (\"checkpoint\": { \"resume\": "
                   "true }), or use another folder");
}

// One candidate, on which all agree. true: it was taken, or there is none and the run begins anew.
bool Trainer::agree_on_one(CheckpointReader& reader, std::string& tried) {
  Ballot ballot;
  ballot.checkpoint.step = reader.newest(load_most_);
  std::int64_t step = -1;
  for (const Ballot& other : take_vote("checkpoint to load", ballot).ballots)
    step = std::max(step, other.checkpoint.step);
  if (step < 0) {
    if (!tried.empty()) throw NoCheckpoint("no checkpoint can be used:" + tried);
    load_most_ = -1;
    return true;
  }
  std::string wrong;
  RunState state;
  try {
    state = reader.read(step, places_to_fill());
    if (is_lowest_rank() || plan_.checkpoint.node_local) reader.discard_newer(step);
  } catch (const BadCheckpoint& bad) {
    wrong = bad.what();
  }
  ballot.checkpoint.step = step;
  ballot.checkpoint.failed = !wrong.empty();
  std::string others;
  const Agreement agreement = take_vote("checkpoint loaded", ballot);
  for (std::size_t i = 0; i < agreement.ballots.size(); ++i) {
    if (agreement.ballots[i].checkpoint.failed && others.empty())
      others = "rank " + std::to_string(agreement.members[i]) + " cannot use it";
  }
  if (!others.empty()) {
    tried += "\n  step " + std::to_string(step) + ": " + (wrong.empty() ? others : wrong);
    load_most_ = step - 1;
    return false;
  }
  load_most_ = -1;
  restore(state);
  writer_->begins_with(step);
  return true;
}

// Nothing is durable yet that could be lost: what is read goes where it belongs at once. true: something was loaded.
bool Trainer::load_checkpoint() {
  stand_at(comm_->epoch(), step_);
  host_after_all(rank_, at_home().last(), plan_.recovery.watchdog_ns, Edge::shards_drawn, plan_.bug);
  std::optional<NodeFiles> nodes;
  if (plan_.checkpoint.node_local) {
    nodes.emplace(rank_, plan_, comm_->epoch(), rank_.control.members(),
                  [this](const char* about, const Ballot& ballot) { return take_vote(about, ballot); });
  }
  CheckpointReader reader(rank_, plan_, nodes ? &*nodes : nullptr);
  std::string tried;
  while (!agree_on_one(reader, tried)) {
  }
  drop_left_out();
  observer_.rolled_back(rank_.id, step_);
  loaded_step_ = step_;
  if (step_ == 0) return false;
  compute_.phase(Phase::init);
  host_.phase(Phase::init);
  if (keeper_) {
    keeper_->renew_parameters(at_home());
  } else if (masters_) {
    const Index n = parameters_.trainable_size();
    round_values(compute_, "parameters", SEEKSIM_SITE, flat_weights().part(0, n).as<float>(),
                 flat_parameters().part(0, n));
  }
  host_after_all(rank_, at_home().last(), plan_.recovery.watchdog_ns, Edge::shards_drawn, plan_.bug);
  return true;
}

void Trainer::remove_files() {
  if (keeper_) keeper_->remove_files();
}

}  // namespace seeksim::runtime
