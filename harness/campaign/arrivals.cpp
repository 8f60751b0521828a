#include "harness/campaign/arrivals.h"

#include <algorithm>

#include "runtime/seams/bounded.h"
#include "sim/random.h"

namespace seeksim::harness::campaign {
namespace {

constexpr double kHourNs = 3600e9;

// A stream for each cause by its name, so that a cause may come and go without moving others.
std::uint64_t stream_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3ull;
  return hash ^ seed * 0x9e3779b97f4a7c15ull;
}

// The draws of one failure: of which cause, in which unit, and its number there.
sim::Random draws_of(std::uint64_t seed, const std::string& cause, std::int64_t unit, std::int64_t number) {
  return {stream_of(seed, cause), sim::Stream(std::uint64_t(unit) << 32 | std::uint64_t(number))};
}

Distribution weibull(double mean, double shape) {
  Distribution d;
  d.kind = Distribution::Kind::weibull;
  d.mean = mean;
  d.shape = shape;
  return d;
}

// Hours from when a unit is put to service until it fails.
double gap_hours(const Study& study, const Cause& cause, sim::Random& random) {
  const double u[] = {random.unit(), random.unit(), random.unit()};
  const double mean = mtbf_hours_of(study, cause);
  const Arrivals& a = cause.arrivals;
  switch (a.process) {
    case Process::weibull:
      return weibull(mean, a.shape).at(u[0]);
    case Process::log_normal: {
      Distribution d;
      d.kind = Distribution::Kind::log_normal;
      d.mean = mean;
      d.sigma = a.sigma;
      return d.at(u[0]);
    }
    case Process::bathtub: {
      double gap = weibull(mean, 1).at(u[0]);
      if (a.infant_mtbf_hours > 0) gap = std::min(gap, weibull(a.infant_mtbf_hours, a.infant_shape).at(u[1]));
      if (a.wear_mtbf_hours > 0) gap = std::min(gap, weibull(a.wear_mtbf_hours, a.wear_shape).at(u[2]));
      return gap;
    }
    default:
      return weibull(mean, 1).at(u[0]);
  }
}

TimeNs hours_ns(double hours) { return runtime::to_time_ns(hours * kHourNs); }

}  // namespace

const char* name(Unit unit) {
  constexpr const char* kNames[] = {"gpu", "node", "rack", "switch", "power", "job"};
  return kNames[int(unit)];
}

const char* name(Process process) {
  constexpr const char* kNames[] = {"poisson", "weibull", "log_normal", "bathtub"};
  return kNames[int(process)];
}

std::int64_t nodes_of(const Cluster& cluster, Unit unit) {
  switch (unit) {
    case Unit::rack:
      return cluster.nodes_per_rack;
    case Unit::switch_:
      return cluster.nodes_per_switch;
    case Unit::power:
      return cluster.nodes_per_power_domain;
    default:
      return 1;
  }
}

std::int64_t units_of(const Study& study, Unit unit) {
  const std::int64_t nodes = study.cluster.nodes + study.spares.hot + study.spares.cold;
  if (unit == Unit::job) return 1;
  if (unit == Unit::gpu) return nodes * study.cluster.gpus_per_node;
  const std::int64_t each = nodes_of(study.cluster, unit);
  return each > 0 ? (nodes + each - 1) / each : 0;
}

double mtbf_hours_of(const Study& study, const Cause& cause) {
  const double rate = cause.arrivals.rate;
  const double gpus = cause.unit == Unit::gpu   ? 1
                      : cause.unit == Unit::job ? double(study.cluster.nodes * study.cluster.gpus_per_node)
                                                : double(study.cluster.gpus_per_node);
  switch (cause.arrivals.rate_of) {
    case Rate::per_unit_day:
      return 24 / rate;
    case Rate::per_gpu_hour:
      return 1 / (rate * gpus);
    case Rate::per_node_day:
      return 24 / (rate * gpus / double(study.cluster.gpus_per_node));
    default:
      return rate;
  }
}

