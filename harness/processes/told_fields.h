// Which fields of what ranks tell travel between processes, and in which order (runtime/backend/wire/bytes.h). A new
// field of one of these structs goes here too: tests/harness/processes/told_test.cpp holds what is read back against
// what was told.
#pragma once

#include "harness/processes/rank_report.h"
#include "runtime/backend/wire/bytes.h"

namespace seeksim::runtime {

template <class A>
void fields(A& a, Op& op) {
  a(op.kind, op.phase, op.axis, op.epoch, op.rank, op.peer, op.micro_batch, op.layer, op.step, op.sequence, op.bytes,
    op.sample, op.samples, op.tensor, op.site);
}
template <class A>
void fields(A& a, StepRecord& r) {
  a(r.step, r.loss, r.grad_norm, r.lr, r.loss_scale, r.nonfinite, r.skipped, r.committed_ns, r.epoch, r.data_position,
    r.optimizer_steps);
}
template <class A>
void fields(A& a, AuditTally& t) {
  a(t.ops, t.elements, t.over, t.worst, t.worst_op);
}
template <class A>
void fields(A& a, OverBound& o) {
  a(o.op, o.what, o.rows, o.columns, o.terms, o.over, o.at.row, o.at.column, o.at.exact, o.at.fast, o.at.bound,
    o.at.ratio);
}
template <class A>
void fields(A& a, AuditReport& r) {
  a(r.products, r.sums, r.first);
}
template <class A>
void fields(A& a, Diagnosis& d) {
  a(d.verdict, d.culprits, d.links, d.op, d.sequence, d.first_detected_ns, d.text);
}
template <class A>
void fields(A& a, RecoveryRecord& r) {
  a(r.epoch, r.step, r.error, r.op, r.detail, r.diagnosis, r.dead, r.silent, r.evicted, r.survivors, r.detected_ns,
    r.agreed_ns, r.rebuilt_ns, r.resumed_ns, r.steps_lost, r.layout);
}
template <class A>
void fields(A& a, CheckpointRecord& c) {
  a(c.step, c.complete, c.why, c.began_ns, c.snapshot_ns, c.ended_ns, c.bytes);
}
template <class A>
void fields(A& a, ZeroPlan& z) {
  a(z.stage, z.reduce_bucket_elements, z.allgather_bucket_elements, z.overlap_comm, z.contiguous_gradients,
    z.reduce_scatter, z.round_robin_gradients, z.sub_group_elements, z.prefetch_elements,
    z.persistence_threshold_elements, z.max_live_parameters, z.max_reuse_distance);
}
template <class A>
void fields(A& a, OffloadOptimizerPlan& o) {
  a(o.home, o.nvme_path, o.pin_memory, o.buffer_count, o.pipeline_read, o.pipeline_write, o.ratio);
}
template <class A>
void fields(A& a, OffloadParamPlan& o) {
  a(o.home, o.nvme_path, o.pin_memory, o.buffer_count, o.buffer_elements, o.max_in_cpu);
}
template <class A>
void fields(A& a, AioPlan& p) {
  a(p.block_bytes, p.queue_depth, p.threads, p.single_submit, p.overlap_events);
}
template <class A>
void fields(A& a, OffloadPlan& o) {
  a(o.optimizer, o.parameters, o.aio);
}
template <class A>
void fields(A& a, CheckpointingPlan& c) {
  a(c.every, c.layers, c.on_host);
}
template <class A>
void fields(A& a, ParallelPlan& p) {
  a(p.pipeline, p.tensor, p.sequence_parallel, p.schedule, p.virtual_stages, p.layers);
}
template <class A>
void fields(A& a, Layout& l) {
  a(l.micro_batch, l.zero, l.offload, l.checkpointing, l.parallel);
}
template <class A>
void fields(A& a, RerunFind& f) {
  a(f.micro_batch, f.parameter);
}
template <class A>
void fields(A& a, RerunRecord& r) {
  a(r.step, r.epoch, r.micro_batches, r.ranges, r.differs, r.nonfinite);
}
template <class A>
void fields(A& a, ReplicaRecord& r) {
  a(r.step, r.part, r.epoch, r.training_seed, r.lr, r.loss_scale, r.optimizer_steps, r.data_position, r.parameters,
    r.ways, r.on_all_ways, r.own, r.copies);
}
template <class A>
void fields(A& a, ShardInfo& s) {
  a(s.offset, s.size);
}
template <class A>
void fields(A& a, ShardRecord& s) {
  a(s.epoch, s.part, s.members, s.position, s.own, s.elements, s.gradients, s.copies);
}
template <class A>
void fields(A& a, PipelineRecord& p) {
  a(p.epoch, p.stage, p.micro_batches, p.in_flight);
}
template <class A>
void fields(A& a, StragglerRecord& s) {
  a(s.step, s.rank, s.score, s.steps, s.leaves);
}
template <class A>
void fields(A& a, DivergenceRecord& d) {
  a(d.step, d.what, d.value, d.mean);
}
template <class A>
void fields(A& a, StateDigest& s) {
  a(s.params, s.optimizer, s.data_position, s.optimizer_steps, s.loss_scale, s.by_tensor);
}
template <class A>
void fields(A& a, NamedTensor& t) {
  a(t.name, t.shape, t.values);
}

}  // namespace seeksim::runtime

namespace seeksim::kernels {

template <class A>
void fields(A& a, Stagnation& s) {
  a(s.changes, s.lost);
}

}  // namespace seeksim::kernels

namespace seeksim::sim {

template <class A>
void fields(A& a, CommUse& u) {
  a(u.calls, u.bytes_sent_per_rank_max);
}

}  // namespace seeksim::sim

namespace seeksim::faults {

template <class A>
void fields(A& a, RuleStatus& s) {
  a(s.kind, s.text, s.fired, s.first_fired_ns, s.fired_ns, s.ranks, s.first_op);
}

}  // namespace seeksim::faults

namespace seeksim::harness {

template <class A>
void fields(A& a, Event& e) {
  a(e.at_ns, e.rank, e.text);
}

template <class A>
void fields(A& a, Note& n) {
  a(n.steps, n.body);
}
template <class A>
void fields(A& a, RankRecord& r) {
  a(r.how, r.why, r.steps_committed, r.state, r.layout);
}
template <class A>
void fields(A& a, RankReport::Memory& m) {
  a(m.peak_by_tag, m.at_peak, m.peak);
}
template <class A>
void fields(A& a, FastAudit& f) {
  a(f.report, f.products_through_host);
}
template <class A>
void fields(A& a, RankReport& r) {
  a(r.record, r.fingerprint, r.ended_ns, r.comm, r.device, r.host, r.pinned, r.compared, r.mismatches, r.final_weights,
    r.faults, r.own_faults_fired, r.events, r.notes, r.audit);
}

}  // namespace seeksim::harness
