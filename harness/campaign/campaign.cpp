#include "harness/campaign/campaign.h"

#include <algorithm>
#include <map>
#include <optional>

#include "harness/campaign/arrivals.h"
#include "harness/campaign/nodes.h"
#include "harness/campaign/saves.h"
#include "runtime/seams/bounded.h"

namespace seeksim::harness::campaign {
namespace {

using runtime::kForever;

TimeNs ns(double s) { return std::max<TimeNs>(0, runtime::to_time_ns(s * 1e9)); }

// The job makes steps, or is down and passes through the stages of an outage. Every advance of the clock is booked.
class Campaign {
 public:
  Campaign(const Study& study, const Costs& costs, std::uint64_t seed, const Watcher& watcher)
      : study_(study),
        costs_(costs),
        watcher_(watcher),
        horizon_(ns(study.hours * 3600)),
        failures_(study, seed),
        nodes_(study),
        saves_(study, costs) {
    result_.restored.resize(study.tiers.size());
    list_causes();
    next_ = failures_.next(horizon_);
  }
  CampaignResult run();

 private:
  // What a failure does to a stage of an outage: the stage goes on; it ends where a node is gone, for nothing else runs
  // yet; it ends as a failure of the new processes.
  enum class Stage : std::uint8_t { goes_on, wants_nodes, fails_anew };
  struct SlowNode {
    TimeNs until_ns;
    double factor;
    std::int64_t node;
    Failure failure;
    bool counts = false;  // steps are slow from the next one on
  };

  // ---- the job is up
  void begin_steps();
  TimeNs end_steps(TimeNs at);  // how much of a step is cut short
  void meet_failure();
  void apply_changes();
  TimeNs next_change() const;
  // ---- the job is down
  std::optional<Failure> pass(Spent what, TimeNs duration, Stage stage);
  bool takes(const Failure& failure, Stage stage);
  void outage(Failure failure);
  std::optional<Failure> come_back(bool by_rebuild, const Failure& failure);
  void seat_all();
  void planned_stop();
  TimeNs go_back();
  // ---- what is so
  Reaction reaction(const Failure& failure, const Costs::Moment& moment) const;
  Costs::Moment moment(TimeNs at) const;
  std::int64_t usable(std::int64_t nodes) const {
    return nodes / study_.cluster.nodes_per_replica * study_.cluster.nodes_per_replica;
  }
  TimeNs step_now() const;  // without stragglers
  bool can_grow() const;
  const Cause* cause_of(const Failure& failure) const {
    return failure.cause >= 0 ? &study_.causes[std::size_t(failure.cause)] : nullptr;
  }
  void list_causes();
  CauseToll& toll_of(const Failure& failure) {
    if (failure.cause >= 0) return result_.tolls[std::size_t(failure.cause)];
    return result_.tolls[log_tolls_[std::size_t(failure.incident)]];
  }
  bool note_slow_or_leaving(const Failure& failure);
  void remove_leaving();
  bool over() const { return now_ >= horizon_; }

