// One exchange a step. Everything is on one queue, in this order: compress, exchange, take apart, fold; so the sums may
// lie where a group's own gradient was.
#include "runtime/parts/compressed_reduction.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "kernels/tree.h"
#include "runtime/rules/bugs.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::OwedGradient;
using kernels::TreePart;
using kernels::Vec;
using kernels::WireRun;

kernels::WireForm wire_form(const CompressionPlan& plan) {
  using kernels::Wire;
  switch (plan.method) {
    case Compression::fp16:
      return {Wire::fp16};
    case Compression::int8:
      return {Wire::int8};
    case Compression::sign:
      return {Wire::sign};
    case Compression::top:
      return {Wire::top, plan.top};
    default:
      return {Wire::bf16};
  }
}

std::vector<WireRun> wire_runs(const Parameters& parameters, kernels::WireForm form, ShardInfo shard) {
  std::vector<WireRun> runs;
  Index at = 0;
  for (const ParameterInfo* p : parameters.trainable()) {
    for (Index first = 0; first < p->size; first += p->slab) {
      const ShardInfo slab{p->offset + first, std::min(p->slab, p->size - first)};
      const ShardInfo here = common(slab, shard);
      if (here.size > 0)
        runs.push_back({here.offset, here.size, at + kernels::wire_bytes(form, here.offset - slab.offset)});
      at += kernels::wire_bytes(form, slab.size);
    }
  }
  return runs;
}

namespace {

// Where runs that follow one another begin and end on the wire.
ShardInfo extent(const std::vector<WireRun>& runs, kernels::WireForm form) {
  if (runs.empty()) return {};
  const WireRun& last = runs.back();
  return {runs.front().at, last.at + kernels::wire_bytes(form, last.n) - runs.front().at};
}

}  // namespace

void CompressedReduction::connect(Communicator& comm, const Partition& partition) {
  comm_ = &comm;
  partition_ = &partition;
  const kernels::WireForm form = wire_form(plan_.definition.compression);
  all_ = wire_runs(parameters_, form, {0, parameters_.trainable_size()});
  mine_ = wire_runs(parameters_, form, partition.shard(comm.position()));
  wire_all_ = extent(all_, form).size;
  const Index all = plan_.definition.compression.groups, here = residuals_.groups().size();
  const int me = comm.position();
  const auto make = [&](Index bytes, const char* name) {
    return rank_.device.allocate(std::size_t(std::max<Index>(bytes, 8)), MemoryTag::communication, name);
  };
  memory_.wire = make(here * wire_all_, "compressed gradients");
  memory_.slots = make(all * wire_of(me).size, "compressed shards");
  memory_.values = make(all * partition.shard(me).size * Index(sizeof(float)), "shards of groups");
  memory_.losses = make(all * Index(sizeof(float)), "losses of groups");
  memory_.counts = make((here + 1) * Index(sizeof(std::int64_t)), "unconserved elements");
  if (!plan_.definition.compression.of_momentum()) return;
  memory_.sum = make(wire_all_, "compressed sums");
  own_ = mine_;
  for (WireRun& run : own_) run.offset -= mine_.front().offset, run.at -= mine_.front().at;
}

ShardInfo CompressedReduction::wire_of(int member) const {
  const kernels::WireForm form = wire_form(plan_.definition.compression);
  return extent(wire_runs(parameters_, form, partition_->shard(member)), form);
}

VecView<std::byte> CompressedReduction::wire(Index own_group, ShardInfo bytes) const {
  return {memory_.wire.get(), own_group * wire_all_ + bytes.offset, bytes.size};
}

VecView<const std::int64_t> CompressedReduction::unconserved() const {
  return vec<const std::int64_t>(*memory_.counts, 0, residuals_.groups().size() + (memory_.sum ? 1 : 0));
}

std::int64_t CompressedReduction::elements() const {
  const Index of_sum = memory_.sum ? partition_->shard(comm_->position()).size : 0;
  return residuals_.groups().size() * parameters_.trainable_size() + of_sum;
}

std::int64_t CompressedReduction::bytes() const {
  return residuals_.groups().size() * wire_all_ + (memory_.sum ? wire_of(comm_->position()).size : 0);
}

Launcher CompressedReduction::launcher(std::int64_t step) const {
  Launcher launch(rank_.device.communication_queue(), rank_.id);
  launch.at(comm_->epoch(), step);
  launch.phase(Phase::grad_reduce);
  return launch;
}

Op CompressedReduction::op(OpKind kind, std::int64_t step, const char* tensor) const {
  Op op;
  op.kind = kind;
  op.phase = Phase::grad_reduce;
  op.step = step;
  op.tensor = tensor;
  op.site = SEEKSIM_SITE;
  return op;
}

