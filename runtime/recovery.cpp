// The only catch site of the runtime is in train(). Order matters: say what was seen before anything is thrown away;
// wake the others; give up the communicator, so that nothing pending can touch a buffer; only then agree, decide and
// rebuild.
#include "runtime/recovery.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <utility>

#include "kernels/check.h"
#include "runtime/launcher.h"

namespace seeksim::runtime {
namespace {

Op recovery_op(const Rank& rank, OpKind kind, std::uint32_t epoch, std::int64_t step, const char* site) {
  Op op;
  op.kind = kind;
  op.phase = Phase::recovery;
  op.epoch = epoch;
  op.rank = rank.id;
  op.step = step;
  op.tensor = "recovery";
  op.site = site;
  return op;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

bool blames_a_link(const Diagnosis& d) {
  return (d.verdict == Verdict::link || d.verdict == Verdict::corrupt_message) && !d.links.empty();
}

// Links accused now and in the attempt before, where one of them is accused again. A link is given a second chance,
// since most cuts are short and evicting a healthy rank costs a rank; the second time its end goes.
std::vector<std::pair<int, int>> links_accused_again(const Diagnosis& now, std::int64_t step,
                                                     const std::vector<FailedAttempt>& history) {
  if (!blames_a_link(now) || history.empty()) return {};
  const FailedAttempt& before = history.back();
  if (before.step != step || !blames_a_link(before.diagnosis)) return {};
  const auto& earlier = before.diagnosis.links;
  const bool same_link = std::any_of(now.links.begin(), now.links.end(), [&](const std::pair<int, int>& link) {
    return std::find(earlier.begin(), earlier.end(), link) != earlier.end();
  });
  // A sender whose messages arrive corrupt at one receiver after the other is one source.
  const bool same_sender = now.verdict == Verdict::corrupt_message &&
                           before.diagnosis.verdict == Verdict::corrupt_message &&
                           now.links.front().first == earlier.front().first;
  if (!same_link && !same_sender) return {};
  std::vector<std::pair<int, int>> links = now.links;
  links.insert(links.end(), earlier.begin(), earlier.end());
  return links;
}

// Ranks that computed other bits now and in an earlier attempt at this step. A stray particle strikes once; who errs
// again has a defect.
std::vector<int> corrupt_again(const Diagnosis& now, std::int64_t step, const std::vector<FailedAttempt>& history) {
  std::vector<int> again;
  if (now.verdict != Verdict::corrupt_compute) return again;
  for (const int rank : now.culprits) {
    const bool before = std::any_of(history.begin(), history.end(), [&](const FailedAttempt& a) {
      const std::vector<int>& named = a.diagnosis.culprits;
      return a.step == step && a.diagnosis.verdict == Verdict::corrupt_compute &&
             std::find(named.begin(), named.end(), rank) != named.end();
    });
    if (before) again.push_back(rank);
  }
  return again;
}

}  // namespace

int rank_to_evict(const std::vector<std::pair<int, int>>& links) {
  SEEKSIM_CHECK(!links.empty(), "no link is accused");
  std::vector<int> common = {links.front().first, links.front().second};
  for (const auto& [from, to] : links) {
    std::erase_if(common, [f = from, t = to](int rank) { return rank != f && rank != t; });
  }
  return common.size() == 1 ? common.front() : links.front().first;
}

Decision decide(const RecoveryPlan& plan, const Agreement& agreement, const Diagnosis& diagnosis, std::int64_t step,
                const std::vector<FailedAttempt>& history) {
  Decision decision;
  decision.survivors = agreement.members;
  decision.evicted = agreement.dead;
  std::sort(decision.survivors.begin(), decision.survivors.end());
  std::sort(decision.evicted.begin(), decision.evicted.end());
  auto stop = [&](const std::string& why) {
    decision.stop = true;
    decision.why = why + ": " + diagnosis.text;
    return decision;
  };
  for (const Ballot& ballot : agreement.ballots) {
    const bool begins_anew =
        plan.policy == RecoveryPolicy::restart_from_checkpoint || diagnosis.verdict == Verdict::diverged;
    if (ballot.last_committed != step - 1 && !begins_anew)
      return stop("ranks committed different steps, which the vote forbids");
  }
  if (plan.policy == RecoveryPolicy::stop) return stop("the recovery policy is to stop");
  const auto attempts =
      std::count_if(history.begin(), history.end(), [&](const FailedAttempt& a) { return a.step == step; });
  if (attempts >= plan.attempts_max) {
    return stop("step " + std::to_string(step) + " failed " + std::to_string(attempts + 1) + " times");
  }
  if (plan.policy == RecoveryPolicy::retry_step) {
    if (!agreement.dead.empty())
      return stop("retry_step needs every member, and " + list_of(decision.evicted) + " is gone");
    return decision;
  }
  auto evict = [&](int rank, const char* since) {
    if (decision.survivors.size() <= 1 || std::erase(decision.survivors, rank) == 0) return;
    decision.evicted.push_back(rank);
    std::sort(decision.evicted.begin(), decision.evicted.end());
    decision.why = "rank " + std::to_string(rank) + " is evicted, since " + since + ": " + diagnosis.text;
  };
  const auto links = links_accused_again(diagnosis, step, history);
  if (!links.empty()) evict(rank_to_evict(links), "its link failed again");
  for (const int rank : corrupt_again(diagnosis, step, history)) evict(rank, "it computed other bits again");
  if (diagnosis.verdict == Verdict::straggler) {
    for (const int rank : diagnosis.culprits) evict(rank, "everybody waits for it");
  }
  if (const std::size_t left = decision.survivors.size(); left < std::size_t(plan.ranks_min)) {
    return stop(std::to_string(left) + (left == 1 ? " member is left" : " members are left") + ", and the run needs " +
                std::to_string(plan.ranks_min));
  }
  return decision;
}

namespace {
// The communicator on which this rank is stuck: of those with an unfinished operation the one that was entered first.
const Communicator* stuck_in(const Transport& transport, const std::vector<Communicator*>& all) {
  const Communicator* found = all.empty() ? nullptr : all.front();
  TimeNs first = kForever;
  for (const Communicator* comm : all) {
    const Transport::Unmatched waiting = transport.unmatched(comm->handle());
    const TimeNs joined = waiting.pending ? comm->joined_ns(waiting.op.sequence) : -1;
    if (joined < 0 || joined >= first) continue;
    first = joined;
    found = comm;
  }
  return found;
}
}  // namespace

Ballot Recovery::ballot(const SeamError& failure, Trainer& trainer, TimeNs detected) const {
  Ballot ballot;
  ballot.ok = false;
  ballot.error = failure.kind();
  ballot.last_committed = trainer.step() - 1;
  ballot.detected_ns = detected;
  ballot.stuck_kind = failure.op().kind;
  ballot.words[kActivationsWord] = trainer.holds_activations() ? 1 : 0;
  const std::vector<Communicator*> all = trainer.communicators();
  const Communicator* const comm = stuck_in(rank_.transport, all);
  if (comm == nullptr) return ballot;
  ballot.stuck_in = comm->id();
  std::size_t n = 0;
  for (const Communicator* own : all) {
    if (n < ballot.progress.size()) ballot.progress[n++] = {own->id(), own->last_sequence()};
  }
  ballot.last_joined = comm->last_sequence();
  if (is_collective(failure.op().kind)) ballot.stuck_sequence = failure.op().sequence;
  ballot.missing_peer = failure.op().peer;
  ballot.missing_is_sender = failure.kind() == ErrorKind::corrupt || failure.kind() == ErrorKind::mismatch;
  // The transport knows better which operation is the oldest that did not end, and whose message it lacks.
  const Transport::Unmatched waiting = rank_.transport.unmatched(comm->handle());
  if (waiting.pending) {
    ballot.stuck_sequence = waiting.op.sequence;
    ballot.stuck_kind = waiting.op.kind;
    ballot.stuck_meaning = meaning(waiting.op);
  }
  if (ballot.missing_peer < 0 && waiting.peer >= 0) {
    ballot.missing_peer = waiting.peer;
    ballot.missing_is_sender = waiting.waits_for_send;
  }
  if (ballot.stuck_sequence > 0) ballot.joined_ns = comm->joined_ns(ballot.stuck_sequence);
  return ballot;
}

// All ranks make the same choice, since all that enters it was agreed on. Without the ladder the same layout has to do.
void Recovery::choose_layout(const Shortage& shortage, const Trainer& trainer, Decision& decision,
                             RecoveryRecord& record) {
  if (!shortage.there) return;
  if (!plan_.memory_ladder) {
    next_layout_ = train_.layout;
    return;
  }
  const LadderPlace place{tried_again_, trainer.step() == 0, int(decision.survivors.size())};
  next_layout_ = next_rung(train_.layout, train_.definition, shortage, place);
  if (!next_layout_) {
    decision.stop = true;
    std::string tried;
    for (const std::string& rung : rungs_) tried += (tried.empty() ? "" : "; ") + rung;
    decision.why = "no layout is left that needs less memory (" + text(train_.layout) + "; tried: " + tried +
                   "): " + record.diagnosis.text;
    return;
  }
  record.layout = change(train_.layout, *next_layout_);
  tried_again_ = true;
  rungs_.push_back(record.layout);
}

// Where a model is on several ranks: as many whole replicas as the survivors make. Who is left over leaves, and is not
// waited for.
void Recovery::take_places(Decision& decision) const {
  if (train_.layout.parallel.alone()) return;
  const Grid grid(train_.layout.parallel, rank_.world_size, decision.survivors);
  if (const std::string missing = grid.problem(); !missing.empty()) {
    decision.stop = true;
    decision.why = missing + (decision.why.empty() ? "" : ": " + decision.why);
    return;
  }
  for (const int rank : grid.idle()) {
    decision.evicted.push_back(rank);
    if (rank == rank_.id)
      decision.why =
          "the survivors make " + std::to_string(grid.replicas()) + " whole replica(s) of the model without this rank";
  }
  std::sort(decision.evicted.begin(), decision.evicted.end());
  decision.survivors = grid.used();
}

// A living rank is not put out while the others cannot do without what it holds: trying a bad link once more costs less
// than the state. All know who holds what, so all come to the same.
void Recovery::spare_last_holders(const Agreement& agreement, const Trainer& trainer, Decision& decision) const {
  if (decision.stop || decision.survivors.size() == agreement.members.size()) return;
  std::vector<int> living = agreement.members;
  std::sort(living.begin(), living.end());
  if (trainer.lost(decision.survivors).empty() || !trainer.lost(living).empty()) return;
  decision.survivors = std::move(living);
  decision.evicted = agreement.dead;
  std::sort(decision.evicted.begin(), decision.evicted.end());
  decision.why.clear();
}

std::optional<Layout> Recovery::take_layout() { return std::exchange(next_layout_, std::nullopt); }

TimeNs Recovery::grace() const { return std::min(plan_.agree_ns / 10, kSecond); }

std::optional<TrainOutcome> Recovery::recover(const SeamError& failure, Trainer& trainer) {
  RecoveryRecord record;
  record.epoch = failure.op().epoch;
  record.step = trainer.step();
  record.error = failure.kind();
  record.op = failure.op();
  record.detail = failure.detail();
  record.detected_ns = rank_.clock.now();
  const std::uint32_t epoch = rank_.control.epoch();
  record.epoch = epoch;
  // A transport that reports what went wrong comes long before a watchdog: many messages are still under way. What can
  // arrive shall arrive, so that what is missing afterwards is what is broken.
  const bool told = failure.kind() == ErrorKind::remote_error || failure.kind() == ErrorKind::corrupt ||
                    failure.kind() == ErrorKind::mismatch;
  if (told) rank_.clock.sleep_until(later(record.detected_ns, grace()));
  const Ballot mine = ballot(failure, trainer, record.detected_ns);
  observer_.failed(rank_.id, epoch, rank_.recorder, mine);  // before anything is given up

  const Op op = recovery_op(rank_, OpKind::agree, epoch, trainer.step(), SEEKSIM_SITE);
  rank_.control.revoke(epoch, failure.op(), failure.kind());
  trainer.abandon();
  if (++tries_ > plan_.attempts_max + 8) {  // agreements themselves fail: nothing here can help
    return TrainOutcome{Ending::stopped, "recovery itself keeps failing: " + failure.detail(), trainer.step(),
                        trainer.state()};
  }
  const Agreement agreement = rank_.control.agree(op, epoch, mine, later(rank_.clock.now(), plan_.agree_ns));
  record.agreed_ns = rank_.clock.now();
  record.diagnosis = diagnose(agreement);
  record.dead = agreement.dead;
  record.silent = agreement.silent;

  Decision decision = decide(plan_, agreement, record.diagnosis, trainer.step(), history_);
  spare_last_holders(agreement, trainer, decision);
  if (!decision.stop) take_places(decision);
  if (!decision.stop) choose_layout(shortage(agreement), trainer, decision, record);
  record.evicted = decision.evicted;
  record.survivors = decision.survivors;
  observer_.recovering(rank_.id, record);
  if (decision.stop) {
    if (failure.kind() == ErrorKind::out_of_memory) decision.why += "; " + failure.detail();  // with what was in use
    return TrainOutcome{Ending::stopped, decision.why, trainer.step(), trainer.state()};
  }
  if (!std::binary_search(decision.survivors.begin(), decision.survivors.end(), rank_.id)) {
    const std::string why = decision.why.empty() ? "the others declared this rank dead" : decision.why;
    return TrainOutcome{Ending::evicted, why, trainer.step(), trainer.state()};
  }
  // The ladder is bounded by itself.
  if (record.layout.empty())
    history_.push_back({trainer.step(), record.diagnosis});
  else
    tries_ = 0;
  pending_.push_back(record);
  rank_.control.enter_epoch(epoch + 1, decision.survivors);
  return std::nullopt;
}

void Recovery::rebuilt() {
  for (RecoveryRecord& record : pending_) {
    if (record.rebuilt_ns == 0) record.rebuilt_ns = rank_.clock.now();
  }
}

std::string Recovery::going_back() {
  if (++times_back_ <= plan_.attempts_max) return {};
  return "the run went back to a checkpoint " + std::to_string(plan_.attempts_max) +
         " times and never came further than step " + std::to_string(furthest_);
}

void Recovery::went_back(std::int64_t from, std::int64_t to) {
  if (!pending_.empty()) pending_.back().steps_lost = std::max<std::int64_t>(from - to, 0);
}

void Recovery::step_committed(std::int64_t steps) {
  if (steps > furthest_) times_back_ = 0;
  furthest_ = std::max(furthest_, steps);
  tries_ = 0;
  tried_again_ = false;
  rungs_.clear();
  if (pending_.empty()) return;
  history_.clear();
  for (RecoveryRecord& record : pending_) {
    record.resumed_ns = rank_.clock.now();
    observer_.recovered(rank_.id, record);
  }
  pending_.clear();
}

namespace {
// After a failure for want of memory: with nothing committed all is made anew, in whatever layout; else only what is
// not durable. Nothing is pending here.
void make_anew(std::optional<Trainer>& trainer, Rank& rank, const TrainPlan& plan, Observer& observer,
               const std::function<void()>& change_plan) {
  const bool nothing_committed = trainer->step() == 0;
  if (nothing_committed)
    trainer.reset();  // before the next one takes any memory
  else
    trainer->free_activations();
  change_plan();
  if (nothing_committed) trainer.emplace(rank, plan, observer);
  observer.layout(rank.id, plan.layout);
}

// Gives up all that this rank holds: the next trainer begins with a checkpoint. After a divergence with one before it,
// and without the batches that led there.
void go_back(std::optional<Trainer>& trainer, Rank& rank, const TrainPlan& plan, bool diverged, Observer& observer) {
  const DivergencePlan& divergence = plan.recovery.divergence;
  std::int64_t most = trainer->loads() ? trainer->loads_at_most() : trainer->step();
  if (diverged) most = std::max<std::int64_t>(most - divergence.rollback_steps, 0);
  const std::vector<std::int64_t> dropped = trainer->dropped_batches();
  trainer->remove_files();
  trainer.reset();
  trainer.emplace(rank, plan, observer);
  trainer->begin_with_checkpoint(most);
  trainer->leave_out(dropped, diverged ? divergence.drop_batches : 0);
  observer.layout(rank.id, plan.layout);
}
}  // namespace

// The loop around the steps. A failure leaves the catch block before anything is done about it: a fiber that waits
// inside one would swap exceptions with another.
TrainOutcome train(Rank& rank, const TrainPlan& given, Observer& observer, std::vector<NamedTensor>* final_weights) {
  // The ladder changes the layout. Who does not ask for it needs no plan of its own, which may hold a text.
  std::optional<TrainPlan> own;
  if (given.recovery.memory_ladder) own = given;
  const TrainPlan& plan = own ? *own : given;
  std::optional<Trainer> trainer;
  trainer.emplace(rank, plan, observer);
  observer.layout(rank.id, plan.layout);
  Recovery recovery(rank, plan, observer);
  std::optional<SeamError> failure;
  std::int64_t reached = 0;  // steps, before a failure
  for (;;) {
    bool goes_back = false, diverged = false;
    std::optional<SeamError> caught;
    std::exception_ptr bug;
    std::optional<std::string> hopeless;
    std::optional<DiskLost> disk_lost;
    try {
      if (failure) {
        if (auto over = recovery.recover(*failure, *trainer)) return *over;
        failure.reset();
        reached = std::max(reached, trainer->step());
        diverged = recovery.diverged();
        goes_back = plan.recovery.policy == RecoveryPolicy::restart_from_checkpoint || trainer->loads() || diverged;
        if (const std::optional<Layout> layout = recovery.take_layout()) {
          make_anew(trainer, rank, plan, observer, [&] {
            if (own) own->layout = *layout;
          });
        }
      }
      std::string lost = trainer->lost(rank.control.members());
      if (goes_back || (!lost.empty() && plan.checkpoint.on())) {
        if (const std::string why = recovery.going_back(); !why.empty())
          return {Ending::stopped, why + (lost.empty() ? "" : "; " + lost), trainer->step(), trainer->state()};
        go_back(trainer, rank, plan, diverged, observer);
        lost = trainer->lost(rank.control.members());
      }
      if (!lost.empty()) return {Ending::stopped, lost, trainer->step(), trainer->state()};
      const bool loads = trainer->loads();
      trainer->prepare();
      trainer->connect(rank.control.epoch(), rank.control.members());
      if (loads) recovery.went_back(reached, trainer->step());
      reached = trainer->step();
      recovery.rebuilt();
      while (!trainer->finished() && trainer->stopped().empty()) {
        trainer->train_step();
        recovery.step_committed(trainer->step());
        trainer->let_straggler_go();
      }
      trainer->conclude();
    } catch (const SeamError& error) {
      caught.emplace(error);
    } catch (const DiskLost& lost) {
      disk_lost.emplace(lost);
    } catch (const UnwrittenMemory& found) {
      hopeless = found.what();
    } catch (const StaleFiles& found) {
      hopeless = found.what();
    } catch (const NoCheckpoint& found) {
      hopeless = found.what();
    } catch (const std::exception&) {
      bug = std::current_exception();  // ours, or weights that do not fit: nothing to recover from
    }
    if (bug) {
      trainer->abandon();  // nothing may be pending when the buffers go
      std::rethrow_exception(bug);
    }
    if (disk_lost) {  // it tells the others, who find that it does not answer
      const SeamError& error = disk_lost->error;
      rank.control.revoke(rank.control.epoch(), error.op(), error.kind());
      trainer->abandon();
      return {Ending::evicted, "its disk is lost, and its peers' copies serve: " + error.detail(), trainer->step(),
              trainer->state()};
    }
    if (hopeless) {
      trainer->abandon();
      return {Ending::stopped, *hopeless, trainer->step(), trainer->state()};
    }
    if (!caught) break;
    if (caught->kind() == ErrorKind::fenced) {
      trainer->abandon();
      return {Ending::evicted, "the others declared this rank dead and went on: " + caught->detail(), trainer->step(),
              trainer->state()};
    }
    if (caught->kind() == ErrorKind::diverged && plan.recovery.divergence.rollback_steps == 0) {
      trainer->abandon();
      return {Ending::stopped, "diverged: " + caught->detail(), trainer->step(), trainer->state()};
    }
    failure = std::move(caught);
  }
  if (final_weights != nullptr && trainer->is_lowest_rank()) *final_weights = trainer->weights();
  if (!trainer->finished()) return {Ending::stopped, trainer->stopped(), trainer->step(), trainer->state()};
  return {Ending::finished, "", trainer->step(), trainer->state()};
}

}  // namespace seeksim::runtime