  const Study& study_;
  const Costs& costs_;
  const Watcher& watcher_;
  TimeNs horizon_;
  FailureStream failures_;
  std::optional<Failure> next_;
  Nodes nodes_;
  Saves saves_;
  CampaignResult result_;
  TimeNs now_ = 0;
  std::int64_t position_ = 0;             // steps that last so far
  std::optional<Stretch> stretch_;        // none: the job is down
  TimeNs usual_ns_ = 0;                   // its step without stragglers
  TimeNs job_began_ = 0;                  // its processes
  TimeNs up_since_ = -1;                  // the last unplanned stop was over; -1: the job is down for one
  std::vector<std::int64_t> lost_seats_;  // in this outage
  std::vector<SlowNode> slow_;
  std::vector<Failure> leaving_;        // announced: their nodes go at the end of a step
  std::vector<std::size_t> log_tolls_;  // by incident
};

// The study's causes, then those of the log that have other names.
void Campaign::list_causes() {
  std::map<std::string, std::size_t> rows;
  const auto row_of = [&](const std::string& name) {
    const auto [row, added] = rows.try_emplace(name, result_.tolls.size());
    if (added) result_.tolls.push_back({name});
    return row->second;
  };
  for (const Cause& cause : study_.causes) row_of(cause.name);
  for (const Incident& incident : study_.incidents)
    log_tolls_.push_back(row_of(incident.cause.empty() ? "incident" : incident.cause));
}

// ---- the job is up -------------------------------------------------------------------------------------------------

TimeNs Campaign::step_now() const {
  const std::int64_t nodes = std::max<std::int64_t>(1, usable(nodes_.taken_seats()));
  if (nodes >= study_.cluster.nodes) return costs_.step_ns;
  return TimeNs(double(costs_.step_ns) * double(study_.cluster.nodes) / double(nodes));
}

bool Campaign::can_grow() const {
  const std::int64_t now = nodes_.taken_seats();
  const std::int64_t then = std::min(study_.cluster.nodes, now + nodes_.spares());
  return usable(then) > usable(now);
}

void Campaign::begin_steps() {
  std::erase_if(slow_, [&](const SlowNode& slow) { return !nodes_.in_the_job(slow.node); });
  double factor = 1;
  for (SlowNode& slow : slow_) {
    slow.counts = true;
    factor = std::max(factor, slow.factor);
  }
  usual_ns_ = step_now();
  const TimeNs step = factor > 1 ? TimeNs(double(usual_ns_) * factor) : usual_ns_;
  stretch_.emplace(now_, position_, step, saves_.stops(step));
}

TimeNs Campaign::end_steps(TimeNs at) {
  const std::int64_t done = stretch_->committed(at);
  const TimeNs last = stretch_->commit(done), before = done > 0 ? stretch_->stops(done - 1) : 0;
  const TimeNs stopped = std::min(at - last, stretch_->stops(done) - before);
  const TimeNs cut = at - last - stopped, usual = usual_ns_;
  if (watcher_.stretch) watcher_.stretch(*stretch_, done);
  result_.spent.add(Spent::useful, done * costs_.step_ns);
  result_.spent.add(Spent::shrunk, done * (usual - costs_.step_ns));
  result_.spent.add(Spent::straggling, done * (stretch_->step_ns() - usual));
  result_.spent.add(Spent::checkpoints, before + stopped);
  result_.spent.add(Spent::cut_short, cut);
  result_.outside_ns += done * (usual - costs_.step_ns) + before + stopped;
  const auto slowest = std::max_element(slow_.begin(), slow_.end(), [](const SlowNode& a, const SlowNode& b) {
    return (a.counts ? a.factor : 0) < (b.counts ? b.factor : 0);
  });
  if (slowest != slow_.end()) toll_of(slowest->failure).lost_ns += done * (stretch_->step_ns() - usual);
  saves_.ran(*stretch_, done, at);
  position_ += done;
  now_ = at;
  stretch_.reset();
  return cut;
}

// Stragglers and announced failures take effect at the end of a step. False: this is neither.
bool Campaign::note_slow_or_leaving(const Failure& failure) {
  const Cause* cause = cause_of(failure);
  if (cause == nullptr || (failure.slow_ns == 0 && !cause->announced)) return false;
  const std::int64_t node = failure.of_the_job ? nodes_.node_of_the_job(failure.pick) : failure.node;
  Failure on_node = failure;
  on_node.node = node;
  on_node.of_the_job = false;
  if (node < 0 || !nodes_.in_the_job(node)) return true;
  ++result_.failures;
  if (failure.slow_ns > 0)
    slow_.push_back({runtime::shifted(failure.at_ns, failure.slow_ns), cause->slow.factor, node, on_node});
  else
    leaving_.push_back(on_node);
  return true;
}

void Campaign::meet_failure() {
  const Failure failure = *next_;
  next_ = failures_.next(horizon_);
  nodes_.settle(failure.at_ns);
  if (note_slow_or_leaving(failure)) return;
  const Nodes::Hit hit = nodes_.strike(failure, runtime::shifted(failure.at_ns, failure.repair_ns));
  if (!hit.job) return;
  ++result_.failures;
  lost_seats_ = hit.seats;
  outage(failure);
}

// The end of the step in or after which something changes for the job.
TimeNs Campaign::next_change() const {
  TimeNs first = kForever;
  for (const Failure& failure : leaving_) first = std::min(first, failure.at_ns);
  for (const SlowNode& slow : slow_) first = std::min(first, slow.counts ? slow.until_ns : slow.failure.at_ns);
  if (nodes_.empty_seats() > 0) first = std::min(first, nodes_.next_back());
  if (first >= horizon_) return horizon_;
  return std::min(horizon_, stretch_->in_order(std::max(first, stretch_->begin())));
}

void Campaign::apply_changes() {
  nodes_.settle(now_);
  std::erase_if(slow_, [&](const SlowNode& slow) {
    if (slow.until_ns > now_) return false;
    if (cause_of(slow.failure)->slow.evict) leaving_.push_back(slow.failure);
    return true;
  });
  std::erase_if(leaving_, [&](const Failure& failure) { return !nodes_.in_the_job(failure.node); });
  if (!leaving_.empty() || can_grow())
    planned_stop();
  else
    begin_steps();
}

// ---- the job is down -----------------------------------------------------------------------------------------------

// A failure during a stage. True: it ends the stage.
bool Campaign::takes(const Failure& failure, Stage stage) {
  nodes_.settle(failure.at_ns);
  if (note_slow_or_leaving(failure)) return false;
  const Nodes::Hit hit = nodes_.strike(failure, runtime::shifted(failure.at_ns, failure.repair_ns));
  if (!hit.job) return false;
  ++result_.failures;
  lost_seats_.insert(lost_seats_.end(), hit.seats.begin(), hit.seats.end());
  if (stage == Stage::wants_nodes) return !hit.seats.empty();
  return stage == Stage::fails_anew;
}

// The failure that ended the stage before its time.
std::optional<Failure> Campaign::pass(Spent what, TimeNs duration, Stage stage) {
  const TimeNs end = std::min(horizon_, runtime::shifted(now_, duration));
  while (next_ && next_->at_ns < end) {
    const Failure failure = *next_;
    next_ = failures_.next(horizon_);
    if (!takes(failure, stage)) continue;
    result_.spent.add(what, failure.at_ns - now_);
    now_ = failure.at_ns;
    return failure;
  }
  result_.spent.add(what, end - now_);
  now_ = end;
  nodes_.settle(now_);
  return std::nullopt;
}

Costs::Moment Campaign::moment(TimeNs at) const {
  if (!stretch_) return {at - job_began_, false, true};
  const std::int64_t done = stretch_->committed(at);
  const TimeNs since = at - stretch_->commit(done);
  const TimeNs stop = done > 0 ? stretch_->stops(done) - stretch_->stops(done - 1) : 0;
  if (since < stop) return {since, true, false};
  return {since - stop, false, false};
}

Reaction Campaign::reaction(const Failure& failure, const Costs::Moment& moment) const {
  const Cause* cause = cause_of(failure);
  const Recovery& recovery = study_.recovery;
  Reaction r = costs_.reaction ? costs_.reaction(moment) : Reaction{};
  TimeNs agree = r.ended_ns - r.noticed_ns;
  if (recovery.detect_s) r.noticed_ns = ns(recovery.detect_s->at(failure.u_detect));
  if (cause != nullptr && cause->detect_s) r.noticed_ns = ns(cause->detect_s->at(failure.u_detect));
  if (recovery.agree_s) agree = ns(recovery.agree_s->at(failure.u_agree));
  r.ended_ns = runtime::shifted(r.noticed_ns, agree);
  return r;
}

// Every seat has a node, or the job makes do with fewer.
void Campaign::seat_all() {
  while (!over()) {
    const TimeNs swap = nodes_.fill();
    if (swap > 0 && pass(Spent::swapping, swap, Stage::wants_nodes)) continue;
    if (nodes_.empty_seats() == 0) return;
    const std::int64_t nodes = usable(nodes_.taken_seats());
    if (study_.recovery.when_short == WhenShort::shrink && nodes > 0 && nodes >= study_.recovery.nodes_min) return;
    const TimeNs back = nodes_.next_back();
    pass(Spent::waiting, back >= horizon_ ? horizon_ - now_ : std::max<TimeNs>(1, back - now_), Stage::wants_nodes);
  }
}

// To the newest checkpoint that is left. Returns how long it takes to read.
TimeNs Campaign::go_back() {
  const int tier = saves_.newest();
  const std::int64_t to = tier >= 0 ? saves_.step(tier) : 0;
  ++(tier >= 0 ? result_.restored[std::size_t(tier)] : result_.from_nothing);
  result_.steps_redone += position_ - to;
  result_.spent.move(Spent::useful, Spent::redone, (position_ - to) * costs_.step_ns);
  position_ = to;
  return tier >= 0 ? costs_.tiers[std::size_t(tier)].read_ns : 0;
}

// The failure, if there is one, that strikes the new processes.
std::optional<Failure> Campaign::come_back(bool by_rebuild, const Failure& failure) {
  const Recovery& recovery = study_.recovery;
  if (by_rebuild) {
    seat_all();
    return pass(Spent::rebuilding, ns(recovery.rebuild_s->at(failure.u_rebuild)), Stage::fails_anew);
  }
  do {
    seat_all();
  } while (pass(Spent::restarting, ns(recovery.restart_s.at(failure.u_restart)), Stage::wants_nodes));
  saves_.strike(now_, lost_seats_);
  const TimeNs read = go_back();
  job_began_ = now_;
  if (auto anew = pass(Spent::reading, read, Stage::fails_anew)) return anew;
  return pass(Spent::starting, costs_.start_ns, Stage::fails_anew);
}

void Campaign::outage(Failure failure) {
  const Failure first = failure;
  if (up_since_ >= 0) result_.runs.ended(failure.at_ns - up_since_);
  up_since_ = -1;
  Costs::Moment when = moment(failure.at_ns);
  const TimeNs redone = result_.spent.of(Spent::redone);
  const TimeNs cut = stretch_ ? end_steps(failure.at_ns) : 0;
  for (bool down = true; down && !over();) {
    ++result_.interruptions;
    ++toll_of(failure).interruptions;
    const Reaction r = reaction(failure, when);
    saves_.strike(failure.at_ns, {});
    pass(Spent::detection, r.noticed_ns, Stage::goes_on);
    pass(Spent::agreement, r.ended_ns - r.noticed_ns, Stage::goes_on);
    remove_leaving();
    saves_.strike(failure.at_ns, lost_seats_);
    const bool by_rebuild =
        study_.recovery.policy == Policy::rebuild &&
        copies_last(lost_seats_, study_.cluster.nodes, study_.recovery.copies, stride_of(study_.cluster, 0));
    const std::optional<Failure> anew = come_back(by_rebuild, failure);
    down = anew.has_value();
    if (!anew) break;
    failure = *anew;
    when = {now_ - job_began_, false, true};
  }
  toll_of(first).lost_ns += now_ - first.at_ns + cut + result_.spent.of(Spent::redone) - redone;
  lost_seats_.clear();
  if (over()) return;
  up_since_ = now_;
  begin_steps();
}

void Campaign::remove_leaving() {
  for (const Failure& failure : leaving_) nodes_.strike(failure, runtime::shifted(now_, failure.repair_ns));
  leaving_.clear();
}

// The job saves, gives up the nodes that leave, takes those that are there, and goes on.
void Campaign::planned_stop() {
  const std::optional<Failure> why = leaving_.empty() ? std::nullopt : std::optional(leaving_.front());
  const TimeNs began = now_, redone = result_.spent.of(Spent::redone);
  ++result_.planned_stops;
  TimeNs write = kForever;
  for (const TierCosts& tier : costs_.tiers) write = std::min(write, tier.write_ns);
  std::optional<Failure> anew;
  if (write != kForever) anew = pass(Spent::checkpoints, write, Stage::fails_anew);
  if (!anew && write != kForever) saves_.saved_all(position_);
  if (!anew) {
    remove_leaving();
    Failure growth;  // with durations that half of all draws do not reach
    growth.u_rebuild = growth.u_restart = 0.5;
    anew = come_back(study_.recovery.policy == Policy::rebuild, why.value_or(growth));
  }
  (why ? toll_of(*why).lost_ns : result_.outside_ns) += now_ - began + result_.spent.of(Spent::redone) - redone;
  if (anew) return outage(*anew);
  lost_seats_.clear();
  if (!over()) begin_steps();
}

CampaignResult Campaign::run() {
  const std::optional<Failure> early = pass(Spent::starting, costs_.start_ns, Stage::fails_anew);
  result_.outside_ns = now_;
  if (!early) up_since_ = now_;
  if (early)
    outage(*early);
  else if (!over())
    begin_steps();
  while (!over()) {
    const TimeNs change = next_change();
    if (next_ && next_->at_ns < change) {
      meet_failure();
      continue;
    }
    const TimeNs cut = end_steps(change);
    if (over())
      result_.outside_ns += cut;
    else
      apply_changes();
  }
  if (up_since_ >= 0) result_.runs.went_on(horizon_ - up_since_);
  result_.whole_ns = horizon_;
  result_.step_ns = costs_.step_ns;
  result_.steps = position_;
  result_.spares_used = nodes_.filled();
  result_.checkpoints = saves_.begun();
  return std::move(result_);
}

}  // namespace

CampaignResult run_campaign(const Study& study, const Costs& costs, std::uint64_t seed, const Watcher& watcher) {
  return Campaign(study, costs, seed, watcher).run();
}

}  // namespace seeksim::harness::campaign