Op CompressedReduction::reduce(std::int64_t step, std::span<const VecView<const float>> parts, Factors factors,
                               const Momentum& momentum, VecView<float> sums, VecView<float> loss) {
  SEEKSIM_CHECK_EQ(parts.size(), residuals_.groups().size());
  Launcher launch = launcher(step);
  compress(launch, parts, factors.before, momentum);
  list_pieces();
  const Op done = comm_->exchange(launch.queue(), op(OpKind::reduce_scatter, step, "compressed gradients"), pieces_);
  decompress(launch);
  fold(launch, factors, sums, loss);
  return done;
}

Op CompressedReduction::send_back(std::int64_t step, VecView<float> all, float scale) {
  Launcher launch = launcher(step);
  const ShardInfo shard = partition_->shard(comm_->position());
  compress_sum(launch, all.part(shard.offset, shard.size));
  std::vector<ShardInfo> shares;
  for (int member = 0; member < comm_->size(); ++member) shares.push_back(wire_of(member));
  const VecView<std::byte> wire{memory_.sum.get(), 0, wire_all_};
  const Op done = comm_->all_gather(launch.queue(), op(OpKind::all_gather, step, "compressed sums"), wire, shares);
  launch(
      "gradients", SEEKSIM_SITE, memory_cost(2 * all.n, 1),
      [form = wire_form(plan_.definition.compression), runs = std::span<const WireRun>(all_), scale](
          Lane lane, Vec<const std::byte> bytes, Vec<float> values) {
        kernels::decompress(lane, form, runs, bytes, values);
        kernels::scale(lane, values, scale);
      },
      reads(wire), all);
  return done;
}

// This member's shard of the sum of all groups.
void CompressedReduction::compress_sum(Launcher& launch, VecView<float> sum) {
  const kernels::WireForm form = wire_form(plan_.definition.compression);
  const std::span<const WireRun> runs(own_);
  const ShardInfo mine = wire_of(comm_->position());
  const VecView<std::byte> wire{memory_.sum.get(), mine.offset, mine.size};
  const VecView<const float> kept = reads(residuals_.kept_of_sum());
  const VecView<float> rest = residuals_.next_of_sum();
  launch(
      "compressed sums", SEEKSIM_SITE, memory_cost(3 * sum.n, 4),
      [form, runs](Lane lane, Vec<const float> values, Vec<const float> before_it, Vec<std::byte> bytes,
                   Vec<float> left) {
        kernels::compress(lane, form, runs, {values, {}, 1.0F, before_it}, bytes, left);
      },
      reads(sum), kept, wire, rest);
  if (plan_.bug.is(Bug::server_residual_dropped)) {
    launch(
        "residuals of sums", SEEKSIM_SITE, memory_cost(sum.n, 0),
        [](Lane lane, Vec<float> left) { kernels::fill_bits(lane, left, 0); }, rest);
  }
  launch(
      "unconserved elements", SEEKSIM_SITE, memory_cost(3 * sum.n, 4),
      [form, runs](Lane lane, Vec<const float> values, Vec<const float> before_it, Vec<const std::byte> bytes,
                   Vec<const float> left, Vec<std::int64_t> count) {
        kernels::count_unconserved(lane, form, runs, {values, {}, 1.0F, before_it}, bytes, left, count);
      },
      reads(sum), kept, reads(wire), reads(rest), vec<std::int64_t>(*memory_.counts, residuals_.groups().size(), 1));
}

