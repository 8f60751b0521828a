#include "runtime/trainer/saves.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "runtime/checkpoint/checkpoint_files.h"
#include "runtime/plan/changes.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

Saves::Saves(Workbench& bench, Tensors& tensors, World& world, CommitVote& vote)
    : bench_(bench), tensors_(tensors), world_(world), vote_(vote) {
  if (!bench.plan.checkpoint.on()) return;
  writer_.emplace(bench.rank, bench.plan, bench.observer);
  if (bench.plan.checkpoint.resume) begin_with(std::numeric_limits<std::int64_t>::max());
}

// ---- what belongs to it --------------------------------------------------------------------------------------------

// What several ways or stages hold is written by the first of them.
bool Saves::is_written_elsewhere(const ParameterInfo& p) const {
  const Parameters& all = tensors_.parameters();
  if (!all.part().is_first_with(p)) return true;
  return all.tied() && !all.embeds() && all.heads() && &p == &all.tied_here();
}

namespace {

// The kinds of values of a shard: weights, and what the optimizer keeps. Residuals are apart, since they are of groups.
using ByKind = std::vector<std::pair<StateKind, AnyVec>>;

ByKind kinds_of(AnyVec weights, const Optimizer& optimizer, const PlantedBug& bug) {
  ByKind kinds = {{StateKind::weights, weights}};
  if (optimizer.first_moments().n > 0) kinds.emplace_back(StateKind::exp_avg, optimizer.first_moments());
  if (optimizer.second_moments().n > 0) kinds.emplace_back(StateKind::exp_avg_sq, optimizer.second_moments());
  if (optimizer.mean().n > 0 && !bug.is(Bug::ema_not_saved)) kinds.emplace_back(StateKind::mean, optimizer.mean());
  return kinds;
}

ByKind kinds_of(const ShardState& state, const PlantedBug& bug) {
  return kinds_of(state.weights(), *state.optimizer, bug);
}

ByKind kinds_of(const Tensors& flat, const PlantedBug& bug) {
  return kinds_of(flat.flat_weights(), flat.optimizer(), bug);
}

ByKind of_frozen(AnyVec weights) { return {{StateKind::weights, weights}}; }

// Calls each(parameter, name, values) for the kinds of every piece; begin: where in the flat space the values begin.
template <class Each>
void for_each_kind(const std::vector<ParameterPiece>& pieces, Index begin, const ByKind& kinds, Each each) {
  for (const ParameterPiece& piece : pieces) {
    for (const auto& [kind, values] : kinds) {
      const PieceName name{piece.parameter->name, kind, piece.parameter->whole_place(piece.first)};
      each(*piece.parameter, name, values.part(piece.offset() - begin, piece.size));
    }
  }
}

// Calls each(name, values) for the parts of the residuals that are here: a parameter's stand in the file as one after
// another of each group, so that any number of ranks can read them.
template <class Each>
void for_each_residual(const Tensors& tensors, Each each) {
  const Residuals* const residuals = tensors.residuals();
  if (residuals == nullptr || !residuals->feeds_back()) return;
  const SampleRange& groups = residuals->groups();
  for (Index group = groups.begin; group < groups.end; ++group) {
    for (const ParameterInfo* p : tensors.parameters().trainable()) {
      const AnyVec values(residuals->kept(group - groups.begin).part(p->offset, p->size));
      each(PieceName{p->name, StateKind::residual, group * p->size}, values);
    }
  }
}

// The same of what comes late: a parameter's stand in the file as one after another of each worker's places; a tied
// embedding's have the head's share after each.
template <class Each>
void for_each_late(const Tensors& tensors, Each each) {
  const LateGradients* const late = tensors.late();
  if (late == nullptr) return;
  const Parameters& all = tensors.parameters();
  for (Index worker = 0; worker < late->workers().size(); ++worker) {
    for (Index place = 0; place < late->places(); ++place) {
      const Index number = (late->workers().begin + worker) * late->places() + place;
      const VecView<float> values = late->place(worker, place);
      for (const ParameterInfo* p : all.trainable()) {
        const bool twice = all.shares_head() && p == &all.wte();
        const Index first = (twice ? 2 : 1) * number * p->size;
        each(PieceName{p->name, StateKind::late, first}, AnyVec(values.part(p->offset, p->size)));
        if (twice)
          each(PieceName{p->name, StateKind::late, first + p->size},
               AnyVec(values.part(all.head_gradient_offset(), p->size)));
      }
    }
  }
}

// The same of this rank's part of their sum, where it is compressed too.
template <class Each>
void for_each_residual_of_sum(const Tensors& tensors, int members, Each each) {
  const Residuals* const residuals = tensors.residuals();
  if (residuals == nullptr || residuals->kept_of_sum().n == 0) return;
  const ShardInfo owned = residuals->owned();
  for (const ParameterPiece& piece : Partition(tensors.parameters(), members).pieces(owned)) {
    const AnyVec values(residuals->kept_of_sum().part(piece.offset() - owned.offset, piece.size));
    each(PieceName{piece.parameter->name, StateKind::server_residual, piece.parameter->first + piece.first}, values);
  }
}

// Factors of matrices, which all ranks have; one file does.
template <class Each>
void for_each_factor(const Tensors& tensors, Each each) {
  const LowRankFactors* const factors = tensors.factors();
  if (factors == nullptr) return;
  for (const LowRankMatrix& m : factors->layout().matrices)
    each(PieceName{m.parameter->name, StateKind::factors, 0}, AnyVec(factors->kept().part(m.q_at, m.q_size())));
}

bool saves_momentum(const TrainPlan& plan) { return !plan.bug.is(Bug::outer_momentum_not_saved); }

// Where workers train apart. Calls of_worker(name, values) for all that is of the workers here: a parameter's stand in
// the file as one after another of each worker, like residuals.
template <class Each>
void for_each_of_workers(const Tensors& tensors, Each of_worker) {
  constexpr std::array kKinds = {StateKind::worker, StateKind::exp_avg, StateKind::exp_avg_sq};
  tensors.for_each_worker([&](Index worker) {
    std::vector<AnyVec> held = {tensors.flat_weights()};
    for (const AnyVec& moments : tensors.optimizer().states()) held.push_back(moments);
    for (const ParameterInfo* p : tensors.parameters().trainable()) {
      for (std::size_t kind = 0; kind < held.size(); ++kind)
        of_worker(PieceName{p->name, kKinds[kind], (tensors.workers().begin + worker) * p->size},
                  held[kind].part(p->offset, p->size));
    }
  });
}

// The same of the outer step's own state, [first, first + size) of what is trained.
template <class Each>
void for_each_outer(const std::vector<ParameterPiece>& pieces, const OuterStep& outer, bool momentum, Each each) {
  for (const ParameterPiece& piece : pieces) {
    const auto part = [&](VecView<float> of) { return AnyVec(of.part(piece.offset(), piece.size)); };
    each(PieceName{piece.parameter->name, StateKind::weights, piece.parameter->first + piece.first},
         part(outer.weights()));
    if (momentum && outer.momentum().n > 0)
      each(PieceName{piece.parameter->name, StateKind::outer_momentum, piece.first}, part(outer.momentum()));
  }
}

}  // namespace

