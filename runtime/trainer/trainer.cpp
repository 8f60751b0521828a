// Read train_step first: it is one training step, in the order in which things happen. What a failure does to it stands
// in recovery.cpp.
#include "runtime/trainer/trainer.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "runtime/launch/poison.h"
#include "runtime/plan/learning_rate.h"
#include "runtime/rules/bugs.h"
#include "runtime/rules/mutants.h"
#include "runtime/seams/edges.h"
#include "runtime/trainer/planting.h"

namespace seeksim::runtime {

Trainer::Trainer(Rank& rank, const TrainPlan& plan, Observer& observer, const Roster& world)
    : bench_(rank, plan, observer, plant(plan, rank.id)),
      tensors_(bench_, world.seats),
      world_(bench_, world.seats),
      vote_(bench_, world_, tensors_.parameters()),
      reduction_(bench_, tensors_, world_),
      passes_(bench_, tensors_, world_, reduction_),
      evaluation_(bench_, tensors_, world_, passes_),
      measurement_(bench_, tensors_, world_),
      whole_(bench_, tensors_, world_),
      records_(bench_, tensors_, world_, whole_),
      saves_(bench_, tensors_, world_, vote_),
      transfer_(bench_, tensors_, world_, vote_, saves_),
      pace_(bench_, world_, transfer_),
      final_(bench_, tensors_, world_, whole_, records_) {
  vote_.carries(saves_);
  vote_.carries(pace_);
  vote_.carries(measurement_);
  vote_.carries(final_);
}

void Trainer::train_step() {
  bench_.stand_at(world_.epoch(), step());
  if (step() == 0) records_.state();
  evaluation_.before_step();
  records_.begin_step();
  passes_.look_at_batch();
  reduction_.begin_step();
  speculate();

  // Forward and backward passes of all micro-batches. Each adds nodes to the gradient tree; what they are depends on
  // the samples, never on the cut.
  passes_.run();
  agree_on_amaxes();

  // The gradient of the global batch, the same bits everywhere: of all parameters or of the shard; and what it amounts
  // to.
  reduction_.finish(measurement_.loss_of_owner());
  measurement_.measure();
  StepResult result = measurement_.read();
  passes_.tell_ranges();
  vote_.tell(passes_.compare_runs());
  records_.gather_gradients();
  if (!result.finite) vote_.tell(records_.look_for_poison(true));

  // The commit point. Until here nothing durable has changed; from here on every member goes forward. A step whose
  // gradient is not finite on any rank is skipped by all: weights, moments, Adam's step and the schedule stay as they
  // are; the data position and the loss scale go on.
  const Verdict verdict = agree_on(result);
  measurement_.complete(result);
  if (verdict.all_good) pace_.look_for_divergence(result);
  const double lr = rate();
  if (verdict.applies) result.grad_norm = apply(result, lr);
  commit(result, verdict.applies, lr);
  transfer_.publish_step(verdict.updates);
  meet();
  records_.replica();
  records_.workers();
  records_.state();
  saves_.save_if_due();
}

Trainer::Verdict Trainer::agree_on(const StepResult& result) {
  const std::vector<std::int64_t>& left_out = bench_.definition().skip_steps;
  const Quirks& quirks = bench_.quirks();
  const bool wanted = std::find(left_out.begin(), left_out.end(), step()) == left_out.end();
  const bool checked =
      checks_overflow(quirks, bench_.compute_type()) && bench_.plan.bug.mutant != Mutant::overflow_is_applied;
  const bool overflow_here = (checked && result.nonfinite > 0) || !wanted;
  const bool good = wanted && (result.finite || !checked);
  const bool all_good = bench_.planted->all_good([&] { return vote_.on(Vote::step, good); }, !overflow_here);
  // A quirk lets each rank heed its own overflow alone; parameters are published where anybody may have updated them.
  return {all_good, !skips(quirks, overflow_here, !all_good), !skips(quirks, false, !all_good)};
}

InForce Trainer::in_force() const {
  return runtime::in_force(bench_.definition(), bench_.progress.undone_changes(), step());
}

double Trainer::rate() const {
  const Definition& d = bench_.definition();
  const std::int64_t applied =
      rate_position(bench_.plan.bug.mutant, tensors_.optimizer().steps() - optimizer_start(d.quirks).steps);
  const std::int64_t steps = schedule_steps(d.quirks, applied, bench_.progress.skips().skipped, world_.comm().size());
  const double scheduled = learning_rate(d.scheduler, d.optimizer.lr, steps);
  return bench_.planted->rate(scheduled * in_force().lr_scale, step());
}

// Where the optimizer runs while gradients still come: as if none were clipped, and the step committed.
void Trainer::speculate() {
  ShardKeeper* const keeper = tensors_.keeper();
  if (keeper == nullptr || !keeper->speculates()) return;
  keeper->speculate(bench_.at_home(), unscale_factor(bench_.progress.scaler().scale()), rate());
}

// Returns the norm to report. Workers that train apart are clipped by their own norms.
float Trainer::apply(const StepResult& result, double lr) {
  if (tensors_.outer() == nullptr) return apply(result.grad_norm, lr);
  tensors_.for_each_worker([&](Index worker) { apply(measurement_.norm_of_worker(worker), lr); });
  return result.grad_norm;
}

float Trainer::apply(float norm, double lr) {
  bench_.at_home().phase(Phase::optimizer);
  const LossScaler& scaler = bench_.progress.scaler();
  const double limit = in_force().gradient_clipping;
  const UnscaledGradient gradient{norm, scaler.scale(), scaler.scale_after(false)};
  GradientFactor factor = gradient_factor(bench_.quirks(), gradient, bench_.planted->clipping_limit(limit));
  factor.factor = bench_.planted->clipping(factor.factor, limit, norm);
  factor.factor = clip_factor(bench_.plan.bug.mutant, factor.factor, limit, norm, scaler.scale());
  bench_.planted->clipped(bench_, tensors_, world_.place().way, factor.factor);
  tensors_.update(factor.factor * unscale_factor(scaler.scale()), lr);
  return factor.reported_norm;
}

void Trainer::commit(const StepResult& result, bool applied, double lr) {
  const std::vector<float> amaxes = agreed_amaxes(applied);  // while the update is under way
  bench_.finish_all(bench_.compute.last(), Edge::update_applied, !saves_.under_way());
  bench_.planted->updated(tensors_, step());
  records_.digests();
  const std::int64_t committed = step();
  bench_.progress.advance();
  reduction_.commit(committed, applied);
  records_.gradients(committed);
  records_.choices(committed, passes_.choices(), passes_.micro_batches());
  const StepRecord& record = records_.step_committed(result, applied, lr);
  const bool scales_down = bench_.planted->scales_down(!applied, committed);
  bench_.progress.account(committed, !applied, result.nonfinite,
                          scales_down && bench_.plan.bug.mutant != Mutant::scaler_never_backs_off);
  if (!amaxes.empty()) bench_.progress.move_scales(amaxes);
  if (!applied && bench_.plan.bug.is(Bug::ema_at_skipped_steps)) tensors_.move_mean_anyway();
  if (!applied && bench_.plan.bug.is(Bug::speculation_kept_on_overflow)) {
    tensors_.keeper()->keep_guess(bench_.at_home());
    bench_.finish_all(bench_.at_home().last(), Edge::update_applied);
  }
  if (!applied && bench_.plan.bug.mutant == Mutant::adam_counts_skipped)
    tensors_.continue_at(tensors_.optimizer_steps() + 1);
  transfer_.step_committed();
  bench_.observer.step_committed(bench_.rank.id, record);
  bench_.planted->committed([&] { return vote_.on(Vote::step); }, bench_.progress);
}

// Where workers train apart: an outer step, when one is due. Until its vote no rank has changed anything, so a failure
// before it leaves the outer step to the next world; after it all make it from the same sum.
void Trainer::meet() {
  OuterStep* const outer = tensors_.outer();
  if (outer == nullptr || !outer->is_due(step())) return;
  bench_.stand_at(world_.epoch(), step() - 1);
  bench_.phase(Phase::publish);
  outer->begin_sum();
  const Index n = tensors_.parameters().trainable_size();
  tensors_.for_each_worker([&](Index worker) {
    outer->add(bench_.compute, tensors_.workers().begin + worker, tensors_.flat_weights().part(0, n).as<const float>());
  });
  bench_.host_after(world_.comm(), bench_.compute.queue().record(), bench_.compute.last(), Edge::workers_ready);
  Op op = bench_.op(OpKind::all_reduce, Phase::publish, "outer gradient", SEEKSIM_SITE);
  --op.step;
  op = outer->sum(world_.comm(), op);
  bench_.host_after(world_.comm(), bench_.rank.device.communication_queue().record(), op, Edge::workers_summed);
  vote_.on(Vote::outer);
  outer->apply(bench_.compute);
  tensors_.take_outer_weights();
  bench_.finish_all(bench_.compute.last(), Edge::workers_met, !saves_.under_way());
  outer->made(step());
}

// Where operands are cast to 8 bits by what earlier steps held: of all samples of this one, along the data axis, and
// then among the ranks of a replica, who have other layers or other parts of them.
void Trainer::agree_on_amaxes() {
  Fp8Amaxes* const amaxes = passes_.amaxes();
  if (amaxes == nullptr) return;
  std::vector<Communicator*> over = {&world_.comm()};
  if (Replica* replica = world_.replica()) over.push_back(replica->communicators().front());
  amaxes->agree(bench_.compute, over);
  if (bench_.plan.bug.is(Bug::fp8_moves_before_vote)) bench_.progress.move_scales(amaxes->read(bench_.has_values()));
}

// By which scales move; empty where none do. A step that is skipped moves nothing, as it leaves the moments alone.
std::vector<float> Trainer::agreed_amaxes(bool applied) {
  const PlantedBug& bug = bench_.plan.bug;
  Fp8Amaxes* const amaxes = passes_.amaxes();
  if (amaxes == nullptr || bug.is(Bug::fp8_moves_before_vote)) return {};
  const std::vector<float> most = amaxes->read(bench_.has_values());
  return applied || bug.is(Bug::fp8_moves_on_skipped) ? most : std::vector<float>{};
}

// ---- around the steps ----------------------------------------------------------------------------------------------

void Trainer::prepare() {
  if (passes_.has_room()) return;
  if (drawn_) {
    if (!finished()) passes_.make_room();
    return;
  }
  world_.seat({bench_.rank.control.members(), world_.seats()});
  passes_.schedule();
  // First all memory, then given weights, then the first launch: when memory is short or the weights are bad, nothing
  // may be pending that refers to the buffers.
  allocate();
  bench_.stand_at(0, -1);
  bench_.compute.phase(Phase::init);
  tensors_.draw();
  drawn_ = true;
  if (tensors_.keeper() != nullptr) return;
  tensors_.reset_optimizer();
  tensors_.start_optimizer();
}

// The order is that of the addresses, and of what an injected shortage of memory meets.
void Trainer::allocate() {
  tensors_.serve(world_.workers());
  tensors_.allocate_flat();
  measurement_.allocate();
  reduction_.allocate();
  world_.allocate(tensors_.parameters());
  tensors_.allocate_state();
  evaluation_.allocate();
  passes_.allocate();  // last: it is what prepare() looks at
}

void Trainer::connect(std::uint32_t epoch, const Roster& world, const std::vector<int>& joiners) {
  bench_.planted->connecting(bench_.progress, epoch);
  reduction_.disconnect();
  world_.disconnect();
  pace_.begin_world();
  world_.seat(world);
  passes_.schedule();
  evaluation_.schedule();
  world_.connect(epoch);
  passes_.tell_pipeline();
  saves_.refuse_another_run();
  transfer_.settle(joiners);
  saves_.look_again();
  records_.shards();
  reduction_.connect(passes_.connect());
  transfer_.publish_world();
  meet();
  OuterStep* const outer = tensors_.outer();
  if (outer == nullptr || epoch == 0 || !bench_.plan.bug.is(Bug::outer_step_repeated)) return;
  outer->make_again();
  meet();
}

bool Trainer::serves_others_in(const Roster& world) const {
  const LocalSgdPlan& plan = bench_.definition().local_sgd;
  if (!plan.on() || !drawn_ || step() > 0) return false;
  const Grid grid(bench_.plan.layout.parallel, world.seats, world.members);
  const std::optional<GridPlace> place = grid.place(bench_.rank.id);
  return place && workers_of(plan, grid.replicas(), place->data) != tensors_.workers();
}

void Trainer::conclude() {
  if (final_.concluded()) return;
  saves_.finish();
  if (finished()) evaluation_.after_the_last();
  if (finished()) bench_.observer.trained(bench_.rank.id, step(), bench_.rank.clock.now());
  if (finished()) free_activations();  // room for what is gathered
  ShardKeeper* const keeper = tensors_.keeper();
  if (keeper != nullptr) keeper->load();
  PoisonFound poison = records_.look_for_poison(false);
  if (tensors_.outer() != nullptr) {  // each rank has state that no other has
    vote_.tell(std::move(poison));
    vote_.on(Vote::end);
    return final_.conclude(final_.state(true));
  }
  if (keeper == nullptr && bench_.alone()) {
    if (!poison.where.empty()) throw UnwrittenMemory(poison.where);
    return;
  }
  vote_.tell(std::move(poison));
  StateDigest state = final_.gather();
  if (keeper != nullptr) keeper->settle();
  vote_.on(Vote::end);
  if (keeper != nullptr) keeper->remove_files();
  final_.conclude(std::move(state));
}

std::vector<Communicator*> Trainer::communicators() {
  std::vector<Communicator*> all = world_.communicators();
  for (Communicator* comm : saves_.communicators()) all.push_back(comm);
  return all;
}

bool Trainer::abandon() {
  const Rank& rank = bench_.rank;
  Communicator::abort_all(bench_.rank, communicators());
  // As long as the others wait for this rank's answer: a kernel that never ends must not hold it for ever.
  const TimeNs patience = later(rank.clock.now(), bench_.plan.recovery.agree_ns);
  const bool answers = bench_.plan.bug.skips(Edge::step_abandoned) || rank.device.drain_by(patience, true);
  saves_.give_up();
  whole_.give_up();
  vote_.forget();
  passes_.forget();
  reduction_.disconnect();
  world_.disconnect();
  return answers;
}

void Trainer::free_activations() {
  passes_.free_activations();
  reduction_.give_back();
}

void Trainer::remove_files() {
  if (ShardKeeper* keeper = tensors_.keeper()) keeper->remove_files();
}

// ---- members that come and go --------------------------------------------------------------------------------------

// Members that are to leave go first, since they can still give what they hold; those that wait come with the next
// step.
NextWorld Trainer::wanted_world() const {
  const ParallelPlan& parallel = bench_.plan.layout.parallel;
  const std::vector<int>& leaving = vote_.leaving();
  const std::vector<int> members = bench_.rank.control.members();
  std::vector<int> stay = members;
  std::erase_if(stay, [&](int rank) { return std::binary_search(leaving.begin(), leaving.end(), rank); });
  NextWorld next = next_world(parallel, world_.seats(), stay, leaving.empty() ? vote_.waiting() : std::vector<int>());
  if (next.problem.empty() && !next.roster.members.empty()) return next;
  // Without them there is no whole model: they stay until they are taken away.
  return next_world(parallel, world_.seats(), members, vote_.waiting());
}

bool Trainer::world_may_change() const {
  if (vote_.leaving().empty() && vote_.waiting().empty()) return false;
  const std::vector<int> members = bench_.rank.control.members();
  if (vote_.leaving().empty() && int(members.size()) == world_.seats().count) return false;
  return wanted_world().roster.members != members;
}

NextWorld Trainer::agree_on_world() {
  if (saves_.on() && bench_.plan.recovery.save_on_notice && !vote_.leaving().empty()) saves_.save();
  saves_.finish();  // what is under way is of these members
  vote_.on(Vote::members);
  return wanted_world();
}

void Trainer::give_shards_first(std::uint32_t epoch, const Roster& all, const Roster& next) {
  const Grid grid(bench_.plan.layout.parallel, all.seats, all.members);
  world_.connect_data_axis(epoch, grid.holders(world_.place().stage, world_.place().way));
  give_shards_to(next);
}

void Trainer::leave() {
  remove_files();
  abandon();
}

HandOver Trainer::hand_over(const Roster& world, const std::vector<int>& joiners) const {
  const Progress& progress = bench_.progress;
  return {progress.state(tensors_.optimizer_steps(), world_.epoch()),
          world,
          joiners,
          saves_.loads_at_most(),
          transfer_.shards(),
          pace_.window(),
          progress.left_out(),
          progress.leaves_out_more()};
}

void Trainer::take_over(const HandOver& given) {
  SEEKSIM_CHECK(given.run.definition == definition_digest(bench_.definition(), given.run.step) &&
                    given.run.contract_version == kernels::kContractVersion,
                "rank %d joins a run of another definition", bench_.rank.id);
  transfer_.take_over(given);
  saves_.begin_with(given.load_most);
  RunState run = given.run;
  if (bench_.plan.bug.is(Bug::fp8_joiner_starts_anew)) run.fp8.clear();
  bench_.progress.restore(run);
  bench_.progress.leave_out(given.left_out, given.leaves_out_more);
  pace_.continue_with(given.window);
}

}  // namespace seeksim::runtime
