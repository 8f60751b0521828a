// Order matters: say what was seen before anything is thrown away; wake the others; give up the communicator, so that
// nothing pending can touch a buffer; only then agree, decide and rebuild.
#include "runtime/recovery/recovery.h"

#include <algorithm>
#include <utility>

#include "kernels/check.h"
#include "runtime/launch/launcher.h"

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
  if (failure.kind() == ErrorKind::data_error && failure.op().samples == 1)
    ballot.words[kSampleWord] = 1 + failure.op().sample;
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
  if (!trainer.abandon()) {  // only the end of the process helps; what it holds is not trusted
    return TrainOutcome{Ending::evicted, "its device does not answer: " + failure.detail(), trainer.step(), {}};
  }
  if (++tries_ > plan_.attempts_max + 8) {  // agreements themselves fail: nothing here can help
    return TrainOutcome{Ending::stopped, "recovery itself keeps failing: " + failure.detail(), trainer.step(),
                        trainer.state()};
  }
  const Agreement agreement = rank_.control.agree(op, epoch, mine, later(rank_.clock.now(), plan_.agree_ns));
  record.agreed_ns = rank_.clock.now();
  record.diagnosis = diagnose(agreement);
  record.dead = agreement.dead;
  record.silent = agreement.silent;

  left_over_ = gives_first_ = false;
  Decision decision = decide(plan_, agreement, record.diagnosis, trainer.step(), history_);
  spare_last_holders(agreement, trainer, decision);
  const std::vector<int> survivors = decision.survivors;
  if (!decision.stop) take_places(agreement, trainer, decision);
  if (!decision.stop) choose_layout(shortage(agreement), trainer, decision, record);
  record.evicted = decision.evicted;
  record.survivors = decision.survivors;
  observer_.recovering(rank_.id, record);
  if (decision.stop) {
    if (failure.kind() == ErrorKind::out_of_memory) decision.why += "; " + failure.detail();  // with what was in use
    return TrainOutcome{Ending::stopped, decision.why, trainer.step(), trainer.state()};
  }
  const bool goes_on = std::binary_search(decision.survivors.begin(), decision.survivors.end(), rank_.id);
  if (!goes_on && !(left_over_ && gives_first_)) {
    const std::string why = decision.why.empty() ? "the others declared this rank dead" : decision.why;
    return TrainOutcome{Ending::evicted, why, trainer.step(), trainer.state()};
  }
  // The ladder is bounded by itself.
  if (record.layout.empty())
    history_.push_back({trainer.step(), record.diagnosis});
  else
    tries_ = 0;
  if (!next_.joiners.empty()) history_.clear();  // they have none, and shall decide as the others do
  pending_.push_back(record);
  if (gives_first_) {
    joiners_.clear();
    rank_.control.enter_epoch(epoch + 1, survivors);
  } else {
    enter(epoch + 1, next_, trainer.step());
  }
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
         " times without getting past step " + std::to_string(furthest_);
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

}  // namespace seeksim::runtime