std::vector<SavedPiece> Saves::pieces_to_save() const {
  std::vector<SavedPiece> saved;
  const PlantedBug& bug = bench_.plan.bug;
  const auto save = [&](const ParameterInfo& p, const PieceName& name, AnyVec values) {
    if (!is_written_elsewhere(p)) saved.push_back({name, values});
  };
  if (!bench_.plan.bug.is(Bug::residual_not_saved)) {
    const auto add = [&](const PieceName& name, AnyVec values) { saved.push_back({name, values}); };
    for_each_residual(tensors_, add);
    if (!bench_.plan.bug.is(Bug::server_residual_not_saved))
      for_each_residual_of_sum(tensors_, world_.comm().size(), add);
    if (world_.is_lowest_rank() && !bench_.plan.bug.is(Bug::factors_not_saved)) for_each_factor(tensors_, add);
  }
  if (!bench_.plan.bug.is(Bug::late_not_saved)) {
    for_each_late(tensors_, [&](const PieceName& name, AnyVec values) { saved.push_back({name, values}); });
  }
  if (const ShardKeeper* keeper = std::as_const(tensors_).keeper()) {
    const ShardState& own = keeper->own();
    const Partition& partition = keeper->partition();
    // Those with the same shard write a part of it each.
    const Index groups = world_.groups().groups(), group = world_.groups().group_of(world_.place().data);
    const auto here = [&](ShardInfo shard) {
      const Index begin = group * shard.size / groups, end = (group + 1) * shard.size / groups;
      return partition.pieces({shard.offset + begin, end - begin});
    };
    for_each_kind(here(own.shard), own.shard.offset, kinds_of(own, bug), save);
    for_each_kind(here(own.frozen_shard), own.frozen_shard.offset, of_frozen(own.frozen), save);
    return saved;
  }
  const int me = world_.comm().position();
  const Partition partition(tensors_.parameters(), world_.comm().size());
  if (const OuterStep* outer = std::as_const(tensors_).outer()) {
    const auto add = [&](const PieceName& name, AnyVec values) { saved.push_back({name, values}); };
    for_each_outer(partition.pieces(partition.shard(me)), *outer, saves_momentum(bench_.plan), add);
    for_each_of_workers(tensors_, add);
  } else {
    for_each_kind(partition.pieces(partition.shard(me)), 0, kinds_of(tensors_, bug), save);
  }
  for_each_kind(partition.pieces(partition.frozen(me)), 0, of_frozen(tensors_.flat_parameters()), save);
  return saved;
}

