#include "runtime/trainer/workbench.h"

#include <utility>

namespace seeksim::runtime {

namespace {
// Where workers train apart each takes the mean over its own samples.
Index samples_of_mean(const Definition& d) { return d.local_sgd.on() ? d.part_samples() : Index(d.global_batch); }
}  // namespace

Workbench::Workbench(Rank& of_rank, const TrainPlan& of_plan, Observer& watching, std::unique_ptr<Planted> bugs)
    : rank(of_rank),
      plan(of_plan),
      observer(watching),
      planted(std::move(bugs)),
      placement(of_plan.layout.zero.placement()),
      scale(samples_of_mean(of_plan.definition) * of_plan.definition.model.context),
      progress(of_plan),
      compute(of_rank.device.compute_queue(), of_rank.id),
      host(of_rank.device.host_queue(), of_rank.id, 0, OpKind::host_compute) {
  rank.gather_rule = plan.layout.parallel.gather_rule.get();
}

void Workbench::stand_at(std::uint32_t epoch, std::int64_t step) {
  compute.at(epoch, step);
  host.at(epoch, step);
}

void Workbench::phase(Phase phase) {
  compute.phase(phase);
  host.phase(phase);
}

Op Workbench::op(OpKind kind, Phase phase, const char* tensor, const char* site) const {
  Op op;
  op.kind = kind;
  op.phase = phase;
  op.rank = rank.id;
  op.step = progress.step();
  op.tensor = tensor;
  op.site = site;
  return op;
}

void Workbench::finish_all(const Op& op, Edge edge, bool files_too) const {
  host_after_all(rank, op, plan.recovery.watchdog_ns, edge, plan.bug, files_too);
}

void Workbench::host_touches(const char* site, const Range& range) const {
  if (range.lo == range.hi) return;
  Op touched = op(OpKind::copy, Phase::commit, range.buffer->name, site);
  touched.bytes = range.hi - range.lo;
  rank.device.host_touches(touched, range);
}

AnyVec Workbench::host_reads(const char* site, AnyVec values) const {
  host_touches(site, values.range(false));
  return values;
}

}  // namespace seeksim::runtime