void CompressedReduction::compress(Launcher& launch, std::span<const VecView<const float>> parts, float before,
                                   const Momentum& momentum) {
  const Index n = parameters_.trainable_size(), head = parameters_.shares_head() ? parameters_.wte().size : 0;
  const kernels::WireForm form = wire_form(plan_.definition.compression);
  const std::span<const WireRun> runs(all_);
  const ShardInfo whole{0, wire_all_};
  const float share = momentum.share, of_gradient = momentum.of_gradient;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const VecView<const float> own = parts[i].part(0, n),
                               second = parts[i].part(head > 0 ? parameters_.head_gradient_offset() : 0, head);
    const VecView<const float> kept = reads(residuals_.kept(Index(i)));
    const VecView<float> rest = residuals_.next(Index(i));
    launch(
        "compressed gradients", SEEKSIM_SITE, memory_cost(3 * n, 4),
        [=](Lane lane, Vec<const float> values, Vec<const float> twice, Vec<const float> before_it,
            Vec<const float> moment, Vec<std::byte> wire, Vec<float> left) {
          kernels::compress(lane, form, runs, {values, twice, before, before_it, moment, share, of_gradient}, wire,
                            left);
        },
        own, second, kept, momentum.before, wire(Index(i), whole), rest);
    if (plan_.bug.is(Bug::residual_dropped)) {
      launch(
          "residuals", SEEKSIM_SITE, memory_cost(n, 0),
          [](Lane lane, Vec<float> left) { kernels::fill_bits(lane, left, 0); }, rest);
    }
    launch(
        "unconserved elements", SEEKSIM_SITE, memory_cost(3 * n, 4),
        [=](Lane lane, Vec<const float> values, Vec<const float> twice, Vec<const float> before_it,
            Vec<const float> moment, Vec<const std::byte> wire, Vec<const float> left, Vec<std::int64_t> count) {
          kernels::count_unconserved(lane, form, runs, {values, twice, before, before_it, moment, share, of_gradient},
                                     wire, left, count);
        },
        own, second, kept, momentum.before, reads(wire(Index(i), whole)), reads(rest),
        vec<std::int64_t>(*memory_.counts, Index(i), 1));
    launch(
        "loss", SEEKSIM_SITE, memory_cost(2, 0),
        [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy(lane, x, y); },
        parts[i].part(parameters_.loss_offset(), 1),
        vec<float>(*memory_.losses, residuals_.groups().begin + Index(i), 1));
  }
}

// Each group's part of another member's shard goes to that member, and the group's loss; theirs come.
void CompressedReduction::list_pieces() {
  const int me = comm_->position();
  const ShardInfo mine = wire_of(me);
  const SampleRange here = residuals_.groups();
  pieces_.clear();
  const auto piece = [&](int member, bool send, const Range& range) {
    if (range.lo < range.hi)
      pieces_.push_back(
          {comm_->members()[std::size_t(member)], send, range.buffer, range.lo, range.hi, nullptr, range.type});
  };
  for (int member = 0; member < comm_->size(); ++member) {
    if (member == me) continue;
    const SampleRange theirs = Residuals::groups_of(plan_.definition.compression, comm_->size(), member);
    for (Index group = theirs.begin; group < theirs.end; ++group) {
      piece(member, false, VecView<std::byte>{memory_.slots.get(), group * mine.size, mine.size}.range());
      piece(member, false, vec<float>(*memory_.losses, group, 1).range());
    }
    for (Index group = here.begin; group < here.end; ++group) {
      piece(member, true, reads(wire(group - here.begin, wire_of(member))).range());
      piece(member, true, vec<const float>(*memory_.losses, group, 1).range());
    }
  }
}

void CompressedReduction::decompress(Launcher& launch) {
  const int me = comm_->position();
  const ShardInfo mine = wire_of(me), shard = partition_->shard(me);
  if (shard.size == 0) return;
  const SampleRange here = residuals_.groups();
  for (Index group = 0; group < plan_.definition.compression.groups; ++group) {
    const bool own = group >= here.begin && group < here.end;
    const VecView<std::byte> from =
        own ? wire(group - here.begin, mine) : VecView<std::byte>{memory_.slots.get(), group * mine.size, mine.size};
    launch(
        "gradients", SEEKSIM_SITE, memory_cost(2 * shard.size, 1),
        [form = wire_form(plan_.definition.compression), runs = std::span<const WireRun>(mine_)](
            Lane lane, Vec<const std::byte> wire, Vec<float> values) {
          kernels::decompress(lane, form, runs, wire, values);
        },
        reads(from), vec<float>(*memory_.values, group * shard.size, shard.size));
  }
}

void CompressedReduction::fold(Launcher& launch, Factors factors, VecView<float> sums, VecView<float> loss) const {
  const Index groups = plan_.definition.compression.groups;
  const auto fold_groups = [&](const char* tensor, const BufferPtr& from, float factor, VecView<float> out) {
    if (out.n == 0) return;
    launch(
        tensor, SEEKSIM_SITE, memory_cost((groups + 1) * out.n),
        [groups, factor](Lane lane, Vec<const float> values, Vec<float> sum) {
          std::vector<TreePart> parts;
          for (Index group = 0; group < groups; ++group) parts.push_back({{0, group}, values.data + group * sum.n});
          kernels::tree_sum(lane, parts.data(), groups, groups, sum, factor);
        },
        vec<const float>(*from, 0, groups * out.n), out);
  };
  fold_groups("gradients", memory_.values, factors.after, sums);
  fold_groups("loss", memory_.losses, factors.at_loss, loss);
}

}  // namespace seeksim::runtime