// All that defines this rank's state, copies of others' shards included.
std::vector<PlaceToFill> Saves::places_to_fill() {
  std::vector<PlaceToFill> places;
  const PlantedBug& bug = bench_.plan.bug;
  const auto fill = [&](const ParameterInfo&, const PieceName& name, AnyVec values) {
    places.push_back({name, values});
  };
  if (!bench_.plan.bug.is(Bug::residual_not_saved)) {
    const auto add = [&](const PieceName& name, AnyVec values) { places.push_back({name, values}); };
    for_each_residual(tensors_, add);
    if (!bench_.plan.bug.is(Bug::server_residual_not_saved))
      for_each_residual_of_sum(tensors_, world_.comm().size(), add);
    if (!bench_.plan.bug.is(Bug::factors_not_saved)) for_each_factor(tensors_, add);
  }
  if (!bench_.plan.bug.is(Bug::late_not_saved)) {
    for_each_late(tensors_, [&](const PieceName& name, AnyVec values) { places.push_back({name, values}); });
  }
  const Partition whole(tensors_.parameters(), 1);
  const bool flat = tensors_.flat_weights_here();
  if (ShardKeeper* keeper = tensors_.keeper()) {
    const Partition& partition = keeper->partition();
    keeper->for_each_state([&](ShardState& state) {
      for_each_kind(partition.pieces(state.shard), state.shard.offset, kinds_of(state, bug), fill);
      if (flat) return;
      const ShardInfo& frozen = state.frozen_shard;
      for_each_kind(partition.pieces(frozen), frozen.offset, of_frozen(state.frozen), fill);
    });
  } else if (const OuterStep* outer = tensors_.outer()) {
    const auto add = [&](const PieceName& name, AnyVec values) { places.push_back({name, values}); };
    for_each_outer(whole.pieces(whole.shard(0)), *outer, saves_momentum(bench_.plan), add);
    for_each_of_workers(tensors_, add);
  } else {
    for_each_kind(whole.pieces(whole.shard(0)), 0, kinds_of(tensors_, bug), fill);
  }
  if (!flat) return places;
  tensors_.for_each_worker(
      [&](Index) { for_each_kind(whole.pieces(whole.frozen(0)), 0, of_frozen(tensors_.flat_parameters()), fill); });
  return places;
}

// ---- saving --------------------------------------------------------------------------------------------------------

void Saves::tell(Vote, Ballot& own) {
  if (writer_) own.checkpoint = writer_->ballot();
}

void Saves::hear(Vote, const Agreement& agreement, bool) {
  if (writer_) writer_->heard(agreement);
}

RunState Saves::run_state() const {
  RunState state = bench_.progress.state(tensors_.optimizer_steps(), world_.epoch());
  if (bench_.plan.bug.is(Bug::fp8_states_not_saved)) state.fp8.assign(state.fp8.size(), {});
  return state;
}

void Saves::begin() {
  due_ = false;
  ShardKeeper* const keeper = tensors_.keeper();
  if (keeper != nullptr) keeper->load();
  writer_->snapshot(run_state(), pieces_to_save(), world_.is_lowest_rank());
  Op op = bench_.op(OpKind::copy, Phase::checkpoint, "checkpoint", SEEKSIM_SITE);
  op.epoch = world_.epoch();
  --op.step;
  bench_.host_after(world_.comm(), bench_.rank.device.copy_queue().record(), op, Edge::snapshot_taken);
  if (keeper != nullptr) keeper->settle();
  writer_->write();
}