double failures_per_hour(const Study& study) {
  Study alone = study;  // without spares
  alone.spares.hot = alone.spares.cold = 0;
  double sum = 0;
  for (const Cause& cause : study.causes) {
    if (cause.announced || cause.slow.factor > 1) continue;
    sum += double(units_of(alone, cause.unit)) / mtbf_hours_of(study, cause);
  }
  return sum;
}

FailureStream::FailureStream(const Study& study, std::uint64_t seed) : study_(study), seed_(seed) {
  for (std::size_t i = 0; i < study.causes.size(); ++i) begin(int(i));
}

void FailureStream::begin(int cause) {
  const Cause& of = study_.causes[std::size_t(cause)];
  const TimeNs horizon = hours_ns(study_.hours);
  const std::int64_t units = units_of(study_, of.unit);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    sim::Random random = draws_of(seed_, of.name, unit, 0);
    const TimeNs at = hours_ns(gap_hours(study_, of, random));
    if (at < horizon) due_.push({at, cause, unit, 0});
  }
}

// The draws of a failure stand in this order: its gap, then the others. A new one goes to the end.
Failure FailureStream::drawn(const Due& due) const {
  const Cause& cause = study_.causes[std::size_t(due.cause)];
  sim::Random random = draws_of(seed_, cause.name, due.unit, due.number);
  gap_hours(study_, cause, random);
  Failure failure;
  failure.at_ns = due.at_ns;
  failure.cause = due.cause;
  failure.nodes = nodes_of(study_.cluster, cause.unit);
  failure.node = due.unit * failure.nodes;
  if (cause.unit == Unit::gpu) failure.node = due.unit / study_.cluster.gpus_per_node;
  failure.of_the_job = cause.unit == Unit::job;
  failure.pick = random.unit();
  failure.u_detect = random.unit();
  failure.u_agree = random.unit();
  failure.u_rebuild = random.unit();
  failure.u_restart = random.unit();
  const double u_repair = random.unit(), u_slow = random.unit();
  if (cause.repair_hours) failure.repair_ns = std::max<TimeNs>(1, hours_ns(cause.repair_hours->at(u_repair)));
  if (cause.slow.factor > 1) failure.slow_ns = std::max<TimeNs>(1, hours_ns(cause.slow.hours.at(u_slow)));
  return failure;
}

Failure FailureStream::of_the_log() {
  const Incident& incident = study_.incidents[log_at_];
  sim::Random random = draws_of(seed_, "incidents of the log", 0, std::int64_t(log_at_));
  Failure failure;
  failure.at_ns = incident.at_ns;
  failure.incident = std::int64_t(log_at_++);
  failure.node = incident.node;
  failure.repair_ns = incident.repair_ns;
  failure.u_detect = random.unit();
  failure.u_agree = random.unit();
  failure.u_rebuild = random.unit();
  failure.u_restart = random.unit();
  return failure;
}

std::optional<Failure> FailureStream::next(TimeNs horizon_ns) {
  const TimeNs in_log = log_at_ < study_.incidents.size() ? study_.incidents[log_at_].at_ns : runtime::kForever;
  const TimeNs by_chance = due_.empty() ? runtime::kForever : due_.top().at_ns;
  if (std::min(in_log, by_chance) >= horizon_ns) return std::nullopt;
  if (in_log <= by_chance) return of_the_log();
  const Due due = due_.top();
  due_.pop();
  const Failure failure = drawn(due);
  const Cause& cause = study_.causes[std::size_t(due.cause)];
  sim::Random random = draws_of(seed_, cause.name, due.unit, due.number + 1);
  // A unit in repair cannot fail; a job whose node is in repair goes on with another.
  const TimeNs away = cause.unit == Unit::job ? 0 : failure.repair_ns;
  const TimeNs in_service = runtime::shifted(due.at_ns, away);
  const TimeNs again = runtime::shifted(in_service, std::max<TimeNs>(1, hours_ns(gap_hours(study_, cause, random))));
  due_.push({again, due.cause, due.unit, due.number + 1});
  return failure;
}

}  // namespace seeksim::harness::campaign
