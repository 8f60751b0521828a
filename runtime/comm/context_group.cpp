#include "runtime/comm/context_group.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/pointwise.h"
#include "kernels/slabs.h"
#include "runtime/layout/gpt2_parameters.h"
#include "runtime/rules/bugs.h"
#include "runtime/seams/edges.h"

namespace seeksim::runtime {

using kernels::Lane;
using kernels::Mat;
using kernels::Stretch;
using kernels::Vec;

ContextShape context_shape(const TrainPlan& plan, const Parameters& parameters, Index samples_max) {
  const ModelShape model(plan.definition.model);
  ContextShape shape;
  shape.samples_max = samples_max;
  shape.cut = context_cut(plan.definition.model, plan.layout.parallel);
  shape.columns = model.Q;
  shape.gradients = 2 * model.C;  // weight and bias of a norm
  for (const ParameterInfo* p : parameters.trainable()) shape.gradients = std::max(shape.gradients, p->size);
  shape.type = plan.definition.precision.compute;
  if (plan.layout.parallel.ring_attention)
    shape.ring = RingShape{samples_max, shape.cut, model.H, model.D, model.G, shape.type};
  return shape;
}

ContextGroup::ContextGroup(Device& device, const ContextShape& shape, int me, const PlantedBug& bug)
    : shape_(shape), me_(me), bug_(bug) {
  const ContextCut& cut = shape.cut;
  const Index samples = shape.samples_max, part = (shape.gradients + cut.ranks - 1) / cut.ranks;
  const auto floats = [&](MemoryTag tag, const char* name, Index n) {
    return device.allocate(std::size_t(n) * sizeof(float), tag, name);
  };
  nodes_ =
      floats(MemoryTag::communication, "gradients of own chunks", cut.chunks_of_rank() * samples * shape.gradients);
  if (shape.ring)
    ring_.emplace(device, *shape.ring, me, bug);
  else
    packed_ = device.allocate(std::size_t(samples * cut.size() * shape.columns) * size_of(shape.type),
                              MemoryTag::scratch, "rows of own tokens by heads");
  slices_ = floats(MemoryTag::scratch, "gradients of all chunks", cut.chunks() * samples * part);
}

void ContextGroup::connect(Rank& rank, std::uint32_t epoch, std::vector<int> members, TimeNs timeout_ns, int group) {
  comm_.emplace(rank, Axis::context, epoch, std::move(members), timeout_ns, group);
  SEEKSIM_CHECK_EQ(comm_->size(), ranks());
  SEEKSIM_CHECK_EQ(comm_->position(), me_);
  queue_ = &rank.device.message_queue(MessageQueue::context);
}

RingAttention::Link ContextGroup::link() {
  SEEKSIM_CHECK(comm_.has_value(), "rank %d of a context group of %d is not connected", me_, ranks());
  return {*comm_, *queue_};
}

Index ContextGroup::in_sample(Index sample, int rank, int i) const {
  const ContextCut& cut = shape_.cut;
  const bool by_rank = bug_.is(Bug::context_rows_by_rank);
  const int chunk = by_rank ? rank * cut.chunks_of_rank() + i : cut.chunk(rank, i);
  return sample * cut.tokens + chunk * cut.chunk_size();
}

Index ContextGroup::in_rank(Index samples, Index sample, int i) const {
  return (i * samples + sample) * shape_.cut.chunk_size();
}

// ---- exchanges -----------------------------------------------------------------------------------------------------

template <class T>
void ContextGroup::add(int rank, bool send, VecView<T> values) {
  const Range r = values.range();
  if (r.lo < r.hi)
    pieces_.push_back({comm_->members()[std::size_t(rank)], send, r.buffer, r.lo, r.hi, nullptr, r.type});
}

// What the pieces say, after what is enqueued on the compute queue; what is enqueued there from now on comes after it.
void ContextGroup::exchange(Launcher& launch, OpKind kind, const char* tensor, const char* site) {
  SEEKSIM_CHECK(comm_.has_value(), "rank %d of a context group of %d is not connected", me_, ranks());
  Op op = launch.last();
  op.kind = kind;
  op.tensor = tensor;
  op.site = site;
  after(*queue_, launch.queue().record(), Edge::context_part_made, bug_);
  comm_->exchange(*queue_, op, pieces_);
  pieces_.clear();
  after(launch.queue(), queue_->record(), Edge::context_part_arrived, bug_);
}

namespace {

// Rows [first, first + count) of a matrix without gaps.
template <class T>
VecView<T> flat_rows(MatView<T> m, Index first, Index count) {
  return {m.buffer, m.offset + first * m.stride, count * m.cols};
}

}  // namespace

template <class S>
void ContextGroup::to_heads(Launcher& launch, const char* tensor, const char* site, Index samples,
                            MatView<const S> rows, MatView<S> heads) {
  if (launch.muted()) return;
  const Index n = rows.rows, columns = heads.cols, size = shape_.cut.chunk_size();
  launch(
      tensor, site, memory_cost(2 * n * rows.cols, 0),
      [columns](Lane lane, Mat<const S> from, Mat<S> to) {
        for (Index r = 0; r < from.rows; ++r) {
          for (Index way = 0; way < from.cols / columns; ++way)
            kernels::copy<S>(lane, {from.row(r) + way * columns, columns}, {to.row(way * from.rows + r), columns});
        }
      },
      rows, packed<S>(0, ranks() * n, columns));
  for (int rank = 0; rank < ranks(); ++rank) {
    for (int i = 0; i < shape_.cut.chunks_of_rank(); ++i) {
      for (Index sample = 0; sample < samples; ++sample) {
        const VecView<S> out = flat_rows(packed<S>(rank, n, columns), in_rank(samples, sample, i), size);
        const VecView<S> in = flat_rows(heads, in_sample(sample, rank, i), size);
        if (rank == me_) {
          launch(
              tensor, site, memory_cost(2 * out.n, 0),
              [](Lane lane, Vec<const S> x, Vec<S> y) { kernels::copy<S>(lane, x, y); }, reads(out), in);
          continue;
        }
        add(rank, true, reads(out));
        add(rank, false, in);
      }
    }
  }
  exchange(launch, OpKind::all_to_all, tensor, site);
}

template <class S>
void ContextGroup::to_rows(Launcher& launch, const char* tensor, const char* site, Index samples,
                           MatView<const S> heads, MatView<S> rows) {
  if (launch.muted()) return;
  const Index n = rows.rows, columns = heads.cols, size = shape_.cut.chunk_size();
  for (int rank = 0; rank < ranks(); ++rank) {
    for (int i = 0; i < shape_.cut.chunks_of_rank(); ++i) {
      for (Index sample = 0; sample < samples; ++sample) {
        const VecView<const S> out = flat_rows(heads, in_sample(sample, rank, i), size);
        const VecView<S> in = flat_rows(packed<S>(rank, n, columns), in_rank(samples, sample, i), size);
        if (rank == me_) {
          launch(
              tensor, site, memory_cost(2 * out.n, 0),
              [](Lane lane, Vec<const S> x, Vec<S> y) { kernels::copy<S>(lane, x, y); }, out, in);
          continue;
        }
        add(rank, true, out);
        add(rank, false, in);
      }
    }
  }
  exchange(launch, OpKind::all_to_all, tensor, site);
  const int off = bug_.is(Bug::context_heads_of_another) ? 1 : 0;
  launch(
      tensor, site, memory_cost(2 * n * rows.cols, 0),
      [columns, off](Lane lane, Mat<const S> from, Mat<S> to) {
        const Index ways = to.cols / columns;
        for (Index r = 0; r < to.rows; ++r) {
          for (Index way = 0; way < ways; ++way)
            kernels::copy<S>(lane, {from.row((way + off) % ways * to.rows + r), columns},
                             {to.row(r) + way * columns, columns});
        }
      },
      reads(packed<S>(0, ranks() * n, columns)), rows);
}

void ContextGroup::gather_values(Launcher& launch, const char* tensor, const char* site, Index samples,
                                 VecView<const float> own, VecView<float> all) {
  if (launch.muted()) return;
  const Index size = shape_.cut.chunk_size();
  const bool copies_own = bug_.is(Bug::context_loss_of_own_tokens);
  for (int rank = 0; rank < ranks(); ++rank) {
    for (int i = 0; i < shape_.cut.chunks_of_rank(); ++i) {
      for (Index sample = 0; sample < samples; ++sample) {
        const VecView<const float> mine = own.part(in_rank(samples, sample, i), size);
        const VecView<float> theirs = all.part(in_sample(sample, rank, i), size);
        if (rank == me_ || copies_own) {
          launch(
              tensor, site, memory_cost(2 * size, 0),
              [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy<float>(lane, x, y); }, mine, theirs);
          continue;
        }
        add(rank, true, mine);
        add(rank, false, theirs);
      }
    }
  }
  if (!copies_own) exchange(launch, OpKind::all_gather, tensor, site);
}

// ---- gradients -----------------------------------------------------------------------------------------------------

// As if the other ranks had no tokens.
void ContextGroup::sum_own_nodes(Launcher& launch, const char* tensor, const char* site, Index samples, Index n,
                                 std::span<const Block> blocks) {
  const MatView<const float> all = mat<const float>(*nodes_, 0, shape_.cut.chunks_of_rank(), samples * n);
  for (const Block& block : blocks) {
    const MatView<const float> own{all.buffer, block.first * n, all.rows, block.count * n, all.stride};
    launch(
        tensor, site, memory_cost(own.rows * own.cols),
        [](Lane lane, Mat<const float> chunks, Vec<float> sum) { kernels::add_samples(lane, chunks, sum); }, own,
        block.out);
  }
}

void ContextGroup::sum_nodes(Launcher& launch, const char* tensor, const char* site, Index samples, Index n,
                             std::span<const Block> blocks) {
  if (launch.muted() || blocks.empty()) return;
  if (bug_.is(Bug::context_gradients_of_own_tokens)) return sum_own_nodes(launch, tensor, site, samples, n, blocks);
  const ContextCut& cut = shape_.cut;
  const Stretch mine = slice(n, me_);
  const Index stride = samples * mine.size;
  const auto place = [&](int rank, int i, Index sample) {  // of a chunk's node, as far as it is this rank's to sum
    return vec<float>(*slices_, cut.chunk(rank, i) * stride + sample * mine.size, mine.size);
  };
  for (int rank = 0; rank < ranks(); ++rank) {
    const Stretch theirs = slice(n, rank);
    for (int i = 0; i < cut.chunks_of_rank(); ++i) {
      for (Index sample = 0; sample < samples; ++sample) {
        const VecView<const float> own = reads(node(samples, i, sample, n).part(theirs.first, theirs.size));
        if (rank != me_) {
          add(rank, true, own);
          add(rank, false, place(rank, i, sample));
        } else if (mine.size > 0) {
          launch(
              tensor, site, memory_cost(2 * own.n, 0),
              [](Lane lane, Vec<const float> x, Vec<float> y) { kernels::copy<float>(lane, x, y); }, own,
              place(rank, i, sample));
        }
      }
    }
  }
  exchange(launch, OpKind::reduce_scatter, tensor, site);
  for (const Block& block : blocks) {
    if (mine.size == 0) break;
    const MatView<const float> chunks{slices_.get(), block.first * mine.size, cut.chunks(), block.count * mine.size,
                                      stride};
    const bool averages = bug_.is(Bug::context_gradients_averaged);
    launch(
        tensor, site, memory_cost(chunks.rows * chunks.cols),
        [factor = averages ? 1.0f / float(ranks()) : 1.0f](Lane lane, Mat<const float> nodes, Vec<float> sum) {
          kernels::add_samples(lane, nodes, sum);
          if (factor != 1.0f) kernels::scale(lane, sum, factor);
        },
        chunks, block.out.part(mine.first, mine.size));
  }
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == me_) continue;
    const Stretch theirs = slice(n, rank);
    for (const Block& block : blocks) {
      add(rank, true, reads(block.out.part(mine.first, mine.size)));
      add(rank, false, block.out.part(theirs.first, theirs.size));
    }
  }
  exchange(launch, OpKind::group_gather, tensor, site);
}

#define SEEKSIM_CONTEXT_GROUP_OF(S)                                                                                  \
  template void ContextGroup::to_heads<S>(Launcher&, const char*, const char*, Index, MatView<const S>, MatView<S>); \
  template void ContextGroup::to_rows<S>(Launcher&, const char*, const char*, Index, MatView<const S>, MatView<S>);
SEEKSIM_CONTEXT_GROUP_OF(float)
SEEKSIM_CONTEXT_GROUP_OF(kernels::bf16)
SEEKSIM_CONTEXT_GROUP_OF(kernels::fp16)
#undef SEEKSIM_CONTEXT_GROUP_OF

}  // namespace seeksim::runtime