void Saves::save_if_due() {
  if (!writer_) return;
  const CheckpointPlan& plan = bench_.plan.checkpoint;
  const std::int64_t step = bench_.progress.step();
  if (plan.every_steps > 0 && step % plan.every_steps == 0) due_ = true;
  if (bench_.plan.recovery.rollback.on && changes_at(bench_.definition(), step)) due_ = true;  // to come back to
  if (!due_ || writer_->under_way()) return;
  begin();
  if (!plan.async) finish();
}

// Each round is a vote, so that all make the same number of them.
void Saves::finish() {
  if (!writer_) return;
  const std::int64_t step = bench_.progress.step();
  if (bench_.progress.finished() && bench_.plan.checkpoint.at_end && writer_->last_complete() != step) due_ = true;
  while (writer_->under_way() || due_) {
    if (!writer_->under_way()) {
      vote_.on(Vote::checkpoint);  // what a recovery gave up may be whole: then all hear of it here
      due_ = false;
      if (writer_->last_complete() == step) break;
      begin();
    }
    writer_->wait();
    vote_.on(Vote::checkpoint);
  }
}

void Saves::save() {
  due_ = writer_ && writer_->last_complete() != bench_.progress.step();
  finish();
}

std::vector<Communicator*> Saves::communicators() {
  if (!nodes_) return {};
  return {&nodes_->communicator()};
}

void Saves::give_up() {
  nodes_.reset();
  if (writer_) writer_->give_up();
}

void Saves::look_again() {
  if (writer_) writer_->look_again(world_.is_lowest_rank());
}

// ---- beginning with one --------------------------------------------------------------------------------------------

void Saves::begin_with(std::int64_t steps_most) {
  load_most_ = steps_most;
  looked_for_others_ = true;
}

// Files of a run that is not this one's past would be taken for its own by the next restart.
void Saves::refuse_another_run() {
  if (!writer_ || looked_for_others_) return;
  looked_for_others_ = true;
  if (CheckpointReader(bench_.rank, bench_.plan).newest(std::numeric_limits<std::int64_t>::max()) < 0) return;
  throw StaleFiles(bench_.plan.checkpoint.path +
                   ": there are checkpoints of an earlier run here; go on from them (\"checkpoint\": { \"resume\": "
                   "true }), or use another folder");
}

// One candidate, on which all agree. true: it was taken, or there is none and the run begins anew.
bool Saves::agree_on_one(CheckpointReader& reader, std::string& tried) {
  Ballot ballot;
  ballot.checkpoint.step = reader.newest(load_most_);
  std::int64_t step = -1;
  for (const Ballot& other : vote_.ask("checkpoint to load", ballot).ballots)
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
    if (world_.is_lowest_rank() || bench_.plan.checkpoint.node_local) reader.discard_newer(step);
  } catch (const BadCheckpoint& bad) {
    wrong = bad.what();
  }
  ballot.checkpoint.step = step;
  ballot.checkpoint.failed = !wrong.empty();
  std::string others;
  const Agreement agreement = vote_.ask("checkpoint loaded", ballot);
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
  bench_.progress.restore(state);
  tensors_.continue_at(state.optimizer_steps);
  if (OuterStep* outer = tensors_.outer()) outer->made(state.step);
  writer_->begins_with(step);
  return true;
}

bool Saves::load() {
  bench_.stand_at(world_.epoch(), bench_.progress.step());
  bench_.finish_all(bench_.at_home().last(), Edge::shards_drawn);
  if (bench_.plan.checkpoint.node_local) {
    nodes_.emplace(bench_.rank, bench_.plan, world_.epoch(), bench_.rank.control.members(),
                   [this](const char* about, const Ballot& ballot) { return vote_.ask(about, ballot); });
  }
  CheckpointReader reader(bench_.rank, bench_.plan, nodes_ ? &*nodes_ : nullptr);
  std::string tried;
  while (!agree_on_one(reader, tried)) {
  }
  nodes_.reset();
  bench_.progress.drop_left_out();
  bench_.observer.rolled_back(bench_.rank.id, bench_.progress.step());
  bench_.progress.begins_here();
  if (bench_.progress.step() == 0) return false;
  bench_.phase(Phase::init);
  tensors_.renew_parameters();
  if (LateGradients* late = tensors_.late()) late->continue_at(bench_.compute, tensors_.optimizer_steps());
  bench_.finish_all(bench_.at_home().last(), Edge::shards_drawn);
  return true;
}

}  // namespace seeksim::runtime
